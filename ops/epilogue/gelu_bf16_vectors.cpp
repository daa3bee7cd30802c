// SPDX-License-Identifier: Apache-2.0
// With a = |x|, beyond = the share of a normal distribution beyond a: GELU is x beyond or x (1 - beyond), and its slope
// below or 1 - below, where below = beyond - a density. Both are taken from cubics on 16 pieces of a, whose
// coefficients lie in registers: beyond is 2^cubic, and below e^(-a^2 / 2) cubic. No division, and 20 instructions for
// 16 elements. Before they are rounded to bf16, results are within 0.015 of a step of it.
#include "ops/epilogue/gelu_bf16_vectors.h"

#include <algorithm>
#include <cmath>

#include "core/cpu/amx.h"

#if HEARTH_BF16_VECTORS
#include <immintrin.h>
#endif

namespace hearth::kernels::gelu_bf16_vectors {

#if HEARTH_BF16_VECTORS

#pragma GCC diagnostic push
// Of the intrinsics of g++ 12: they start from a register of anything.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"

namespace {

// Whole rows up to 4096 columns, whose sums still lie in L1: of parts of rows the processor reads too little ahead.
constexpr std::int64_t column_block = 4096, row_block = 64;

// Further out results are those of 15.
constexpr float outermost = 14.99f;

// Piece i: 1 + a has the two highest bits of its mantissa and the two lowest of its exponent in i.
struct Cubics {
  alignas(64) float of[4][16];

  // Each meets `f` at its ends and at two points between.
  explicit Cubics(double (&f)(double a)) {
    for (unsigned piece = 0; piece < 16; ++piece) {
      const double scale = std::exp2((piece / 4 + 1) % 4), width = scale / 4;
      const double begin = scale + width * (piece % 4) - 1;
      double at[4], divided[4];
      for (int i = 0; i < 4; ++i) {
        at[i] = begin + width * 0.5 * (1 - std::cos(std::acos(-1.0) / 3 * i));
        divided[i] = f(at[i]);
      }
      for (int level = 1; level < 4; ++level)
        for (int i = 3; i >= level; --i) divided[i] = (divided[i] - divided[i - 1]) / (at[i] - at[i - level]);
      double c[4] = {divided[3], 0, 0, 0};
      for (int i = 2; i >= 0; --i) {
        for (int j = 3; j > 0; --j) c[j] = c[j - 1] - at[i] * c[j];
        c[0] = divided[i] - at[i] * c[0];
      }
      for (int i = 0; i < 4; ++i) of[i][piece] = static_cast<float>(c[i]);
    }
  }
};

double beyond(double a) { return 0.5 * std::erfc(a * std::sqrt(0.5)); }
double power_of_beyond(double a) { return std::log2(beyond(a)); }
double below_over_falling(double a) { return beyond(a) * std::exp(0.5 * a * a) - a / std::sqrt(2 * std::acos(-1.0)); }

// Compiled for the processors that has_bf16_vectors() answers for.
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")

#define HEARTH_INLINE [[gnu::always_inline]] inline

HEARTH_INLINE __m512 bounded(__m512 x) { return _mm512_range_ps(x, _mm512_set1_ps(outermost), 0b1010); }

struct CubicVectors {
  __m512 c[4];

  HEARTH_INLINE explicit CubicVectors(const Cubics& cubics) {
    for (int i = 0; i < 4; ++i) c[i] = _mm512_load_ps(cubics.of[i]);
  }
  HEARTH_INLINE __m512 operator()(__m512 a) const {
    const __m512i piece = _mm512_srli_epi32(_mm512_castps_si512(_mm512_add_ps(a, _mm512_set1_ps(1))), 21);
    __m512 p = _mm512_permutexvar_ps(piece, c[3]);
    for (int i = 2; i >= 0; --i) p = _mm512_fmadd_ps(p, a, _mm512_permutexvar_ps(piece, c[i]));
    return p;
  }
};

// Within 3e-6.
HEARTH_INLINE __m512 power_of_2(__m512 x) {
  const __m512 r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  __m512 p = _mm512_set1_ps(0.0135341679f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.0520114608f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.241442757f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.693003835f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.00000259f));
  return _mm512_scalef_ps(p, x);
}

HEARTH_INLINE __m512 or_rest_of_1(__m512 x, __m512 share) {
  const __m512 one = _mm512_set1_ps(1);
  return _mm512_mask_sub_ps(share, _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GE_OQ), one, share);
}

HEARTH_INLINE __m512 value(const CubicVectors& power, __m512 x) {
  return _mm512_mul_ps(x, or_rest_of_1(x, power_of_2(power(bounded(x)))));
}

HEARTH_INLINE __m512 slope(const CubicVectors& over_falling, __m512 x) {
  const __m512 falling = power_of_2(_mm512_mul_ps(_mm512_mul_ps(x, x), _mm512_set1_ps(-0.721347520f)));
  return or_rest_of_1(x, _mm512_mul_ps(falling, over_falling(bounded(x))));
}

