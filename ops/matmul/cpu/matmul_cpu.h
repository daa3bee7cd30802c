// SPDX-License-Identifier: Apache-2.0
// Matrix products on the CPU on raw pointers: below matmul and linear, and for convolutions by native kernels.
#pragma once

#include <string>

#include "ops/matmul/problem.h"

namespace hearth::cpu {

/// C = op(A) op(B) [+ bias] [+ C] on the thread pool, by the processor's bf16 vectors where that is the fastest way, by
/// oneDNN where it is present and takes the problem, else by matrix tiles or the own gemm. All f64, or any mix of f32
/// and bf16, summed in f32. `bias` holds n values (f64 for f64, else f32) that are added to every row, or is null. C
/// must not overlap the operands. Sizes of 0 are taken: k == 0 gives the bias, or nothing when accumulating. ShapeError
/// for sizes that contradict each other.
void matmul(const MatmulProblem& problem, const void* a, const void* b, const void* bias, void* c);

/// What matmul() runs: the library's own name of its code, as in "brgemm:avx512_core_bf16", or "avx512_bf16",
/// "amx" or "gemm".
std::string matmul_implementation(const MatmulProblem& problem);

}  // namespace hearth::cpu
