// SPDX-License-Identifier: Apache-2.0
// 3x3 convolutions in f32 by a quarter of the products (winograd.h). Results differ from those of the definition by
// about as much as two orders of its sums do; deterministic mode keeps to the definition.
#include "core/error.h"
#include "ops/conv/conv2d_cpu.h"
#include "ops/conv/winograd.h"
#include "ops/onednn/convert.h"

namespace hearth::kernels {
namespace {

std::string unsupported(const ConvProblem& problem) {
  const ConvShape& s = problem.shape;
  if (problem.activations != DType::f32) return join_text("images of ", problem.activations, ", not f32");
  if (s.r != 3 || s.s != 3) return join_text("filters of ", s.r, "x", s.s, ", not 3x3");
  if (s.stride_h != 1 || s.stride_w != 1) return join_text("stride ", s.stride_h, "x", s.stride_w);
  if (s.dilation_h != 1 || s.dilation_w != 1) return join_text("dilation ", s.dilation_h, "x", s.dilation_w);
  if (s.groups != 1) return join_text(s.groups, " groups");
  return problem.deterministic ? "deterministic mode sums as the definition does" : "";
}

std::string why_slower(const ConvProblem& problem) { return winograd::why_slower(problem.shape, problem.pass); }

void run(const ConvProblem& problem, const Conv2dOperands& o) {
  const ConvShape& s = problem.shape;
  switch (problem.pass) {
    case Pass::forward: {
      const bool relu = o.epilogue != nullptr && o.epilogue->activation == Activation::relu;
      winograd::forward(s, o.x.data<float>(), o.w.data<float>(), o.b.defined() ? o.b.data<float>() : nullptr, relu,
                        o.y.data<float>());
      if (relu) o.epilogue->activation = Activation::none;
      return;
    }
    case Pass::backward_data:
      return winograd::backward_data(s, o.y.data<float>(), o.w.data<float>(), o.x.data<float>());
    case Pass::backward_weights:
      winograd::backward_weights(s, o.x.data<float>(), o.y.data<float>(), o.w.data<float>());
      if (o.b.defined()) cpu::dnn::sum_rows(o.y.bytes(), DType::f32, s.n * s.p * s.q, s.k, o.b.data<float>());
  }
}

}  // namespace

const Conv2dCandidate conv2d_winograd{"winograd", unsupported, run, nullptr, why_slower};

}  // namespace hearth::kernels
