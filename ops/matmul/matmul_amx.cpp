// SPDX-License-Identifier: Apache-2.0
// The matrix product on the processor's tiles (amx_product.h).
// Reference: gemm.cpp, with operands rounded to bf16 where one of them is.
#include "ops/matmul/matmul_amx.h"

#include <algorithm>

#include "core/error.h"
#include "ops/matmul/amx_product.h"
#include "ops/matmul/matmul_cpu.h"

namespace hearth::cpu {

namespace {

template <class T>
const T* matrix(const void* x, std::int64_t i, std::int64_t stride) {
  return static_cast<const T*>(x) + i * stride;
}

template <class A, bool a_along, class B, bool b_along>
void multiply(const MatmulProblem& p, const void* a, const void* b, const float* bias, void* c) {
  const auto of_a = [&](std::int64_t i) { return amx::Rows<A, a_along>{matrix<A>(a, i, p.batch_stride_a), p.lda}; };
  const auto of_b = [&](std::int64_t i) { return amx::Rows<B, b_along>{matrix<B>(b, i, p.batch_stride_b), p.ldb}; };
  const auto into = [&](std::int64_t i) {
    return [&, i](std::int64_t row, std::int64_t column, std::int64_t count, const float* sums) {
      const std::int64_t at = i * p.batch_stride_c + row * p.ldc + column;
      const float* const of_row = bias == nullptr ? nullptr : bias + column;
      if (p.c == DType::f32)
        amx::store_row(sums, of_row, p.accumulate, count, static_cast<float*>(c) + at);
      else
        amx::store_row(sums, of_row, p.accumulate, count, static_cast<bf16*>(c) + at);
    };
  };
  amx::product({p.batch, p.m, p.n, p.k}, of_a, of_b, into);
}

template <class A, class B>
void multiply_stored(const MatmulProblem& p, const void* a, const void* b, const float* bias, void* c) {
  if (p.transpose_a)
    return (p.transpose_b ? multiply<A, false, B, true> : multiply<A, false, B, false>)(p, a, b, bias, c);
  (p.transpose_b ? multiply<A, true, B, true> : multiply<A, true, B, false>)(p, a, b, bias, c);
}

}  // namespace

void matmul_by_amx(const MatmulProblem& problem, const void* a, const void* b, const void* bias, void* c) {
  const MatmulProblem p = complete(problem);
  HEARTH_CHECK(UsageError, amx_unsupported(p).empty(), "matmul by amx: ", amx_unsupported(p));
  if (p.batch == 0 || p.m == 0 || p.n == 0) return;
  if (p.k == 0) return matmul_by_gemm(p, a, b, bias, c);
  const auto* const row = static_cast<const float*>(bias);
  if (p.a == DType::bf16)
    return (p.b == DType::bf16 ? multiply_stored<bf16, bf16> : multiply_stored<bf16, float>)(p, a, b, row, c);
  (p.b == DType::bf16 ? multiply_stored<float, bf16> : multiply_stored<float, float>)(p, a, b, row, c);
}

std::string amx_unsupported(const MatmulProblem& p) {
  for (const DType type : {p.a, p.b, p.c})
    if (type != DType::bf16 && type != DType::f32) return join_text("an operand of ", type);
  return amx::unsupported();
}

std::string amx_slower(const MatmulProblem& p) {
  // Copying the operands into tiles and clearing their rest costs more than it saves.
  if (p.m < 16 || p.n < 16 || p.k < 32) return "a side shorter than a tile";
  // Three parts are copied; products of 384 and more are measured to gain.
  if (p.a != DType::bf16 && p.b != DType::bf16 && std::min({p.m, p.n, p.k}) < 128) return "an f32 side below 128";
  return "";
}

}  // namespace hearth::cpu
