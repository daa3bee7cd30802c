// SPDX-License-Identifier: Apache-2.0
// A row of a matrix stays in the first cache for all columns of the thin matrices.
#include "dist/strategy/powersgd_kernels.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "dist/strategy/powersgd_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::dist::kernels::HEARTH_ISA_NAMESPACE {

template <class T>
void sum_scaled(const T* a, const T* b, T factor, T* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = a[i] + factor * b[i];
}

template <class T>
T sum_of_products(const T* a, const T* b, std::int64_t n) {
  // Several sums, so that none waits for the one before.
  constexpr int lanes = 64;
  T sums[lanes] = {};
  std::int64_t begin = 0;
  for (; begin + lanes <= n; begin += lanes) {
#pragma omp simd
    for (int i = 0; i < lanes; ++i) sums[i] += a[begin + i] * b[begin + i];
  }
  T sum = 0;
  for (int i = 0; i < lanes; ++i) sum += sums[i];
  for (; begin < n; ++begin) sum += a[begin] * b[begin];
  return sum;
}

}  // namespace hearth::dist::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::dist::kernels {

void add_residual(const float* g, const float* residual, float ratio, float* y, std::int64_t n) {
  HEARTH_ISA_CALL_UP_TO_V3(sum_scaled<float>, g, residual, ratio, y, n);
}
float dot(const float* a, const float* b, std::int64_t n) {
  return HEARTH_ISA_CALL_UP_TO_V3(sum_of_products<float>, a, b, n);
}
void add_multiple(float* y, const float* x, float factor, std::int64_t n) {
  HEARTH_ISA_CALL_UP_TO_V3(sum_scaled<float>, y, x, factor, y, n);
}

}  // namespace hearth::dist::kernels
#endif
