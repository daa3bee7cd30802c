// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/cpu/matmul_cpu.h"

#include "core/cpu/isa.h"
#include "core/profiler.h"
#include "ops/matmul/cpu/matmul_amx.h"
#include "ops/matmul/cpu/matmul_avx512_bf16.h"
#include "ops/matmul/cpu/matmul_gemm.h"
#include "ops/matmul/cpu/matmul_onednn.h"

namespace hearth::cpu {
namespace {

// Measured on AVX2.
std::string library_slower(const MatmulProblem& p) {
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

std::string gemm_unsupported(const MatmulProblem&) { return ""; }

bool is_fast_by(const MatmulCandidate& candidate, const MatmulProblem& problem) {
  return candidate.unsupported(problem).empty() && candidate.why_slower(problem).empty();
}

}  // namespace

const MatmulCandidate product_by_amx{"amx", amx_unsupported, matmul_by_amx, nullptr, amx_slower};
const MatmulCandidate product_by_avx512_bf16{"avx512_bf16", avx512_bf16_unsupported, matmul_by_avx512_bf16, nullptr,
                                             avx512_bf16_slower};
const MatmulCandidate product_by_onednn{"onednn", dnn::unsupported, dnn::matmul, nullptr, library_slower};
const MatmulCandidate product_by_gemm{"gemm", gemm_unsupported, matmul_by_gemm};

void matmul(const MatmulProblem& problem, const void* a, const void* b, const void* bias, void* c) {
  static Candidates<MatmulProblem, MatmulRun> candidates(
      "matmul", {product_by_amx, product_by_avx512_bf16, product_by_onednn, product_by_gemm});
  MatmulProblem p = problem;
  p.has_bias = bias != nullptr;
  candidates.run(p, [&](MatmulRun* run) {
    profiler::add_flops(2.0 * static_cast<double>(p.batch) * static_cast<double>(p.m) * static_cast<double>(p.n) *
                        static_cast<double>(p.k));
    run(p, a, b, bias, c);
  });
}

bool is_left_to_gemm(const MatmulProblem& problem) {
  return !dnn::unsupported(problem).empty() && !is_fast_by(product_by_amx, problem) &&
         !is_fast_by(product_by_avx512_bf16, problem);
}

}  // namespace hearth::cpu
