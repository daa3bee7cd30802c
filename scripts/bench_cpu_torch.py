#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPU training-step times of PyTorch, the peer that `hearth bench step` is compared with.

Times the full step (forward, cross entropy, backward, update) of torchvision's ResNets with SGD and its Swin-T with
fused AdamW on random images, and of Transformers with fused AdamW on random ids, and prints one JSON line a case and mode:

    bench_cpu_torch.py [--cases RE] [--modes RE] [--steps N] [--threads N]

As a peer server it makes each model once and answers one timed step at a time, so that an outer script can
interleave it with the program under test and both see the same load of the machine:

    bench_cpu_torch.py --serve
    < run resnet50-64-f32 channels_last_tuned
    > {"case": "resnet50-64-f32", "mode": "channels_last_tuned", "ms": 210.4}

Modes are eager and channels_last, each also `_tuned` (glibc told to keep freed memory and to use huge pages), and
compile (inductor, channels_last, tuned). The tuning is environment that a process reads at its start, so tuned
modes run in a child process. Needs torch and torchvision.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

TUNED = {
    "MALLOC_TRIM_THRESHOLD_": "100000000000",
    "MALLOC_TOP_PAD_": "1073741824",
    "MALLOC_MMAP_THRESHOLD_": "100000000000",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
MODES = ["eager", "channels_last", "eager_tuned", "channels_last_tuned", "compile_tuned"]
# Sizes are pixels of a side, or ids in a row.
CASES = {
    f"{model}-{size}-{dtype}": (model, size, batch, dtype)
    for model, size, batch in [("resnet18", 64, 32), ("resnet50", 64, 32), ("resnet50", 224, 16), ("gpt", 256, 8),
                               ("bert", 128, 16), ("swin", 64, 8), ("swin", 224, 8)]
    for dtype in ("f32", "bf16")
}
LAYERS, WIDTH, HEADS, VOCABULARY = 6, 384, 6, 8192  # of both Transformers
# An optimizer's step on 25 million parameters in 160 tensors, those of `hearth bench ops --filter update`.
UPDATES = ["update/adamw", "update/adamw+clip"]
# Images, side in tokens, heads of 32 channels and window, forward and backward, as in `hearth bench ops`.
WINDOWS = {
    f"window_attention/{heads}x32/{window}{'/one' if images == 1 else ''}/{dtype}": (images, side, heads, window, dtype)
    for images, side, heads, window in [(8, 56, 3, 7), (8, 14, 12, 7), (32, 16, 3, 4), (1, 96, 4, 12)]
    for dtype in ("f32", "bf16")
}
IS_CHILD = "HEARTH_BENCH_TUNED_CHILD"


def make_vision(model_name, pixels, batch, mode):
    """A ResNet, or Swin-T with windows of 4 for small images, its optimizer, random images and labels."""
    import torch
    import torchvision

    if model_name == "swin":
        window = 7 if pixels >= 224 else 4
        model = torchvision.models.SwinTransformer([4, 4], 96, [2, 2, 6, 2], [3, 6, 12, 24], [window, window],
                                                   stochastic_depth_prob=0.2)
    else:
        model = getattr(torchvision.models, model_name)(num_classes=1000)
    x = torch.randn(batch, 3, pixels, pixels)
    if not mode.startswith("eager"):
        model = model.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    if model_name == "swin":
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    return model, optimizer, x, torch.randint(0, 1000, (batch,))


def make_text(model_name, length, batch, layers=LAYERS, width=WIDTH, heads=HEADS, vocabulary=VOCABULARY):
    """A Transformer with tied head: causal with norms before ("gpt"), or of all to all with norms after ("bert")."""
    import torch
    from torch.nn import functional as F

    causal = model_name == "gpt"

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
            self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
            self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

        def attend(self, x):
            q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            return self.out(y.transpose(1, 2).flatten(-2))

        def feed(self, x):
            return self.down(F.gelu(self.up(x), approximate="tanh" if causal else "none"))

        def forward(self, x):
            if causal:
                x = x + self.attend(self.norm1(x))
                return x + self.feed(self.norm2(x))
            x = self.norm1(x + self.attend(x))
            return self.norm2(x + self.feed(x))

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(length, width)
            self.blocks = torch.nn.ModuleList(Block() for _ in range(layers))
            self.norm = torch.nn.LayerNorm(width)
            self.transform = None if causal else torch.nn.Linear(width, width)
            self.bias = None if causal else torch.nn.Parameter(torch.zeros(vocabulary))

        def forward(self, ids):
            x = self.tokens(ids) + self.positions.weight
            if not causal:
                x = self.norm(x)
            for block in self.blocks:
                x = block(x)
            x = self.norm(x) if causal else self.norm(F.gelu(self.transform(x)))
            return F.linear(x, self.tokens.weight, self.bias).flatten(0, 1)

    model = Network()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(0, vocabulary, (batch, length + 1))
    return model, optimizer, ids[:, :-1].contiguous(), ids[:, 1:].flatten()


def make_step(case, mode):
    """A function that runs one training step and returns the loss."""
    import torch

    model_name, size, batch, dtype = CASES[case]
    torch.manual_seed(0)
    if model_name in ("gpt", "bert"):
        model, optimizer, x, labels = make_text(model_name, size, batch)
    else:
        model, optimizer, x, labels = make_vision(model_name, size, batch, mode)
    model.train()
    criterion = torch.nn.CrossEntropyLoss()

    def forward(inputs, targets):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16"):
            return criterion(model(inputs), targets)

    if mode.startswith("compile"):
        forward = torch.compile(forward)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = forward(x, labels)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def make_update(case):
    """A function that updates by the fused optimizer; +clip: after unscaling the gradients and clipping their norm."""
    import torch

    sizes = [(768, 600)] * 54 + [(256,)] * 106
    parameters = [torch.nn.Parameter(torch.full(size, 0.01)) for size in sizes]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 3e-4)
    gradients = [parameter.grad for parameter in parameters]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
    found_inf, inverse_scale = torch.zeros(1), torch.ones(1)

    def step():
        if case.endswith("+clip"):
            torch._amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, inverse_scale)
            torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        optimizer.step()

    return step


