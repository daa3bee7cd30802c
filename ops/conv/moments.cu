// SPDX-License-Identifier: Apache-2.0
// Moments from the sums that a library leaves: a thread a channel.
#include "core/cuda/kernel.h"
#include "ops/conv/kernels.h"

namespace hearth::kernels {
namespace {

__global__ void moments_from_sums(const float* sums, std::int64_t channels, double rows, double* parts) {
  const std::int64_t c = cuda::global_thread();
  if (c >= channels) return;
  const double sum = sums[c], squares = sums[channels + c], rest = squares - sum * sum / rows;
  parts[c] = sum / rows;
  // Not-a-number stays.
  parts[channels + c] = rest < 0 ? 0 : rest;
}

}  // namespace

void moments_of_sums(cuda::Stream& stream, const Tensor& sums, std::int64_t rows, const Tensor& parts) {
  const std::int64_t channels = sums.dim(1);
  constexpr int block = 128;
  cuda::launch(stream, "moments of sums", {cuda::blocks_for(channels, block), block}, moments_from_sums,
               static_cast<const float*>(sums.data<float>()), channels, static_cast<double>(rows),
               parts.data<double>());
}

}  // namespace hearth::kernels
