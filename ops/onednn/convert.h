// SPDX-License-Identifier: Apache-2.0
// Copies and sums around library calls, on the thread pool, in an order that the shape alone decides.
// Types are f32 or bf16. Private to core/cpu.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/dtype.h"

namespace hearth::cpu::dnn {

/// to[i] = from[i] for n elements, rounded to nearest even where bf16 comes of f32.
void convert(const void* from, DType from_dtype, void* to, DType to_dtype, std::int64_t n);

/// sums[j] = the sum over i of rows[i, j], for `count` rows of n.
void sum_rows(const void* rows, DType dtype, std::int64_t count, std::int64_t n, float* sums);

/// to[i, j] = (add ? to[i, j] : 0) + bias[j] + the sum over `count` parts [rows, columns], in their order.
/// `bias` may be null; the rows of `to` lie `leading` elements apart.
void sum_shares(const float* parts, std::int64_t count, std::int64_t rows, std::int64_t columns, const float* bias,
                bool add, void* to, DType dtype, std::int64_t leading);

}  // namespace hearth::cpu::dnn
