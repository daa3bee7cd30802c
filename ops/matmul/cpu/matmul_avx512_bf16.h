// SPDX-License-Identifier: Apache-2.0
// Matrix products by the processor's vector instruction for bf16 (AVX512_BF16), on raw pointers.
#pragma once

#include <string>

#include "ops/matmul/problem.h"

namespace hearth::cpu {

/// Empty if the instruction takes the problem: both operands bf16, or bf16 beside f32, which is rounded; else the
/// reason why not.
std::string avx512_bf16_unsupported(const MatmulProblem& problem);
/// Why another implementation is faster, or empty.
std::string avx512_bf16_slower(const MatmulProblem& problem);
/// As cpu::matmul, summed in f32. Bits do not depend on the number of threads; denormals are taken for zeros.
/// UsageError where avx512_bf16_unsupported() gives a reason.
void matmul_by_avx512_bf16(const MatmulProblem& problem, const void* a, const void* b, const void* bias, void* c);
/// The same, and a_sums [m] = the sums of op(A)'s rows over k, of A as it is multiplied. UsageError but for a
/// transposed A of one matrix, n and k above 0.
void matmul_with_sums_by_avx512_bf16(const MatmulProblem& problem, const void* a, const void* b, const void* bias,
                                     void* c, float* a_sums);

}  // namespace hearth::cpu
