// SPDX-License-Identifier: Apache-2.0
// The candidates of a matrix product on the CPU.
#include "core/cpu/isa.h"
#include "ops/matmul/cpu/matmul_amx.h"
#include "ops/matmul/cpu/matmul_avx512_bf16.h"
#include "ops/matmul/cpu/matmul_gemm.h"
#include "ops/matmul/cpu/matmul_onednn.h"
#include "ops/matmul/product.h"

namespace hearth::kernels {
namespace {

/// The problem with f16, which neither implementation takes, as f32.
MatmulProblem without_f16(MatmulProblem problem) {
  for (DType* type : {&problem.a, &problem.b, &problem.c})
    if (*type == DType::f16) *type = DType::f32;
  return problem;
}

std::string library_unsupported(const MatmulProblem& problem) { return cpu::dnn::unsupported(without_f16(problem)); }

// Measured on AVX2.
std::string library_slower(const MatmulProblem& problem) {
  const MatmulProblem p = without_f16(problem);
  const bool f32 = p.a == DType::f32 && p.b == DType::f32;
  if (!f32 || p.deterministic || cpu::isa() != cpu::Isa::v3 || !p.transpose_a || p.transpose_b || p.k < 256) return "";
  // The library copies no operand there: 50 against 66 of 80 GFLOP/s, and in one thread a third slower.
  const bool wide = p.m >= 64 && p.n >= 2048,
             large = 1.0 / static_cast<double>(p.m) + 1.0 / static_cast<double>(p.n) < 0.0038;
  if (p.m <= 384 && (wide || large)) return "a gradient of few rows and many columns";
  // What it copies together may lie in few sets of the caches, by where the pages are: 31 to 75 of 80 GFLOP/s with 8192
  // columns, native 64 to 75 always.
  return (p.lda == 0 ? p.m : p.lda) % 4096 == 0 ? "rows of dy that are a multiple of 16 KiB apart" : "";
}

std::string amx_unsupported(const MatmulProblem& problem) { return cpu::amx_unsupported(without_f16(problem)); }

std::string avx512_bf16_unsupported(const MatmulProblem& problem) {
  return cpu::avx512_bf16_unsupported(without_f16(problem));
}

std::string gemm_unsupported(const MatmulProblem&) { return ""; }

/// An implementation on raw pointers, on tensors: f16 and the bias are converted beside it. `sums` goes on to it.
template <auto& by, class... Sums>
void run_with(const MatmulProblem& problem, const ProductOperands& operands, Sums... sums) {
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

template <auto& by>
void run(const MatmulProblem& problem, const ProductOperands& operands) {
  run_with<by>(problem, operands);
  if (operands.a_sums.defined()) sum_rows(cpu::stream_of({}), operands.a, operands.a_sums);
}

/// Sums A while it multiplies, where A is what it reads.
void run_avx512_bf16(const MatmulProblem& problem, const ProductOperands& operands) {
  const Tensor& sums = operands.a_sums;
  if (!sums.defined() || operands.a.dtype() != DType::bf16) return run<cpu::matmul_by_avx512_bf16>(problem, operands);
  const Tensor found = sums.dtype() == DType::f32 ? sums : Tensor::empty(sums.shape(), DType::f32);
  run_with<cpu::matmul_with_sums_by_avx512_bf16>(problem, operands, found.data<float>());
  if (sums.dtype() != DType::f32) sums.copy_from(found.to(sums.dtype()));
}

}  // namespace

ProductCandidates product_candidates(cpu::Stream&, const char* op) {
  return {op,
          {{"amx", amx_unsupported, run<cpu::matmul_by_amx>, nullptr, cpu::amx_slower},
           {"avx512_bf16", avx512_bf16_unsupported, run_avx512_bf16, nullptr, cpu::avx512_bf16_slower},
           {"onednn", library_unsupported, run<cpu::dnn::matmul>, nullptr, library_slower},
           {"gemm", gemm_unsupported, run<cpu::matmul_by_gemm>}}};
}

}  // namespace hearth::kernels
