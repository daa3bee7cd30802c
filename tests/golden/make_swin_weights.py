# SPDX-License-Identifier: Apache-2.0
"""A small Swin as timm saves it, and one of torchvision with the names and buffers of its authors' checkpoints, with
PyTorch's logits: what tests of pretrained weights compare with. Needs PyTorch, torchvision and timm.

    make_swin_weights.py    writes timm_swin.safetensors and microsoft_swin.safetensors beside this file
"""

import json
import pathlib
import re

import timm
import torch
import torchvision
from make_models import write_safetensors

SIDE, PATCH, WIDTH, DEPTHS, HEADS, WINDOW, CLASSES = 8, 2, 4, [2, 2], [1, 2], 2, 3


def draw(model):
    for name, value in model.named_parameters():
        is_norm = name.endswith("weight") and value.dim() == 1
        value.data = torch.randn_like(value) * 0.3 + (1 if is_norm else 0)
    return model.eval()


def write(path, weights, model, images):
    """Images as [N, H, W, C]; inputs and results are in the metadata: every tensor is a weight."""
    logits = model.double()(images.double())
    tell = lambda tensor: json.dumps(tensor.flatten().tolist())
    metadata = {"format": "pt", "images": tell(images.permute(0, 2, 3, 1)), "result": tell(logits)}
    write_safetensors(path, weights, metadata)


def cloned(state):
    return {name: value.clone() for name, value in state.items()}


def of_timm():
    sizes = {"img_size": SIDE, "patch_size": PATCH, "embed_dim": WIDTH, "depths": DEPTHS, "num_heads": HEADS}
    model = timm.models.swin_transformer.SwinTransformer(
        in_chans=1, num_classes=CLASSES, window_size=WINDOW, mlp_ratio=2.0, drop_path_rate=0.0, **sizes
    )
    draw(model)
    return cloned(model.state_dict()), model


def microsoft_name(name):
    """The authors' name of a tensor of torchvision."""
    stage, _, rest = name.removeprefix("features.").partition(".")
    if not name.startswith("features."):
        return name
    if stage == "0":
        return "patch_embed." + rest.replace("0.", "proj.", 1).replace("2.", "norm.", 1)
    layer = (int(stage) - 1) // 2
    if int(stage) % 2 == 0:
        return f"layers.{layer}.downsample.{rest}"
    return f"layers.{layer}.blocks." + re.sub(r"mlp\.([03])", lambda m: "mlp.fc1" if m[1] == "0" else "mlp.fc2", rest)


def of_authors():
    """With places, an index as a square and the mask of the shifted block, as their checkpoints have."""
    model = torchvision.models.SwinTransformer(
        [PATCH] * 2, WIDTH, DEPTHS, HEADS, [WINDOW] * 2, mlp_ratio=2.0, stochastic_depth_prob=0.0, num_classes=CLASSES
    )
    model.features[0][0] = torch.nn.Conv2d(1, WIDTH, PATCH, PATCH)
    draw(model)
    grid = SIDE // PATCH
    places = torch.randn(1, grid * grid, WIDTH) * 0.3
    model.features[0].register_forward_hook(lambda module, inputs, tokens: tokens + places.view(1, grid, grid, WIDTH))
    weights = {microsoft_name(name): value for name, value in cloned(model.state_dict()).items()}
    for name, value in weights.items():
        if name.endswith("relative_position_index"):
            weights[name] = value.view(WINDOW**2, WINDOW**2)
    weights["absolute_pos_embed"] = places
    weights["layers.0.blocks.1.attn_mask"] = torch.zeros((grid // WINDOW) ** 2, WINDOW**2, WINDOW**2)
    return weights, model


def main():
    torch.set_num_threads(1)
    torch.manual_seed(6)
    images = torch.randn(3, 1, SIDE, SIDE)
    folder = pathlib.Path(__file__).parent
    with torch.no_grad():
        write(folder / "timm_swin.safetensors", *of_timm(), images)
        write(folder / "microsoft_swin.safetensors", *of_authors(), images)


if __name__ == "__main__":
    main()
