// SPDX-License-Identifier: Apache-2.0
// The candidates of a convolution on the CPU.
#include <algorithm>
#include <limits>

#include "ops/conv/kernels.h"
#include "ops/onednn/onednn.h"

namespace hearth::kernels {
namespace {

/// The problem with f16, which the library does not take, as f32.
ConvProblem without_f16(ConvProblem problem) {
  if (problem.activations == DType::f16) problem.activations = problem.weights = DType::f32;
  return problem;
}

std::string library_declines(const ConvProblem& problem) {
  if (problem.activations == DType::f64) return "f64 is not among the library's types";
  const ConvShape& s = problem.shape;
  for (const std::int64_t size :
       {s.n, s.h, s.w, s.c, s.k, s.r, s.s, s.p, s.q, s.stride_h, s.stride_w, s.dilation_h, s.dilation_w})
    if (size > std::numeric_limits<std::int32_t>::max()) return "a size or option of 2^31 or more";
  if (std::max(s.pad_h, s.pad_w) >= std::int64_t{1} << 30) return "padding of 2^30 or more";
  return cpu::dnn::declines(without_f16(problem), problem.pass);
}

const float* floats_of(const Tensor& tensor) { return tensor.defined() ? tensor.data<float>() : nullptr; }

void call_library(const ConvProblem& conv, Pass pass, const Conv2dOperands& o) {
  switch (pass) {
    case Pass::forward:
      return cpu::dnn::conv2d_forward(conv, o.x.bytes(), o.w.bytes(), floats_of(o.b), o.y.bytes());
    case Pass::backward_data:
      return cpu::dnn::conv2d_backward_data(conv, o.y.bytes(), o.w.bytes(), o.x.bytes());
    case Pass::backward_weights:
      return cpu::dnn::conv2d_backward_weights(conv, o.x.bytes(), o.y.bytes(), o.w.bytes(),
                                               o.b.defined() ? o.b.data<float>() : nullptr);
  }
}

/// `tensor` in f32: itself, a converted copy, or (for a result) memory to be converted back.
Tensor widened(const Tensor& tensor, bool result) {
  if (!tensor.defined() || tensor.dtype() == DType::f32) return tensor;
  return result ? Tensor::empty(tensor.shape(), DType::f32, tensor.device()) : tensor.to(DType::f32);
}

void narrow_back(const Tensor& wide, const Tensor& result) {
  if (result.defined() && !wide.same_storage(result)) result.copy_from(wide);
}

/// run(operands in f32), with results rounded to their own types afterwards.
template <class Run>
void run_widened(Pass pass, const Conv2dOperands& o, Run&& run) {
  const bool weights = pass == Pass::backward_weights;
  const Tensor x = widened(o.x, pass == Pass::backward_data), w = widened(o.w, weights), b = widened(o.b, weights),
               y = widened(o.y, pass == Pass::forward);
  run(Conv2dOperands{x, w, b, y});
  if (pass == Pass::forward) narrow_back(y, o.y);
  if (pass == Pass::backward_data) narrow_back(x, o.x);
  if (weights) {
    narrow_back(w, o.w);
    narrow_back(b, o.b);
  }
}

void run_library(const ConvProblem& problem, const Conv2dOperands& o) {
  if (problem.activations == DType::f16)
    return run_widened(problem.pass, o,
                       [&](const Conv2dOperands& wide) { call_library(without_f16(problem), problem.pass, wide); });
  if (!o.b.defined() || o.b.dtype() == DType::f32) return call_library(problem, problem.pass, o);
  const bool result = problem.pass == Pass::backward_weights;
  const Tensor b = widened(o.b, result);
  call_library(problem, problem.pass, {o.x, o.w, b, o.y});
  if (result) narrow_back(b, o.b);
}

std::string portable_declines(const ConvProblem&) { return ""; }

void run_portable(const ConvProblem& problem, const Conv2dOperands& o) {
  if (problem.activations == DType::f64) return conv2d_portable(problem, o);
  run_widened(problem.pass, o, [&](const Conv2dOperands& wide) { conv2d_portable(problem, wide); });
}

}  // namespace

void conv2d(cpu::Stream&, const ConvShape& shape, Pass pass, const Conv2dOperands& operands) {
  static Conv2dCandidates candidates(
      "conv2d", {{"onednn", library_declines, run_library}, {"portable", portable_declines, run_portable}},
      {"cudnn", "mma"});
  run_conv2d(candidates, shape, pass, operands);
}

}  // namespace hearth::kernels
