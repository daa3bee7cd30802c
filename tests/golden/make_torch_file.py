# SPDX-License-Identifier: Apache-2.0
"""Writes state_dict.pth and checkpoint.pth beside this file, as torch.save() has them: what
tests/models/torch_file_test.cpp reads. Needs PyTorch."""

import collections
import pathlib

import torch


def main():
    here = pathlib.Path(__file__).parent
    table = torch.arange(12, dtype=torch.float32).reshape(4, 3)
    state = collections.OrderedDict(
        table=table,
        tied=table,
        turned=table.t(),
        part=table[1:3, 1:],
        parameter=torch.nn.Parameter(torch.tensor([1.5, -2.0])),
        double=torch.tensor([1.0, 1e300], dtype=torch.float64),
        half=torch.tensor([0.5, 65504.0], dtype=torch.float16),
        brain=torch.tensor([0.25, -3.0], dtype=torch.bfloat16),
        counter=torch.tensor(7),
        index=torch.tensor([[-1, 2]], dtype=torch.int32),
        mask=torch.tensor([True, False]),
        bytes=torch.tensor([1, 255], dtype=torch.uint8),
        empty=torch.empty(0, 3),
        scalar=torch.tensor(2.5),
    )
    state._metadata = collections.OrderedDict([("", {"version": 1})])
    torch.save(state, here / "state_dict.pth")
    torch.save({"epoch": 3, "lr": 0.5, "state_dict": {"w": torch.tensor([[1.0, 2.0]])}}, here / "checkpoint.pth")


if __name__ == "__main__":
    main()
