# SPDX-License-Identifier: Apache-2.0
"""Training steps that bench_cpu and gpu_check time, by Hearth and by torch_peer.py: what both sides are to compute."""

import json
import os
import random
import struct
import zlib


def image_case(model, pixels, batch, **smaller):
    """A ResNet ("resnet50"), or Swin-T ("swin"), of 1000 classes; with these settings of the model in place of its own."""
    return {"model": model, "size": pixels, "batch": batch} | ({"smaller": smaller} if smaller else {})


def text_case(model, length, batch, layers, width, vocabulary):
    """A GPT ("gpt"), or a BERT that guesses masked words ("bert")."""
    return {"model": model, "size": length, "batch": batch, "layers": layers, "width": width, "vocabulary": vocabulary}


def detector_case(model, pixels, batch, boxes=8, classes=90):
    """A detector ("fcos", "retinanet", "ssd") as torchvision has it, on images with so many boxes each."""
    return {"model": model, "size": pixels, "batch": batch, "boxes": boxes, "classes": classes}


def random_boxes(case, count):
    """Corners and classes of `count` boxes within the images of a detector's case, the same in each process."""
    draw, size = random.Random(count), case["size"]
    corners, classes = [], []
    for _ in range(count):
        width, height = (draw.uniform(0.05, 0.6) * size for _ in range(2))
        x, y = draw.uniform(0, size - width), draw.uniform(0, size - height)
        corners.append([x, y, x + width, y + height])
        classes.append(draw.randrange(case["classes"]))
    return corners, classes


def swin_window(pixels):
    return 7 if pixels >= 224 else 4


def images_config(case):
    swin = {"type": "swin", "window": swin_window(case["size"]), "drop_path": 0.2}
    is_swin = case["model"] == "swin"
    model = swin if is_swin else {"type": "resnet", "depth": int(case["model"].removeprefix("resnet"))}
    return {
        "model": model | case.get("smaller", {}),
        "data": {"type": "synthetic", "height": case["size"], "width": case["size"], "classes": 1000,
                 "train_size": 4 * case["batch"], "test_size": 1},
        "optimizer": {"type": "adamw", "lr": 1e-4} if is_swin else {"type": "sgd", "lr": 0.01, "momentum": 0.9},
    }


def texts_config(case, folder):
    """On random words; with Hearth's five special tokens they are as many as the vocabulary."""
    words = [f"w{i}" for i in range(case["vocabulary"] - 5)]
    path = os.path.join(folder, f"words-{len(os.listdir(folder))}.txt")
    with open(path, "w") as file:
        file.write(" ".join(words + random.Random(1).choices(words, k=16 * case["size"] * case["batch"])))
    return {
        "model": {"type": case["model"], "layers": case["layers"], "heads": case["width"] // 64, "width": case["width"],
                  "dropout": 0.0},
        "data": {"type": "text", "train": [path], "length": case["size"], "tokenizer": {"type": "words"},
                 "mask_probability": 0.15 if case["model"] == "bert" else 0},
        "optimizer": {"type": "adamw", "lr": 1e-4},
    }


def write_noise(path, size):
    """A PNG file of random pixels."""
    rows = b"".join(b"\0" + random.randbytes(3 * size) for _ in range(size))

    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)) +
                   chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))


def detector_config(case, folder):
    """On images of noise with random boxes, in the form of COCO."""
    folder = os.path.join(folder, f"images-{len(os.listdir(folder))}")
    os.mkdir(folder)
    size, labels = case["size"], {"images": [], "annotations": [], "categories": [
        {"id": i + 1, "name": f"class {i}"} for i in range(case["classes"])]}
    for image in range(1, case["batch"] + 1):
        write_noise(os.path.join(folder, f"{image}.png"), size)
        labels["images"].append({"id": image, "file_name": f"{image}.png", "width": size, "height": size})
        for corners, label in zip(*random_boxes(case, case["boxes"])):
            x, y, right, below = corners
            labels["annotations"].append({"id": len(labels["annotations"]) + 1, "image_id": image,
                                          "category_id": label + 1, "iscrowd": 0, "bbox": [x, y, right - x, below - y]})
    path = os.path.join(folder, "labels.json")
    with open(path, "w") as file:
        json.dump(labels, file)
    split = {"images": folder, "labels": path}
    model = {"type": case["model"], "depth": 34 if case["model"] == "ssd" else 50}
    return {"model": model,
            "data": {"type": "coco", "train": split, "test": split, "augment": {"image_size": size}},
            "task": {"type": "detection"}, "optimizer": {"type": "sgd", "lr": 1e-4, "momentum": 0.9}}


def write_config(case, folder, **settings):
    """The path of a configuration of `hearth` for this step, of these settings too, in a new file of the folder."""
    if "vocabulary" in case:
        config = texts_config(case, folder)
    else:
        config = detector_config(case, folder) if "boxes" in case else images_config(case)
    config |= settings | {"train": {"batch_size": case["batch"]} | settings.get("train", {})}
    path = os.path.join(folder, f"step-{len(os.listdir(folder))}.json")
    with open(path, "w") as file:
        json.dump(config, file)
    return path
