// SPDX-License-Identifier: Apache-2.0
#include "ops/index/segment_positions.h"

#include <algorithm>

#include "core/profiler.h"
#include "core/run_on.h"

namespace hearth {

Tensor segment_positions(const Tensor& segments) {
  const char* const op = "segment_positions";
  HEARTH_CHECK(ShapeError, segments.defined() && segments.rank() == 3 && segments.dim(2) == 2, op, ": segments ",
               describe(segments), "; they are [N, T, 2]");
  HEARTH_CHECK(DTypeError, segments.dtype() == DType::i32, op, ": segments are ", describe(segments),
               "; they must be i32");
  const profiler::Scope scope(op);
  const Tensor positions = Tensor::empty({segments.dim(0), segments.dim(1)}, DType::i32, segments.device());
  run_on(segments.device(),
         [&](auto& stream) { kernels::segment_positions(stream, segments.contiguous(), positions); });
  return positions;
}

namespace kernels {

void segment_positions(cpu::Stream&, const Tensor& segments, const Tensor& positions) {
  const std::int64_t cols = positions.dim(1);
  const std::int32_t* const from = segments.data<std::int32_t>();
  std::int32_t* const to = positions.data<std::int32_t>();
  for (std::int64_t i = 0; i < positions.size(); ++i) {
    const auto position = static_cast<std::int32_t>(i % cols);
    to[i] = position - std::clamp(from[2 * i], 0, position);
  }
}

}  // namespace kernels
}  // namespace hearth
