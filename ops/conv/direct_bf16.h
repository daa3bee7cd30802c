// SPDX-License-Identifier: Apache-2.0
// The forward pass and the data gradient of bf16 convolutions of small images by own code. Private to core/cpu.
#pragma once

#include "ops/onednn/onednn.h"

namespace hearth::cpu::dnn {

/// Whether the two functions below take the problem and pass (never Pass::backward_weights), and are the faster way.
bool is_direct(const ConvProblem& problem, Pass pass);

/// As conv2d_forward and conv2d_backward_data. The bits do not depend on the number of threads.
void direct_forward(const ConvProblem& problem, const void* x, const void* w, const float* b, void* y);
void direct_backward_data(const ConvProblem& problem, const void* dy, const void* w, void* dx);

}  // namespace hearth::cpu::dnn
