# SPDX-License-Identifier: Apache-2.0
"""Trains networks with PyTorch and writes what the parity test needs. Needs PyTorch and torchvision.

    make_models.py                  writes the small golden cases beside this file
    make_models.py --full FOLDER    writes ResNet-18 of torchvision and a large MLP, for scripts/parity_torch

A case is one safetensors file: the start values ("weights.NAME", "buffers.NAME"), batches ("x", "labels"), the losses of
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


def train(model, state, dtype, x, labels, optimizer_options):
    model.load_state_dict(state)
    model.to(dtype).train()
    options = {key: value for key, value in optimizer_options.items() if key not in ("type", "decay_norm_bias")}
    kind = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[optimizer_options["type"]]
    optimizer = kind(model.parameters(), **options)
    losses, first = [], {}
    for step in range(STEPS):
        batch = step % x.shape[0]
        loss = functional.cross_entropy(model(x[batch].to(dtype)), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            first = {name: value.grad.clone() for name, value in model.named_parameters()}
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64), first


def write_case(path, model, x, labels, model_options, optimizer_options):
    state = {name: value.clone() for name, value in model.state_dict().items()}
    exact, grads = train(model, state, torch.float64, x, labels, optimizer_options)
    single, single_grads = train(model, state, torch.float32, x, labels, optimizer_options)
    distance = max(
        ((single_grads[name].double() - value).abs().max() / value.abs().max()).item() for name, value in grads.items()
    )
    relative = abs(single[-1] / exact[-1] - 1)
    print(f"loss {exact[0]:.6f} -> {exact[-1]:.6f}; f32 from f64: loss {relative:.1e}, first gradients {distance:.1e}")
    # Images go to the axis order that Hearth computes in.
    tensors = {"x": x.permute(0, 1, 3, 4, 2) if x.dim() == 5 else x, "labels": labels}
    tensors |= {"losses.f64": exact, "losses.f32": single}
    trained = {name for name, _ in model.named_parameters()}
    for name, value in state.items():
        if not name.endswith("num_batches_tracked"):
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


def golden(folder):
    basic = {"blocks": [1, 1, 1], "bottleneck": False, "stem": "small", "width": 8}
    small_resnet(folder / "resnet_basic.safetensors", 2, 8, 8, 3, SGD, **basic)
    bottleneck = {"blocks": [1, 2], "bottleneck": True, "stem": "imagenet", "width": 4}
    small_resnet(folder / "resnet_bottleneck.safetensors", 2, 8, 16, 1, SGD, **bottleneck)
    mlp(folder / "mlp.safetensors", 4, 16, 16, [24, 20], ADAMW)


def full(folder, seed):
    torch.manual_seed(seed)
    model = torchvision.models.resnet18(num_classes=10)
    # Many pixels and small steps: millions of activations lie near 0 in 50 steps, and rounding decides about some.
    x, labels = images(2, 32, 64, 3, 10)
    options = {"type": "resnet", "depth": 18, "in_channels": 3, "classes": 10}
    write_case(folder / "resnet18.safetensors", model, x, labels, options, SGD | {"lr": 1e-5})
    # Slow enough that a loss is left to compare: what remains of one near 0 is rounding.
    mlp(folder / "mlp.safetensors", 4, 64, 784, [512, 256], ADAMW | {"lr": 1e-4})


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--full", type=pathlib.Path)
    arguments.add_argument("--seed", type=int, default=8)
    arguments = arguments.parse_args()
    if arguments.full:
        arguments.full.mkdir(parents=True, exist_ok=True)
        full(arguments.full, arguments.seed)
    else:
        torch.manual_seed(1)
        golden(pathlib.Path(__file__).parent)


if __name__ == "__main__":
    main()
