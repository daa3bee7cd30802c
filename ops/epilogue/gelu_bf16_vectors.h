// SPDX-License-Identifier: Apache-2.0
// GELU by erf and its gradient in bf16, by AVX-512. Only where cpu::amx::has_bf16_vectors().
#pragma once

#include <cstdint>

#include "core/half.h"

namespace hearth::kernels::gelu_bf16_vectors {

/// y = gelu(x); x may be y.
void values(const bf16* x, bf16* y, std::int64_t count);

/// dpre = dy * slope(x); dpre may be dy.
void gradients(const bf16* x, const bf16* dy, bf16* dpre, std::int64_t count);

/// The same for [rows, cols], and sums[cols] = the column sums of dpre before it is rounded.
void gradients_and_sums(const bf16* x, const bf16* dy, bf16* dpre, float* sums, std::int64_t rows, std::int64_t cols);

}  // namespace hearth::kernels::gelu_bf16_vectors
