# SPDX-License-Identifier: Apache-2.0
"""Writes yolox.json: outputs, losses, gradients and detections of YOLOX as a small PyTorch network, in double precision.

Needs PyTorch and torchvision (for its nms). The network is written from the paper and the public description of its
parts, with the parameter names of Megvii's repository. Parameters are a formula of their names, as in make_fcos.py; the
biases of the logarithms of sides are 1.4 larger.
"""

import json
import math
import pathlib

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.ops import batched_nms, box_convert, box_iou

torch.set_default_dtype(torch.float64)
CLASSES, HEIGHT, WIDTH, STRIDES = 3, 96, 160, (8, 16, 32)
# Small, large, one in the other, equal, at a corner, and an image without any.
BOXES = [[[3, 4, 30, 40], [10, 12, 22, 20], [50, 20, 150, 90], [70, 50, 106, 84], [70, 50, 106, 84]], [],
         [[60.5, 40.25, 90, 70.75], [130, 70, 160, 96], [2, 60, 36, 95]]]
LABELS = [[0, 1, 2, 1, 0], [], [2, 2, 1]]


class Unit(nn.Module):
    def __init__(self, cin, cout, kernel=1, stride=1, groups=1):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(cout, eps=1e-3, momentum=0.03)

    def forward(self, x):
        return F.silu(self.bn(self.conv(x)))


