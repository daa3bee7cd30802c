// SPDX-License-Identifier: Apache-2.0
#include "ops/index/segment_positions.h"

#include "core/cuda/kernel.h"

namespace hearth::kernels {
namespace {

constexpr int threads = 256;

/// One thread a position.
__global__ void positions_in_segments(const std::int32_t* segments, std::int64_t size, std::int64_t cols,
                                      std::int32_t* positions) {
  for (std::int64_t i = cuda::global_thread(); i < size; i += cuda::global_threads()) {
    const auto position = static_cast<std::int32_t>(i % cols);
    const std::int32_t first = segments[2 * i];
    positions[i] = position - (first < 0 ? 0 : first < position ? first : position);
  }
}

}  // namespace

void segment_positions(cuda::Stream& stream, const Tensor& segments, const Tensor& positions) {
  const std::int64_t size = positions.size();
  if (size == 0) return;
  cuda::launch(stream, "segment_positions",
               {cuda::blocks_for(size, threads, 1 << 16), threads, 0, cuda::bytes_of(segments, positions)},
               positions_in_segments, static_cast<const std::int32_t*>(segments.data<std::int32_t>()), size,
               positions.dim(1), positions.data<std::int32_t>());
}

}  // namespace hearth::kernels
