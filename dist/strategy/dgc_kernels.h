// SPDX-License-Identifier: Apache-2.0
// What Dgc does with each gradient.
#pragma once

#include <cstdint>

namespace hearth::dist::kernels {

/// Elements that reaches() looks at.
inline constexpr std::int64_t dgc_block = 256;

struct DgcConstants {
  float clip;      ///< on the gradient
  float ratio;     ///< on what was kept
  float momentum;  ///< of u
  bool nesterov;
  bool is_whole;  ///< v is sent whole, so that nothing of it was kept
};

/// u' = momentum * ratio * u + clip * g; v' = ratio * v + u', with nesterov ratio * v + clip * g + momentum * u'.
/// Arrays [n]; reads g, u and v and writes u' and v' once.
void dgc_accumulate(const float* g, const float* u, const float* v, float* next_u, float* next_v, std::int64_t n,
                    const DgcConstants& constants);
/// Whether the magnitude of one of v [n] has bits of at least `threshold`.
bool reaches(const float* v, std::int64_t n, std::uint32_t threshold);
/// Sum of squares of x [n], in f64.
double sum_of_squares(const float* x, std::int64_t n);

}  // namespace hearth::dist::kernels