HEARTH_INLINE __m512 even(__m512i x) { return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16)); }
HEARTH_INLINE __m512 odd(__m512i x) {
  return _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
}

// From the values at even and at odd places.
HEARTH_INLINE __m512i rounded(__m512 evens, __m512 odds) {
  const __m512i halves = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odds, evens));
  const __m512i order =
      _mm512_add_epi32(_mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                          _mm512_set1_epi32(0x10001)),
                       _mm512_set1_epi32(16 << 16));
  return _mm512_permutexvar_epi16(order, halves);
}

// f(place, mask of the values there) for every 32 values.
template <class F>
HEARTH_INLINE void by_32(std::int64_t count, const F& f) {
  std::int64_t i = 0;
  for (; i + 32 <= count; i += 32) f(i, ~__mmask32(0));
  if (i < count) f(i, (__mmask32(1) << (count - i)) - 1);
}

struct Pair {
  __m512 evens, odds;
};

HEARTH_INLINE Pair gradient(const CubicVectors& over_falling, const bf16* x, const bf16* dy, bf16* dpre,
                            __mmask32 there) {
  const __m512i from = _mm512_maskz_loadu_epi16(there, x), by = _mm512_maskz_loadu_epi16(there, dy);
  const Pair d{_mm512_mul_ps(even(by), slope(over_falling, even(from))),
               _mm512_mul_ps(odd(by), slope(over_falling, odd(from)))};
  _mm512_mask_storeu_epi16(dpre, there, rounded(d.evens, d.odds));
  return d;
}

void values(const Cubics& cubics, const bf16* x, bf16* y, std::int64_t count) {
  const CubicVectors power(cubics);
  by_32(
      count, [&](std::int64_t i, __mmask32 there) __attribute__((always_inline)) {
        const __m512i from = _mm512_maskz_loadu_epi16(there, x + i);
        _mm512_mask_storeu_epi16(y + i, there, rounded(value(power, even(from)), value(power, odd(from))));
      });
}

void gradients(const Cubics& cubics, const bf16* x, const bf16* dy, bf16* dpre, std::int64_t count) {
  const CubicVectors over_falling(cubics);
  by_32(
      count, [&](std::int64_t i, __mmask32 there)
                 __attribute__((always_inline)) { gradient(over_falling, x + i, dy + i, dpre + i, there); });
}

// Of at most column_block columns; rows lie `stride` values apart. Sums of more rows than row_block are sums of such
// blocks, which keeps the rounding error small.
void column_sums(const Cubics& cubics, const bf16* x, const bf16* dy, bf16* dpre, float* sums, std::int64_t rows,
                 std::int64_t cols, std::int64_t stride) {
  const CubicVectors over_falling(cubics);
  // Even and odd places of 32 columns after each other.
  alignas(64) float total[column_block], block[column_block];
  const std::int64_t places = (cols + 31) / 32 * 32;
  std::fill_n(total, places, 0.0f);
  for (std::int64_t r0 = 0; r0 < rows; r0 += row_block) {
    std::fill_n(block, places, 0.0f);
    for (std::int64_t at = r0 * stride; at < std::min(rows, r0 + row_block) * stride; at += stride)
      by_32(
          cols, [&](std::int64_t c, __mmask32 there) __attribute__((always_inline)) {
            const Pair d = gradient(over_falling, x + at + c, dy + at + c, dpre + at + c, there);
            _mm512_store_ps(block + c, _mm512_add_ps(_mm512_load_ps(block + c), d.evens));
            _mm512_store_ps(block + c + 16, _mm512_add_ps(_mm512_load_ps(block + c + 16), d.odds));
          });
    for (std::int64_t c = 0; c < places; ++c) total[c] += block[c];
  }
  for (std::int64_t c = 0; c < cols; ++c) sums[c] = total[c / 32 * 32 + c % 2 * 16 + c % 32 / 2];
}

#pragma GCC pop_options

#undef HEARTH_INLINE

const Cubics& cubics_of_slopes() {
  static const Cubics cubics(below_over_falling);
  return cubics;
}

}  // namespace

void values(const bf16* x, bf16* y, std::int64_t count) {
  static const Cubics cubics(power_of_beyond);
  values(cubics, x, y, count);
}

void gradients(const bf16* x, const bf16* dy, bf16* dpre, std::int64_t count) {
  gradients(cubics_of_slopes(), x, dy, dpre, count);
}

void gradients_and_sums(const bf16* x, const bf16* dy, bf16* dpre, float* sums, std::int64_t rows, std::int64_t cols) {
  for (std::int64_t c = 0; c < cols; c += column_block)
    column_sums(cubics_of_slopes(), x + c, dy + c, dpre + c, sums + c, rows, std::min(column_block, cols - c), cols);
}

#pragma GCC diagnostic pop

#else

void values(const bf16*, bf16*, std::int64_t) {}
void gradients(const bf16*, const bf16*, bf16*, std::int64_t) {}
void gradients_and_sums(const bf16*, const bf16*, bf16*, float*, std::int64_t, std::int64_t) {}

#endif

}  // namespace hearth::kernels::gelu_bf16_vectors
