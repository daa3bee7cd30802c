// SPDX-License-Identifier: Apache-2.0
// Products of 16-bit integers, two at once, summed in 32 bits.
#include <algorithm>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#endif

#include "data/images/transforms/resize_kernels.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "data/images/transforms/resize_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

/// Whether the errors of rounded products do not add up, and 15 bits hold each weight: those of a bicubic filter may be
/// above 1 at an edge.
inline bool are_few(const RowTaps& taps) {
  constexpr int few = 8;
  return taps.taps <= few && *std::max_element(taps.weights, taps.weights + taps.taps) <= 1 << taps.bits;
}
/// 1 is not among the values of 15 bits.
inline std::int16_t of_15_bits(const RowTaps& taps, int k) {
  return static_cast<std::int16_t>(std::min(taps.weights[k] * (1 << (15 - taps.bits)), 32767));
}

/// Between the passes values stay within those of a byte, as Pillow has it: a bicubic filter would go beyond.
constexpr int most_between = 255 << resize_point;

inline void columns_plainly(const std::uint8_t* row, const ColumnTaps& taps, int shift, int channels,
                            std::int16_t* out) {
  for (int x = 0; x < taps.width; ++x) {
    const std::int16_t* const w = taps.weights + static_cast<std::ptrdiff_t>(x) * taps.slots;
    const std::uint8_t* const in = row + taps.first[x];
    for (int c = 0; c < channels; ++c) {
      std::int32_t sum = 0;
      for (int k = 0; k < 2 * taps.pairs; ++k)
        if (w[k] != 0) sum += in[k * channels + c] * w[k];
      *out++ = static_cast<std::int16_t>(std::clamp(sum >> shift, 0, most_between));
    }
  }
}

inline void rows_plainly(const RowTaps& taps, std::size_t count, std::uint8_t* out) {
  const bool few = are_few(taps);
  const int shift = few ? resize_point : taps.bits + resize_point;
  for (std::size_t i = 0; i < count; ++i) {
    std::int32_t sum = 1 << (shift - 1);
    for (int k = 0; k < taps.taps; ++k)
      sum += few ? (taps.rows[k][i] * of_15_bits(taps, k) + (1 << 14)) >> 15 : taps.rows[k][i] * taps.weights[k];
    out[i] = static_cast<std::uint8_t>(std::clamp(sum >> shift, 0, 255));
  }
}

#if HEARTH_ISA_VECTOR_BYTES >= 32

inline __m256i load_16(const std::int16_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }

/// 16 bytes from each address.
inline __m256i load_two(const std::uint8_t* low, const std::uint8_t* high) {
  const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(low));
  return _mm256_inserti128_si256(_mm256_castsi128_si256(first), _mm_loadu_si128(reinterpret_cast<const __m128i*>(high)),
                                 1);
}

/// Of three channels, four pixels of both rows at a time; `fixed` pairs, or 0 for as many as are given.
template <int fixed>
void pixels_of(const RowPair& rows, const ColumnTaps& taps, int by) {
  const int pairs = fixed == 0 ? taps.pairs : fixed;
  // r0 g0 b0 r1 g1 b1 to r0 r1 g0 g1 b0 b1 0 0 of 16 bits, and the same of the next two pixels.
  const __m256i here =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
  const __m256i next =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
  const __m256i without_fourth =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, -1, -1, -1, -1));
  const __m128i shift = _mm_cvtsi32_si128(by);
  const __m256i most = _mm256_set1_epi16(most_between);
  const auto* w = reinterpret_cast<const __m256i*>(taps.spread);
  const int *first = taps.first, *const end = first + taps.width;
  const std::uint8_t* const row[2] = {rows.in[0], rows.in[1]};
  std::int16_t* out[2] = {rows.out[0], rows.out[1]};
  for (; first < end; first += 4, w += 2 * pairs) {
    __m256i sums[2][2] = {};
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const std::ptrdiff_t low = first[h], high = first[h + 2];
#pragma GCC unroll 3
      for (int k = 0; k < pairs; k += 2) {
        const __m256i weights = _mm256_loadu_si256(w + h * pairs + k);
        const __m256i further = k + 1 < pairs ? _mm256_loadu_si256(w + h * pairs + k + 1) : weights;
#pragma GCC unroll 2
        for (int r = 0; r < 2; ++r) {
          __m256i& sum = sums[r][h];
          const __m256i bytes = load_two(row[r] + low + 6 * k, row[r] + high + 6 * k);
          sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_shuffle_epi8(bytes, here), weights));
          if (k + 1 < pairs) sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_shuffle_epi8(bytes, next), further));
        }
      }
    }
