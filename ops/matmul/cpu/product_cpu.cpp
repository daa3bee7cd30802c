// SPDX-License-Identifier: Apache-2.0
// The candidates of a matrix product on the CPU.
#include "ops/matmul/cpu/matmul_avx512_bf16.h"
#include "ops/matmul/cpu/matmul_cpu.h"
#include "ops/matmul/product.h"

namespace hearth::kernels {
namespace {

/// The problem with f16, which neither implementation takes, as f32.
MatmulProblem without_f16(MatmulProblem problem) {
  for (DType* type : {&problem.a, &problem.b, &problem.c})
    if (*type == DType::f16) *type = DType::f32;
  return problem;
}

/// An implementation on raw pointers, on tensors: f16 and the bias are converted beside it. `sums` goes on to it.
template <class By, class... Sums>
void run_with(By* by, const MatmulProblem& problem, const ProductOperands& operands, Sums... sums) {
  const Tensor &a = operands.a, &b = operands.b, &bias = operands.bias, &c = operands.c;
  const auto is_half = [](const Tensor& tensor) { return tensor.dtype() == DType::f16; };
  const DType bias_type = problem.a == DType::f64 ? DType::f64 : DType::f32;
  const Tensor left = is_half(a) ? a.to(DType::f32) : a;
  const Tensor right = is_half(b) ? b.to(DType::f32) : b;
  const Tensor into = is_half(c) ? Tensor::empty(c.shape(), DType::f32, c.device()) : c;
  const Tensor row = bias.defined() && bias.dtype() != bias_type ? bias.to(bias_type) : bias;
  by(without_f16(problem), left.bytes(), right.bytes(), row.defined() ? row.bytes() : nullptr, into.bytes(), sums...);
  if (is_half(c)) c.copy_from(into);
}

template <const cpu::MatmulCandidate& inner>
void run(const MatmulProblem& problem, const ProductOperands& operands) {
  run_with(inner.run, problem, operands);
  if (operands.a_sums.defined()) sum_rows(cpu::stream_of({}), operands.a, operands.a_sums);
}

/// Sums A while it multiplies, where A is what it reads.
void run_avx512_bf16(const MatmulProblem& problem, const ProductOperands& operands) {
  const Tensor& sums = operands.a_sums;
  if (!sums.defined() || operands.a.dtype() != DType::bf16) return run<cpu::product_by_avx512_bf16>(problem, operands);
  const Tensor found = sums.dtype() == DType::f32 ? sums : Tensor::empty(sums.shape(), DType::f32);
  run_with(cpu::matmul_with_sums_by_avx512_bf16, problem, operands, found.data<float>());
  if (sums.dtype() != DType::f32) sums.copy_from(found.to(sums.dtype()));
}

/// `inner` for tensors, f16 and sums of A.
template <const cpu::MatmulCandidate& inner>
Candidate<MatmulProblem, ProductRun> on_tensors(ProductRun* by = run<inner>) {
  return {inner.name, [](const MatmulProblem& problem) { return inner.unsupported(without_f16(problem)); }, by, nullptr,
          [](const MatmulProblem& problem) {
            return inner.why_slower == nullptr ? std::string() : inner.why_slower(without_f16(problem));
          }};
}

}  // namespace

ProductCandidates product_candidates(cpu::Stream&, const char* op) {
  return {op,
          {on_tensors<cpu::product_by_amx>(), on_tensors<cpu::product_by_avx512_bf16>(run_avx512_bf16),
           on_tensors<cpu::product_by_onednn>(), on_tensors<cpu::product_by_gemm>()}};
}

}  // namespace hearth::kernels
