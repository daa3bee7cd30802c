// SPDX-License-Identifier: Apache-2.0
// Matrix products through oneDNN, on raw pointers. Plans are made once per problem and thread count and kept. Without
// the library `unsupported` says so and the call throws.
#pragma once

#include <string>

#include "ops/matmul/problem.h"

namespace hearth::cpu::dnn {

/// Empty if the library does this product well; else the reason why not (absent, a type that it does not take, only its
/// slow reference code fits). Makes and keeps the plan; OutOfMemory where that finds no memory; ShapeError for sizes
/// that contradict each other. Sizes of 0 are taken.
std::string unsupported(const MatmulProblem& problem);
/// As cpu::matmul. f32 beside bf16 is rounded to bf16 for the arithmetic. UsageError where `unsupported` gives a
/// reason.
void matmul(const MatmulProblem& problem, const void* a, const void* b, const void* bias, void* c);

}  // namespace hearth::cpu::dnn
