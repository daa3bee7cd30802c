// SPDX-License-Identifier: Apache-2.0
// One thread; reads and writes three words.
#include "core/time_marks.h"

#include "core/cuda/kernel.h"

namespace hearth::kernels {
namespace {

using namespace cuda;

__global__ void add_time(std::int64_t* marks, std::int64_t part) {
  std::int64_t &last = marks[timed_parts], &open = marks[timed_parts + 1];
  const std::int64_t now = nanoseconds_now();
  if (open > 0) marks[open - 1] += now - last;
  last = now;
  open = part + 1;
}

}  // namespace

void mark_time(Stream& stream, const Tensor& marks, int part) {
  HEARTH_CHECK(UsageError, part >= 0 && part < timed_parts, "time marks: part ", part, " is not in [0, ", timed_parts,
               ")");
  launch(stream, "mark_time", LaunchShape{1, 1}.moving(6 * sizeof(std::int64_t)), add_time, marks.data<std::int64_t>(),
         std::int64_t{part});
}

}  // namespace hearth::kernels
