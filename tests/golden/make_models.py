# SPDX-License-Identifier: Apache-2.0
"""Trains networks with PyTorch and writes what the parity test needs. Needs PyTorch and torchvision.

    make_models.py                  writes the small golden cases beside this file
    make_models.py --full FOLDER    writes ResNet-18 and Swin-T of torchvision, a large MLP, a larger GPT and BERT,
                                    for scripts/parity_torch

A case is one safetensors file: the start values ("weights.NAME", "buffers.NAME"), batches ("x", "labels", and "source",
padded with 0, where a network translates), the losses of
each step in double and single precision ("losses.f64", "losses.f32"), and the gradients of the first step in double
precision ("grads.NAME"). Tensors have PyTorch's layout; the metadata tells the model, the optimizer, and how far
PyTorch's own gradients in single precision lie from those in double ("grads_f32_distance").

The test compares single precision with double. That asks for cases in which PyTorch's own single precision stays close:
where rounding opens or closes a ReLU, the two sides train on with different gradients. With --seed other starts are
tried; what is printed tells whether a case will do.
"""

import argparse
import json
import pathlib
import struct

import torch
import torch.nn.functional as functional
import torchvision
from torch import nn

STEPS = 50


class BasicBlock(nn.Module):
    """As torchvision's, without its fixed widths."""

    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = None
        if stride != 1 or channels != width:
            self.downsample = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        y = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(y + (self.downsample(x) if self.downsample else x))


class Bottleneck(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.downsample = None
        if stride != 1 or channels != 4 * width:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x):
        y = functional.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(functional.relu(self.bn2(self.conv2(y)))))
        return functional.relu(y + (self.downsample(x) if self.downsample else x))


class SmallResNet(nn.Module):
    def __init__(self, blocks, bottleneck, stem, width, in_channels, classes):
        super().__init__()
        small = stem == "small"
        self.conv1 = nn.Conv2d(in_channels, width, *((3, 1, 1) if small else (7, 2, 3)), bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.pool = nn.Identity() if small else nn.MaxPool2d(3, 2, 1)
        self.stages = []
        channels = width
        for i, count in enumerate(blocks):
            stage = nn.Sequential()
            for j in range(count):
                stage.append((Bottleneck if bottleneck else BasicBlock)(channels, width << i, 2 if i and not j else 1))
                channels = (width << i) * (4 if bottleneck else 1)
            self.add_module(f"layer{i + 1}", stage)
            self.stages.append(stage)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        y = self.pool(functional.relu(self.bn1(self.conv1(x))))
        for stage in self.stages:
            y = stage(y)
        return self.fc(y.mean((2, 3)))


class Mlp(nn.Module):
    def __init__(self, features, hidden, classes):
        super().__init__()
        sizes = [features, *hidden, classes]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = functional.gelu(layer(x))
        return self.layers[-1](x)


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(width, 3 * width), "c_proj": nn.Linear(width, width)})
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})

    def attention(self, x):
        n, t, c = x.shape
        q, k, v = self.attn["c_attn"](x).view(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.attn["c_proj"](y.transpose(1, 2).reshape(n, t, c))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.mlp["c_proj"](functional.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """GPT-2 with plain linear layers."""

    def __init__(self, vocabulary, context, layers, heads, width):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(context, width)
        self.h = nn.Sequential(*(GptBlock(width, heads) for _ in range(layers)))
        self.ln_f = nn.LayerNorm(width)
        for table in (self.wte, self.wpe):
            nn.init.normal_(table.weight, std=0.1)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        return functional.linear(self.ln_f(self.h(x)), self.wte.weight)


class BertLayer(nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.heads = heads
        dense = lambda inputs, outputs: nn.ModuleDict({"dense": nn.Linear(inputs, outputs)})
        ending = lambda inputs: nn.ModuleDict(
            {"dense": nn.Linear(inputs, width), "LayerNorm": nn.LayerNorm(width, eps=1e-12)}
        )
        query_key_value = nn.ModuleDict({"qkv": nn.Linear(width, 3 * width)})
        self.attention = nn.ModuleDict({"self": query_key_value, "output": ending(width)})
        self.intermediate, self.output = dense(width, hidden), ending(hidden)

    def forward(self, x, seen):
        heads = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.attention["self"]["qkv"](x).chunk(3, -1))
        y = functional.scaled_dot_product_attention(*heads, attn_mask=seen[:, None, None, :])
        end = self.attention["output"]
        x = end["LayerNorm"](x + end["dense"](y.transpose(1, 2).flatten(-2)))
        y = functional.gelu(self.intermediate["dense"](x))
        return self.output["LayerNorm"](x + self.output["dense"](y))


class Bert(nn.Module):
    """BERT for masked texts with its published names, but for one matrix of query, key and value."""

    def __init__(self, vocabulary, context, layers, heads, width, hidden):
        super().__init__()
        self.embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(vocabulary, width),
                "position_embeddings": nn.Embedding(context, width),
                "token_type_embeddings": nn.Embedding(2, width),
                "LayerNorm": nn.LayerNorm(width, eps=1e-12),
            }
        )
        for name in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
            nn.init.normal_(self.embeddings[name].weight, std=0.3)
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(BertLayer(width, heads, hidden) for _ in range(layers))})
        transform = nn.ModuleDict({"dense": nn.Linear(width, width), "LayerNorm": nn.LayerNorm(width, eps=1e-12)})
        self.cls = nn.ModuleDict({"predictions": nn.ModuleDict({"transform": transform})})
        self.cls["predictions"].register_parameter("bias", nn.Parameter(torch.zeros(vocabulary)))

    def forward(self, ids):
        table = self.embeddings
        words = table["word_embeddings"].weight
        x = table["word_embeddings"](ids) + table["token_type_embeddings"].weight[0]
        x = table["LayerNorm"](x + table["position_embeddings"].weight[: ids.shape[1]])
        for layer in self.encoder["layer"]:
            x = layer(x, ids != 0)
        head = self.cls["predictions"]["transform"]
        x = head["LayerNorm"](functional.gelu(head["dense"](x)))
        return functional.linear(x, words, self.cls["predictions"].bias)


