# SPDX-License-Identifier: Apache-2.0
"""Writes optim.json: what torch.optim makes of 1,000 steps, in double precision. Needs PyTorch.

Gradients are simple exact arithmetic of the weights and the step, so that the test can compute the same ones:
    g[i] = a[i] * (w[i] - t[i]) + ((7 * step + 3 * i) % 11 - 5) / 16,
    a[i] = (i % 5 + 1) / 8, t[i] = (i % 7 - 3) / 4, w[i] starts at (i % 9 - 4) / 8; i counts through all parameters.
"""

import json
import math
import pathlib

import torch

SHAPES = {"first.weight": (3, 4), "first.bias": (3,), "second.weight": (2, 3)}
SAMPLED = [1, 2, 3, 10, 100, 500, 1000]
TOTAL = 1000


def parameters():
    result, begin = {}, 0
    for name, shape in SHAPES.items():
        index = torch.arange(begin, begin + math.prod(shape)).reshape(shape)
        begin += math.prod(shape)
        result[name] = torch.nn.Parameter(((index % 9) - 4).double() / 8)
    return result


def set_gradients(values, step):
    begin = 0
    for value in values.values():
        i = torch.arange(begin, begin + value.numel()).reshape(value.shape)
        begin += value.numel()
        a = ((i % 5) + 1).double() / 8
        t = ((i % 7) - 3).double() / 4
        value.grad = a * (value.detach() - t) + (((7 * step + 3 * i) % 11) - 5).double() / 16


def run(make, make_schedule=None):
    values = parameters()
    optimizer = make(values)
    schedule = make_schedule(optimizer) if make_schedule else None
    sampled = []
    for step in range(TOTAL):
        set_gradients(values, step)
        optimizer.step()
        if schedule:
            schedule.step()
        if step + 1 in SAMPLED:
            sampled.append([x for value in values.values() for x in value.detach().flatten().tolist()])
    return sampled


class Layerwise(torch.optim.Optimizer):
    """LARS and LAMB written out; PyTorch has neither. Weights of rank 1 have no trust ratio and no decay."""

    def __init__(self, values, lr, decay, rule):
        super().__init__(values, {"lr": lr, "decay": decay})
        self.rule, self.steps = rule, 0

    @torch.no_grad()
    def step(self):
        self.steps += 1
        for w in self.param_groups[0]["params"]:
            decay = self.param_groups[0]["decay"] if w.dim() > 1 else 0.0
            self.rule(w, w.grad, decay, self.param_groups[0]["lr"], self.state[w], self.steps)


def lars(w, g, decay, lr, state, _, momentum=0.9, trust=0.02, eps=1e-8):
    ratio = trust * w.norm() / (g.norm() + decay * w.norm() + eps) if w.dim() > 1 else 1.0
    state["m"] = momentum * state.get("m", 0.0) + ratio * (g + decay * w)
    w -= lr * state["m"]


def lamb(w, g, decay, lr, state, t, beta1=0.9, beta2=0.99, eps=1e-6):
    state["m"] = beta1 * state.get("m", 0.0) + (1 - beta1) * g
    state["v"] = beta2 * state.get("v", 0.0) + (1 - beta2) * g * g
    u = state["m"] / (1 - beta1**t) / ((state["v"] / (1 - beta2**t)).sqrt() + eps) + decay * w
    w -= lr * (w.norm() / u.norm() if w.dim() > 1 else 1.0) * u


def groups(values, decay):
    """Norms and biases without decay; second.weight at ten times the rate."""
    return [
        {"params": [values["first.weight"]], "weight_decay": decay},
        {"params": [values["first.bias"]], "weight_decay": 0.0},
        {"params": [values["second.weight"]], "weight_decay": decay, "lr": 0.1},
    ]


def cosine(optimizer):
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1 / 50, total_iters=49)
    rest = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=TOTAL - 50)
    return torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, rest], milestones=[50])


def cases():
    sgd, adam, adamw = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
    all_of = lambda values: list(values.values())
    return {
        "sgd": run(lambda v: sgd(all_of(v), lr=0.01)),
        "sgd_decay": run(lambda v: sgd(all_of(v), lr=0.01, weight_decay=0.1)),
        "sgd_momentum": run(lambda v: sgd(all_of(v), lr=0.01, momentum=0.9, weight_decay=0.05)),
        "sgd_dampening": run(lambda v: sgd(all_of(v), lr=0.01, momentum=0.9, dampening=0.3)),
        "sgd_nesterov": run(lambda v: sgd(all_of(v), lr=0.01, momentum=0.8, nesterov=True, weight_decay=0.05)),
        "sgd_cosine": run(lambda v: sgd(all_of(v), lr=0.02, momentum=0.9), cosine),
        "sgd_groups": run(lambda v: sgd(groups(v, 0.1), lr=0.01, momentum=0.9)),
        "adam": run(lambda v: adam(all_of(v), lr=0.01)),
        "adam_decay": run(lambda v: adam(all_of(v), lr=0.01, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.1)),
        "adamw": run(lambda v: adamw(all_of(v), lr=0.01, weight_decay=0.1)),
        "adamw_cosine": run(lambda v: adamw(all_of(v), lr=0.02, betas=(0.9, 0.95), weight_decay=0.01), cosine),
        "lars": run(lambda v: Layerwise(all_of(v), 0.1, 0.05, lars)),
        "lamb": run(lambda v: Layerwise(all_of(v), 0.01, 0.05, lamb)),
        "adamw_groups": run(lambda v: adamw(groups(v, 0.1), lr=0.01)),
    }


def rates(make):
    """The learning rate of every 13th step; the base rate is 1."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    schedule = make(optimizer)
    result = []
    for step in range(TOTAL):
        if step % 13 == 0:
            result.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return result


def schedules():
    kinds = torch.optim.lr_scheduler
    warm = lambda o, n: kinds.LinearLR(o, start_factor=1 / n, total_iters=n - 1)
    then = lambda o, n, rest: kinds.SequentialLR(o, [warm(o, n), rest], milestones=[n])
    return {
        "constant_warmup": rates(lambda o: warm(o, 100)),
        "step": rates(lambda o: kinds.MultiStepLR(o, milestones=[300, 600, 900], gamma=0.1)),
        "cosine": rates(lambda o: kinds.CosineAnnealingLR(o, T_max=TOTAL, eta_min=0.05)),
        "cosine_warmup": rates(lambda o: then(o, 100, kinds.CosineAnnealingLR(o, T_max=TOTAL - 100))),
        "polynomial": rates(lambda o: kinds.PolynomialLR(o, total_iters=TOTAL, power=2.0)),
        "inverse_sqrt": rates(
            lambda o: kinds.LambdaLR(o, lambda s: (s + 1) / 100 if s < 100 else math.sqrt(100 / (s + 1)))
        ),
    }


def main():
    result = {"torch": torch.__version__, "sampled": SAMPLED, "cases": cases(), "schedules": schedules()}
    path = pathlib.Path(__file__).with_name("optim.json")
    path.write_text(json.dumps(result, separators=(",", ":")) + "\n")
    print(path, path.stat().st_size, "bytes")


main()
