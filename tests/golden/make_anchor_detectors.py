# SPDX-License-Identifier: Apache-2.0
"""Writes retinanet.json and ssd.json: losses, gradients and detections of torchvision's RetinaNet on a ResNet-10, and of
torchvision's SSD on the first three stages of a ResNet-10 as MLPerf's SSD300 has them, in double precision.

Needs PyTorch and torchvision. Parameters are those of make_fcos.py's formula.
"""

import json
import math
import pathlib
from collections import OrderedDict

import torch
from torch import nn
from torchvision.models.detection import RetinaNet
from torchvision.models.detection.anchor_utils import DefaultBoxGenerator
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.ssd import SSD
from torchvision.models.resnet import BasicBlock, ResNet
from torchvision.ops import box_iou
from torchvision.ops.feature_pyramid_network import LastLevelP6P7

torch.set_default_dtype(torch.float64)
CLASSES = 3
# Small, large, one in the other, equal, nearly all of the image, and an image without any.
BOXES = [[[3, 4, 30, 40], [10, 12, 22, 20], [50, 20, 120, 90], [50, 20, 120, 90], [0, 0, 129, 96]], [], [[60.5, 40.25, 90, 70.75]]]
LABELS = [[0, 1, 2, 1, 0], [], [2]]


def set_weights(model):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            i = torch.arange(parameter.numel())
            values = ((37 * i + sum(name.encode())) % 1009 - 504).double() / 504
            # Norms around 1.
            offset = 1.0 if parameter.dim() == 1 and name.endswith("weight") else 0.0
            scale = 1.5 / math.sqrt(parameter[0].numel()) if parameter.dim() == 4 else 0.1
            parameter.copy_((offset + scale * values).reshape(parameter.shape))
    return model


def retinanet():
    body = ResNet(BasicBlock, [1, 1, 1, 1])
    channels = 32
    backbone = BackboneWithFPN(body, {f"layer{i}": str(i) for i in (2, 3, 4)}, [128, 256, 512], channels, LastLevelP6P7(channels, channels))
    return set_weights(RetinaNet(backbone, CLASSES))


class Trunk(nn.Module):
    """MLPerf's: conv4 of stride 1 is the last, and five pairs of convolutions follow."""

    def __init__(self, width):
        super().__init__()
        body = ResNet(BasicBlock, [1, 1, 1, 1])
        # A ResNet of another width: torchvision has none of this one.
        body.inplanes = width
        body.conv1, body.bn1 = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        for i, stride in enumerate((1, 2, 1)):
            setattr(body, f"layer{i + 1}", body._make_layer(BasicBlock, width << i, 1, stride))
        del body.layer4, body.fc
        self.body = body
        self.out_channels = [4 * width, 8 * width, 8 * width, 4 * width, 4 * width, 4 * width]
        self.extra = nn.ModuleList()
        for i, (narrow, padded) in enumerate(((4, 1), (4, 1), (2, 1), (2, 0), (2, 0))):
            self.extra.append(nn.Sequential(
                nn.Conv2d(self.out_channels[i], narrow * width, 1), nn.ReLU(),
                nn.Conv2d(narrow * width, self.out_channels[i + 1], 3, stride=1 + padded, padding=padded), nn.ReLU()))

    def forward(self, x):
        b = self.body
        maps = [b.layer3(b.layer2(b.layer1(b.maxpool(b.relu(b.bn1(b.conv1(x)))))))]
        for block in self.extra:
            maps.append(block(maps[-1]))
        return OrderedDict((str(i), m) for i, m in enumerate(maps))


class DefaultBoxes(DefaultBoxGenerator):
    """Steps of each axis: those of the strides, and of the last two maps such that their positions fill the image."""

    def forward(self, images, maps):
        height, width = images.tensors.shape[-2:]
        self.steps = [8, 16, 32, 64] + [width / m.shape[3] for m in maps[4:]]
        across = super().forward(images, maps)
        self.steps = [8, 16, 32, 64] + [height / m.shape[2] for m in maps[4:]]
        down = super().forward(images, maps)
        return [torch.stack([a[:, 0], d[:, 1], a[:, 2], d[:, 3]], 1) for a, d in zip(across, down)]


def ssd(size):
    boxes = DefaultBoxes([[2], [2, 3], [2, 3], [2, 3], [2], [2]], scales=[0.07, 0.15, 0.33, 0.51, 0.69, 0.87, 1.05],
                         steps=[8, 16, 32, 64, 100, 300])
    return set_weights(SSD(Trunk(16), boxes, size, CLASSES + 1, score_thresh=0.05))


def matched(model, anchors, targets):
    return [model.proposal_matcher(box_iou(t["boxes"], a)) if len(t["boxes"]) else torch.full((len(a),), -1)
            for a, t in zip(anchors, targets)]


def write(name, model, height, width, boxes, first_label, step, split):
    """`split` gives postprocess_detections() what it takes of the outputs and the anchors of all maps."""
    shape = (len(boxes), height, width, 3)
    i = torch.arange(math.prod(shape))
    images = (((7 * i + 3) % 23 - 11).double() / 8).reshape(shape).permute(0, 3, 1, 2)
    sizes = [(height, width)] * len(boxes)
    targets = [{"boxes": torch.tensor(b, dtype=torch.float64).reshape(-1, 4), "labels": first_label + torch.tensor(l, dtype=torch.int64)}
               for b, l in zip(boxes, LABELS)]

    def run():
        maps = list(model.backbone(images).values())
        return maps, model.head(maps), model.anchor_generator(ImageList(images, sizes), maps)

    model.train()
    _, found, anchors = run()
    if isinstance(model, SSD):
        losses = model.compute_loss(targets, found, anchors, matched(model, anchors, targets))
    else:
        losses = model.compute_loss(targets, found, anchors)
    sum(losses.values()).backward()
    gradients = {n: [float(p.grad.sum()), float(p.grad.norm())] for n, p in model.named_parameters() if p.grad is not None}
    outputs = torch.cat([found["cls_logits"], found["bbox_regression"]], 2)
    model.eval()
    with torch.no_grad():
        maps, found, anchors = run()
        detections = model.postprocess_detections(*split(maps, found, anchors), sizes)
    case = {"classes": CLASSES, "height": height, "width": width, "boxes": boxes, "labels": LABELS, "step": step,
            "points": outputs.shape[1], "losses": {k: float(v) for k, v in losses.items()}, "loss": float(sum(losses.values())),
            "outputs": outputs[:, ::step].flatten().tolist(), "anchors": anchors[0][::step].flatten().tolist(), "gradients": gradients,
            "detections": [{"boxes": d["boxes"][:20].flatten().tolist(), "scores": d["scores"][:20].tolist(),
                            "labels": (d["labels"][:20] - first_label).tolist()} for d in detections]}
    path = pathlib.Path(__file__).with_name(f"{name}.json")
    path.write_text(json.dumps(case, allow_nan=False, separators=(",", ":")) + "\n")
    print(path, path.stat().st_size, "bytes", case["points"], case["losses"], [len(d["scores"]) for d in detections], len(gradients),
          [d["scores"][:3].tolist() for d in detections])


def by_map(maps, found, anchors):
    counts = [9 * m.shape[2] * m.shape[3] for m in maps]
    return {k: list(v.split(counts, 1)) for k, v in found.items()}, [list(a.split(counts)) for a in anchors]


write("retinanet", retinanet(), 97, 130, BOXES, 0, 29, by_map)
write("ssd", ssd((257, 290)), 257, 290, [[[2 * x for x in box] for box in boxes] for boxes in BOXES], 1, 83, lambda maps, found, anchors: (found, anchors))
