// SPDX-License-Identifier: Apache-2.0
// The three passes of conv2d below the op. All tensors are contiguous, but for images on a CUDA device, which are as
// readable_images() gives them; none of the sizes is 0.
#pragma once

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"
#include "ops/activation.h"
#include "ops/conv/problem.h"
#include "ops/dispatch/candidates.h"
#include "ops/norm/channel_moments.h"

namespace hearth::kernels {

/// What is wanted of a forward pass beside y; an implementation does of it what it can.
struct Conv2dEpilogue {
  Activation activation = Activation::none;  ///< becomes none where it has been applied
  ChannelMoments* moments = nullptr;         ///< of y, left undefined where they were not taken
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
};

using Conv2dRun = void(const ConvProblem& problem, const Conv2dOperands& operands);
using Conv2dCandidates = Candidates<ConvProblem, Conv2dRun>;

/// Runs one pass by the chosen implementation and reports its operations.
void conv2d(cpu::Stream&, const ConvShape& shape, Pass pass, const Conv2dOperands& operands);
void conv2d(cuda::Stream&, const ConvShape& shape, Pass pass, const Conv2dOperands& operands);
/// The same by the choice among these.
void run_conv2d(Conv2dCandidates& candidates, const ConvShape& shape, Pass pass, const Conv2dOperands& operands);

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

}  // namespace hearth::kernels
