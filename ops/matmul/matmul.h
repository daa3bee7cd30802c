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
/// Leading axes are equal, or b is one matrix [K, N] for all. K = 0 gives zeros.
/// One floating type for both; 16-bit types are summed in f32. ShapeError, DTypeError.
HEARTH_API Tensor matmul(const Tensor& a, const Tensor& b, MatmulOptions options = {});

}  // namespace hearth
