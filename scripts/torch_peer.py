#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of bench_cpu and gpu_check.

    torch_peer.py time|serve [--device cuda]

Reads requests, a JSON line each, with a "case" of `hearth bench ops`, timed forward and gradient together, or of
step_cases.py, timed as a whole training step: torchvision's ResNets by SGD with momentum, its Swin-T (stochastic depth
of 0.2), its detectors (by SGD too), a GPT and a BERT by AdamW, both optimizers fused;
bf16 and f16 mean autocast, f16 with loss scaling.

time    times each mode of a case, or those that the request has as "modes" (of a step, for each of "makers": torch,
        timm) and prints {"name", "shape", "peer": {"name", "mode", "ms"}} at once, so that of a mode that takes too long
        the others remain
serve   runs "mode" of the case once and prints the milliseconds; an outer script interleaves these with those of the
        program under test, so that both see the same load of the machine

Started with RANK and WORLD_SIZE (and MASTER_ADDR, MASTER_PORT), `serve` steps as a rank of DistributedDataParallel on
Gloo; a case is then what one rank has.

Modes that begin with "compile" are torch.compile's, of a detector's trunk and heads. As a rank, the mode "fsdp" divides a model of text, block by block,
by PyTorch's fully_shard. Images of steps are channels_last, except in the mode "eager". Of
attention within windows "sdpa" has the chain's products and softmax in one.
"""

import argparse
import json
import os
import re
import statistics
import sys
import time

import torch
import torch.nn.functional as F

from step_cases import random_boxes, swin_window

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
# What one operation alone cannot gain from is not compiled: it costs seconds a case.
FUSES = ("batch_norm", "layer_norm", "add_layer_norm", "merge_layer_norm", "softmax", "cross_entropy",
         "linear_cross_entropy", "gelu", "window_attention")


def compiled(f, mode):
    if not mode.startswith("compile"):
        return f
    return torch.compile(f, mode="max-autotune" if mode == "compile_max_autotune" else None)


def image_network(case, who):
    if who == "timm":
        import timm

        return timm.create_model("swin_tiny_patch4_window7_224", img_size=case["size"], drop_path_rate=0.2)
    import torchvision

    if case["model"] == "swin":
        window = swin_window(case["size"])
        return torchvision.models.SwinTransformer([4, 4], 96, [2, 2, 6, 2], [3, 6, 12, 24], [window, window],
                                                  stochastic_depth_prob=0.2)
    return getattr(torchvision.models, case["model"])(num_classes=1000)


def text_network(case):
    """A Transformer with tied head: causal with norms before ("gpt"), or of all to all with norms after ("bert")."""
    causal, width, vocabulary = case["model"] == "gpt", case["width"], case["vocabulary"]

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
            self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
            self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

        def attend(self, x):
            q, k, v = (part.unflatten(-1, (-1, 64)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            return self.out(y.transpose(1, 2).flatten(-2))

        def feed(self, x):
            return self.down(F.gelu(self.up(x), approximate="tanh" if causal else "none"))

        def forward(self, x):
            if causal:
                x = x + self.attend(self.norm1(x))
                return x + self.feed(self.norm2(x))
            x = self.norm1(x + self.attend(x))
            return self.norm2(x + self.feed(x))

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(case["size"], width)
            self.blocks = torch.nn.ModuleList(Block() for _ in range(case["layers"]))
            self.norm = torch.nn.LayerNorm(width)
            self.transform = None if causal else torch.nn.Linear(width, width)
            self.bias = None if causal else torch.nn.Parameter(torch.zeros(vocabulary))

        def forward(self, ids):
            x = self.tokens(ids) + self.positions.weight
            if not causal:
                x = self.norm(x)
            for block in self.blocks:
                x = block(x)
            x = self.norm(x) if causal else self.norm(F.gelu(self.transform(x)))
            return F.linear(x, self.tokens.weight, self.bias).flatten(0, 1)

    model = Network()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    return model


def fully_shard(model, device):
    from torch.distributed.fsdp import fully_shard as shard
    mesh = torch.distributed.init_device_mesh(device, (torch.distributed.get_world_size(),))
    for block in model.blocks:
        shard(block, mesh=mesh)
    shard(model, mesh=mesh)


def ssd_trunk():
    """The maps of MLPerf's SSD300: a ResNet-34 whose third stage has stride 1 and is the last, and five more."""
    import torchvision

    body = torchvision.models.resnet34()
    body.layer3[0].conv1.stride = body.layer3[0].downsample[0].stride = (1, 1)
    channels = [256, 512, 512, 256, 256, 256]
    middle, strides = [256, 256, 128, 128, 128], [2, 2, 2, 1, 1]

    class Trunk(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.out_channels = channels
            self.body = torch.nn.Sequential(body.conv1, body.bn1, body.relu, body.maxpool, body.layer1, body.layer2,
                                            body.layer3)
            self.extra = torch.nn.ModuleList(
                torch.nn.Sequential(torch.nn.Conv2d(channels[i], middle[i], 1), torch.nn.ReLU(),
                                    torch.nn.Conv2d(middle[i], channels[i + 1], 3, stride=stride, padding=stride - 1),
                                    torch.nn.ReLU())
                for i, stride in enumerate(strides))

        def forward(self, x):
            maps = [self.body(x)]
            for block in self.extra:
                maps.append(block(maps[-1]))
            return {str(i): x for i, x in enumerate(maps)}

    return Trunk()


def detector(case):
    """torchvision's, with batch norm that learns, which resizes images to the size that they have."""
    from torchvision.models import detection
    from torchvision.models.detection.anchor_utils import DefaultBoxGenerator

    size = case["size"]
    if case["model"] == "ssd":
        boxes = DefaultBoxGenerator([[2], [2, 3], [2, 3], [2, 3], [2], [2]], steps=[8, 16, 32, 64, 100, 300],
                                    scales=[0.07, 0.15, 0.33, 0.51, 0.69, 0.87, 1.05])
        return detection.ssd.SSD(ssd_trunk(), boxes, (size, size), case["classes"] + 1)
    return detection.__dict__[case["model"] + "_resnet50_fpn"](
        weights=None, weights_backbone=None, num_classes=case["classes"], min_size=size, max_size=size,
        trainable_backbone_layers=5)


def boxes_of(case, device):
    """For each image its boxes and their classes, as torchvision's detectors take them."""
    corners, classes = random_boxes(case, case["boxes"])
    is_ssd = case["model"] == "ssd"  # whose class 0 is the background
    return [{"boxes": torch.tensor(corners, device=device), "labels": torch.tensor(classes, device=device) + is_ssd}
            for _ in range(case["batch"])]


def step(case, mode, who, device):
    """A function that runs one training step."""
    torch.manual_seed(0)
    batch, size = case["batch"], case["size"]
    if "boxes" in case:
        layout = torch.contiguous_format if mode == "eager" else torch.channels_last
        model = detector(case).to(device, memory_format=layout)
        # The rest of a detector breaks the graph in many places.
        model.backbone, model.head = compiled(model.backbone, mode), compiled(model.head, mode)
        inputs, labels = list(torch.rand(batch, 3, size, size, device=device)), boxes_of(case, device)
    elif "vocabulary" in case:
        model = text_network(case).to(device)
        ids = torch.randint(0, case["vocabulary"], (batch, size + 1), device=device)
        inputs, labels = ids[:, :-1].contiguous(), ids[:, 1:].flatten()
    else:
        layout = torch.contiguous_format if mode == "eager" else torch.channels_last
        model = image_network(case, who).to(device, memory_format=layout)
        inputs = torch.randn(batch, 3, size, size, device=device).contiguous(memory_format=layout)
        labels = torch.randint(0, 1000, (batch,), device=device)
    ranks = torch.distributed.is_initialized()
    if ranks and mode == "fsdp":
        fully_shard(model, device)
    if case["model"].startswith("resnet") or "boxes" in case:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4 if "boxes" in case else 0.01, momentum=0.9, fused=True)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    if ranks and mode != "fsdp":
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)

    scaler = torch.amp.GradScaler(device, enabled=case["dtype"] == "f16")

    def loss():
        with torch.autocast(device, dtype=DTYPES[case["dtype"]], enabled=case["dtype"] != "f32"):
            if "boxes" in case:
                return sum(model(inputs, labels).values())
            return F.cross_entropy(model(inputs), labels)

    forward = loss if "boxes" in case else compiled(loss, mode)

    def run():
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(forward()).backward()
        scaler.step(optimizer)
        scaler.update()

    return run