def make_windows(case, mode):
    """A function that attends within shifted windows, as torchvision's Swin does behind its projection, and back."""
    import torch

    images, side, heads, window, dtype = WINDOWS[case]
    tokens, width, shift = window * window, 32 * heads, window // 2
    qkv = torch.randn(images, side, side, 3 * width, dtype=torch.bfloat16 if dtype == "bf16" else torch.float32)
    qkv.requires_grad_()
    table = torch.randn((2 * window - 1) ** 2, heads, requires_grad=True)
    at = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
    index = ((at[:, :, None] - at[:, None, :] + window - 1) * torch.tensor([2 * window - 1, 1])[:, None, None]).sum(0)
    region = torch.zeros(side, side)
    for number, (y, x) in enumerate((y, x) for y in range(3) for x in range(3)):
        cuts = [slice(0, side - window), slice(side - window, side - shift), slice(side - shift, None)]
        region[cuts[y], cuts[x]] = number

    def partition(x):
        n = side // window
        return x.unflatten(1, (n, window)).unflatten(3, (n, window)).transpose(2, 3).flatten(1, 2).flatten(2, 3)

    regions = partition(region[None, :, :, None])[0, :, :, 0]
    mask = torch.where(regions[:, None, :] == regions[:, :, None], 0.0, -100.0)

    def forward(qkv, table):
        x = partition(torch.roll(qkv, (-shift, -shift), (1, 2)))
        q, k, v = x.unflatten(-1, (3, heads, 32)).permute(3, 0, 1, 4, 2, 5)
        scores = (q * 32**-0.5) @ k.transpose(-2, -1)
        scores = scores + table[index.flatten()].view(tokens, tokens, heads).permute(2, 0, 1) + mask[:, None]
        y = scores.softmax(-1).to(v.dtype) @ v
        n = side // window
        y = y.transpose(2, 3).flatten(3).view(images, n, n, window, window, width).transpose(2, 3)
        return torch.roll(y.reshape(images, side, side, width), (shift, shift), (1, 2))

    if mode.startswith("compile"):
        forward = torch.compile(forward)
    slope = torch.randn(images, side, side, width, dtype=qkv.dtype)

    def step():
        qkv.grad = table.grad = None
        forward(qkv, table).backward(slope)

    return step


