// SPDX-License-Identifier: Apache-2.0
// What a matrix product is on every device: the problem that its implementation is chosen by, and its arithmetic count.
#include "ops/matmul/product.h"

#include "core/cpu/parallel.h"
#include "core/profiler.h"

namespace hearth::kernels {
namespace {

ProductProblem plain_problem(const ProductLayout& layout, const ProductOperands& operands) {
  ProductProblem problem;
  problem.batch = layout.batch;
  problem.m = layout.m;
  problem.n = layout.n;
  problem.k = layout.k;
  problem.transpose_a = layout.transpose_a;
  problem.transpose_b = layout.transpose_b;
  if (layout.share_b) problem.batch_stride_b = 0;
  problem.a = operands.a.dtype();
  problem.b = operands.b.dtype();
  problem.c = operands.c.dtype();
  problem.accumulate = layout.accumulate;
  problem.deterministic = cpu::deterministic();
  return problem;
}

void run_choice(ProductCandidates& candidates, const ProductProblem& problem, const ProductOperands& operands) {
  const auto choice = candidates.choose(problem);
  const profiler::Scope scope(choice.label);
  choice.run(problem, operands);
  profiler::add_flops(2.0 * static_cast<double>(problem.batch) * static_cast<double>(problem.m) *
                      static_cast<double>(problem.n) * static_cast<double>(problem.k));
}

}  // namespace

void run_product(cpu::Stream& stream, ProductCandidates& candidates, const ProductLayout& layout,
                 const ProductOperands& operands) {
  if (operands.a_sums.defined()) sum_rows(stream, operands.a, operands.a_sums);
  ProductOperands plain = operands;
  if (operands.pre.defined()) plain.c = operands.pre;
  run_choice(candidates, plain_problem(layout, plain), plain);
  if (layout.activation != Activation::none) activate(stream, layout.activation, plain.c, operands.c);
}

void run_product(cuda::Stream&, ProductCandidates& candidates, const ProductLayout& layout,
                 const ProductOperands& operands) {
  ProductProblem problem = plain_problem(layout, operands);
  problem.has_bias = operands.bias.defined();
  problem.activation = layout.activation;
  problem.keeps_pre = operands.pre.defined();
  problem.sums_a = operands.a_sums.defined();
  problem.device = operands.c.device().index;
  if (problem.sums_a) problem.sums_type = operands.a_sums.dtype();
  run_choice(candidates, problem, operands);
}

}  // namespace hearth::kernels
