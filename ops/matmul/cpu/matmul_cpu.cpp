// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/cpu/matmul_cpu.h"

#include "ops/matmul/cpu/matmul_amx.h"
#include "ops/matmul/cpu/matmul_avx512_bf16.h"
#include "ops/matmul/cpu/matmul_gemm.h"
#include "ops/matmul/cpu/matmul_onednn.h"

namespace hearth::cpu {
namespace {

bool is_by_vectors(const MatmulProblem& p) {
  return avx512_bf16_unsupported(p).empty() && avx512_bf16_slower(p).empty();
}
bool is_by_amx(const MatmulProblem& p) { return amx_unsupported(p).empty() && amx_slower(p).empty(); }

}  // namespace

void matmul(const MatmulProblem& problem, const void* a, const void* b, const void* bias, void* c) {
  MatmulProblem p = problem;
  p.has_bias = bias != nullptr;
  (is_by_vectors(p)              ? matmul_by_avx512_bf16
   : dnn::unsupported(p).empty() ? dnn::matmul
   : is_by_amx(p)                ? matmul_by_amx
                                 : matmul_by_gemm)(p, a, b, bias, c);
}

std::string matmul_implementation(const MatmulProblem& problem) {
  if (is_by_vectors(problem)) return "avx512_bf16";
  if (dnn::unsupported(problem).empty()) return dnn::implementation(problem);
  return is_by_amx(problem) ? "amx" : "gemm";
}

}  // namespace hearth::cpu