#pragma GCC unroll 2
    for (int r = 0; r < 2; ++r) {
      const __m256i made = _mm256_min_epu16(
          _mm256_packus_epi32(_mm256_sra_epi32(sums[r][0], shift), _mm256_sra_epi32(sums[r][1], shift)), most);
      const __m256i pixels = _mm256_shuffle_epi8(made, without_fourth);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out[r]), _mm256_castsi256_si128(pixels));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out[r] + 6), _mm256_extracti128_si256(pixels, 1));
      out[r] += 12;
    }
  }
}

inline std::uint16_t two_bytes(const std::uint8_t* from) {
  std::uint16_t bytes = 0;
  std::memcpy(&bytes, from, sizeof bytes);
  return bytes;
}

/// Of one channel, four at a time.
inline void grey_of(const std::uint8_t* row, const ColumnTaps& taps, int by, int, std::int16_t* out) {
  const __m128i shift = _mm_cvtsi32_si128(by);
  const auto* w = reinterpret_cast<const __m128i*>(taps.spread);
  const int* first = taps.first;
  for (int x = 0; x < taps.width; x += 4, first += 4, out += 4) {
    const std::uint8_t* from[4];
    for (int i = 0; i < 4; ++i) from[i] = row + first[i];
    __m128i sum = _mm_setzero_si128();
    for (int k = 0; k < 2 * taps.pairs; k += 2, ++w) {
      __m128i bytes = _mm_cvtsi32_si128(two_bytes(from[0] + k));
      bytes = _mm_insert_epi16(bytes, two_bytes(from[1] + k), 1);
      bytes = _mm_insert_epi16(bytes, two_bytes(from[2] + k), 2);
      bytes = _mm_insert_epi16(bytes, two_bytes(from[3] + k), 3);
      sum = _mm_add_epi32(sum, _mm_madd_epi16(_mm_cvtepu8_epi16(bytes), _mm_loadu_si128(w)));
    }
    sum = _mm_sra_epi32(sum, shift);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out),
                     _mm_min_epu16(_mm_packus_epi32(sum, sum), _mm_set1_epi16(most_between)));
  }
}

inline void columns_of(const RowPair& rows, const ColumnTaps& taps, int shift, int channels) {
  if (channels != 3) {
    const auto& weigh = channels == 1 ? grey_of : columns_plainly;
    for (int r = 0; r < 2; ++r) weigh(rows.in[r], taps, shift, channels, rows.out[r]);
    return;
  }
  switch (taps.pairs) {
    case 1:
      return pixels_of<1>(rows, taps, shift);
    case 2:
      return pixels_of<2>(rows, taps, shift);
    case 3:
      return pixels_of<3>(rows, taps, shift);
    case 4:
      return pixels_of<4>(rows, taps, shift);
    default:
      return pixels_of<0>(rows, taps, shift);
  }
}

/// 16 sums of rounded products.
template <int taps>
inline __m256i few_at(const std::int16_t* const* rows, const __m256i* weights, std::size_t i) {
  __m256i sum = _mm256_set1_epi16(1 << (resize_point - 1));
#pragma GCC unroll 8
  for (int k = 0; k < taps; ++k) sum = _mm256_add_epi16(sum, _mm256_mulhrs_epi16(load_16(rows[k] + i), weights[k]));
  return _mm256_srai_epi16(sum, resize_point);
}

