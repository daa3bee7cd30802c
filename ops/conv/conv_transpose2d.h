// SPDX-License-Identifier: Apache-2.0
// Transposed 2-d convolution of NHWC images.
#pragma once

#include "core/tensor.h"
#include "ops/pair.h"

namespace hearth {

struct ConvTranspose2dOptions {
  Pair stride = 1;          ///< pixels of y from one pixel of x to the next, >= 1
  Pair padding = 0;         ///< rows and columns taken off y on each side, >= 0
  Pair output_padding = 0;  ///< and added at its far edges; >= 0, below the larger of stride and dilation
  Pair dilation = 1;        ///< distance of neighbouring taps, >= 1
  std::int64_t groups = 1;  ///< divides both channel counts; group g joins those of its share only
};

/// The transposed convolution ("deconvolution"), the gradient of `conv2d` by its images: every pixel of x adds its
/// multiple of the filter to y. x [N,H,W,C], w [C,R,S,K/groups], b [K] or absent, y [N,P,Q,K] with
/// P = (H - 1) stride - 2 padding + dilation (R - 1) + output_padding + 1, likewise Q.
///
/// w is laid out as the filter of the convolution from y to x, so that the kernels of conv2d take it as it is; it is
/// PyTorch's weight [C, K/groups, R, S] permuted as that of conv2d is, by (0, 2, 3, 1).
/// Types as for `conv2d`. N = 0 gives an empty result, C = 0 gives b. ShapeError, DTypeError, UsageError.
HEARTH_API Tensor conv_transpose2d(const Tensor& x, const Tensor& w, const Tensor& b,
                                   const ConvTranspose2dOptions& options = {});
/// Without bias.
HEARTH_API Tensor conv_transpose2d(const Tensor& x, const Tensor& w, const ConvTranspose2dOptions& options = {});

}  // namespace hearth
