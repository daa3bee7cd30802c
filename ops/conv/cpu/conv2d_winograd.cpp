// SPDX-License-Identifier: Apache-2.0
// 3x3 convolutions by a quarter of the products or less (winograd.h), in f32 also of bf16. Results differ from those of
// the definition by about as much as two orders of its sums do; deterministic mode keeps to the definition.
#include "core/cpu/amx.h"
#include "core/error.h"
#include "ops/conv/cpu/conv2d_cpu.h"
#include "ops/conv/cpu/winograd.h"
#include "ops/onednn/convert.h"
#include "ops/onednn/onednn.h"

namespace hearth::kernels {
namespace {

std::string winograd_unsupported(const ConvProblem& problem) {
  const ConvShape& s = problem.shape;
  if (problem.activations != DType::f32 && problem.activations != DType::bf16)
    return join_text("images of ", problem.activations, ", not f32 or bf16");
  if (s.r != 3 || s.s != 3) return join_text("filters of ", s.r, "x", s.s, ", not 3x3");
  if (s.stride_h != 1 || s.stride_w != 1) return join_text("stride ", s.stride_h, "x", s.stride_w);
  if (s.dilation_h != 1 || s.dilation_w != 1) return join_text("dilation ", s.dilation_h, "x", s.dilation_w);
  if (s.groups != 1) return join_text(s.groups, " groups");
  return problem.deterministic ? "deterministic mode sums as the definition does" : "";
}

std::string winograd_why_slower(const ConvProblem& problem) {
  if (problem.activations == DType::f32)
    return winograd::why_slower(problem.shape, problem.pass, problem.activations, winograd::Rival::f32);
  if (cpu::amx::unsupported().empty()) return "matrix tiles are many times as fast";
  if (cpu::amx::has_bf16_vectors())
    return winograd::why_slower(problem.shape, problem.pass, problem.activations, winograd::Rival::bf16);
  // A library that multiplies bf16 where native code does not has wider vectors.
  if (cpu::dnn::has_hardware_bf16()) return "the library multiplies bf16 in hardware";
  return winograd::why_slower(problem.shape, problem.pass, problem.activations, winograd::Rival::f32);
}

template <class T, class W>
void run_as(const ConvProblem& problem, const Conv2dOperands& o) {
  const ConvShape& s = problem.shape;
  const int tile = winograd::tile_of(s, problem.pass, problem.activations);
  switch (problem.pass) {
    case Pass::forward: {
      const bool relu = o.epilogue != nullptr && o.epilogue->activation == Activation::relu;
      winograd::forward(tile, s, o.x.data<T>(), o.w.data<W>(), o.b.defined() ? o.b.data<float>() : nullptr, relu,
                        o.y.data<T>());
      if (relu) o.epilogue->activation = Activation::none;
      return;
    }
    case Pass::backward_data:
      return winograd::backward_data(tile, s, o.y.data<T>(), o.w.data<W>(), o.accumulate, o.x.data<T>());
    case Pass::backward_weights:
      winograd::backward_weights(tile, s, o.x.data<T>(), o.y.data<T>(), o.w.data<W>());
      if (o.b.defined()) cpu::dnn::sum_rows(o.y.bytes(), problem.activations, s.n * s.p * s.q, s.k, o.b.data<float>());
  }
}

void run_winograd(const ConvProblem& problem, const Conv2dOperands& o) {
  if (problem.activations == DType::f32) return run_as<float, float>(problem, o);
  if (problem.weights == DType::f32) return run_as<bf16, float>(problem, o);
  run_as<bf16, bf16>(problem, o);
}

}  // namespace

const Conv2dCandidate conv2d_winograd{"winograd", winograd_unsupported, run_winograd, nullptr, winograd_why_slower};

}  // namespace hearth::kernels
