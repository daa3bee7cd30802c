// SPDX-License-Identifier: Apache-2.0
// What a matrix product is on every device: the problem that its implementation is chosen by, and its arithmetic count.
#include "ops/matmul/product.h"

#include "core/cpu/parallel.h"
#include "core/profiler.h"
#include "core/tf32.h"
#include "ops/dispatch/repeatable.h"

namespace hearth {

std::ostream& operator<<(std::ostream& out, const MatmulProblem& p) {
  out << p.a << " x " << p.b << " to " << p.c << ", batch " << p.batch << ", " << p.m << 'x' << p.k << " by " << p.k
      << 'x' << p.n << (p.transpose_a ? ", a transposed" : "") << (p.transpose_b ? ", b transposed" : "");
  if (p.lda != 0 || p.ldb != 0 || p.ldc != 0) out << ", pitches " << p.lda << ' ' << p.ldb << ' ' << p.ldc;
  if (p.batch_stride_a >= 0 || p.batch_stride_b >= 0 || p.batch_stride_c >= 0)
    out << ", strides " << p.batch_stride_a << ' ' << p.batch_stride_b << ' ' << p.batch_stride_c;
  out << (p.accumulate ? ", added" : "") << (p.tf32 ? ", TF32" : "") << (p.repeatable ? "" : ", not repeatable")
      << (p.has_bias ? ", bias" : "");
  if (p.activation != Activation::none) out << ", " << name_of(p.activation);
  if (p.slope != Activation::none) out << ", slope of " << name_of(p.slope);
  return out << (p.keeps_pre ? ", keeps what went in" : "") << (p.sums_a ? ", sums of a" : "");
}

}  // namespace hearth

namespace hearth::kernels {
namespace {

/// The problem with what the operands say.
MatmulProblem described(MatmulProblem problem, const ProductOperands& operands) {
  problem.a = operands.a.dtype();
  problem.b = operands.b.dtype();
  problem.c = operands.c.dtype();
  problem.deterministic = cpu::deterministic();
  problem.has_bias = operands.bias.defined();
  return problem;
}

void run_choice(ProductCandidates& candidates, const MatmulProblem& problem, const ProductOperands& operands) {
  const auto call = [&](ProductRun* run) {
    profiler::add_flops(2.0 * static_cast<double>(problem.batch) * static_cast<double>(problem.m) *
                        static_cast<double>(problem.n) * static_cast<double>(problem.k));
    run(problem, operands);
  };
  candidates.run(problem, call);
}

}  // namespace

void run_product(cpu::Stream& stream, ProductCandidates& candidates, const MatmulProblem& problem,
                 const ProductOperands& operands) {
  ProductOperands plain = operands;
  if (operands.pre.defined()) plain.c = operands.pre;
  MatmulProblem alone = described(problem, plain);
  alone.activation = Activation::none;
  run_choice(candidates, alone, plain);
  if (problem.activation != Activation::none) activate(stream, problem.activation, plain.c, operands.c);
}

void run_product(cuda::Stream&, ProductCandidates& candidates, const MatmulProblem& problem,
                 const ProductOperands& operands) {
  MatmulProblem whole = described(problem, operands);
  whole.keeps_pre = operands.pre.defined();
  whole.sums_a = operands.a_sums.defined();
  whole.repeatable = repeatable();
  whole.tf32 = whole.a == DType::f32 && whole.b == DType::f32 && allowed_tf32().matmul;
  whole.device = operands.c.device().index;
  run_choice(candidates, whole, operands);
}

}  // namespace hearth::kernels