class Peer:
    """Steps by case and mode; tuned modes are delegated to a child process with the tuned environment."""

    def __init__(self, warmup):
        self.warmup = warmup
        self.steps = {}
        self.child = None

    def run(self, case, mode):
        known = [*CASES, *UPDATES, *WINDOWS]
        if case not in known or mode not in MODES:
            cases = " ".join(known)
            raise ValueError(f"unknown case or mode; cases: {cases}; modes: {' '.join(MODES)}")
        if mode.endswith("_tuned") and IS_CHILD not in os.environ:
            return self.run_in_child(case, mode)
        if (case, mode) not in self.steps:
            # The models of one case at a time: others would only hold memory.
            self.steps = {key: value for key, value in self.steps.items() if key[0] == case}
            if case in WINDOWS:
                step = make_windows(case, mode)
            else:
                step = make_update(case) if case in UPDATES else make_step(case, mode)
            for _ in range(self.warmup):
                step()
            self.steps[case, mode] = step
        begin = time.perf_counter()
        self.steps[case, mode]()
        return (time.perf_counter() - begin) * 1e3

    def run_in_child(self, case, mode):
        if self.child is None:
            command = [sys.executable, os.path.abspath(__file__), "--serve", "--warmup", str(self.warmup)]
            environment = {**os.environ, **TUNED, IS_CHILD: "1"}
            self.child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
            )
        self.child.stdin.write(f"run {case} {mode}\n")
        self.child.stdin.flush()
        line = self.child.stdout.readline()
        if not line:
            self.child = None
            raise RuntimeError("the tuned child process ended")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["ms"]

    def forget(self):
        self.steps = {}
        if self.child is not None:
            self.child.stdin.close()
            self.child.wait()
            self.child = None


def serve(peer):
    for line in sys.stdin:
        words = line.split()
        if words == ["quit"]:
            break
        if len(words) != 3 or words[0] != "run":
            answer = {"error": "say: run CASE MODE, or quit"}
        else:
            answer = {"case": words[1], "mode": words[2]}
            try:
                answer["ms"] = round(peer.run(words[1], words[2]), 3)
            except Exception as error:  # the peer goes on serving the other cases
                answer["error"] = f"{type(error).__name__}: {str(error)[:300]}"
        print(json.dumps(answer), flush=True)


def measure(peer, cases, modes, steps, threads):
    import torch

    for case in cases:
        for mode in modes:
            row = {"case": case, "mode": mode, "torch": torch.__version__, "threads": threads, "steps": steps}
            try:
                times = [peer.run(case, mode) for _ in range(steps)]
                row["ms"] = round(statistics.median(times), 2)
                row["ms_min"] = round(min(times), 2)
                row["per_s"] = round(CASES[case][2] / row["ms"] * 1e3, 2)
            except Exception as error:  # for example no working compiler for inductor
                row["error"] = f"{type(error).__name__}: {str(error)[:300]}"
            peer.forget()
            print(json.dumps(row), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=".", help="regular expression of the cases")
    parser.add_argument("--modes", default=".", help="regular expression of the modes")
    parser.add_argument("--steps", type=int, default=10, help="timed steps")
    parser.add_argument("--warmup", type=int, default=3, help="steps before the timed ones")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--serve", action="store_true", help="answer 'run CASE MODE' lines on stdin")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)  # the child's too
    import torch

    torch.set_num_threads(arguments.threads)
    peer = Peer(arguments.warmup)
    if arguments.serve:
        serve(peer)
    else:
        cases = [case for case in CASES if re.search(arguments.cases, case)]
        modes = [mode for mode in MODES if re.search(arguments.modes, mode)]
        measure(peer, cases, modes, arguments.steps, arguments.threads)
    peer.forget()


if __name__ == "__main__":
    main()
