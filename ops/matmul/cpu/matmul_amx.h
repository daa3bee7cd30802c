// SPDX-License-Identifier: Apache-2.0
// Matrix products in bf16 and f32 on the processor's tiles (Intel AMX), on raw pointers.
#pragma once

#include <string>

#include "ops/matmul/problem.h"

namespace hearth::cpu {

/// Empty if the tiles take the problem: bf16, bf16 beside f32, which is rounded, or f32, to the accuracy of f32 (see
/// matmul_amx.cpp); else the reason why not.
std::string amx_unsupported(const MatmulProblem& problem);
/// Why another implementation is faster, or empty.
std::string amx_slower(const MatmulProblem& problem);
/// As cpu::matmul, summed in f32. Bits do not depend on the number of threads; denormals are taken for zeros, and
/// infinite values of f32 operands give NaN.
/// UsageError where amx_unsupported() gives a reason.
void matmul_by_amx(const MatmulProblem& problem, const void* a, const void* b, const void* bias, void* c);

}  // namespace hearth::cpu
