// SPDX-License-Identifier: Apache-2.0
// Clipping by the global norm of the gradients.
#include "optim/clip.h"

#include <algorithm>
#include <cmath>

#include "core/run_on.h"

namespace hearth::optim {

namespace {

/// The pieces of the gradients, at most FlatParameters::piece_elements of one parameter each.
struct GradPieces {
  std::vector<std::int64_t> ends;    ///< of those of this rank, within what it keeps
  std::vector<std::size_t> numbers;  ///< of those among all
  std::size_t count = 0;             ///< of all
};

GradPieces pieces_of(const FlatParameters& parameters) {
  const std::vector<Shards::Range> own = parameters.divides_grads()
                                             ? parameters.shards()->ranges()
                                             : std::vector<Shards::Range>{{0, parameters.total(), 0}};
  const std::vector<FlatParameters::Entry>& entries = parameters.entries();
  GradPieces pieces;
  auto at = own.begin();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::int64_t end = i + 1 < entries.size() ? entries[i + 1].begin : parameters.total();
    for (std::int64_t begin = entries[i].begin; begin < end; begin += FlatParameters::piece_elements, ++pieces.count) {
      while (at != own.end() && at->end <= begin) ++at;
      if (at == own.end() || begin < at->begin) continue;
      pieces.ends.push_back(at->place - at->begin + std::min(end, begin + FlatParameters::piece_elements));
      pieces.numbers.push_back(pieces.count);
    }
  }
  return pieces;
}

/// The largest of all ranks' numbers where they keep a part of the gradients each.
double largest_of_ranks(const FlatParameters& parameters, double mine) {
  if (!parameters.divides_grads()) return mine;
  const Tensor all = Tensor::of<double>({1}, {mine});
  parameters.shards()->group->all_reduce(all, Reduce::max).wait();
  return all.item();
}

}  // namespace

double squares_of_grads(const FlatParameters& parameters, double scale) {
  const Tensor& grads = parameters.grads();
  if (!grads.device().is_cpu())
    return run_on(grads.device(), [&](auto& stream) { return kernels::sum_of_squares(stream, grads, scale); });
  const GradPieces pieces = pieces_of(parameters);
  const std::vector<double> mine = kernels::squares_of_pieces(grads, scale, pieces.ends);
  std::vector<double> all(pieces.count, 0.0);
  for (std::size_t i = 0; i < mine.size(); ++i) all[pieces.numbers[i]] = mine[i];
  if (parameters.divides_grads()) {
    // One rank's number and zeros: the sum is exact.
    const Tensor sums = Tensor::of<double>({static_cast<std::int64_t>(all.size())}, all);
    parameters.shards()->group->all_reduce(sums).wait();
    std::copy_n(sums.data<const double>(), all.size(), all.begin());
  }
  double sum = 0;
  for (const double part : all) sum += part;
  return sum;
}

void squares_of_grads(const FlatParameters& parameters, const Tensor& sum) {
#if HEARTH_HAS_CUDA
  if (sum.device().is_cuda())
    return kernels::sum_of_squares(cuda::stream_of(sum.device()), parameters.grads(), 1.0, sum);
#endif
  *sum.data<double>() = squares_of_grads(parameters);
}

double grad_norm(FlatParameters& parameters) {
  parameters.finish_grads();
  const Tensor& grads = parameters.grads();
  const double sum = squares_of_grads(parameters);
  // f32 squares always fit f64. Squares of f64 gradients may leave its range on either side.
  const bool in_range = sum > 1e-280 && sum < 1e300;
  if (in_range || grads.dtype() != DType::f64 || std::isnan(sum)) return std::sqrt(sum);
  const double largest = largest_of_ranks(
      parameters, run_on(grads.device(), [&](auto& stream) { return kernels::largest_magnitude(stream, grads); }));
  if (largest == 0 || !std::isfinite(largest)) return largest;
  const int exponent = std::max(std::ilogb(largest), -1000);
  return std::ldexp(std::sqrt(squares_of_grads(parameters, std::ldexp(1.0, -exponent))), exponent);
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
  squares_of_grads(parameters, sum);
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
