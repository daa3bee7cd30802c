# SPDX-License-Identifier: Apache-2.0
"""Training steps that bench_cpu and gpu_check time, by Hearth and by torch_peer.py: what both sides are to compute."""

import json
import os
import random


def image_case(model, pixels, batch, **smaller):
    """A ResNet ("resnet50"), or Swin-T ("swin"), of 1000 classes; with these settings of the model in place of its own."""
    return {"model": model, "size": pixels, "batch": batch} | ({"smaller": smaller} if smaller else {})


def text_case(model, length, batch, layers, width, vocabulary):
    """A GPT ("gpt"), or a BERT that guesses masked words ("bert")."""
    return {"model": model, "size": length, "batch": batch, "layers": layers, "width": width, "vocabulary": vocabulary}


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


def write_config(case, folder, **settings):
    """The path of a configuration of `hearth` for this step, of these settings too, in a new file of the folder."""
    config = texts_config(case, folder) if "vocabulary" in case else images_config(case)
    config |= settings | {"train": {"batch_size": case["batch"]} | settings.get("train", {})}
    path = os.path.join(folder, f"step-{len(os.listdir(folder))}.json")
    with open(path, "w") as file:
        json.dump(config, file)
    return path