class Attention(nn.Module):
    """Named as Hearth's: one projection for self attention; a query and a key-value one across."""

    def __init__(self, width, heads, causal, across):
        super().__init__()
        self.heads, self.causal = heads, causal
        if across:
            self.q_proj, self.kv_proj = nn.Linear(width, width), nn.Linear(width, 2 * width)
        else:
            self.in_proj = nn.Linear(width, 3 * width)
        self.out_proj = nn.Linear(width, width)

    def forward(self, x, memory=None, seen=None):
        q, k, v = self.in_proj(x).chunk(3, -1) if memory is None else (self.q_proj(x), *self.kv_proj(memory).chunk(2, -1))
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        mask = None if seen is None else seen[:, None, None, :]
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal)
        return self.out_proj(y.transpose(1, 2).flatten(-2))


class TransformerLayer(nn.Module):
    def __init__(self, width, heads, hidden, norm, decodes):
        super().__init__()
        self.before = norm == "before"
        self.self_attn = Attention(width, heads, decodes, False)
        if decodes:
            self.multihead_attn = Attention(width, heads, False, True)
        self.linear1, self.linear2 = nn.Linear(width, hidden), nn.Linear(hidden, width)
        for i in range(3 if decodes else 2):
            self.add_module(f"norm{i + 1}", nn.LayerNorm(width))

    def added(self, norm, x, f):
        return x + f(norm(x)) if self.before else norm(x + f(x))

    def forward(self, x, seen, memory=None):
        feed = lambda y: self.linear2(functional.relu(self.linear1(y)))
        if memory is None:
            x = self.added(self.norm1, x, lambda y: self.self_attn(y, seen=seen))
            return self.added(self.norm2, x, feed)
        x = self.added(self.norm1, x, self.self_attn)
        x = self.added(self.norm2, x, lambda y: self.multihead_attn(y, memory, seen))
        return self.added(self.norm3, x, feed)


