// SPDX-License-Identifier: Apache-2.0
// Matrix products.
#pragma once

#include "core/tensor.h"

namespace hearth {

struct MatmulOptions {
  bool transpose_a = false;  ///< a is stored [..., K, M]
  bool transpose_b = false;  ///< b is stored [..., N, K]
};

/// y = a b for matrices in the last two axes: a [..., M, K], b [..., K, N], y [..., M, N].
/// Leading axes broadcast. One matrix b for all of a, and equal axes, are multiplied as they lie; operands that are
/// repeated otherwise are copied. A vector a [K] is one row, a vector b [K] one column, and y lacks that axis; vectors
/// are not transposed. K = 0 gives zeros.
/// One floating type for both; 16-bit types are summed in f32. ShapeError, DTypeError, DeviceError, UsageError.
HEARTH_API Tensor matmul(const Tensor& a, const Tensor& b, MatmulOptions options = {});

}  // namespace hearth
