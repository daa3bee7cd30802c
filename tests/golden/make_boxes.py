# SPDX-License-Identifier: Apache-2.0
"""Writes boxes.json: what torchvision makes of boxes, in double precision but for non-maximum suppression (f32).

Needs PyTorch and torchvision. dy of a result is ((9 i + 4) % 23 - 11) / 8 at element i. Many boxes are made by the formula
of `many`, which the test repeats; images x [N, H, W, C] have ((7 i + 3) % 23 - 11) / 8.
"""

import json
import math
import pathlib

import torch
import torchvision
import torchvision.ops as tv
from torchvision.models.detection._utils import BoxCoder, BoxLinearCoder, Matcher, SSDMatcher

torch.set_default_dtype(torch.float64)

# Apart, one in the other, overlapping, equal, touching, with common sides, thin.
A = [[0, 0, 4, 5], [1, 2, 9, 11], [2, 1, 8.5, 6.25], [3, 3, 7, 8], [0, 0, 4, 4], [1, 1, 6, 5], [0, 2, 30, 3], [0.3, 0.1, 2.7, 9.2], [10, 10, 12, 15]]
B = [[6, 7, 9, 11], [3, 4, 5, 6.5], [4, 2.5, 11, 9], [3, 3, 7, 8], [4, 0, 8, 4], [1, 2, 6, 9], [12, 0, 14, 20], [1.1, 3.3, 8.8, 4.4], [11, 5, 11.5, 30]]


