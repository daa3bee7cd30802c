#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole training steps of torchvision's ResNet-50 in PyTorch on a GPU, the peer of `gpu_check --part vision`.

    gpu_check_torch.py f32|bf16

Prints a JSON list of {"name", "mode", "ms"}: eager channels_last, and torch.compile max-autotune where it works. Batch 64,
224 pixels, SGD with momentum; bf16 means autocast.
"""

import json
import statistics
import sys
import time

BATCH, PIXELS, STEPS = 64, 224, 30


def measure(dtype, compiled):
    import torch
    import torchvision

    torch.manual_seed(0)
    model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=True)
    images = torch.randn(BATCH, 3, PIXELS, PIXELS, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (BATCH,), device="cuda")

    def forward():
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=dtype == "bf16"):
            return torch.nn.functional.cross_entropy(model(images), labels)

    if compiled:
        forward = torch.compile(forward, mode="max-autotune")
    times = []
    for _ in range(10 + STEPS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        forward().backward()
        optimizer.step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times[10:])


def main():
    dtype = sys.argv[1]
    found = []
    for mode, compiled in (("eager_channels_last", False), ("compile_max_autotune", True)):
        try:
            found.append({"name": "torch", "mode": mode, "ms": measure(dtype, compiled)})
        except Exception as error:  # one mode that fails leaves the other
            print(f"{mode}: {error}", file=sys.stderr)
    print(json.dumps(found))
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
