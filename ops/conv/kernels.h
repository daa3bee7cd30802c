// SPDX-License-Identifier: Apache-2.0
// The three passes of conv2d below the op. All tensors are contiguous, but for images on a CUDA device, which are as
// readable_images() gives them; none of the sizes is 0.
#pragma once

#include <span>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"
#include "ops/activation.h"
#include "ops/candidates.h"
#include "ops/conv/problem.h"
#include "ops/norm/channel_moments.h"
#include "ops/pair.h"

namespace hearth::kernels {

/// What is wanted of a forward pass beside y; an implementation does of it what it can.
struct Conv2dEpilogue {
  Activation activation = Activation::none;  ///< becomes none where it has been applied
  ChannelMoments* moments = nullptr;         ///< of y, left undefined where they were not taken
  /// Where wanted: f32 [2, k], the sums of y and of its squares, which a library may leave in place of the moments.
  Tensor* sums = nullptr;
};

/// What a pass does at its images beside the convolution, without groups and for channels in multiples of 8. On CUDA
/// devices only, by some of the candidates.
struct Conv2dFusion {
  /// [4, C] of a norm behind which a ReLU stands (ChannelNorm), or undefined. forward and backward_weights read x as
  /// relu(norm(x)), rounded.
  Tensor coefficients;
  Tensor folded = {};  ///< f16 [2, C] for a library: the norm is x scale + shift
  /// backward_data, unless null: the images came through this norm and a ReLU. dx is the gradient of what goes into the
  /// ReLU, and the same launch does batch_norm_grad_sums() of it.
  const BatchNormGradient* gradient = nullptr;
  /// backward_data, unless undefined: dx += added, which may be in dx's place, where `mask` (FoldedRows; undefined:
  /// everywhere) has a bit. With a stride, and no mask, `added` [n, p, q, c] has the pixels that a 1x1 filter of that
  /// stride reads, as it makes p x q of them.
  Tensor added = {}, mask = {};
  Pair added_stride = 1;
};

/// The operands of any pass. forward: x, w, b (or undefined) -> y. backward_data: y (holds dy), w -> x.
/// backward_weights: x, y (holds dy) -> w and, unless undefined, b.
struct Conv2dOperands {
  const Tensor& x;
  const Tensor& w;
  const Tensor& b;
  const Tensor& y;
  Conv2dEpilogue* epilogue = nullptr;
  bool accumulate = false;  ///< backward_data: x is added to
  const Conv2dFusion* fusion = nullptr;
  /// backward_weights, of devices only, where wanted: w may be left to sum_filter_parts(), and this becomes its parts
  /// [parts, elements], in the type of sums or that of the images.
  Tensor* unfinished = nullptr;
};

using Conv2dRun = void(const ConvProblem& problem, const Conv2dOperands& operands);
using Conv2dCandidates = Candidates<ConvProblem, Conv2dRun>;

/// Runs one pass by the chosen implementation and reports its operations.
void conv2d(cpu::Stream&, const ConvShape& shape, Pass pass, const Conv2dOperands& operands);
void conv2d(cuda::Stream&, const ConvShape& shape, Pass pass, const Conv2dOperands& operands);
/// The same by the choice among these.
void run_conv2d(Conv2dCandidates& candidates, const ConvShape& shape, Pass pass, const Conv2dOperands& operands);

/// The problem that such a pass is chosen by.
ConvProblem conv2d_problem(const ConvShape& shape, Pass pass, const Conv2dOperands& operands);
/// backward_weights and backward_data of one convolution: in one launch where both are `mma`'s, images' have a fusion,
/// and filters may be left unfinished; else one after the other.
void conv2d_gradients(cuda::Stream&, const ConvShape& shape, const Conv2dOperands& filters,
                      const Conv2dOperands& images);

/// The gradient of filters that a pass left unfinished.
struct FilterParts {
  Tensor parts, w;
};
/// w = the parts, added in order, for all filters in one launch; `images` is the type of the convolutions' images.
void sum_filter_parts(cuda::Stream&, std::span<const FilterParts> list, DType images);

/// Whether this pass of such images is native kernels' on the device: where no library has it, or where they are
/// preferred.
bool convolves_natively(cuda::Stream&, const ConvShape& shape, Pass pass, DType images);
/// Whether cuDNN has a plan for it that reads x `through` a norm and, forward, leaves the sums of y.
bool library_takes_norm(cuda::Stream&, const ConvShape& shape, Pass pass, DType images, bool through);

/// x as the passes read it: contiguous; 16-bit images of few channels, in one group on a CUDA device, in larger
/// pixels, whose rest is zeros. Copies what is not so.
Tensor readable_images(cpu::Stream&, const ConvShape& shape, const Tensor& x);
Tensor readable_images(cuda::Stream&, const ConvShape& shape, const Tensor& x);
/// Elements from one pixel of readable images to the next.
std::int64_t pixel_stride(const Tensor& x);

/// y [..., to] = the channels of x [..., from], padded with zeros or cut off. y is contiguous, x readable; both are of
/// one type or x is f32, and y is not f64.
void copy_channels(cuda::Stream&, const Tensor& x, const Tensor& y);

/// The portable implementation of the device: implicit GEMM in ordinary arithmetic, for fewer than 2^31 pixels.
void conv2d_tiles(cuda::Stream&, const ConvProblem& problem, const Conv2dOperands& operands);

/// The tensor-core implementation of the device: all tensors f16 or all bf16, at addresses that are multiples of 16,
/// with channels and filters of a group multiples of 8; in backward_weights w may be f32, and b of any type.
void conv2d_mma(cuda::Stream&, const ConvProblem& problem, const Conv2dOperands& operands);
/// Its backward_weights, left unfinished unless its sums are made whole in w itself, and its backward_data with a
/// fusion, in one launch.
void conv2d_mma_gradients(cuda::Stream&, const ConvShape& shape, const Conv2dOperands& filters,
                          const Conv2dOperands& images);

}  // namespace hearth::kernels