def leaf(values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def slopes(y, inputs):
    i = torch.arange(y.numel())
    dy = (((9 * i + 4) % 23 - 11).double() / 8).reshape(y.shape)
    return [g.flatten().tolist() for g in torch.autograd.grad(y, inputs, dy)]


def flat(x):
    return x.detach().flatten().tolist()


def overlaps():
    losses = {"giou": tv.generalized_box_iou_loss, "diou": tv.distance_box_iou_loss, "ciou": tv.complete_box_iou_loss}
    pairs = {"iou": tv.box_iou, "giou": tv.generalized_box_iou, "diou": tv.distance_box_iou, "ciou": tv.complete_box_iou}
    result = {}
    for name, loss in losses.items():
        a, b = leaf(A), leaf(B)
        y = loss(a, b)
        da, db = slopes(y, [a, b])
        result[name] = {"loss": flat(y), "da": da, "db": db}
    result.setdefault("iou", {})
    for name, function in pairs.items():
        result[name]["pairs"] = flat(function(torch.tensor(A[:7]), torch.tensor(B)))
    return {"a": A, "b": B, **result}


def conversions():
    formats = ["xyxy", "xywh", "cxcywh"]
    return {f"{a}_{b}": flat(tv.box_convert(torch.tensor(A), a, b)) for a in formats for b in formats}


def clipped():
    boxes = leaf([[-3, -2, 4, 5], [1, 2, 19, 11], [0, 0, 10, 8], [12, 9, 15, 10], [-5, 3, -1, 20]])
    y = tv.clip_boxes_to_image(boxes, (8, 10))
    return {"boxes": boxes.tolist(), "y": flat(y), "dx": slopes(y, [boxes])[0]}


def codes():
    result = {}
    boxes, anchors = torch.tensor(A[:4] + A[7:]), torch.tensor(B[:4] + B[7:])
    for name, weights in (("plain", (1.0, 1.0, 1.0, 1.0)), ("ssd", (10.0, 10.0, 5.0, 5.0))):
        coder = BoxCoder(weights)
        deltas = coder.encode_single(boxes, anchors)
        # The second box grows beyond what the coder lets it.
        moved = deltas + torch.tensor([0, 0, 30.0, 0]) * (torch.arange(len(boxes)) == 1).reshape(-1, 1)
        x = moved.clone().requires_grad_()
        y = coder.decode_single(x, anchors)
        result[name] = {"weights": weights, "encoded": flat(deltas), "deltas": flat(moved), "decoded": flat(y),
                        "dx": slopes(y, [x])[0]}
    for name, in_sides in (("pixels", False), ("sides", True)):
        coder = BoxLinearCoder(normalize_by_size=in_sides)
        distances = coder.encode(anchors, boxes)
        x = distances.clone().requires_grad_()
        y = coder.decode(x, anchors)
        result[name] = {"encoded": flat(distances), "decoded": flat(y), "dx": slopes(y, [x])[0]}
    return {"boxes": boxes.tolist(), "anchors": anchors.tolist(), **result}


def many(n):
    """Boxes on sevenths of a pixel, scores without equals, and five classes."""
    i = torch.arange(n)
    number = lambda a, b, m: ((a * i + b) % m).float()
    x, y, w, h = number(37, 11, 313), number(53, 5, 277), number(29, 3, 211) + 40, number(17, 9, 173) + 40
    boxes = torch.stack([x, y, x + w, y + h], 1) / torch.tensor(7.0, dtype=torch.float32)
    return boxes, number(7919, 1, 10007) / 16384, (i * 31 // 7) % 5


def suppressions():
    cases = []
    for n, threshold in ((1, 0.5), (2, 0.0), (32, 0.3), (33, 0.7), (500, 0.45), (500, 0.9), (4096, 0.5), (5000, 0.6)):
        boxes, scores, classes = many(n)
        keep = tv.nms(boxes, scores, threshold)
        # Class by class, without the shift of boxes that rounds them.
        by_class = tv.boxes._batched_nms_vanilla(boxes, scores, classes, threshold)
        cases.append({"n": n, "threshold": threshold, "kept": keep.tolist(), "kept_by_class": by_class.tolist()})
    return cases


def roi_aligned():
    cases = []
    boxes = [[0, 0, 9, 7], [2.3, 1.7, 6.1, 5.9], [-3, -2, 4, 3], [5, 4, 30, 20], [3.5, 3.5, 3.5, 3.5], [4, 2, 3, 1], [40, 40, 60, 60]]
    images = [0, 1, 1, 0, 1, 0, 0]
    for shape, size, scale, ratio, aligned in (
            ([2, 7, 9, 3], (3, 2), 1.0, 2, False), ([2, 7, 9, 3], (3, 2), 1.0, 2, True),
            ([2, 5, 6, 4], (2, 2), 0.5, -1, False), ([2, 5, 6, 4], (2, 2), 0.5, -1, True), ([2, 8, 8, 1], (1, 4), 1.5, 1, True)):
        x = (((7 * torch.arange(math.prod(shape)) + 3) % 23 - 11).double() / 8).reshape(shape).requires_grad_()
        rois = torch.cat([torch.tensor(images).double().reshape(-1, 1), torch.tensor(boxes)], 1)
        y = tv.roi_align(x.permute(0, 3, 1, 2), rois, size, scale, ratio, aligned).permute(0, 2, 3, 1)
        cases.append({"x": shape, "boxes": boxes, "images": images, "size": size, "scale": scale, "ratio": ratio,
                      "aligned": aligned, "y": flat(y), "dx": slopes(y, [x])[0]})
    return cases


def anchors_of_matching():
    """Two sizes and three shapes on a grid of 8 x 6 positions, whole numbers, so that overlaps are equal."""
    anchors = [[x - w / 2, y - h / 2, x + w / 2, y + h / 2] for y in range(0, 96, 16) for x in range(0, 128, 16)
               for w, h in ((16, 16), (24, 12), (12, 24), (40, 40), (56, 28), (28, 56))]
    return torch.tensor(anchors, dtype=torch.float32)


def boxes_of_matching(image):
    number = lambda i, a, b, m: (a * (i + 11 * image) + b) % m
    boxes = [[x, y, x + 8 + number(i, 29, 3, 48), y + 8 + number(i, 17, 1, 40)]
             for i in range(2 + 3 * image) for x, y in ((number(i, 37, 5, 97), number(i, 53, 7, 71)),)]
    return torch.tensor(boxes, dtype=torch.float32)


def assignments():
    """Indices are counted within an image."""
    anchors = anchors_of_matching()
    result = {}
    for name, matcher in (("retinanet", Matcher(0.5, 0.4, True)), ("ssd", SSDMatcher(0.5)), ("plain", Matcher(0.7, 0.3, False))):
        result[name] = [matcher(tv.box_iou(boxes_of_matching(image), anchors)).tolist() for image in range(4)]
    return result


def main():
    cases = {"overlaps": overlaps(), "convert": conversions(), "clip": clipped(), "codes": codes(), "nms": suppressions(),
             "roi_align": roi_aligned(), "assign": assignments()}
    versions = {"torch": torch.__version__, "torchvision": torchvision.__version__}
    path = pathlib.Path(__file__).with_name("boxes.json")
    path.write_text(json.dumps({**versions, **cases}, allow_nan=False, separators=(",", ":")) + "\n")
    print(path, path.stat().st_size, "bytes")


main()
