// SPDX-License-Identifier: Apache-2.0
// Rows of bf16 logits where the processor rounds to bf16: neighbours are taken apart as halves of words, and
// exponentials are made by the processor's scaling by powers of two. Called where cpu::amx::has_bf16_vectors().
#pragma once

#include <cstdint>

#include "core/half.h"

namespace hearth::kernels {

/// The largest of `count` logits, and the sum of exp(x - largest). What follows the row is asked for meanwhile.
void sum_exponentials_bf16(const bf16* x, std::int64_t count, float& most, float& sum);

/// dx = (exp((x - most) - log_sum) - even) * factor.
void exponential_slopes_bf16(const bf16* x, std::int64_t count, float most, float log_sum, float even, float factor,
                             bf16* dx);

}  // namespace hearth::kernels
