# SPDX-License-Identifier: Apache-2.0
"""Writes image_ops.json: what PyTorch makes of interpolate, conv_transpose2d and group_norm, in double precision.

Needs PyTorch. Inputs are exact arithmetic, so that the test can compute the same ones: element i of a tensor, in Hearth's
order (NHWC; filters [in, R, S, out / groups]), is ((a * i + b) % 23 - 11) / 8, with (a, b) = (7, 3) for x, (5, 1) for
weights, (3, 2) for biases and (9, 4) for dy. Results and gradients are written in that order too.
"""

import json
import math
import pathlib

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def draw(shape, a, b):
    i = torch.arange(math.prod(shape))
    return (((a * i + b) % 23 - 11).double() / 8).reshape(shape)


def images(shape):
    """A leaf [N, H, W, C] and the same as PyTorch takes it."""
    x = draw(shape, 7, 3).requires_grad_()
    return x, x.permute(0, 3, 1, 2)


def result(y, inputs):
    """The values of y [N, C, P, Q], and the gradients of the inputs, in Hearth's order."""
    y = y.permute(0, 2, 3, 1)
    gradients = torch.autograd.grad(y, list(inputs.values()), draw(y.shape, 9, 4))
    flat = lambda t: t.detach().flatten().tolist()
    return {"shape": list(y.shape), "y": flat(y), **{f"d_{n}": flat(g) for n, g in zip(inputs, gradients)}}


def interpolate(shape, size=None, scale=None, mode="nearest", align_corners=False, antialias=False):
    x, nchw = images(shape)
    y = F.interpolate(nchw, size=size, scale_factor=scale, mode=mode, antialias=antialias,
                      align_corners=align_corners if mode == "bilinear" else None)
    options = {"size": size, "scale": scale, "mode": mode, "align_corners": align_corners, "antialias": antialias}
    return {"x": shape, **options, **result(y, {"x": x})}


def interpolations():
    cases = []
    # From 30 pixels to 26 the nearest ones depend on PyTorch's rounding to f32.
    for shape, size in (([2, 4, 5, 3], [8, 10]), ([1, 5, 7, 2], [8, 3]), ([1, 9, 11, 1], [4, 5]), ([1, 1, 6, 2], [3, 1]),
                        ([1, 10, 10, 1], [7, 7]), ([1, 4, 4, 1], [4, 4]), ([1, 7, 3, 1], [1, 30]), ([1, 1, 30, 1], [1, 26])):
        cases.append(interpolate(shape, size))
        for align_corners in (False, True):
            for antialias in (False, True):
                cases.append(interpolate(shape, size, None, "bilinear", align_corners, antialias))
    for shape, scale in (([1, 4, 5, 2], [2.0, 3.0]), ([1, 7, 7, 1], [0.7, 0.3]), ([1, 3, 3, 1], [1.2, 1.9]),
                         ([1, 1, 2, 1], [2.9, 2.2])):
        cases.append(interpolate(shape, None, scale))
        for align_corners in (False, True):
            cases.append(interpolate(shape, None, scale, "bilinear", align_corners))
        # Where an axis keeps its size PyTorch copies it, but its gradient (2.15) still resamples by the scale.
        if scale != [1.2, 1.9]:
            cases.append(interpolate(shape, None, scale, "bilinear", False, True))
    return cases


def conv_transpose2d(shape, w_shape, stride=(1, 1), padding=(0, 0), output_padding=(0, 0), dilation=(1, 1), groups=1):
    x, nchw = images(shape)
    w = draw(w_shape, 5, 1).requires_grad_()
    b = draw([w_shape[3] * groups], 3, 2).requires_grad_()
    y = F.conv_transpose2d(nchw, w.permute(0, 3, 1, 2), b, stride, padding, output_padding, groups, dilation)
    options = {"stride": stride, "padding": padding, "output_padding": output_padding, "dilation": dilation}
    return {"x": shape, "w": w_shape, **options, "groups": groups, **result(y, {"x": x, "w": w, "b": b})}


def transposed_convolutions():
    return [
        conv_transpose2d([2, 3, 4, 3], [3, 2, 2, 4], (2, 2)),
        conv_transpose2d([1, 4, 3, 4], [4, 3, 3, 2], (2, 2), (1, 1), (1, 1)),
        conv_transpose2d([1, 3, 4, 2], [2, 3, 2, 3], (1, 3), (2, 0), (0, 2), (2, 1)),
        conv_transpose2d([1, 4, 4, 4], [4, 3, 3, 3], (2, 2), (1, 1), (0, 1), groups=2),
        conv_transpose2d([1, 3, 3, 2], [2, 2, 2, 1], (1, 1), (0, 0), (2, 1), (3, 2)),
    ]


def group_norm(shape, groups, eps=1e-5):
    x, nchw = images(shape)
    gamma = draw([shape[3]], 5, 1).requires_grad_()
    beta = draw([shape[3]], 3, 2).requires_grad_()
    y = F.group_norm(nchw, groups, gamma, beta, eps)
    return {"x": shape, "groups": groups, "eps": eps, **result(y, {"x": x, "gamma": gamma, "beta": beta})}


def group_norms():
    return [group_norm([2, 3, 4, 6], 3), group_norm([2, 3, 3, 4], 4), group_norm([1, 5, 2, 8], 1, 1e-3),
            group_norm([3, 1, 1, 6], 2, 0.1)]


def main():
    cases = {"interpolate": interpolations(), "conv_transpose2d": transposed_convolutions(), "group_norm": group_norms()}
    path = pathlib.Path(__file__).with_name("image_ops.json")
    path.write_text(json.dumps({"torch": torch.__version__, **cases}, separators=(",", ":")) + "\n")
    print(path, path.stat().st_size, "bytes")


main()
