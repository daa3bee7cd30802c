#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of gpu_check.

    gpu_check_torch.py step f32|bf16 [--batch 64] [--pixels 224] [--device cuda]
    gpu_check_torch.py text f32|bf16 [--batch 16] [--length 1024] [--layers 12] [--width 768] [--vocabulary 50304]
    gpu_check_torch.py swin f32|bf16 [--batch 128] [--pixels 224] [--device cuda]
    gpu_check_torch.py ops [--device cuda] < CASES

`step` times whole training steps of torchvision's ResNet-50 (SGD with momentum; bf16 means autocast), `text` those of a
GPT (fused AdamW), `swin` those of torchvision's Swin-T and, where it is installed, timm's (fused AdamW, stochastic
depth of 0.2). `ops` reads the JSON lines of `hearth bench ops` and times the same operations, forward and gradient
together. Each prints JSON lines {"name", "shape" (of ops), "peers": [{"name", "mode", "ms"}]}: one after each mode, with
all of the case so far, so that of a mode that takes too long the others remain. Modes: eager (channels_last), and
torch.compile where it works; of attention within windows also `sdpa`, which has the chain's products and softmax in
one.
"""

import argparse
import json
import os
import re
import statistics
import sys
import time

import torch
import torch.nn.functional as F

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


class Clock:
    def __init__(self, device):
        self.device = device

    def wait(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def median_ms(self, run, warm, repeats, each=1):
        """`each` runs are queued for each time taken, so that the wait at the end does not count."""
        for _ in range(warm):
            run()
        times = []
        for _ in range(repeats):
            self.wait()
            start = time.perf_counter()
            for _ in range(each):
                run()
            self.wait()
            times.append((time.perf_counter() - start) * 1e3 / each)
        return statistics.median(times)


class Peers:
    """What is known of a case, told after each mode; one that fails leaves the others."""

    def __init__(self, **case):
        self.line = {**case, "peers": []}

    def add(self, name, mode, measure):
        try:
            self.line["peers"].append({"name": name, "mode": mode, "ms": measure()})
            print(json.dumps(self.line), flush=True)
        except Exception as error:  # noqa: BLE001
            print(f"{self.line['name']} {mode}: {str(error)[-300:]}", file=sys.stderr)


def time_steps(arguments, makers, modes, name):
    """Each of makers, by the peer's name, gives a network, its optimizer, inputs and labels, on the device."""
    clock = Clock(arguments.device)

    def measure(mode, make):
        torch.manual_seed(0)
        model, optimizer, inputs, labels = make()

        def forward():
            with torch.autocast(arguments.device, dtype=torch.bfloat16, enabled=arguments.what == "bf16"):
                return F.cross_entropy(model(inputs), labels)

        if mode == "compile_max_autotune":
            forward = torch.compile(forward, mode="max-autotune")

        def run():
            optimizer.zero_grad(set_to_none=True)
            forward().backward()
            optimizer.step()

        return clock.median_ms(run, warm=arguments.warm, repeats=arguments.repeats)

    peers = Peers(name=name)
    for mode in modes + (["compile_max_autotune"] if arguments.compile else []):
        for who, make in makers.items():
            peers.add(who, mode, lambda: measure(mode, make))


def step(arguments):
    import torchvision

    def make():
        model = torchvision.models.resnet50().to(arguments.device).to(memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=True)
        size = (arguments.batch, 3, arguments.pixels, arguments.pixels)
        images = torch.randn(size, device=arguments.device).to(memory_format=torch.channels_last)
        return model, optimizer, images, torch.randint(0, 1000, (arguments.batch,), device=arguments.device)

    time_steps(arguments, {"torch": make}, ["eager_channels_last"], f"step/resnet50/{arguments.what}")


