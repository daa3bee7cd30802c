// SPDX-License-Identifier: Apache-2.0
// Convolution with 3x3 filters by Winograd's F(4x4, 3x3): tiles of 4x4 results are made of 36 products where the
// definition has 144. f32 throughout.
#pragma once

#include <string>

#include "ops/conv/problem.h"

namespace hearth::kernels::winograd {

/// y [n, p, q, k] = x [n, h, w, c] by w [k, 3, 3, c], plus b [k] unless null, through a ReLU if wanted. Stride and
/// dilation 1, one group, any padding. The same bits for any thread pool.
void forward(const ConvShape& shape, const float* x, const float* w, const float* b, bool relu, float* y);
/// dx of dy and w.
void backward_data(const ConvShape& shape, const float* dy, const float* w, float* dx);
/// dw of x and dy.
void backward_weights(const ConvShape& shape, const float* x, const float* dy, float* dw);

/// Why convolving directly is faster, or empty.
std::string why_slower(const ConvShape& shape, Pass pass);

}  // namespace hearth::kernels::winograd
