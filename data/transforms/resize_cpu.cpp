// SPDX-License-Identifier: Apache-2.0
// Products of 16-bit integers, two at once, summed in 32 bits.
#include <algorithm>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#endif

#include "data/transforms/resize_kernels.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "data/transforms/resize_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

inline void weigh_rows_plainly(const std::uint8_t* rows, std::size_t stride, const std::int16_t* weights, int taps,
                               int shift, std::size_t begin, std::size_t end, std::int16_t* out) {
  for (std::size_t i = begin; i < end; ++i) {
    std::int32_t sum = 1 << (shift - 1);
    for (int k = 0; k < taps; ++k) sum += rows[static_cast<std::size_t>(k) * stride + i] * weights[k];
    out[i] = static_cast<std::int16_t>(std::clamp(sum >> shift, -32768, 32767));
  }
}

inline void weigh_columns_plainly(const std::int16_t* row, const ColumnTaps& taps, int shift, int begin, int end,
                                  int channels, std::uint8_t* out) {
  for (int x = begin; x < end; ++x) {
    const std::int16_t* const w = taps.weights + static_cast<std::ptrdiff_t>(x) * 2 * taps.pairs;
    const std::int16_t* const in = row + static_cast<std::ptrdiff_t>(taps.first[x]) * channels;
    for (int c = 0; c < channels; ++c) {
      std::int32_t sum = 1 << (shift - 1);
      for (int k = 0; k < 2 * taps.pairs; ++k)
        if (w[k] != 0) sum += in[k * channels + c] * w[k];
      out[x * channels + c] = static_cast<std::uint8_t>(std::clamp(sum >> shift, 0, 255));
    }
  }
}

#if HEARTH_ISA_VECTOR_BYTES >= 32

inline __m256i both_weights(const std::int16_t* weights) {
  std::int32_t pair = 0;
  std::memcpy(&pair, weights, sizeof pair);
  return _mm256_set1_epi32(pair);
}

/// 32 values of a row.
inline void weigh_32(const std::uint8_t* rows, std::size_t stride, const std::int16_t* weights, int taps, int shift,
                     std::int16_t* out) {
  const __m256i zero = _mm256_setzero_si256();
  __m256i sums[4];
  for (__m256i& sum : sums) sum = _mm256_set1_epi32(1 << (shift - 1));
  for (int k = 0; k < taps; k += 2, rows += 2 * stride) {
    // Where there is no second row, its weight is 0.
    const std::uint8_t* const second = k + 1 < taps ? rows + stride : rows;
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second));
    const __m256i low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);
    const __m256i w = both_weights(weights + k);
    sums[0] = _mm256_add_epi32(sums[0], _mm256_madd_epi16(_mm256_unpacklo_epi8(low, zero), w));
    sums[1] = _mm256_add_epi32(sums[1], _mm256_madd_epi16(_mm256_unpackhi_epi8(low, zero), w));
    sums[2] = _mm256_add_epi32(sums[2], _mm256_madd_epi16(_mm256_unpacklo_epi8(high, zero), w));
    sums[3] = _mm256_add_epi32(sums[3], _mm256_madd_epi16(_mm256_unpackhi_epi8(high, zero), w));
  }
  const __m128i count = _mm_cvtsi32_si128(shift);
  for (__m256i& sum : sums) sum = _mm256_sra_epi32(sum, count);
  // Of each half of 16: values 0 to 7, and 8 to 15.
  const __m256i first = _mm256_packs_epi32(sums[0], sums[1]), last = _mm256_packs_epi32(sums[2], sums[3]);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permute2x128_si256(first, last, 0x20));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 16), _mm256_permute2x128_si256(first, last, 0x31));
}

inline void rows_of(const std::uint8_t* rows, std::size_t stride, const std::int16_t* weights, int taps, int shift,
                    std::size_t count, std::int16_t* out) {
  if (count < 32) return weigh_rows_plainly(rows, stride, weights, taps, shift, 0, count, out);
  for (std::size_t i = 0; i + 32 <= count; i += 32) weigh_32(rows + i, stride, weights, taps, shift, out + i);
  // The last ones, some of them a second time.
  if (count % 32 != 0) weigh_32(rows + count - 32, stride, weights, taps, shift, out + count - 32);
}

/// Four pixels of three channels.
inline void weigh_4_pixels(const std::int16_t* row, const ColumnTaps& taps, __m128i shift, __m128i half, int x,
                           std::uint8_t* out) {
  // r0 g0 b0 r1 g1 b1 . . to r0 r1 g0 g1 b0 b1 0 0
  const __m128i side_by_side = _mm_setr_epi8(0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, -1, -1, -1, -1);
  const __m128i without_fourth = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
  __m128i sums[4] = {half, half, half, half};
  const std::int16_t* in[4];
  for (int i = 0; i < 4; ++i) in[i] = row + static_cast<std::ptrdiff_t>(taps.first[x + i]) * 3;
  const std::int16_t* weights = taps.weights + static_cast<std::ptrdiff_t>(x) * 2 * taps.pairs;
  for (int k = 0; k < taps.pairs; ++k) {
    for (int i = 0; i < 4; ++i) {
      std::int32_t pair = 0;
      std::memcpy(&pair, weights + 2 * (i * taps.pairs + k), sizeof pair);
      const __m128i pixels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in[i] + 6 * k));
      sums[i] =
          _mm_add_epi32(sums[i], _mm_madd_epi16(_mm_shuffle_epi8(pixels, side_by_side), _mm_set1_epi32(pair)));
    }
  }
  for (__m128i& sum : sums) sum = _mm_sra_epi32(sum, shift);
  const __m128i bytes = _mm_shuffle_epi8(
      _mm_packus_epi16(_mm_packs_epi32(sums[0], sums[1]), _mm_packs_epi32(sums[2], sums[3])), without_fourth);
  std::uint8_t twelve[16];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(twelve), bytes);
  std::memcpy(out + static_cast<std::ptrdiff_t>(x) * 3, twelve, 12);
}

inline void columns_of(const std::int16_t* row, const ColumnTaps& taps, int shift, int width, int channels,
                       std::uint8_t* out) {
  if (channels != 3) return weigh_columns_plainly(row, taps, shift, 0, width, channels, out);
  const __m128i count = _mm_cvtsi32_si128(shift), half = _mm_set1_epi32(1 << (shift - 1));
  int x = 0;
  for (; x + 4 <= width; x += 4) weigh_4_pixels(row, taps, count, half, x, out);
  weigh_columns_plainly(row, taps, shift, x, width, 3, out);
}

#else

inline void rows_of(const std::uint8_t* rows, std::size_t stride, const std::int16_t* weights, int taps, int shift,
                    std::size_t count, std::int16_t* out) {
  weigh_rows_plainly(rows, stride, weights, taps, shift, 0, count, out);
}
inline void columns_of(const std::int16_t* row, const ColumnTaps& taps, int shift, int width, int channels,
                       std::uint8_t* out) {
  weigh_columns_plainly(row, taps, shift, 0, width, channels, out);
}

#endif

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {

void weigh_rows(const std::uint8_t* rows, std::size_t stride, const std::int16_t* weights, int taps, int shift,
                std::size_t count, std::int16_t* out) {
  HEARTH_ISA_CALL(rows_of, rows, stride, weights, taps, shift, count, out);
}

void weigh_columns(const std::int16_t* row, const ColumnTaps& taps, int shift, int width, int channels,
                   std::uint8_t* out) {
  HEARTH_ISA_CALL(columns_of, row, taps, shift, width, channels, out);
}

}  // namespace hearth::kernels
#endif
