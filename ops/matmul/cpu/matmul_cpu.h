// SPDX-License-Identifier: Apache-2.0
// Matrix products on the CPU on raw pointers: the candidates of matmul and linear, and what convolutions multiply by.
#pragma once

#include "ops/dispatch/candidates.h"
#include "ops/matmul/problem.h"

namespace hearth::cpu {

using MatmulRun = void(const MatmulProblem& problem, const void* a, const void* b, const void* bias, void* c);
using MatmulCandidate = Candidate<MatmulProblem, MatmulRun>;

// Most specialised first. f16 is none of their types.
extern const MatmulCandidate product_by_amx, product_by_avx512_bf16, product_by_onednn, product_by_gemm;

/// C = op(A) op(B) [+ bias] [+ C] on the thread pool, by one of these, as the op `matmul`; reports 2 batch m n k
/// operations. All f64, or any mix of f32 and bf16, summed in f32. `bias` holds n values (f64 for f64, else f32) that
/// are added to every row, or is null. C must not overlap the operands. Sizes of 0 are taken: k == 0 gives the bias, or
/// nothing when accumulating. ShapeError for sizes that contradict each other.
void matmul(const MatmulProblem& problem, const void* a, const void* b, const void* bias, void* c);

/// Whether gemm is all that matmul() has for the problem but for slower ways.
bool is_left_to_gemm(const MatmulProblem& problem);

}  // namespace hearth::cpu
