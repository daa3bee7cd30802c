// SPDX-License-Identifier: Apache-2.0
// The candidates of a convolution on the device.
#include <limits>

#include "hearth/core/shape.h"
#include "hearth/ops/conv/kernels.h"

namespace hearth::kernels {
namespace {

/// The own kernels count pixels, and elements of a filter, in 32 bits.
std::string portable_declines(const Conv2dProblem& problem) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const Conv2dShape& s = problem.conv.shape;
  const char* what = "conv2d: pixels of the batch";
  for (const std::int64_t count :
       {checked_mul(s.n, s.p * s.q, what), checked_mul(s.n, s.h * s.w, what), checked_mul(s.r * s.s, s.c, what),
        checked_mul(s.r * s.s, s.k, what), s.h + 2 * s.pad_h, s.w + 2 * s.pad_w})
    if (count > most) return "2^31 or more pixels, or elements of a filter";
  return "";
}

void run_portable(const Conv2dProblem& problem, const Conv2dOperands& operands) {
  conv2d_tiles(cuda::stream_of(operands.x.device()), problem, operands);
}

}  // namespace

void conv2d(cuda::Stream&, const Conv2dShape& shape, cpu::dnn::Pass pass, const Conv2dOperands& operands) {
  static Conv2dCandidates candidates("conv2d", {{"portable", portable_declines, run_portable}}, {"onednn"});
  run_conv2d(candidates, shape, pass, operands);
}

}  // namespace hearth::kernels
