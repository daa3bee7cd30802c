// SPDX-License-Identifier: Apache-2.0
// 2-d convolution of NHWC images.
#pragma once

#include "core/tensor.h"
#include "ops/activation.h"
#include "ops/pair.h"

namespace hearth {

struct Conv2dOptions {
  Pair stride = 1;          ///< >= 1
  Pair padding = 0;         ///< zeros on each side, >= 0
  Pair dilation = 1;        ///< distance of neighbouring taps, >= 1
  std::int64_t groups = 1;  ///< divides C and K; group g joins channels and filters of its share only
  Activation activation = Activation::none;
};

/// y[n,p,q,k] = activation(b[k] + sum over r,s,c of x[n, p stride - padding + r dilation, ..., c] w[k,r,s,c]), the
/// cross-correlation that deep learning calls convolution. x [N,H,W,C], w [K,R,S,C/groups], b [K] or absent,
/// y [N,P,Q,K] with P = (H + 2 padding - dilation (R - 1) - 1) / stride + 1, likewise Q.
/// Types as for `linear`: w is of x's type, or f32 beside f16 and bf16; 16-bit types are summed in f32. N = 0 gives an
/// empty result, C = 0 activation(b). ShapeError, DTypeError.
HEARTH_API Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& b, const Conv2dOptions& options = {});
/// Without bias.
HEARTH_API Tensor conv2d(const Tensor& x, const Tensor& w, const Conv2dOptions& options = {});

}  // namespace hearth