def update(variant, device):
    """A step of the optimizer on as many parameters in 160 tensors; None for an optimizer that PyTorch has not."""
    sizes = [(768, 600)] * 54 + [(256,)] * 106
    parameters = [torch.full(size, 0.01, device=device, requires_grad=True) for size in sizes]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 3e-4)
    if variant == "sgd":
        optimizer = torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, fused=True)
    elif variant in ("adamw", "adamw+clip"):
        optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
    else:
        return None
    if variant.endswith("+clip"):
        return lambda: (torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True), optimizer.step())
    return optimizer.step


def window_attention(qkv, table, behind, heads, window, shift, whole):
    """A function that runs the chain of operations of the reference model from the projection on; `whole`: with
    scaled_dot_product_attention in the place of products and softmax. Positions behind the image have `behind`."""
    n, height, width, channels = qkv.shape[0], qkv.shape[1], qkv.shape[2], qkv.shape[3] // 3
    rows, columns = (-(-side // window) * window for side in (height, width))
    down, across = rows // window, columns // window
    shifts = (shift if rows > window else 0, shift if columns > window else 0)
    at = torch.arange(window * window, device=qkv.device)
    y, x = at // window, at % window
    index = ((y[:, None] - y + window - 1) * (2 * window - 1) + x[:, None] - x + window - 1).flatten()
    # Tokens that rolling brings together from different sides.
    zone = [torch.zeros(size, device=qkv.device) for size in (rows, columns)]
    for sides, moved in zip(zone, shifts):
        if moved > 0:
            sides[-window:-moved], sides[-moved:] = 1, 2
    zones = zone[0][:, None] * 3 + zone[1]
    zones = zones.view(down, window, across, window).transpose(1, 2).reshape(down * across, window * window)
    mask = torch.where(zones[:, None] == zones[:, :, None], 0.0, -100.0).to(qkv.dtype)

    def cut(part):
        """[n * windows, heads, tokens, width of a head]"""
        part = part.view(n, down, window, across, window, heads, channels // heads).permute(0, 1, 3, 5, 2, 4, 6)
        return part.reshape(n * down * across, heads, window * window, channels // heads)

    def attend():
        padded = qkv
        if (rows, columns) != (height, width):
            padded = behind.to(qkv.dtype).expand(n, rows, columns, -1).clone()
            padded[:, :height, :width] = qkv
        if any(shifts):
            padded = torch.roll(padded, (-shifts[0], -shifts[1]), (1, 2))
        q, k, v = (cut(part) for part in padded.chunk(3, -1))
        bias = table[index].view(window * window, window * window, heads).permute(2, 0, 1).to(qkv.dtype)
        if whole:
            added = bias + mask[:, None] if any(shifts) else bias.expand(down * across, -1, -1, -1)
            result = F.scaled_dot_product_attention(q, k, v, attn_mask=added.repeat(n, 1, 1, 1))
        else:
            scores = (q * (channels // heads) ** -0.5) @ k.transpose(-2, -1) + bias
            if any(shifts):
                scores = scores.view(n, down * across, heads, window * window, -1) + mask[:, None]
                scores = scores.view(-1, heads, window * window, window * window)
            result = F.softmax(scores, -1) @ v
        result = result.view(n, down, across, heads, window, window, -1).permute(0, 1, 4, 2, 5, 3, 6)
        result = result.reshape(n, rows, columns, channels)
        if any(shifts):
            result = torch.roll(result, shifts, (1, 2))
        return result[:, :height, :width].contiguous()

    return attend


def operation(case, mode, device):
    """(function without arguments that gives the result, its leaves) for a case of `hearth bench ops`; None if
    unknown."""
    family, variant = case["name"].split("/")[0], case["name"].split("/")[1:-1]
    dtype = DTYPES[case["dtype"]]
    shape = json.loads(case["shape"])

    def leaf(*size, type=dtype):
        return torch.randn(*size, device=device, dtype=type, requires_grad=True)

    def images(n, h, w, c):
        x = torch.randn(n, c, h, w, device=device, dtype=dtype).to(memory_format=torch.channels_last)
        return x.requires_grad_()

    if family == "conv2d":
        r, stride, k = (int(v) for v in re.fullmatch(r"(\d+)x\d+s(\d+)/k(\d+)", "/".join(variant)).groups())
        x, w = images(*shape), leaf(k, shape[3], r, r).detach().to(memory_format=torch.channels_last).requires_grad_()
        return (lambda: F.conv2d(x, w, stride=stride, padding=r // 2)), [x, w]
    if family == "batch_norm":
        x, c = images(*shape), shape[3]
        gamma, beta = leaf(c, type=torch.float32), leaf(c, type=torch.float32)
        mean, variance = torch.zeros(c, device=device), torch.ones(c, device=device)
        if variant == ["add_relu"]:
            residual = images(*shape)
            return (lambda: F.relu(F.batch_norm(x, mean, variance, gamma, beta, True) + residual)), [x, gamma, beta,
                                                                                                 residual]
        return (lambda: F.relu(F.batch_norm(x, mean, variance, gamma, beta, True))), [x, gamma, beta]
    if family == "linear":
        rows_in, out = variant[0].split("to")
        x, w, b = leaf(*shape), leaf(int(out.removesuffix("+gelu")), int(rows_in)), leaf(int(out.removesuffix("+gelu")))
        if out.endswith("+gelu"):
            return (lambda: F.gelu(F.linear(x, w, b))), [x, w, b]
        return (lambda: F.linear(x, w, b)), [x, w, b]
    if family == "attention":
        x, (heads, width) = leaf(*shape), (int(v) for v in variant[0].split("x"))
        causal = "causal" in variant

        def attend():
            q, k, v = x.view(shape[0], shape[1], 3, heads, width).permute(2, 0, 3, 1, 4).unbind(0)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            return y.transpose(1, 2).reshape(shape[0], shape[1], heads * width)

        return attend, [x]
    if family == "window_attention":
        (heads, width), window = (int(v) for v in variant[0].split("x")), int(variant[1])
        assert shape[3] == 3 * heads * width
        qkv, table = leaf(*shape), leaf((2 * window - 1) ** 2, heads, type=torch.float32)
        behind = leaf(shape[3], type=torch.float32)
        leaves = [qkv, table] + ([behind] if any(side % window for side in shape[1:3]) else [])
        return window_attention(qkv, table, behind, heads, window, window // 2, mode == "sdpa"), leaves
    if family in ("relu", "gelu"):
        x = leaf(*shape)
        return (lambda: getattr(F, family)(x)), [x]
    if family == "softmax":
        x = leaf(*shape)
        return (lambda: F.softmax(x, -1)), [x]
    if family == "layer_norm":
        x, gamma, beta = leaf(*shape), leaf(shape[-1]), leaf(shape[-1])
        return (lambda: F.layer_norm(x, (shape[-1],), gamma, beta)), [x, gamma, beta]
    if family == "add_layer_norm":
        x, f, gamma, beta = leaf(*shape), leaf(*shape), leaf(shape[-1]), leaf(shape[-1])
        return (lambda: F.layer_norm(x + F.dropout(f, 0.1), (shape[-1],), gamma, beta)), [x, f, gamma, beta]
    if family == "merge_layer_norm":
        x, gamma, beta = leaf(*shape), leaf(4 * shape[-1]), leaf(4 * shape[-1])

        def merge():
            four = torch.cat([x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)], -1)
            return F.layer_norm(four, (four.shape[-1],), gamma, beta)

        return merge, [x, gamma, beta]
    if family == "linear_cross_entropy":
        x, w = leaf(*shape), leaf(int(variant[0]), shape[-1])
        labels = torch.zeros(shape[0], device=device, dtype=torch.long)
        return (lambda: F.cross_entropy(F.linear(x, w).float(), labels)), [x, w]
    if family == "cross_entropy":
        x, labels = leaf(*shape), torch.zeros(shape[0], device=device, dtype=torch.long)
        return (lambda: F.cross_entropy(x.float() if dtype != torch.float32 else x, labels)), [x]
    return None




def forward_and_gradient(case, mode, device):
    """A function that runs an operation and its gradient; None for one that is unknown."""
    made = operation(case, mode, device)
    if made is None:
        return None
    forward, leaves = compiled(made[0], mode), made[1]
    dy = torch.randn_like(forward().detach())
    return lambda: torch.autograd.grad(forward(), leaves, dy)


def modes_of(case):
    family = case["name"].split("/")[0]
    if family == "update":
        return ["fused"]
    return ["eager"] + ["sdpa"] * (family == "window_attention") + ["compile"] * (family in FUSES)


def make(case, mode, who, device):
    """A function that runs the case once; None where PyTorch has nothing like it."""
    if "model" in case:
        return step(case, mode, who, device)
    if case["name"].startswith("update/"):
        return update(case["name"].split("/")[1], device)
    return forward_and_gradient(case, mode, device)


def median_ms(run, each, wait, groups=30):
    """`each` runs are queued for each time taken, so that the wait at the end does not count."""
    for _ in range(10):
        run()
    times = []
    for _ in range(groups):
        wait()
        start = time.perf_counter()
        for _ in range(each):
            run()
        wait()
        times.append((time.perf_counter() - start) * 1e3 / each)
    return statistics.median(times)


def time_cases(device):
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    for line in sys.stdin:
        request = json.loads(line)
        case = request["case"]
        each = 1 if device == "cpu" else 10
        groups = 5 if each > 1 and "model" in case else 30
        for mode in request.get("modes") or modes_of(case):
            for who in request.get("makers", ["torch"]):
                try:
                    run = make(case, mode, who, device)
                    if run is not None:
                        told = {"name": who, "mode": mode, "ms": median_ms(run, each, wait, groups)}
                        print(json.dumps({"name": case["name"], "shape": case["shape"], "peer": told}), flush=True)
                except Exception as error:  # noqa: BLE001  one that fails leaves the others
                    print(f"{case['name']} {who} {mode}: {str(error)[-300:]}", file=sys.stderr)


def serve(device):
    known, runs = None, {}
    for line in sys.stdin:
        request = json.loads(line)
        if request["case"] != known:
            # One case at a time: the models of others would only hold memory.
            known, runs = request["case"], {}
        mode = request["mode"]
        if mode not in runs:
            runs[mode] = make(known, mode, "torch", device)
        begin = time.perf_counter()
        runs[mode]()
        print((time.perf_counter() - begin) * 1e3, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("time", "serve"))
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    if "RANK" in os.environ:
        torch.distributed.init_process_group("gloo")
    (serve if arguments.command == "serve" else time_cases)(arguments.device)


if __name__ == "__main__":
    main()
