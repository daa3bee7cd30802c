// SPDX-License-Identifier: Apache-2.0
// Clipping by the global norm of the gradients.
#include "optim/clip.h"

#include <algorithm>
#include <cmath>

#include "core/run_on.h"

namespace hearth::optim {

double grad_norm(FlatParameters& parameters) {
  parameters.finish_grads();
  const Tensor& grads = parameters.grads();
  return run_on(grads.device(), [&](auto& stream) {
    const double sum = kernels::sum_of_squares(stream, grads, 1.0);
    // f32 squares always fit f64. Squares of f64 gradients may leave its range on either side.
    const bool in_range = sum > 1e-280 && sum < 1e300;
    if (in_range || grads.dtype() != DType::f64) return std::sqrt(sum);
    const double largest = kernels::largest_magnitude(stream, grads);
    if (largest == 0 || !std::isfinite(largest)) return largest;
    const int exponent = std::ilogb(largest);
    const double scaled = kernels::sum_of_squares(stream, grads, std::ldexp(1.0, -std::max(exponent, -1000)));
    return std::ldexp(std::sqrt(scaled), std::max(exponent, -1000));
  });
}

void clip_on_device(FlatParameters& parameters, Optimizer& optimizer, double max_norm, const Tensor& norm) {
  HEARTH_CHECK(ConfigError, max_norm > 0, "clipping: largest norm ", max_norm, "; it is above 0");
  const Tensor& grads = parameters.grads();
  HEARTH_CHECK(DeviceError, grads.device().is_cuda(), "clip_on_device: the gradients are on ", grads.device(),
               "; use grad_norm and clip_scale there");
  HEARTH_CHECK(DTypeError, grads.dtype() == DType::f32, "clip_on_device: the gradients are ", grads.dtype(),
               "; they must be f32");
#if HEARTH_HAS_CUDA
  parameters.finish_grads();
  cuda::Stream& stream = cuda::stream_of(grads.device());
  const Tensor sum = Tensor::empty({}, DType::f64, grads.device());
  kernels::sum_of_squares(stream, grads, 1.0, sum);
  const UpdateCells update = optimizer.cells();
  if (update.squares != nullptr) *update.squares = sum;
  kernels::clip_by_sum(stream, sum, max_norm, norm, update.grad_scale);
#else
  (void)optimizer, (void)norm;
#endif
}

double clip_scale(double norm, double max_norm) {
  HEARTH_CHECK(ConfigError, max_norm > 0, "clipping: largest norm ", max_norm, "; it is above 0");
  HEARTH_CHECK(DivergedError, std::isfinite(norm), "clipping: the norm of the gradients is ", norm,
               "; lower the learning rate, or look for the first loss that is not finite");
  return std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace hearth::optim
