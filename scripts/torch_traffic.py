#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of `hearth bench dist`: the communication of DistributedDataParallel on Gloo, without computation.

    torch_traffic.py --traffic resnet50|bert|vgg16|swin_t --compute-ms MS [--steps N] [--bucket-mb MB]
                     [--powersgd RANK] [--fp16]

Runs as a rank of MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE, as `hearth bench dist` does. A third of the time is the
forward pass, in which ranks sleep; gradients are there one after the other, at equal intervals of the rest. --powersgd
sets PyTorch's hook of that rank with error feedback and warm start, --fp16 the one that sends 16 bits. The former takes
all gradients as one bucket, as PyTorch 2.11 mixes up the sums of several over Gloo. Rank 0 prints the median time of a
step, of the slowest rank, as JSON.
"""

import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

STEPS_BEFORE_POWERSGD = 2  # the fewest that the hook allows


def shapes_of(model):
    """The parameters' shapes, in the order of the forward pass."""
    if model == "bert":
        width, layers = 768, 12
        linear = lambda rows, columns: [(rows, columns), (rows,)]
        norm = [(width,), (width,)]
        layer = (linear(3 * width, width) + linear(width, width) + norm + linear(4 * width, width) +
                 linear(width, 4 * width) + norm)
        return [(30522, width), (512, width), (2, width)] + norm + layers * layer + linear(width, width) + norm + [(30522,)]
    import torchvision
    with torch.device("meta"):
        return [tuple(p.shape) for p in getattr(torchvision.models, model)().parameters()]


class TimedGradient(torch.autograd.Function):
    """Its gradient is there some seconds after the backward pass began."""

    @staticmethod
    def forward(ctx, y, parameter, begin, after):
        ctx.begin, ctx.after, ctx.shape = begin, after, parameter.shape
        return y.clone()

    @staticmethod
    def backward(ctx, dy):
        time.sleep(max(0, ctx.begin[0] + ctx.after - time.monotonic()))
        return dy, torch.zeros(ctx.shape), None, None


class Model(torch.nn.Module):
    def __init__(self, shapes, seconds):
        super().__init__()
        self.all = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(shape)) for shape in shapes])
        self.each, self.begin = seconds / len(shapes), [0.0]

    def forward(self, y):
        for i, parameter in enumerate(self.all):
            y = TimedGradient.apply(y, parameter, self.begin, self.each * (len(self.all) - i))
        return y


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traffic", required=True, choices=["resnet50", "bert", "vgg16", "swin_t"])
    parser.add_argument("--compute-ms", type=float, required=True)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--bucket-mb", type=float, default=25, help="PyTorch's default")
    parser.add_argument("--powersgd", type=int)
    parser.add_argument("--fp16", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = Model(shapes_of(options.traffic), options.compute_ms / 1e3 * 2 / 3)
    bucket_mb = sum(p.nbytes for p in model.parameters()) / 2**20 + 1 if options.powersgd else options.bucket_mb
    parallel = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=bucket_mb,
                                                         gradient_as_bucket_view=True)
    warm = 2
    if options.powersgd:
        parallel.register_comm_hook(powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=options.powersgd, start_powerSGD_iter=STEPS_BEFORE_POWERSGD),
            powerSGD_hook.powerSGD_hook)
        warm += STEPS_BEFORE_POWERSGD
    elif options.fp16:
        parallel.register_comm_hook(None, default_hooks.fp16_compress_hook)
    times = []
    for step in range(warm + options.steps):
        parallel.zero_grad(set_to_none=False)
        dist.barrier()
        begin = time.monotonic()
        time.sleep(options.compute_ms / 1e3 / 3)
        y = parallel(torch.zeros(1, requires_grad=True))
        model.begin[0] = time.monotonic()
        y.backward()
        slowest = torch.tensor([time.monotonic() - begin], dtype=torch.float64)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        if step >= warm:
            times.append(1e3 * slowest.item())
    if dist.get_rank() == 0:
        print(json.dumps({"traffic": options.traffic, "parameters": sum(p.numel() for p in model.parameters()),
                          "step_ms": statistics.median(times), "torch": torch.__version__,
                          "ranks": dist.get_world_size(), "gloo_interface": os.environ.get("GLOO_SOCKET_IFNAME", "")}))
    dist.barrier()
    dist.destroy_process_group()


main()
