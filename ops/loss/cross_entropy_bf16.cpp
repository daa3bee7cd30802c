// SPDX-License-Identifier: Apache-2.0
#include "ops/loss/cross_entropy_bf16.h"

#include <algorithm>
#include <limits>

#include "core/cpu/amx.h"
#include "core/cpu/lanes.h"
#include "core/error.h"

namespace hearth::kernels {

#if HEARTH_BF16_VECTORS

// Compiled for the processors that has_bf16_vectors() answers for.
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512,avx512bf16")
#pragma GCC diagnostic push
// Registers that GCC 12's own headers leave undefined on purpose.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"

namespace {

#include "ops/matmul/cpu/bf16_exp.inc"

constexpr std::int64_t words = 32;  ///< values of a vector

/// Values 2 i and 2 i + 1 of a vector. Behind the last one there is -infinity.
struct Halves {
  __m512 even, odd;

  Halves(const bf16* x, __mmask32 inside) {
    const __m512i both = _mm512_mask_loadu_epi16(_mm512_set1_epi16(static_cast<short>(0xff80)), inside, x);
    even = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
    odd = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
  }
};

/// f(at, which values there are, vector of two in turn) for `count` values.
template <class F>
HEARTH_ALWAYS_INLINE void each_vector(std::int64_t count, const F& f) {
  std::int64_t at = 0;
  for (; at + 2 * words <= count; at += 2 * words) f(at, ~__mmask32{0}, 0), f(at + words, ~__mmask32{0}, 1);
  for (; at < count; at += words)
    f(at, count - at >= words ? ~__mmask32{0} : static_cast<__mmask32>((1u << (count - at)) - 1), 0);
}

}  // namespace

void sum_exponentials_bf16(const bf16* x, std::int64_t count, float& most, float& sum) {
  __m512 tops[2][2];
  for (auto& pair : tops)
    for (__m512& top : pair) top = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  each_vector(count, [&](std::int64_t at, __mmask32 inside, int k) {
    const Halves halves(x + at, inside);
    // What is not a number is not the larger one.
    tops[k][0] = _mm512_max_ps(halves.even, tops[k][0]);
    tops[k][1] = _mm512_max_ps(halves.odd, tops[k][1]);
  });
  most =
      _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(tops[0][0], tops[0][1]), _mm512_max_ps(tops[1][0], tops[1][1])));
  const __m512 shift = _mm512_set1_ps(most);
  __m512 sums[2][2] = {};
  each_vector(count, [&](std::int64_t at, __mmask32 inside, int k) {
    const Halves halves(x + at, inside);
    __builtin_prefetch(x + count + at, 0, 2);
    sums[k][0] = _mm512_add_ps(sums[k][0], exp_of_negative(_mm512_sub_ps(halves.even, shift)));
    sums[k][1] = _mm512_add_ps(sums[k][1], exp_of_negative(_mm512_sub_ps(halves.odd, shift)));
  });
  sum =
      _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sums[0][0], sums[0][1]), _mm512_add_ps(sums[1][0], sums[1][1])));
}

void exponential_slopes_bf16(const bf16* x, std::int64_t count, float most, float log_sum, float even, float factor,
                             bf16* dx) {
  const __m512 top = _mm512_set1_ps(most), total = _mm512_set1_ps(log_sum);
  const __m512 share = _mm512_set1_ps(even), times = _mm512_set1_ps(factor);
  const auto slope = [&](__m512 value) {
    const __m512 p = exp_of_negative(_mm512_sub_ps(_mm512_sub_ps(value, top), total));
    return _mm512_mul_ps(_mm512_sub_ps(p, share), times);
  };
  each_vector(count, [&](std::int64_t at, __mmask32 inside, int) {
    const Halves halves(x + at, inside);
    _mm512_mask_storeu_epi16(dx + at, inside, paired(slope(halves.even), slope(halves.odd)));
  });
}

#pragma GCC diagnostic pop
#pragma GCC pop_options

#else

void sum_exponentials_bf16(const bf16*, std::int64_t, float&, float&) {}
void exponential_slopes_bf16(const bf16*, std::int64_t, float, float, float, float, bf16*) {}

#endif

}  // namespace hearth::kernels
