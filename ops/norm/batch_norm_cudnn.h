// SPDX-License-Identifier: Apache-2.0
// Batch normalisation in training by cuDNN 9 and its gradient, on dense NHWC images. Statistics and parameters are f32.
// cuDNN compiles the engines for it when a plan is made.
#pragma once

#include <cstdint>
#include <string>

#include "core/cuda/stream.h"
#include "core/dtype.h"
#include "ops/cudnn/library.h"

namespace hearth::cuda::dnn {

/// The key of a forward plan.
struct BatchNorm {
  std::int64_t n = 1, h = 1, w = 1, c = 1;
  DType dtype = DType::f32;  ///< of images and residual
  bool residual = false, relu = false;
  bool bits = false;  ///< with a ReLU: leaves where it was open, for the gradient

  auto operator<=>(const BatchNorm&) const = default;
};

/// The key of a gradient's plan.
struct BatchNormGrad {
  std::int64_t n = 1, h = 1, w = 1, c = 1;
  DType dtype = DType::f32;
  bool relu = false;  ///< dy counts where the forward plan's bits are set

  auto operator<=>(const BatchNormGrad&) const = default;
};

/// Memory aligned to 16. y = relu?((x - mean) inv_std gamma + beta + residual), with inv_std = 1 / sqrt(variance + eps)
/// and the biased variance.
struct BatchNormForward {
  void* x;
  void* residual;  ///< or null
  void *gamma, *beta;
  void* y;
  void *mean, *inv_std;  ///< written
  void* bits;            ///< written: n h w c / 8 bytes, a bit an element in the library's order; or null
  float eps;
};

/// Memory aligned to 16; none of the results may be an operand. Behind a ReLU g is dy where the bits are set, else 0: a
/// residual's gradient. The library has no plan that does not store it.
struct BatchNormBackward {
  void *x, *dy;
  void* bits;  ///< as the forward plan left them; or null
  void *gamma, *mean, *inv_std;
  void* g;  ///< written; null without a ReLU
  void *dx, *d_gamma, *d_beta;
};

/// Empty if cuDNN does it on this device; else the reason why not. The first question for a problem compiles its plan,
/// which must not happen while a graph is captured.
std::string declines(Device device, const BatchNorm& problem);
std::string declines(Device device, const BatchNormGrad& problem);
/// UsageError where `declines` gives a reason; DeviceError if the library is absent, or with its own words.
void batch_norm(Stream& stream, const BatchNorm& problem, const BatchNormForward& memory);
void batch_norm_grad(Stream& stream, const BatchNormGrad& problem, const BatchNormBackward& memory);

}  // namespace hearth::cuda::dnn
