// SPDX-License-Identifier: Apache-2.0
// What a convolution is on every device: the problem that its implementation is chosen by, and its arithmetic count.
#include "ops/conv/kernels.h"

#include "core/cpu/parallel.h"
#include "core/profiler.h"

namespace hearth::kernels {

std::int64_t pixel_stride(const Tensor& x) { return x.is_contiguous() ? x.dim(3) : x.strides()[2]; }

Tensor readable_images(cpu::Stream&, const ConvShape&, const Tensor& x) { return x.contiguous(); }

void run_conv2d(Conv2dCandidates& candidates, const ConvShape& shape, Pass pass, const Conv2dOperands& operands) {
  ConvProblem problem{.shape = shape, .pass = pass};
  problem.activations = operands.x.dtype();
  problem.weights = operands.w.dtype();
  problem.deterministic = cpu::deterministic();
  problem.device = operands.x.device().index;
  if (operands.b.defined()) problem.bias = operands.b.dtype();
  if (pass == Pass::forward) {
    problem.relu = operands.epilogue != nullptr && operands.epilogue->activation == Activation::relu;
    problem.moments = operands.epilogue != nullptr && operands.epilogue->moments != nullptr;
  }
  const auto choice = candidates.choose(problem);
  const profiler::Scope scope(choice.label);
  choice.run(problem, operands);
  double flops = 2.0;
  for (const std::int64_t extent : {shape.n, shape.p, shape.q, shape.k, shape.r, shape.s, shape.c / shape.groups})
    flops *= static_cast<double>(extent);
  profiler::add_flops(flops);
}

}  // namespace hearth::kernels
