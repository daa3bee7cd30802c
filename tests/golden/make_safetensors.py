# SPDX-License-Identifier: Apache-2.0
# Writes python.safetensors beside this file. Needs numpy and safetensors.
import pathlib

import numpy
from safetensors.numpy import save_file

save_file(
    {
        "layer.weight": numpy.arange(6, dtype=numpy.float32).reshape(2, 3) / 2,
        "step": numpy.array(7, dtype=numpy.int64),
        "mask": numpy.array([True, False, True]),
        "half": numpy.array([1.5, -2.0], dtype=numpy.float16),
        "empty": numpy.zeros((0, 4), dtype=numpy.float64),
    },
    pathlib.Path(__file__).with_name("python.safetensors"),
    metadata={"format": "pt"},
)
