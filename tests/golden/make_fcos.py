# SPDX-License-Identifier: Apache-2.0
"""Writes fcos.json: losses, gradients and detections of torchvision's FCOS on a ResNet-10, in double precision.

Needs PyTorch and torchvision. Parameters are a formula of their names, which the test repeats: element i, in
PyTorch's order, of a parameter of n bytes of name that add up to s is ((37 i + s) % 1009 - 504) / 504 times its scale.
"""

import json
import math
import pathlib

import torch
from torchvision.models.detection import FCOS
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.image_list import ImageList
from torchvision.models.resnet import BasicBlock, ResNet
from torchvision.ops.feature_pyramid_network import LastLevelP6P7

torch.set_default_dtype(torch.float64)
CLASSES, CHANNELS, HEIGHT, WIDTH = 3, 32, 97, 130
# Small, large, one in the other, equal, beyond all ranges, and an image without any.
BOXES = [[[3, 4, 30, 40], [10, 12, 22, 20], [50, 20, 120, 90], [50, 20, 120, 90], [0, 0, 130, 97]], [], [[60.5, 40.25, 90, 70.75]]]
LABELS = [[0, 1, 2, 1, 0], [], [2]]


def scale_of(name, parameter):
    if parameter.dim() == 4:
        return 1.5 / math.sqrt(parameter[0].numel())
    return 0.1


def network():
    body = ResNet(BasicBlock, [1, 1, 1, 1])
    backbone = BackboneWithFPN(body, {f"layer{i}": str(i) for i in (2, 3, 4)}, [128, 256, 512], CHANNELS, LastLevelP6P7(CHANNELS, CHANNELS))
    anchors = AnchorGenerator(tuple((s,) for s in (8, 16, 32, 64, 128)), ((1.0,),) * 5)
    model = FCOS(backbone, CLASSES, anchor_generator=anchors, score_thresh=0.05)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            i = torch.arange(parameter.numel())
            values = ((37 * i + sum(name.encode())) % 1009 - 504).double() / 504
            # Norms around 1.
            offset = 1.0 if parameter.dim() == 1 and name.endswith("weight") else 0.0
            parameter.copy_((offset + scale_of(name, parameter) * values).reshape(parameter.shape))
    return model


def head_outputs(model, images):
    features = list(model.backbone(images).values())
    found = model.head(features)
    anchors = model.anchor_generator(ImageList(images, [(HEIGHT, WIDTH)] * len(images)), features)
    return features, found, anchors


def main():
    model = network()
    shape = (len(BOXES), HEIGHT, WIDTH, 3)
    i = torch.arange(math.prod(shape))
    images = (((7 * i + 3) % 23 - 11).double() / 8).reshape(shape).permute(0, 3, 1, 2)
    targets = [{"boxes": torch.tensor(boxes, dtype=torch.float64).reshape(-1, 4), "labels": torch.tensor(labels, dtype=torch.int64)}
               for boxes, labels in zip(BOXES, LABELS)]
    model.train()
    features, found, anchors = head_outputs(model, images)
    counts = [f.shape[2] * f.shape[3] for f in features]
    losses = model.compute_loss(targets, found, anchors, counts)
    sum(losses.values()).backward()
    gradients = {name: [float(p.grad.sum()), float(p.grad.norm())] for name, p in model.named_parameters() if p.grad is not None}
    outputs = torch.cat([found["cls_logits"], found["bbox_regression"], found["bbox_ctrness"]], 2)
    model.eval()
    with torch.no_grad():
        _, found, anchors = head_outputs(model, images)
        split = {k: list(v.split(counts, 1)) for k, v in found.items()}
        detections = model.postprocess_detections(split, [list(a.split(counts)) for a in anchors], [(HEIGHT, WIDTH)] * len(images))
    case = {"classes": CLASSES, "channels": CHANNELS, "height": HEIGHT, "width": WIDTH, "boxes": BOXES, "labels": LABELS,
            "losses": {k: float(v) for k, v in losses.items()}, "loss": float(sum(losses.values())),
            "outputs": outputs[:, ::7].flatten().tolist(), "gradients": gradients,
            "detections": [{k: v[:20].flatten().tolist() for k, v in d.items()} for d in detections]}
    path = pathlib.Path(__file__).with_name("fcos.json")
    path.write_text(json.dumps(case, allow_nan=False, separators=(",", ":")) + "\n")
    print(path, path.stat().st_size, "bytes", case["losses"], [len(d["scores"]) for d in detections], len(gradients))


main()
