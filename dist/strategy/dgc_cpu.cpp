// SPDX-License-Identifier: Apache-2.0
// Memory bounds these loops.
#include <cstring>

#include "dist/strategy/dgc_kernels.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "dist/strategy/dgc_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::dist::kernels::HEARTH_ISA_NAMESPACE {

template <bool nesterov>
void accumulate(const float* g, const float* u, const float* v, float* next_u, float* next_v, std::int64_t n,
                const DgcConstants& constants) {
  const float clip = constants.clip, momentum = constants.momentum, kept = constants.momentum * constants.ratio;
  const float ratio = constants.is_whole ? 0.0F : constants.ratio;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float step = clip * g[i], moved = kept * u[i] + step;
    next_u[i] = moved;
    next_v[i] = ratio * v[i] + (nesterov ? step + momentum * moved : moved);
  }
}

template <class T>
bool any_reaches(const T* v, std::int64_t n, std::int32_t threshold) {
  std::int32_t largest = 0;
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < n; ++i) {
    std::int32_t bits;
    std::memcpy(&bits, v + i, sizeof(bits));
    bits &= 0x7FFFFFFF;
    largest = bits > largest ? bits : largest;
  }
  return largest >= threshold;
}

template <class T>
double squares(const T* x, std::int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

}  // namespace hearth::dist::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::dist::kernels {

void dgc_accumulate(const float* g, const float* u, const float* v, float* next_u, float* next_v, std::int64_t n,
                    const DgcConstants& constants) {
  if (constants.nesterov)
    HEARTH_ISA_CALL_UP_TO_V3(accumulate<true>, g, u, v, next_u, next_v, n, constants);
  else
    HEARTH_ISA_CALL_UP_TO_V3(accumulate<false>, g, u, v, next_u, next_v, n, constants);
}

bool reaches(const float* v, std::int64_t n, std::uint32_t threshold) {
  return HEARTH_ISA_CALL_UP_TO_V3(any_reaches<float>, v, n, static_cast<std::int32_t>(threshold));
}

double sum_of_squares(const float* x, std::int64_t n) { return HEARTH_ISA_CALL_UP_TO_V3(squares<float>, x, n); }

}  // namespace hearth::dist::kernels
#endif
