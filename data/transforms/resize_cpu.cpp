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

inline void resize_row_plainly(const RowTaps& taps, std::size_t stride, int shift, std::size_t count,
                               const FewTaps& columns, int width, int channels, std::uint8_t* out, std::int16_t* row) {
  weigh_rows_plainly(taps.rows, stride, taps.weights, taps.taps, shift, 0, count, row);
  for (int x = 0; x < width; ++x) {
    const std::int32_t* const w = columns.weights + static_cast<std::ptrdiff_t>(x) * columns.taps;
    const std::int16_t* const in = row + static_cast<std::ptrdiff_t>(columns.first[x]) * channels;
    for (int c = 0; c < channels; ++c) {
      std::int32_t sum = 1 << (resize_point - 1);
      for (int k = 0; k < columns.taps; ++k)
        if (w[k] != 0) sum += (in[k * channels + c] * static_cast<std::int16_t>(w[k]) + (1 << 14)) >> 15;
      out[x * channels + c] = static_cast<std::uint8_t>(std::clamp(sum >> resize_point, 0, 255));
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
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_castsi256_si128(first));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 8), _mm256_castsi256_si128(last));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 16), _mm256_extracti128_si256(first, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 24), _mm256_extracti128_si256(last, 1));
}

inline void rows_of(const std::uint8_t* rows, std::size_t stride, const std::int16_t* weights, int taps, int shift,
                    std::size_t count, std::int16_t* out) {
  if (count < 32) return weigh_rows_plainly(rows, stride, weights, taps, shift, 0, count, out);
  for (std::size_t i = 0; i + 32 <= count; i += 32) weigh_32(rows + i, stride, weights, taps, shift, out + i);
  // The last ones, some of them a second time.
  if (count % 32 != 0) weigh_32(rows + count - 32, stride, weights, taps, shift, out + count - 32);
}

/// Rows become columns of 8 times 8 values.
inline void transpose_8(__m128i* v) {
  __m128i a[8], b[8];
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = _mm_unpacklo_epi16(v[2 * i], v[2 * i + 1]);
    a[2 * i + 1] = _mm_unpackhi_epi16(v[2 * i], v[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    b[4 * i] = _mm_unpacklo_epi32(a[4 * i], a[4 * i + 2]);
    b[4 * i + 1] = _mm_unpackhi_epi32(a[4 * i], a[4 * i + 2]);
    b[4 * i + 2] = _mm_unpacklo_epi32(a[4 * i + 1], a[4 * i + 3]);
    b[4 * i + 3] = _mm_unpackhi_epi32(a[4 * i + 1], a[4 * i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    v[2 * i] = _mm_unpacklo_epi64(b[i], b[i + 4]);
    v[2 * i + 1] = _mm_unpackhi_epi64(b[i], b[i + 4]);
  }
}

inline __m128i load_8(const std::int16_t* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
inline void store_8(std::int16_t* to, __m128i values) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), values); }

/// 32 values of each of 8 rows, to [32][8].
inline void weigh_32_of_8(const RowTaps* rows, std::size_t at, std::size_t stride, int shift, std::int16_t* out) {
  std::int16_t part[rows_at_once][32];
  for (int r = 0; r < rows_at_once; ++r)
    weigh_32(rows[r].rows + at, stride, rows[r].weights, rows[r].taps, shift, part[r]);
  for (int i = 0; i < 32; i += 8) {
    __m128i v[8];
    for (int r = 0; r < rows_at_once; ++r) v[r] = load_8(part[r] + i);
    transpose_8(v);
    for (int k = 0; k < 8; ++k) store_8(out + 8 * (i + k), v[k]);
  }
}

/// [columns][8] to [outputs][8], of `channels` channels; 0 for as many as are given.
template <int fixed>
inline void weigh_columns_of_8(const std::int16_t* in, const FewTaps& taps, int width, int given, std::int16_t* out) {
  const int channels = fixed == 0 ? given : fixed;
  const __m128i half = _mm_set1_epi16(1 << (resize_point - 1));
  const std::int32_t* w = taps.weights;
  for (int x = 0; x < width; ++x, w += taps.taps) {
    const std::int16_t* const from = in + static_cast<std::ptrdiff_t>(taps.first[x]) * channels * 8;
    if constexpr (fixed == 3) {
      __m128i sums[3] = {half, half, half};
      for (int k = 0; k < taps.taps; ++k) {
        const __m128i weight = _mm_set1_epi32(w[k]);
        for (int c = 0; c < 3; ++c)
          sums[c] = _mm_add_epi16(sums[c], _mm_mulhrs_epi16(load_8(from + (3 * k + c) * 8), weight));
      }
      for (int c = 0; c < 3; ++c, out += 8) store_8(out, _mm_srai_epi16(sums[c], resize_point));
    } else {
      for (int c = 0; c < channels; ++c, out += 8) {
        __m128i sum = half;
        for (int k = 0; k < taps.taps; ++k)
          sum = _mm_add_epi16(sum, _mm_mulhrs_epi16(load_8(from + (channels * k + c) * 8), _mm_set1_epi32(w[k])));
        store_8(out, _mm_srai_epi16(sum, resize_point));
      }
    }
  }
}

/// [count][8] to 8 rows of `count` bytes.
inline void put_8_rows(const std::int16_t* in, std::size_t count, std::uint8_t* out) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    __m128i v[8];
    for (std::size_t k = 0; k < 8; ++k) v[k] = load_8(in + 8 * (i + k));
    transpose_8(v);
    for (std::size_t r = 0; r < 8; ++r)
      _mm_storel_epi64(reinterpret_cast<__m128i*>(out + r * count + i), _mm_packus_epi16(v[r], v[r]));
  }
  for (; i < count; ++i)
    for (std::size_t r = 0; r < 8; ++r)
      out[r * count + i] = static_cast<std::uint8_t>(std::clamp<int>(in[8 * i + r], 0, 255));
}