def text(arguments):
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from bench_cpu_torch import make_text

    def make():
        model, optimizer, ids, labels = make_text("gpt", arguments.length, arguments.batch, arguments.layers,
                                                  arguments.width, arguments.width // 64, arguments.vocabulary)
        # In place: the optimizer keeps its parameters.
        model.to(arguments.device)
        return model, optimizer, ids.to(arguments.device), labels.to(arguments.device)

    time_steps(arguments, {"torch": make}, ["eager"], f"step/gpt/{arguments.what}")


def swin(arguments):
    import torchvision

    def with_rest(model):
        model.to(arguments.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        images = torch.randn(arguments.batch, 3, arguments.pixels, arguments.pixels, device=arguments.device)
        return model, optimizer, images, torch.randint(0, 1000, (arguments.batch,), device=arguments.device)

    makers = {"torch": lambda: with_rest(torchvision.models.swin_t())}
    try:
        import timm

        makers["timm"] = lambda: with_rest(
            timm.create_model("swin_tiny_patch4_window7_224", img_size=arguments.pixels, drop_path_rate=0.2))
    except ImportError:
        pass
    time_steps(arguments, makers, ["eager"], f"step/swin_t/{arguments.what}")


def window_attention(qkv, table, behind, heads, window, shift):
    """The chain of operations of the reference model from the projection on, and the same with
    scaled_dot_product_attention in the place of products and softmax. Positions behind the image have `behind`."""
    n, height, width, channels = qkv.shape[0], qkv.shape[1], qkv.shape[2], qkv.shape[3] // 3
    rows, columns = (-(-side // window) * window for side in (height, width))
    down, across = rows // window, columns // window
    shifts = (shift if rows > window else 0, shift if columns > window else 0)
    at = torch.arange(window * window, device=qkv.device)
    y, x = at // window, at % window
    index = ((y[:, None] - y + window - 1) * (2 * window - 1) + x[:, None] - x + window - 1).flatten()
    # Tokens that rolling brings together from different sides.
    zone = [torch.zeros(size, device=qkv.device) for size in (rows, columns)]
    for sides, moved in zip(zone, shifts):
        if moved > 0:
            sides[-window:-moved], sides[-moved:] = 1, 2
    zones = zone[0][:, None] * 3 + zone[1]
    zones = zones.view(down, window, across, window).transpose(1, 2).reshape(down * across, window * window)
    mask = torch.where(zones[:, None] == zones[:, :, None], 0.0, -100.0).to(qkv.dtype)

    def cut(part):
        """[n * windows, heads, tokens, width of a head]"""
        part = part.view(n, down, window, across, window, heads, channels // heads).permute(0, 1, 3, 5, 2, 4, 6)
        return part.reshape(n * down * across, heads, window * window, channels // heads)

    def attend(whole):
        padded = qkv
        if (rows, columns) != (height, width):
            padded = behind.to(qkv.dtype).expand(n, rows, columns, -1).clone()
            padded[:, :height, :width] = qkv
        if any(shifts):
            padded = torch.roll(padded, (-shifts[0], -shifts[1]), (1, 2))
        q, k, v = (cut(part) for part in padded.chunk(3, -1))
        bias = table[index].view(window * window, window * window, heads).permute(2, 0, 1).to(qkv.dtype)
        if whole:
            added = bias + mask[:, None] if any(shifts) else bias.expand(down * across, -1, -1, -1)
            result = F.scaled_dot_product_attention(q, k, v, attn_mask=added.repeat(n, 1, 1, 1))
        else:
            scores = (q * (channels // heads) ** -0.5) @ k.transpose(-2, -1) + bias
            if any(shifts):
                scores = scores.view(n, down * across, heads, window * window, -1) + mask[:, None]
                scores = scores.view(-1, heads, window * window, window * window)
            result = F.softmax(scores, -1) @ v
        result = result.view(n, down, across, heads, window, window, -1).permute(0, 1, 4, 2, 5, 3, 6)
        result = result.reshape(n, rows, columns, channels)
        if any(shifts):
            result = torch.roll(result, shifts, (1, 2))
        return result[:, :height, :width].contiguous()

    return {"eager": lambda: attend(False), "sdpa": lambda: attend(True)}


def operation(case, device):
    """(function without arguments that gives the result, or several by mode, its leaves) for a case of
    `hearth bench ops`; None if unknown."""
    family, variant = case["name"].split("/")[0], case["name"].split("/")[1:-1]
    dtype = DTYPES[case["dtype"]]
    shape = json.loads(case["shape"])

    def leaf(*size, type=dtype):
        return torch.randn(*size, device=device, dtype=type, requires_grad=True)

    def images(n, h, w, c):
        x = torch.randn(n, c, h, w, device=device, dtype=dtype).to(memory_format=torch.channels_last)
        return x.requires_grad_()

    if family == "conv2d":
        r, stride, k = (int(v) for v in re.fullmatch(r"(\d+)x\d+s(\d+)/k(\d+)", "/".join(variant)).groups())
        x, w = images(*shape), leaf(k, shape[3], r, r).detach().to(memory_format=torch.channels_last).requires_grad_()
        return (lambda: F.conv2d(x, w, stride=stride, padding=r // 2)), [x, w]
    if family == "batch_norm":
        x, c = images(*shape), shape[3]
        gamma, beta = leaf(c, type=torch.float32), leaf(c, type=torch.float32)
        mean, variance = torch.zeros(c, device=device), torch.ones(c, device=device)
        if variant == ["add_relu"]:
            residual = images(*shape)
            return (lambda: F.relu(F.batch_norm(x, mean, variance, gamma, beta, True) + residual)), [x, gamma, beta,
                                                                                                 residual]
        return (lambda: F.relu(F.batch_norm(x, mean, variance, gamma, beta, True))), [x, gamma, beta]
    if family == "linear":
        rows_in, out = variant[0].split("to")
        x, w, b = leaf(*shape), leaf(int(out.removesuffix("+gelu")), int(rows_in)), leaf(int(out.removesuffix("+gelu")))
        if out.endswith("+gelu"):
            return (lambda: F.gelu(F.linear(x, w, b))), [x, w, b]
        return (lambda: F.linear(x, w, b)), [x, w, b]
    if family == "attention":
        x, (heads, width) = leaf(*shape), (int(v) for v in variant[0].split("x"))
        causal = "causal" in variant

        def attend():
            q, k, v = x.view(shape[0], shape[1], 3, heads, width).permute(2, 0, 3, 1, 4).unbind(0)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            return y.transpose(1, 2).reshape(shape[0], shape[1], heads * width)

        return attend, [x]
    if family == "window_attention":
        (heads, width), window = (int(v) for v in variant[0].split("x")), int(variant[1])
        assert shape[3] == 3 * heads * width
        qkv, table = leaf(*shape), leaf((2 * window - 1) ** 2, heads, type=torch.float32)
        behind = leaf(shape[3], type=torch.float32)
        leaves = [qkv, table] + ([behind] if any(side % window for side in shape[1:3]) else [])
        return window_attention(qkv, table, behind, heads, window, window // 2), leaves
    if family in ("relu", "gelu"):
        x = leaf(*shape)
        return (lambda: getattr(F, family)(x)), [x]
    if family == "softmax":
        x = leaf(*shape)
        return (lambda: F.softmax(x, -1)), [x]
    if family == "layer_norm":
        x, gamma, beta = leaf(*shape), leaf(shape[-1]), leaf(shape[-1])
        return (lambda: F.layer_norm(x, (shape[-1],), gamma, beta)), [x, gamma, beta]
    if family == "add_layer_norm":
        x, f, gamma, beta = leaf(*shape), leaf(*shape), leaf(shape[-1]), leaf(shape[-1])
        return (lambda: F.layer_norm(x + F.dropout(f, 0.1), (shape[-1],), gamma, beta)), [x, f, gamma, beta]
    if family == "merge_layer_norm":
        x, gamma, beta = leaf(*shape), leaf(4 * shape[-1]), leaf(4 * shape[-1])

        def merge():
            four = torch.cat([x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)], -1)
            return F.layer_norm(four, (four.shape[-1],), gamma, beta)

        return merge, [x, gamma, beta]
    if family == "linear_cross_entropy":
        x, w = leaf(*shape), leaf(int(variant[0]), shape[-1])
        labels = torch.zeros(shape[0], device=device, dtype=torch.long)
        return (lambda: F.cross_entropy(F.linear(x, w).float(), labels)), [x, w]
    if family == "cross_entropy":
        x, labels = leaf(*shape), torch.zeros(shape[0], device=device, dtype=torch.long)
        return (lambda: F.cross_entropy(x.float() if dtype != torch.float32 else x, labels)), [x]
    return None


def update(case, device):
    """A step of the optimizer on as many parameters in 160 tensors; None for an optimizer that PyTorch has not."""
    variant = case["name"].split("/")[1]
    sizes = [(768, 600)] * 54 + [(256,)] * 106
    parameters = [torch.full(size, 0.01, device=device, requires_grad=True) for size in sizes]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 3e-4)
    if variant == "sgd":
        optimizer = torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, fused=True)
    elif variant in ("adamw", "adamw+clip"):
        optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
    else:
        return None
    if variant.endswith("+clip"):
        return lambda: (torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True), optimizer.step())
    return optimizer.step


def time_case(case, arguments):
    device, clock = arguments.device, Clock(arguments.device)
    peers = Peers(name=case["name"], shape=case["shape"])
    each = 10 if device == "cuda" else 1
    if case["name"].startswith("update/"):
        run = update(case, device)
        if run is not None:
            peers.add("torch", "fused", lambda: clock.median_ms(run, arguments.warm, arguments.repeats, each))
        return
    made = operation(case, device)
    if made is None:
        return
    forms, leaves = made if isinstance(made[0], dict) else ({"eager": made[0]}, made[1])
    f = forms["eager"]
    dy = torch.randn_like(f().detach())
    # What one operation alone cannot gain from is not compiled: it costs seconds a case.
    fuses = case["name"].split("/")[0] in ("batch_norm", "layer_norm", "add_layer_norm", "merge_layer_norm", "softmax",
                                           "cross_entropy", "linear_cross_entropy", "gelu", "window_attention")

    def measure(mode):
        forward = torch.compile(f) if mode == "compile" else forms[mode]

        def run():
            torch.autograd.grad(forward(), leaves, dy)

        return clock.median_ms(run, arguments.warm, arguments.repeats, each)

    for mode in [*forms] + (["compile"] if fuses and arguments.compile else []):
        peers.add("torch", mode, lambda: measure(mode))


def ops(arguments):
    for line in sys.stdin:
        if not line.strip():
            continue
        case = json.loads(line)["case"]
        try:
            time_case(case, arguments)
        except Exception as error:  # noqa: BLE001  one case that fails leaves the others
            print(f"{case['name']}: {str(error)[-300:]}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, run in (("step", step), ("text", text), ("swin", swin), ("ops", ops)):
        command = commands.add_parser(name)
        command.set_defaults(run=run)
        command.add_argument("--device", default="cuda")
        command.add_argument("--no-compile", dest="compile", action="store_false")
        command.add_argument("--warm", type=int, default=10)
        command.add_argument("--repeats", type=int, default=30)
        if name != "ops":
            command.add_argument("what", choices=("f32", "bf16"))
            command.add_argument("--batch", type=int, default={"step": 64, "text": 16, "swin": 128}[name])
        if name in ("step", "swin"):
            command.add_argument("--pixels", type=int, default=224)
        if name == "text":
            for size, default in (("length", 1024), ("layers", 12), ("width", 768), ("vocabulary", 50304)):
                command.add_argument(f"--{size}", type=int, default=default)
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    arguments.run(arguments)


if __name__ == "__main__":
    main()
