// SPDX-License-Identifier: Apache-2.0
// What a matrix product is on every device: the problem that its implementation is chosen by, and its arithmetic count.
#include "hearth/ops/matmul/product.h"

#include "hearth/core/cpu/parallel.h"
#include "hearth/core/profiler.h"

namespace hearth::kernels {

void run_product(ProductCandidates& candidates, const ProductLayout& layout, const Tensor& a, const Tensor& b,
                 const Tensor& bias, const Tensor& c) {
  ProductProblem problem;
  problem.batch = layout.batch;
  problem.m = layout.m;
  problem.n = layout.n;
  problem.k = layout.k;
  problem.transpose_a = layout.transpose_a;
  problem.transpose_b = layout.transpose_b;
  if (layout.share_b) problem.batch_stride_b = 0;
  problem.a = a.dtype();
  problem.b = b.dtype();
  problem.c = c.dtype();
  problem.accumulate = layout.accumulate;
  problem.deterministic = cpu::deterministic();
  const auto choice = candidates.choose(problem);
  const profiler::Scope scope(choice.label);
  choice.run(problem, a, b, bias, c);
  profiler::add_flops(2.0 * static_cast<double>(layout.batch) * static_cast<double>(layout.m) *
                      static_cast<double>(layout.n) * static_cast<double>(layout.k));
}

}  // namespace hearth::kernels
