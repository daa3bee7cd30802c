// SPDX-License-Identifier: Apache-2.0
// Filter gradients of bf16 convolutions by own code, which at the sizes of ResNets takes 0.5 to 0.9 of the library's
// time. Private to core/cpu.
#pragma once

#include "ops/onednn/onednn.h"

namespace hearth::cpu::dnn {

/// Whether this processor and build have the code (AVX-512 with bf16 products, an x86 GCC build).
bool has_paired_gradients();
/// Whether paired_backward_weights takes the problem, and is the faster way.
bool is_pairable(const ConvProblem& problem);

/// dw (and db unless null) from x and dy, as conv2d_backward_weights. The bits do not depend on the number of threads.
void paired_backward_weights(const ConvProblem& problem, const void* x, const void* dy, void* dw, float* db);

}  // namespace hearth::cpu::dnn
