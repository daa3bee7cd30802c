// SPDX-License-Identifier: Apache-2.0
// The candidates of a convolution on the CPU.
// Reference, without groups, bias and activation, as all of them compute it; i = p stride - padding + r dilation,
// j = q stride - padding + s dilation, and pixels outside of the image are zeros:
//   for all n, p, q, k, r, s, c:
//     forward:           y[n, p, q, k]   += x[n, i, j, c] * w[k, r, s, c]
//     backward_data:     dx[n, i, j, c] += dy[n, p, q, k] * w[k, r, s, c]
//     backward_weights:  dw[k, r, s, c]  += dy[n, p, q, k] * x[n, i, j, c]
#include "ops/conv/cpu/conv2d_cpu.h"

#include <algorithm>
#include <limits>

#include "autograd/accumulate.h"
#include "core/error.h"

namespace hearth::kernels {
namespace {

/// Why only im2col takes the problem, or empty.
std::string beyond_f32(const ConvProblem& problem) {
  if (problem.activations == DType::f64) return "f64 is left to im2col";
  const ConvShape& s = problem.shape;
  for (const std::int64_t size :
       {s.n, s.h, s.w, s.c, s.k, s.r, s.s, s.p, s.q, s.stride_h, s.stride_w, s.dilation_h, s.dilation_w})
    if (size > std::numeric_limits<std::int32_t>::max()) return "a size or option of 2^31 or more";
  if (std::max(s.pad_h, s.pad_w) >= std::int64_t{1} << 30) return "padding of 2^30 or more";
  return "";
}

/// The problem in the types that the candidates take: f16 as f32, and b as f32. What else follows is no part of it.
ConvProblem taken(ConvProblem problem) {
  if (problem.activations == DType::f16) problem.activations = problem.weights = DType::f32;
  if (problem.bias) problem.bias = DType::f32;
  problem.relu = false;
  return problem;
}

/// `tensor` in f32: itself, a converted copy, or (for a result) memory to be converted back.
Tensor in_f32(const Tensor& tensor, bool result) {
  if (!tensor.defined() || tensor.dtype() == DType::f32) return tensor;
  return result ? Tensor::empty(tensor.shape(), DType::f32, tensor.device()) : tensor.to(DType::f32);
}

/// run(operands with b, or all of them, in f32), with results rounded to their own types afterwards.
template <class Run>
void run_in_f32(Pass pass, bool all, const Conv2dOperands& o, Run&& run) {
  const bool makes_x = pass == Pass::backward_data, makes_w = pass == Pass::backward_weights,
             makes_y = pass == Pass::forward;
  const Tensor x = all ? in_f32(o.x, makes_x) : o.x, w = all ? in_f32(o.w, makes_w) : o.w,
               y = all ? in_f32(o.y, makes_y) : o.y, b = in_f32(o.b, makes_w);
  run(Conv2dOperands{x, w, b, y, o.epilogue, o.accumulate});
  const auto narrow_back = [](const Tensor& wide, const Tensor& result) {
    if (result.defined() && !wide.same_storage(result)) result.copy_from(wide);
  };
  if (makes_x) narrow_back(x, o.x);
  if (makes_y) narrow_back(y, o.y);
  if (makes_w) {
    narrow_back(w, o.w);
    narrow_back(b, o.b);
  }
}

/// run(operands that are not added to), and adds.
template <class Run>
void run_beside(const Conv2dOperands& o, const Run& run) {
  const Tensor dx = Tensor::empty_like(o.x);
  run(Conv2dOperands{dx, o.w, o.b, o.y});
  add_into(cpu::stream_of(o.x.device()), o.x, dx);
}

/// `inner` for f16, any type of b, and sums, which it may make itself.
template <const Conv2dCandidate& inner, bool adds = false>
Conv2dCandidate with_f16() {
  return {inner.name,
          [](const ConvProblem& problem) {
            std::string reason = beyond_f32(problem);
            return reason.empty() ? inner.unsupported(taken(problem)) : reason;
          },
          [](const ConvProblem& problem, const Conv2dOperands& operands) {
            const bool is_f16 = problem.activations == DType::f16;
            const auto run = [&](const Conv2dOperands& o) {
              run_in_f32(problem.pass, is_f16, o, [&](const Conv2dOperands& wide) { inner.run(taken(problem), wide); });
            };
            if (operands.accumulate && (!adds || is_f16)) return run_beside(operands, run);
            run(operands);
          },
          nullptr,
          [](const ConvProblem& problem) {
            return inner.why_slower == nullptr ? std::string() : inner.why_slower(taken(problem));
          }};
}

std::string takes_all(const ConvProblem&) { return ""; }

void run_im2col(const ConvProblem& problem, const Conv2dOperands& o) {
  if (o.accumulate) return run_beside(o, [&](const Conv2dOperands& beside) { run_im2col(problem, beside); });
  if (problem.activations == DType::f64) return conv2d_im2col(problem, o);
  run_in_f32(problem.pass, true, o, [&](const Conv2dOperands& wide) { conv2d_im2col(problem, wide); });
}

}  // namespace

void conv2d(cpu::Stream&, const ConvShape& shape, Pass pass, const Conv2dOperands& operands) {
  static Conv2dCandidates candidates("conv2d", {with_f16<conv2d_matmul, true>(),
                                                with_f16<conv2d_amx>(),
                                                with_f16<conv2d_winograd, true>(),
                                                with_f16<conv2d_direct_bf16>(),
                                                with_f16<conv2d_paired_bf16>(),
                                                with_f16<conv2d_stem_bf16>(),
                                                with_f16<conv2d_unfolded>(),
                                                with_f16<conv2d_onednn>(),
                                                {"im2col", takes_all, run_im2col}});
  run_conv2d(candidates, shape, pass, operands);
}

}  // namespace hearth::kernels