inline void rows_and_columns(const RowTaps* rows, int row_count, std::size_t stride, int shift, std::size_t count,
                             const FewTaps& columns, int width, int channels, std::uint8_t* out,
                             std::int16_t* scratch) {
  const std::size_t row_bytes = static_cast<std::size_t>(width) * static_cast<std::size_t>(channels);
  if (row_count < rows_at_once || count < 32) {
    for (int r = 0; r < row_count; ++r)
      resize_row_plainly(rows[r], stride, shift, count, columns, width, channels,
                         out + static_cast<std::size_t>(r) * row_bytes, scratch);
    return;
  }
  for (std::size_t i = 0; i + 32 <= count; i += 32) weigh_32_of_8(rows, i, stride, shift, scratch + 8 * i);
  // The last ones, some of them a second time.
  if (count % 32 != 0) weigh_32_of_8(rows, count - 32, stride, shift, scratch + 8 * (count - 32));
  std::int16_t* const narrow = scratch + 8 * (count + static_cast<std::size_t>(columns.taps * channels));
  if (channels == 3)
    weigh_columns_of_8<3>(scratch, columns, width, 3, narrow);
  else
    weigh_columns_of_8<0>(scratch, columns, width, channels, narrow);
  put_8_rows(narrow, row_bytes, out);
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
      sums[i] = _mm_add_epi32(sums[i], _mm_madd_epi16(_mm_shuffle_epi8(pixels, side_by_side), _mm_set1_epi32(pair)));
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

inline void rows_and_columns(const RowTaps* rows, int row_count, std::size_t stride, int shift, std::size_t count,
                             const FewTaps& columns, int width, int channels, std::uint8_t* out,
                             std::int16_t* scratch) {
  for (int r = 0; r < row_count; ++r)
    resize_row_plainly(rows[r], stride, shift, count, columns, width, channels,
                       out + static_cast<std::ptrdiff_t>(r) * width * channels, scratch);
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

void resize_rows(const RowTaps* rows, int row_count, std::size_t stride, int shift, std::size_t count,
                 const FewTaps& columns, int width, int channels, std::uint8_t* out, std::int16_t* scratch) {
  HEARTH_ISA_CALL(rows_and_columns, rows, row_count, stride, shift, count, columns, width, channels, out, scratch);
}

}  // namespace hearth::kernels
#endif
