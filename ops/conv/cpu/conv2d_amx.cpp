// SPDX-License-Identifier: Apache-2.0
// The convolution of bf16 images on the processor's tiles, without unfolding them: conv_streams.cpp has the forward
// pass and the data gradient, filter_streams.cpp the filter gradient. Reference: conv2d_cpu.cpp.
#include "core/cpu/amx.h"
#include "core/error.h"
#include "ops/conv/cpu/conv2d_cpu.h"
#include "ops/conv/cpu/conv_streams.h"
#include "ops/onednn/convert.h"
#include "ops/onednn/onednn.h"

namespace hearth::kernels {
namespace {

void run_amx(const ConvProblem& problem, const Conv2dOperands& o) {
  if (problem.pass != Pass::backward_weights) return convolve_on_tiles(problem, o);
  const ConvShape& s = problem.shape;
  if (problem.weights == DType::f32)
    filter_gradient_on_tiles(s, o.x.data<bf16>(), o.y.data<bf16>(), o.w.data<float>());
  else
    filter_gradient_on_tiles(s, o.x.data<bf16>(), o.y.data<bf16>(), o.w.data<bf16>());
  if (o.b.defined()) cpu::dnn::sum_rows(o.y.bytes(), DType::bf16, s.n * s.p * s.q, s.k, o.b.data<float>());
}

std::string amx_unsupported(const ConvProblem& problem) {
  const ConvShape& s = problem.shape;
  if (problem.activations != DType::bf16) return join_text("images of ", problem.activations, ", not bf16");
  if (s.groups != 1) return join_text(s.groups, " groups");
  if (problem.pass == Pass::backward_data) {
    if (s.k % 32 != 0) return join_text(s.k, " filters, not a multiple of 32");
  } else if (std::string reason = StreamImages::unsupported(s); !reason.empty()) {
    return reason;
  }
  return cpu::amx::unsupported();
}

// A prototype of such streams ran 3x3 filters forward at 2.4 to 3.1 TFLOP/s on two cores of an Intel Xeon where the
// library had 0.23 to 0.51; this code has never been timed. Filters of one pixel are matrix products, on tiles too, or
// the library's, if it is there.
std::string amx_why_slower(const ConvProblem& problem) {
  return cpu::dnn::available() && problem.shape.r * problem.shape.s == 1 ? "filters of one pixel" : "";
}

}  // namespace

const Conv2dCandidate conv2d_amx{"amx", amx_unsupported, run_amx, nullptr, amx_why_slower};

}  // namespace hearth::kernels
