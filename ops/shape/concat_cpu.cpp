// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "core/cpu/parallel.h"
#include "ops/shape/concat.h"

namespace hearth::kernels {

void copy_runs(cpu::Stream&, const std::byte* from, std::int64_t from_pitch, std::byte* to, std::int64_t to_pitch,
               std::int64_t rows, std::int64_t bytes) {
  constexpr std::int64_t piece = 1 << 18;
  if (bytes <= piece) {
    cpu::parallel_for(rows, std::max<std::int64_t>(1, piece / bytes), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r)
        std::memcpy(to + r * to_pitch, from + r * from_pitch, static_cast<std::size_t>(bytes));
    });
    return;
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    cpu::parallel_for(bytes, piece, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(to + r * to_pitch + begin, from + r * from_pitch + begin, static_cast<std::size_t>(end - begin));
    });
  }
}

}  // namespace hearth::kernels
