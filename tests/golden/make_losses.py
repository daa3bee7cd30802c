# SPDX-License-Identifier: Apache-2.0
"""Writes losses.json: torch.nn.functional.cross_entropy with class weights, in double precision, and its gradient.
Needs PyTorch."""

import json
import pathlib

import torch

LOGITS = [[0.5, -1.0, 2.0], [1.0, 0.0, -0.5], [7.0, 8.0, 9.0], [-0.25, 0.75, 0.125]]
WEIGHTS = [0.3, 1.0, 2.7]
CLASSES = [2, 0, -100, 1]
DISTRIBUTIONS = [[0.25, 0.0, 0.75], [0.0, 1.0, 0.0], [0.5, 0.3, 0.2], [0.1, 0.6, 0.3]]


def case(labels, label_smoothing):
    logits = torch.tensor(LOGITS, dtype=torch.float64, requires_grad=True)
    loss = torch.nn.functional.cross_entropy(
        logits,
        labels,
        weight=torch.tensor(WEIGHTS, dtype=torch.float64),
        label_smoothing=label_smoothing,
    )
    loss.backward()
    return {
        "soft": labels.is_floating_point(),
        "label_smoothing": label_smoothing,
        "loss": loss.item(),
        "gradient": logits.grad.flatten().tolist(),
    }


def main():
    classes = torch.tensor(CLASSES)
    soft = torch.tensor(DISTRIBUTIONS, dtype=torch.float64)
    cases = [case(labels, smoothing) for labels in (classes, soft) for smoothing in (0.0, 0.1, 0.45)]
    document = {"logits": LOGITS, "weights": WEIGHTS, "classes": CLASSES, "distributions": DISTRIBUTIONS, "cases": cases}
    path = pathlib.Path(__file__).parent / "losses.json"
    path.write_text(json.dumps(document) + "\n")


if __name__ == "__main__":
    main()
