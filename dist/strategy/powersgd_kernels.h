// SPDX-License-Identifier: Apache-2.0
// Rows of PowerSgd's products.
#pragma once

#include <cstdint>

namespace hearth::dist::kernels {

/// y = g + ratio * residual; all [n].
void add_residual(const float* g, const float* residual, float ratio, float* y, std::int64_t n);
/// Sum of a * b; both [n].
float dot(const float* a, const float* b, std::int64_t n);
/// y += factor * x; both [n].
void add_multiple(float* y, const float* x, float factor, std::int64_t n);

}  // namespace hearth::dist::kernels
