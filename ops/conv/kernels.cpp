// SPDX-License-Identifier: Apache-2.0
// What a convolution is on every device: the problem that its implementation is chosen by, and its arithmetic count.
#include "ops/conv/kernels.h"

#include <algorithm>

#include "core/cpu/parallel.h"
#include "core/profiler.h"
#include "core/shape.h"
#include "ops/dispatch/repeatable.h"

namespace hearth {

double flops_of(const ConvShape& s) {
  double flops = 2.0;
  for (const std::int64_t extent : {s.n, s.p, s.q, s.k, s.r, s.s, s.c / s.groups}) flops *= static_cast<double>(extent);
  return flops;
}

std::int64_t skipped_bytes(const ConvShape& s, DType dtype) {
  const auto read = [](std::int64_t size, std::int64_t results, std::int64_t taps, std::int64_t stride) {
    return taps < stride ? std::min(size, results * taps) : size;
  };
  const std::int64_t pixel = s.c * static_cast<std::int64_t>(size_of(dtype));
  if (pixel < 64 || s.dilation_h != 1 || s.dilation_w != 1) return 0;
  return s.n * (s.h * s.w - read(s.h, s.p, s.r, s.stride_h) * read(s.w, s.q, s.s, s.stride_w)) * pixel;
}

std::ostream& operator<<(std::ostream& out, const ConvProblem& p) {
  const ConvShape& s = p.shape;
  const bool makes_w = p.pass == Pass::backward_weights;
  const char* const pass = p.pass == Pass::forward ? "forward" : makes_w ? "backward_weights" : "backward_data";
  out << pass << " of " << p.activations;
  if (p.weights != p.activations) out << (makes_w ? " to " : " with weights of ") << p.weights;
  out << ", " << Shape{s.n, s.h, s.w, s.c} << " by " << Shape{s.k, s.r, s.s, s.c / s.groups} << " to "
      << Shape{s.n, s.p, s.q, s.k};
  const auto pair = [&](const char* what, std::int64_t h, std::int64_t w, std::int64_t usual) {
    if (h != usual || w != usual) out << what << h;
    if (h != w) out << 'x' << w;
  };
  pair(", stride ", s.stride_h, s.stride_w, 1);
  pair(", padding ", s.pad_h, s.pad_w, 0);
  pair(", dilation ", s.dilation_h, s.dilation_w, 1);
  if (s.groups > 1) out << ", " << s.groups << " groups";
  if (p.bias) out << ", bias of " << *p.bias;
  return out << (p.relu ? ", ReLU" : "") << (p.accumulate ? ", added" : "") << (p.repeatable ? "" : ", not repeatable");
}

}  // namespace hearth

namespace hearth::kernels {
namespace {

ConvProblem problem_of(const ConvShape& shape, Pass pass, const Conv2dOperands& operands) {
  ConvProblem problem{.shape = shape, .pass = pass};
  problem.activations = operands.x.dtype();
  problem.weights = operands.w.dtype();
  problem.deterministic = cpu::deterministic();
  problem.repeatable = repeatable();
  problem.device = operands.x.device().index;
  if (operands.b.defined()) problem.bias = operands.b.dtype();
  problem.accumulate = operands.accumulate;
  problem.relu =
      pass == Pass::forward && operands.epilogue != nullptr && operands.epilogue->activation == Activation::relu;
  return problem;
}

}  // namespace

std::int64_t pixel_stride(const Tensor& x) { return x.is_contiguous() ? x.dim(3) : x.strides()[2]; }

Tensor readable_images(cpu::Stream&, const ConvShape&, const Tensor& x) { return x.contiguous(); }

void run_conv2d(Conv2dCandidates& candidates, const ConvShape& shape, Pass pass, const Conv2dOperands& operands) {
  const ConvProblem problem = problem_of(shape, pass, operands);
  Conv2dEpilogue* const epilogue = operands.epilogue;
  const Activation wanted = epilogue == nullptr ? Activation::none : epilogue->activation;
  const auto call = [&](Conv2dRun* run) {
    if (epilogue != nullptr) epilogue->activation = wanted;
    // Before the work: a device's log gives arithmetic to the next launch.
    profiler::add_flops(flops_of(shape));
    const double reported = profiler::total_flops();
    run(problem, operands);
    // A matrix product inside has reported its own.
    profiler::add_flops(reported - profiler::total_flops());
  };
  candidates.run(problem, call);
}

}  // namespace hearth::kernels