/// 16 exact sums.
inline __m256i many_at(const RowTaps& taps, std::size_t i) {
  const __m128i shift = _mm_cvtsi32_si128(taps.bits + resize_point);
  __m256i low = _mm256_set1_epi32(1 << (taps.bits + resize_point - 1)), high = low;
  for (int k = 0; k < taps.taps; k += 2) {
    // A row without a second has weight 0 beside it.
    const bool two = k + 1 < taps.taps;
    const std::uint32_t pair = static_cast<std::uint16_t>(taps.weights[k]) |
                               static_cast<std::uint32_t>(two ? static_cast<std::uint16_t>(taps.weights[k + 1]) : 0)
                                   << 16;
    const __m256i w = _mm256_set1_epi32(static_cast<std::int32_t>(pair));
    const __m256i a = load_16(taps.rows[k] + i), b = load_16(taps.rows[two ? k + 1 : k] + i);
    low = _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), w));
    high = _mm256_add_epi32(high, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), w));
  }
  return _mm256_packs_epi32(_mm256_sra_epi32(low, shift), _mm256_sra_epi32(high, shift));
}

/// at(i) gives 16 values.
template <class At>
inline void put_row(std::size_t count, std::uint8_t* out, const At& at) {
  const auto bytes = [&](std::size_t i) {
    return _mm256_permute4x64_epi64(_mm256_packus_epi16(at(i), at(i + 16)), 0xd8);
  };
  std::size_t i = 0;
  for (; i + 32 <= count; i += 32) _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), bytes(i));
  if (i == count) return;
  alignas(32) std::uint8_t last[32];
  _mm256_store_si256(reinterpret_cast<__m256i*>(last), bytes(i));
  std::memcpy(out + i, last, count - i);
}

template <int taps>
void few_rows_of(const RowTaps& of, std::size_t count, std::uint8_t* out) {
  const std::int16_t* rows[taps];
  __m256i weights[taps];
  for (int k = 0; k < taps; ++k) rows[k] = of.rows[k], weights[k] = _mm256_set1_epi16(of_15_bits(of, k));
  put_row(count, out, [&](std::size_t i) { return few_at<taps>(rows, weights, i); });
}

inline void rows_of(const RowTaps& taps, std::size_t count, std::uint8_t* out) {
  if (!are_few(taps)) return put_row(count, out, [&](std::size_t i) { return many_at(taps, i); });
  switch (taps.taps) {
    case 1:
      return few_rows_of<1>(taps, count, out);
    case 2:
      return few_rows_of<2>(taps, count, out);
    case 3:
      return few_rows_of<3>(taps, count, out);
    case 4:
      return few_rows_of<4>(taps, count, out);
    case 5:
      return few_rows_of<5>(taps, count, out);
    case 6:
      return few_rows_of<6>(taps, count, out);
    case 7:
      return few_rows_of<7>(taps, count, out);
    default:
      return few_rows_of<8>(taps, count, out);
  }
}

#else

inline void columns_of(const RowPair& rows, const ColumnTaps& taps, int shift, int channels) {
  for (int r = 0; r < 2; ++r) columns_plainly(rows.in[r], taps, shift, channels, rows.out[r]);
}
inline void rows_of(const RowTaps& taps, std::size_t count, std::uint8_t* out) { rows_plainly(taps, count, out); }

#endif

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {

void weigh_columns(const RowPair& rows, const ColumnTaps& taps, int shift, int channels) {
  HEARTH_ISA_CALL(columns_of, rows, taps, shift, channels);
}

void weigh_rows(const RowTaps& taps, std::size_t count, std::uint8_t* out) {
  HEARTH_ISA_CALL(rows_of, taps, count, out);
}

}  // namespace hearth::kernels
#endif