class Depthwise(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.dconv, self.pconv = Unit(cin, cin, 3, stride, cin), Unit(cin, cout)

    def forward(self, x):
        return self.pconv(self.dconv(x))


def unit3(cin, cout, stride, depthwise):
    return Depthwise(cin, cout, stride) if depthwise else Unit(cin, cout, 3, stride)


class Residual(nn.Module):
    def __init__(self, c, add, depthwise):
        super().__init__()
        self.conv1, self.conv2, self.add = Unit(c, c), unit3(c, c, 1, depthwise), add

    def forward(self, x):
        y = self.conv2(self.conv1(x))
        return x + y if self.add else y


class Csp(nn.Module):
    def __init__(self, cin, cout, n, add, depthwise):
        super().__init__()
        half = cout // 2
        self.conv1, self.conv2, self.conv3 = Unit(cin, half), Unit(cin, half), Unit(2 * half, cout)
        self.m = nn.Sequential(*(Residual(half, add, depthwise) for _ in range(n)))

    def forward(self, x):
        return self.conv3(torch.cat([self.m(self.conv1(x)), self.conv2(x)], 1))


class Pyramid(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1, self.conv2 = Unit(c, c // 2), Unit(c * 2, c)

    def forward(self, x):
        x = self.conv1(x)
        return self.conv2(torch.cat([x] + [F.max_pool2d(x, k, 1, k // 2) for k in (5, 9, 13)], 1))


class Stem(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv = Unit(12, c, 3)

    def forward(self, x):
        return self.conv(torch.cat([x[:, :, r::2, c::2] for c in (0, 1) for r in (0, 1)], 1))


class Trunk(nn.Module):
    def __init__(self, c, n, depthwise):
        super().__init__()
        self.stem = Stem(c)
        for i, blocks in enumerate((n, 3 * n, 3 * n, n)):
            cin, cout, last = c * 2**i, c * 2 ** (i + 1), i == 3
            parts = [unit3(cin, cout, 2, depthwise)] + ([Pyramid(cout)] if last else [])
            setattr(self, f"dark{i + 2}", nn.Sequential(*parts, Csp(cout, cout, blocks, not last, depthwise)))

    def forward(self, x):
        a = self.dark3(self.dark2(self.stem(x)))
        b = self.dark4(a)
        return a, b, self.dark5(b)


class Neck(nn.Module):
    def __init__(self, c, depth, depthwise):
        super().__init__()
        n = round(3 * depth)
        self.backbone = Trunk(c, max(n, 1), depthwise)
        self.lateral_conv0, self.reduce_conv1 = Unit(16 * c, 8 * c), Unit(8 * c, 4 * c)
        self.C3_p4, self.C3_p3 = Csp(16 * c, 8 * c, n, False, depthwise), Csp(8 * c, 4 * c, n, False, depthwise)
        self.bu_conv2, self.C3_n3 = unit3(4 * c, 4 * c, 2, depthwise), Csp(8 * c, 8 * c, n, False, depthwise)
        self.bu_conv1, self.C3_n4 = unit3(8 * c, 8 * c, 2, depthwise), Csp(16 * c, 16 * c, n, False, depthwise)

    def forward(self, x):
        a, b, c = self.backbone(x)
        lateral = self.lateral_conv0(c)
        reduced = self.reduce_conv1(self.C3_p4(torch.cat([F.interpolate(lateral, scale_factor=2), b], 1)))
        p3 = self.C3_p3(torch.cat([F.interpolate(reduced, scale_factor=2), a], 1))
        n3 = self.C3_n3(torch.cat([self.bu_conv2(p3), reduced], 1))
        return p3, n3, self.C3_n4(torch.cat([self.bu_conv1(n3), lateral], 1))


class Head(nn.Module):
    def __init__(self, c, depthwise):
        super().__init__()
        two = lambda: nn.Sequential(*(unit3(4 * c, 4 * c, 1, depthwise) for _ in range(2)))
        out = lambda n: nn.ModuleList(nn.Conv2d(4 * c, n, 1) for _ in STRIDES)
        self.cls_convs, self.reg_convs = nn.ModuleList(two() for _ in STRIDES), nn.ModuleList(two() for _ in STRIDES)
        self.cls_preds, self.reg_preds, self.obj_preds = out(CLASSES), out(4), out(1)
        self.stems = nn.ModuleList(Unit(k * c, 4 * c) for k in (4, 8, 16))

    def forward(self, maps):
        rows = []
        for i, x in enumerate(maps):
            x = self.stems[i](x)
            classes, boxes = self.cls_convs[i](x), self.reg_convs[i](x)
            y = torch.cat([self.reg_preds[i](boxes), self.obj_preds[i](boxes), self.cls_preds[i](classes)], 1)
            rows.append(y.flatten(2).transpose(1, 2))
        return torch.cat(rows, 1)


class Yolox(nn.Module):
    def __init__(self, width, depth, depthwise):
        super().__init__()
        c = int(64 * width)
        self.backbone, self.head = Neck(c, depth, depthwise), Head(c, depthwise)

    def forward(self, x):
        return self.head(self.backbone(x))


def set_weights(model):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            i = torch.arange(parameter.numel())
            values = ((37 * i + sum(name.encode())) % 1009 - 504).double() / 504
            offset = 1.0 if parameter.dim() == 1 and name.endswith("weight") else 0.0
            scale = 1.5 / math.sqrt(parameter[0].numel()) if parameter.dim() == 4 else 0.1
            if "reg_preds" in name and name.endswith("bias"):
                offset = torch.tensor([0, 0, 1.4, 1.4])  # boxes of four strides, so that they overlap true ones
            parameter.copy_((offset + scale * values).reshape(parameter.shape))


def grid():
    corners, sides = [], []
    for s in STRIDES:
        y, x = torch.meshgrid(torch.arange(HEIGHT // s), torch.arange(WIDTH // s), indexing="ij")
        corners.append(torch.stack([x, y], -1).reshape(-1, 2) * s)
        sides.append(torch.full((corners[-1].shape[0], 1), s))
    return torch.cat(corners).double(), torch.cat(sides).double()


def decoded(outputs):
    corners, sides = grid()
    centre, half = outputs[..., :2] * sides + corners, outputs[..., 2:4].exp() * sides / 2
    return torch.cat([centre - half, centre + half], -1)


def assigned(outputs, boxes, labels):
    """SimOTA for one image: the box of each point or -1, and the overlaps."""
    corners, sides = grid()
    found = decoded(outputs)
    middle, points = (boxes[:, :2] + boxes[:, 2:]) / 2, corners + sides / 2
    near = ((points[None] - middle[:, None]).abs() < 1.5 * sides[None]).all(-1)
    places = near.any(0).nonzero()[:, 0]
    overlaps = box_iou(boxes, found[places])
    p = (outputs[places, 5:].sigmoid() * outputs[places, 4:5].sigmoid()).sqrt()
    wanted = F.one_hot(labels, CLASSES).double()[:, None].expand(-1, len(places), -1)
    cost = F.binary_cross_entropy(p[None].expand(len(boxes), -1, -1), wanted, reduction="none").sum(-1)
    cost = cost - 3 * (overlaps + 1e-8).log() + 1e6 * ~near[:, places]
    taken = torch.zeros_like(cost)
    for i in range(len(boxes)):
        k = max(int(overlaps[i].sort(descending=True).values[:10].sum()), 1)
        taken[i, cost[i].argsort(stable=True)[:k]] = 1
    box = torch.where(taken.sum(0) > 1, cost.argmin(0), taken.argmax(0))
    box = torch.where(taken.sum(0) > 0, box, -1)
    chosen = torch.full((len(outputs),), -1)
    chosen[places] = box
    of_points = torch.zeros(len(outputs))
    of_points[places] = overlaps[box.clamp(0), torch.arange(len(places))] * (box >= 0)
    return chosen, of_points, int((taken.sum(0) > 1).sum())


def loss_of(outputs, targets):
    sums, count, shared = torch.zeros(3), 0, 0
    for rows, (boxes, labels) in zip(outputs, targets):
        chosen, overlaps, several = torch.full((len(rows),), -1), torch.zeros(len(rows)), 0
        if len(boxes):
            with torch.no_grad():
                chosen, overlaps, several = assigned(rows, boxes, labels)
        at = chosen >= 0
        a, b = decoded(rows)[at], boxes[chosen[at]]
        size = (torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])).clamp(0)
        area = lambda x: (x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1])
        iou = size.prod(-1) / (area(a) + area(b) - size.prod(-1) + 1e-16)
        wanted = F.one_hot(labels[chosen[at]], CLASSES) * overlaps[at][:, None]
        bce = lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="sum")
        sums = sums + torch.stack([(1 - iou**2).sum(), bce(rows[:, 4], at.double()), bce(rows[at][:, 5:], wanted)])
        count, shared = count + int(at.sum()), shared + several
    return 5 * sums[0] / max(count, 1), sums[1] / max(count, 1), sums[2] / max(count, 1), count, shared


def detected(rows, threshold, overlap):
    boxes, (scores, classes) = decoded(rows), rows[:, 5:].sigmoid().max(-1)
    scores = scores * rows[:, 4].sigmoid()
    at = scores > threshold
    boxes, scores, classes = boxes[at], scores[at], classes[at]
    kept = batched_nms(boxes, scores, classes, overlap)[:20]
    boxes = boxes[kept].clamp(0)
    boxes = torch.stack([boxes[:, 0].clamp(max=WIDTH), boxes[:, 1].clamp(max=HEIGHT), boxes[:, 2].clamp(max=WIDTH),
                         boxes[:, 3].clamp(max=HEIGHT)], -1)
    return {"boxes": boxes.flatten().tolist(), "scores": scores[kept].tolist(), "labels": classes[kept].tolist()}


def case(width, depth, depthwise):
    model = Yolox(width, depth, depthwise)
    set_weights(model)
    shape = (len(BOXES), HEIGHT, WIDTH, 3)
    i = torch.arange(math.prod(shape))
    images = (((7 * i + 3) % 23 - 11).double() / 8).reshape(shape).permute(0, 3, 1, 2)
    targets = [(torch.tensor(b, dtype=torch.float64).reshape(-1, 4), torch.tensor(c, dtype=torch.int64))
               for b, c in zip(BOXES, LABELS)]
    outputs = model.train()(images)
    of_boxes, of_objects, of_classes, count, shared = loss_of(outputs, targets)
    loss = of_boxes + of_objects + of_classes
    loss.backward()
    gradients = {n: [float(p.grad.sum()), float(p.grad.norm())] for n, p in model.named_parameters()}
    with torch.no_grad():
        found = [detected(rows, 0.2, 0.6) for rows in model.eval()(images)]
    print(width, depth, depthwise, loss.item(), count, "points,", shared, "of several boxes,",
          [len(f["scores"]) for f in found], len(gradients))
    return {"width": width, "depth": depth, "depthwise": depthwise, "loss": loss.item(), "matched": count,
            "outputs": outputs[:, ::17].flatten().tolist(), "gradients": gradients, "detections": found}


def main():
    cases = [case(0.125, 0.33, False), case(0.125, 0.33, True)]
    path = pathlib.Path(__file__).with_name("yolox.json")
    path.write_text(json.dumps({"classes": CLASSES, "height": HEIGHT, "width": WIDTH, "boxes": BOXES, "labels": LABELS,
                                "cases": cases}, allow_nan=False, separators=(",", ":")) + "\n")
    print(path, path.stat().st_size, "bytes")


main()
