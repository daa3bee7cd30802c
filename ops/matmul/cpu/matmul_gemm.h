// SPDX-License-Identifier: Apache-2.0
// Matrix products on the CPU by the own gemm, on raw pointers, and what every CPU product asks of a problem.
#pragma once

#include <cstdint>

#include "ops/matmul/problem.h"

namespace hearth::cpu {

/// As cpu::matmul by the own gemm; bits do not depend on the number of threads.
void matmul_by_gemm(const MatmulProblem& problem, const void* a, const void* b, const void* bias, void* c);

/// The problem with every default of its layout spelled out, and checked.
MatmulProblem complete(MatmulProblem problem);

/// Elements from the first to the last of an operand of a complete problem, both included.
std::int64_t reach_of_a(const MatmulProblem& problem);
std::int64_t reach_of_b(const MatmulProblem& problem);

}  // namespace hearth::cpu
