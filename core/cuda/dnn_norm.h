// SPDX-License-Identifier: Apache-2.0
// Batch normalisation in training by cuDNN 9, on dense NHWC images. Statistics and parameters are f32. cuDNN compiles
// the engines for it when a plan is made.
#pragma once

#include <cstdint>
#include <string>

#include "hearth/core/cuda/dnn.h"
#include "hearth/core/cuda/stream.h"

namespace hearth::cuda::dnn {

/// The key of a plan.
struct BatchNorm {
  std::int64_t n = 1, h = 1, w = 1, c = 1;
  DType dtype = DType::f32;  ///< of images and residual
  bool residual = false, relu = false;

  auto operator<=>(const BatchNorm&) const = default;
};

/// Memory aligned to 16. y = relu?((x - mean) inv_std gamma + beta + residual), with inv_std = 1 / sqrt(variance + eps)
/// and the biased variance.
struct BatchNormForward {
  void* x;
  void* residual;  ///< or null
  void *gamma, *beta;
  void* y;
  void *mean, *inv_std;  ///< written
  float eps;
};

/// Empty if cuDNN does it on this device; else the reason why not. The first question for a problem compiles its plan,
/// which must not happen while a graph is captured.
std::string declines(Device device, const BatchNorm& problem);
/// UsageError where `declines` gives a reason; DeviceError if the library is absent, or with its own words.
void batch_norm(Stream& stream, const BatchNorm& problem, const BatchNormForward& memory);

}  // namespace hearth::cuda::dnn
