// SPDX-License-Identifier: Apache-2.0
// Layer normalisation of 2x2 neighbouring tokens as one, which are gathered where they lie.
#pragma once

#include "ops/norm/layer_norm.h"

namespace hearth {

/// y = layer_norm() of four neighbours in a row each, as patch merging in Swin has them (Liu et al., 2021): x [N, H, W,
/// C], any floating type, to y [N, ceil(H / 2), ceil(W / 2), 4C], whose row (n, i, j) holds x[n, 2i, 2j], x[n, 2i + 1,
/// 2j], x[n, 2i, 2j + 1] and x[n, 2i + 1, 2j + 1]; where an odd side has no neighbour, zeros, which count in the
/// statistics. No copy of x is made or kept.
///
/// gamma and beta [4C], f64 for f64 x, else f32; `low_precision` as in layer_norm(). UsageError, ShapeError, DTypeError
/// or DeviceError for arguments that do not fit.
HEARTH_API Tensor merge_layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps = 1e-5,
                                   bool low_precision = false);

namespace kernels {

/// All contiguous; x and dx [N, H, W, C].
void merge_layer_norm(cpu::Stream&, const Tensor& x, const Normalized& o);
void merge_layer_norm(cuda::Stream&, const Tensor& x, const Normalized& o);
void merge_layer_norm_grad(cpu::Stream&, const Tensor& x, const NormGradient& g, const Tensor& dx);
void merge_layer_norm_grad(cuda::Stream&, const Tensor& x, const NormGradient& g, const Tensor& dx);

}  // namespace kernels
}  // namespace hearth
