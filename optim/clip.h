// SPDX-License-Identifier: Apache-2.0
// Clipping by the global norm of the gradients.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "autograd/parameters.h"
#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "optim/optimizer.h"

namespace hearth::optim {

/// The Euclidean norm of all gradients together, summed in f64 in fixed pieces. Gradients of 1e30, whose squares
/// overflow f32, are no problem. Infinite or NaN gradients give a result that is not finite.
HEARTH_API double grad_norm(FlatParameters& parameters);

/// Sum of (g * scale)^2 over all gradients g, of all ranks where these keep a part each; all call it then. On the CPU
/// the sum has the same terms in the same order for any number of ranks. Waits for the device.
HEARTH_API double squares_of_grads(const FlatParameters& parameters, double scale = 1.0);
/// The same into `sum`, f64 [] beside the gradients, without waiting for a device.
HEARTH_API void squares_of_grads(const FlatParameters& parameters, const Tensor& sum);

/// The factor that brings gradients of this norm down to `max_norm`: min(1, max_norm / (norm + 1e-6)), PyTorch's
/// definition; hand it to Optimizer::step. DivergedError for a norm that is not finite, ConfigError unless max_norm >
/// 0.
HEARTH_API double clip_scale(double norm, double max_norm);

/// Clips on the gradients' CUDA device, between begin_step() and apply() of the optimizer: its gradient scale there is
/// multiplied by clip_scale. `norm`, f64 [1] there, becomes the norm. Nothing waits; a norm that is not finite makes
/// the update NaN. The parameters are f32 (f64 squares may overflow).
HEARTH_API void clip_on_device(FlatParameters& parameters, Optimizer& optimizer, double max_norm, const Tensor& norm);

}  // namespace hearth::optim

namespace hearth::kernels {

/// norm = sqrt(sum), grad_scale *= clip_scale(norm, max_norm). `sum` and `norm` f64 [1].
void clip_by_sum(cuda::Stream& stream, const Tensor& sum, double max_norm, const Tensor& norm, double* grad_scale);

/// Sum of (x * scale)^2 over n elements, on the calling thread; T is float or double.
template <class T>
double sum_of_squares(const T* x, std::int64_t n, double scale);

/// The sums of (x * scale)^2 over pieces of x [n] that lie one after the other and end at `ends`.
std::vector<double> squares_of_pieces(const Tensor& x, double scale, std::span<const std::int64_t> ends);
/// Sum of (x * scale)^2 in f64. x [n], f32 or f64, contiguous. Waits for the device.
double sum_of_squares(cpu::Stream& stream, const Tensor& x, double scale);
double sum_of_squares(cuda::Stream& stream, const Tensor& x, double scale);
/// The same into `sum`, f64 [] beside x, without waiting.
void sum_of_squares(cuda::Stream& stream, const Tensor& x, double scale, const Tensor& sum);
/// Largest |x|; NaN if x holds one; 0 if x is empty. Waits for the device.
double largest_magnitude(cpu::Stream& stream, const Tensor& x);
double largest_magnitude(cuda::Stream& stream, const Tensor& x);

}  // namespace hearth::kernels
