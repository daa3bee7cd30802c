# SPDX-License-Identifier: Apache-2.0
"""Writes segmentation.json: outputs, loss and gradients of torchvision's FCN and DeepLabV3 and of a U-Net, in double
precision.

Needs PyTorch and torchvision. Parameters are a formula of their names, which the test repeats: element i, in PyTorch's
order, of a parameter of n bytes of name that add up to s is ((37 i + s) % 1009 - 504) / 504 times its scale. Of a
gradient there are its sum, its norm, and its product with (11 i + 5) % 17 - 8.
"""

import json
import math
import pathlib

import torch
from torch import nn
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet
from torchvision.models.segmentation.deeplabv3 import DeepLabHead, DeepLabV3
from torchvision.models.segmentation.fcn import FCN, FCNHead

torch.set_default_dtype(torch.float64)
CLASSES, WIDTH = 5, 8


class NarrowResNet(ResNet):
    """torchvision's with 8 channels in the first stage."""

    def _make_layer(self, block, planes, *rest, **more):
        if planes == 64:
            self.inplanes = WIDTH
            self.conv1 = nn.Conv2d(3, WIDTH, 7, 2, 3, bias=False)
            self.bn1 = nn.BatchNorm2d(WIDTH)
        return super()._make_layer(block, planes * WIDTH // 64, *rest, **more)


class DilatedBasicBlock(BasicBlock):
    """torchvision's refuses a dilation: here its convolutions have it as those of timm."""

    def __init__(self, inplanes, planes, stride=1, downsample=None, groups=1, base_width=64, dilation=1, norm_layer=None):
        super().__init__(inplanes, planes, stride, downsample, groups, base_width, 1, norm_layer)
        self.conv1.dilation = self.conv1.padding = (dilation, dilation)


def trunk(block, dilated):
    body = NarrowResNet(block, [1, 1, 2, 2], replace_stride_with_dilation=[dilated > 2, dilated > 1, dilated > 0])
    if block is DilatedBasicBlock:
        # The blocks of a stage behind the first, and the second convolution of all, have the stage's dilation.
        for layer, factor in ((body.layer3, 2), (body.layer4, 4)):
            for i, each in enumerate(layer):
                each.conv2.dilation = each.conv2.padding = (factor, factor)
                if i > 0:
                    each.conv1.dilation = each.conv1.padding = (factor, factor)
    return IntermediateLayerGetter(body, {"layer4": "out"})


class Unet(nn.Module):
    def __init__(self, width, levels):
        super().__init__()

        def double(a, b):
            pair = nn.Module()
            for name, (c, d) in (("0", (a, b)), ("1", (b, b))):
                each = nn.Module()
                each.conv, each.norm = nn.Conv2d(c, d, 3, padding=1, bias=False), nn.BatchNorm2d(d)
                pair.add_module(name, each)
            return pair

        channels = [width << i for i in range(levels)]
        self.encoder = nn.ModuleList(double(a, b) for a, b in zip([3, *channels], channels))
        self.up = nn.ModuleList(nn.ConvTranspose2d(c, c // 2, 2, 2) for c in channels[:0:-1])
        self.decoder = nn.ModuleList(double(c, c // 2) for c in channels[:0:-1])
        self.head = nn.Conv2d(width, CLASSES, 1)

    @staticmethod
    def run(pair, x):
        for name in "01":
            each = getattr(pair, name)
            x = torch.relu(each.norm(each.conv(x)))
        return x

    def forward(self, x):
        maps = []
        for i, pair in enumerate(self.encoder):
            maps.append(self.run(pair, x if i == 0 else nn.functional.max_pool2d(maps[-1], 2)))
        y = maps.pop()
        for up, pair in zip(self.up, self.decoder):
            beside, y = maps.pop(), up(y)
            y = nn.functional.pad(y, (0, beside.shape[3] - y.shape[3], 0, beside.shape[2] - y.shape[2]))
            y = self.run(pair, torch.cat([beside, y], 1))
        return {"out": self.head(y)}


def rounded(value):
    return float(f"{value:.13g}")


def set_parameters(model):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            i = torch.arange(parameter.numel())
            values = ((37 * i + sum(name.encode())) % 1009 - 504).double() / 504
            # Norms around 1.
            offset = 1.0 if parameter.dim() == 1 and name.endswith("weight") else 0.0
            scale = 1.5 / math.sqrt(parameter[0].numel()) if parameter.dim() == 4 else 0.1
            parameter.copy_((offset + scale * values).reshape(parameter.shape))
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


def case(model, height, width):
    set_parameters(model)
    shape = (2, height, width, 3)
    i = torch.arange(math.prod(shape))
    images = (((7 * i + 3) % 23 - 11).double() / 8).reshape(shape).permute(0, 3, 1, 2)
    pixels = torch.arange(2 * height * width)
    labels = torch.where(pixels % 7 == 0, -100, (pixels // 11) % CLASSES).reshape(2, height, width)
    model.train()
    outputs = model(images)["out"]
    loss = nn.functional.cross_entropy(outputs, labels)
    loss.backward()
    gradients = {}
    for name, parameter in model.named_parameters():
        g = parameter.grad
        i = torch.arange(g.numel())
        product = (g.flatten() * ((11 * i + 5) % 17 - 8)).sum()
        gradients[name] = [rounded(float(v)) for v in (g.sum(), g.norm(), product)]
    model.eval()
    with torch.no_grad():
        evaluated = model(images)["out"]

    def some(x):
        return [rounded(v) for v in x.permute(0, 2, 3, 1).flatten()[::197].tolist()]

    return {"height": height, "width": width, "loss": float(loss.detach()), "outputs": some(outputs.detach()),
            "evaluated": some(evaluated), "gradients": gradients}


def main():
    deep = trunk(Bottleneck, 2)
    cases = {
        "fcn": case(FCN(trunk(Bottleneck, 2), FCNHead(256, CLASSES)), 65, 82),
        "fcn_basic": case(FCN(trunk(DilatedBasicBlock, 2), FCNHead(64, CLASSES)), 59, 66),
        "fcn_one_dilated": case(FCN(trunk(Bottleneck, 1), FCNHead(256, CLASSES)), 66, 49),
        "deeplabv3": case(DeepLabV3(deep, DeepLabHead(256, CLASSES, (2, 3, 5))), 65, 82),
        "unet": case(Unet(6, 4), 45, 37),
    }
    path = pathlib.Path(__file__).with_name("segmentation.json")
    path.write_text(json.dumps(cases, allow_nan=False, separators=(",", ":")) + "\n")
    print(path, path.stat().st_size, "bytes", {name: each["loss"] for name, each in cases.items()})


main()