class Transformer(nn.Module):
    def __init__(self, source_vocabulary, vocabulary, context, layers, decoder_layers, heads, width, hidden, norm):
        super().__init__()
        self.source_tokens, self.tokens = nn.Embedding(source_vocabulary, width), nn.Embedding(vocabulary, width)
        angles = torch.arange(context)[:, None] * 10000.0 ** (-(torch.arange(width) // 2 * 2) / width)
        even = torch.arange(width) % 2 == 0
        self.register_buffer("positions", torch.where(even, angles.sin(), angles.cos()))
        self.encoder = nn.ModuleList(TransformerLayer(width, heads, hidden, norm, False) for _ in range(layers))
        self.decoder = nn.ModuleList(TransformerLayer(width, heads, hidden, norm, True) for _ in range(decoder_layers))
        if norm == "before":
            self.encoder_norm, self.decoder_norm = nn.LayerNorm(width), nn.LayerNorm(width)

    def embed(self, table, ids):
        return table(ids) * table.weight.shape[1] ** 0.5 + self.positions[: ids.shape[1]]

    def forward(self, pair):
        source, target = pair
        seen = source != 0
        x = self.embed(self.source_tokens, source)
        for layer in self.encoder:
            x = layer(x, seen)
        x = self.encoder_norm(x) if hasattr(self, "encoder_norm") else x
        y = self.embed(self.tokens, target)
        for layer in self.decoder:
            y = layer(y, seen, x)
        y = self.decoder_norm(y) if hasattr(self, "decoder_norm") else y
        return functional.linear(y, self.tokens.weight)


def write_safetensors(path, tensors, metadata):
    kinds = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64"}
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header, begin = {"__metadata__": metadata}, 0
    for name in order:
        size = tensors[name].numel() * tensors[name].element_size()
        kind, shape = kinds[tensors[name].dtype], list(tensors[name].shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [begin, begin + size]}
        begin += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            file.write(tensors[name].contiguous().numpy().tobytes())
    print(path, pathlib.Path(path).stat().st_size, "bytes")


def train(model, state, dtype, source, x, labels, optimizer_options):
    model.load_state_dict(state)
    model.to(dtype).train()
    options = {key: value for key, value in optimizer_options.items() if key not in ("type", "decay_norm_bias")}
    kind = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[optimizer_options["type"]]
    optimizer = kind(model.parameters(), **options)
    losses, first = [], {}
    for step in range(STEPS):
        batch = step % x.shape[0]
        given = x[batch].to(dtype) if x.is_floating_point() else x[batch]
        logits = model(given if source is None else (source[batch], given))
        loss = functional.cross_entropy(logits.flatten(0, -2), labels[batch].flatten())
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            first = {name: value.grad.clone() for name, value in model.named_parameters()}
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64), first


def write_case(path, model, x, labels, model_options, optimizer_options, source=None):
    state = {name: value.clone() for name, value in model.state_dict().items()}
    exact, grads = train(model, state, torch.float64, source, x, labels, optimizer_options)
    single, single_grads = train(model, state, torch.float32, source, x, labels, optimizer_options)
    distance = max(
        ((single_grads[name].double() - value).abs().max() / value.abs().max()).item() for name, value in grads.items()
    )
    relative = abs(single[-1] / exact[-1] - 1)
    print(f"loss {exact[0]:.6f} -> {exact[-1]:.6f}; f32 from f64: loss {relative:.1e}, first gradients {distance:.1e}")
    # Images go to the axis order that Hearth computes in.
    tensors = {"x": x.permute(0, 1, 3, 4, 2) if x.dim() == 5 else x, "labels": labels}
    tensors |= {} if source is None else {"source": source}
    tensors |= {"losses.f64": exact, "losses.f32": single}
    trained = {name for name, _ in model.named_parameters()}
    for name, value in state.items():
        if not name.endswith(("num_batches_tracked", "relative_position_index")):
            tensors[("weights." if name in trained else "buffers.") + name] = value
    # Single precision is ample for a comparison to 1e-5 of the largest gradient.
    tensors |= {f"grads.{name}": value.float() for name, value in grads.items()}
    metadata = {
        "model": json.dumps(model_options),
        "optimizer": json.dumps(optimizer_options),
        "grads_f32_distance": json.dumps(distance),
        "made_with": f"torch {torch.__version__}",
    }
    write_safetensors(path, tensors, metadata)


def images(batches, count, side, channels, classes):
    labels = torch.randint(classes, (batches, count))
    return torch.randn(batches, count, channels, side, side), labels


SGD = {"type": "sgd", "lr": 0.02, "momentum": 0.9, "weight_decay": 5e-4, "decay_norm_bias": True}
ADAMW = {"type": "adamw", "lr": 1e-3, "weight_decay": 0.01, "decay_norm_bias": True}


def small_resnet(path, batches, count, side, channels, optimizer, **options):
    options = {"in_channels": channels, "classes": 10} | options
    model = SmallResNet(**options)
    x, labels = images(batches, count, side, channels, 10)
    write_case(path, model, x, labels, {"type": "resnet"} | options, optimizer)


def mlp(path, batches, count, features, hidden, optimizer):
    x, labels = torch.randn(batches, count, features), torch.randint(10, (batches, count))
    options = {"type": "mlp", "hidden": hidden, "activation": "gelu"}
    write_case(path, Mlp(features, hidden, 10), x, labels, options, optimizer)


def gpt(path, batches, count, tokens, optimizer, **options):
    x = torch.randint(options["vocabulary"], (batches, count, tokens + 1))
    # Every second token follows from the one before, so that there is something to learn.
    x[..., 1::2] = (x[..., 0:-1:2] * 5 + 3)[..., : x[..., 1::2].shape[-1]] % options["vocabulary"]
    model_options = {"type": "gpt", "dropout": 0} | options
    write_case(path, Gpt(**options), x[..., :-1].clone(), x[..., 1:].clone(), model_options, optimizer)


def bert(path, batches, count, tokens, optimizer, **options):
    """Each text counts up from its first id; id 1 masks some, which are to be guessed, and 0 fills rows up."""
    model = Bert(**options)
    ids = options["vocabulary"] - 2
    x = (torch.randint(ids, (batches, count, 1)) + torch.arange(tokens)) % ids + 2
    there = torch.arange(tokens) < torch.randint(4, tokens + 1, (batches, count, 1))
    guessed = there & ((torch.rand(x.shape) < 0.3) | (torch.arange(tokens) == 1))
    labels = torch.where(guessed, x, -100)
    x = torch.where(there, torch.where(guessed, 1, x), 0)
    write_case(path, model, x, labels, {"type": "bert", "dropout": 0} | options, optimizer)


def transformer(path, batches, count, tokens, optimizer, **options):
    """The target is the source backwards, of sources of any length."""
    model = Transformer(**options)
    for table in (model.source_tokens, model.tokens):
        nn.init.normal_(table.weight, std=options["width"] ** -0.5)
    source = torch.randint(1, options["source_vocabulary"], (batches, count, tokens))
    lengths = torch.randint(2, tokens + 1, (batches, count, 1))
    places = torch.arange(tokens)
    source[places >= lengths] = 0
    backwards = source.gather(-1, (lengths - 1 - places).clamp(0)) % options["vocabulary"]
    labels = torch.where(places < lengths, backwards, -100)
    begun = torch.nn.functional.pad(backwards, (1, 0))[..., :-1]
    write_case(path, model, begun.contiguous(), labels, {"type": "transformer", "dropout": 0} | options, optimizer, source)


def swin(path, batches, count, side, optimizer, **options):
    """Weights of a size at which all that attention does shows."""
    sizes = {name: options[name] for name in ("depths", "mlp_ratio")}
    model = torchvision.models.SwinTransformer(
        patch_size=[options["patch"]] * 2,
        embed_dim=options["width"],
        num_heads=options["heads"],
        window_size=[options["window"]] * 2,
        stochastic_depth_prob=0.0,
        num_classes=10,
        **sizes,
    )
    for value in model.parameters():
        if value.dim() == 2:
            nn.init.xavier_normal_(value)
    x, labels = images(batches, count, side, 3, 10)
    model_options = {"type": "swin", "in_channels": 3, "classes": 10} | options
    write_case(path, model, x, labels, model_options, optimizer)


def golden(folder):
    basic = {"blocks": [1, 1, 1], "bottleneck": False, "stem": "small", "width": 8}
    small_resnet(folder / "resnet_basic.safetensors", 2, 8, 8, 3, SGD, **basic)
    bottleneck = {"blocks": [1, 2], "bottleneck": True, "stem": "imagenet", "width": 4}
    small_resnet(folder / "resnet_bottleneck.safetensors", 2, 8, 16, 1, SGD, **bottleneck)
    mlp(folder / "mlp.safetensors", 4, 16, 16, [24, 20], ADAMW)
    gpt(folder / "gpt.safetensors", 2, 4, 13, ADAMW, vocabulary=29, context=16, layers=2, heads=3, width=24)
    torch.manual_seed(2)
    sizes = {"source_vocabulary": 17, "vocabulary": 19, "context": 12, "layers": 1, "decoder_layers": 2, "heads": 2}
    for norm in ("before", "after"):
        path = folder / f"transformer_{norm}.safetensors"
        transformer(path, 2, 4, 9, ADAMW, **sizes, width=16, hidden=24, norm=norm)
    torch.manual_seed(3)
    sizes = {"vocabulary": 19, "context": 12, "layers": 2, "heads": 2, "width": 16, "hidden": 24}
    bert(folder / "bert.safetensors", 2, 4, 11, ADAMW, **sizes)
    torch.manual_seed(4)
    # 7 x 7 tokens, then 4 x 4: windows of 3 divide neither, and the first are an odd number.
    sizes = {"depths": [2, 2], "heads": [2, 4], "width": 8, "patch": 2, "window": 3, "mlp_ratio": 2}
    swin(folder / "swin.safetensors", 2, 2, 14, ADAMW, **sizes)


def full(folder, seed):
    torch.manual_seed(seed)
    model = torchvision.models.resnet18(num_classes=10)
    # Many pixels and small steps: millions of activations lie near 0 in 50 steps, and rounding decides about some.
    x, labels = images(2, 32, 64, 3, 10)
    options = {"type": "resnet", "depth": 18, "in_channels": 3, "classes": 10}
    write_case(folder / "resnet18.safetensors", model, x, labels, options, SGD | {"lr": 1e-5})
    # Slow enough that a loss is left to compare: what remains of one near 0 is rounding.
    mlp(folder / "mlp.safetensors", 4, 64, 784, [512, 256], ADAMW | {"lr": 1e-4})
    sizes = {"vocabulary": 300, "context": 128, "layers": 4, "heads": 4, "width": 128}
    gpt(folder / "gpt.safetensors", 2, 4, 128, ADAMW, **sizes)
    bert(folder / "bert.safetensors", 2, 4, 128, ADAMW, **sizes, hidden=512)
    sizes = {"depths": [2, 2, 6, 2], "heads": [3, 6, 12, 24], "width": 96, "patch": 4, "window": 7, "mlp_ratio": 4}
    swin(folder / "swin_t.safetensors", 2, 2, 224, ADAMW | {"lr": 5e-7}, **sizes)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--full", type=pathlib.Path)
    arguments.add_argument("--seed", type=int, default=8)
    arguments = arguments.parse_args()
    # Small tensors gain nothing from more, and lose much where the machine is busy.
    torch.set_num_threads(1)
    if arguments.full:
        arguments.full.mkdir(parents=True, exist_ok=True)
        full(arguments.full, arguments.seed)
    else:
        torch.manual_seed(1)
        golden(pathlib.Path(__file__).parent)


if __name__ == "__main__":
    main()
