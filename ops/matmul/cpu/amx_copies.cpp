// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/cpu/amx_copies.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#if HEARTH_BF16_VECTORS
#include <immintrin.h>
#endif

namespace hearth::cpu::amx {
namespace {

namespace plain {

/// What rounding has taken away; nothing of a value that it made infinite.
float rest_of(float value, bf16 rounded) {
  const float wide = static_cast<float>(rounded);
  return std::abs(wide) < HUGE_VALF ? value - wide : 0.0f;
}

/// Value `i` of a row in its parts; `to` is where the first goes.
template <class T>
void put(const T* row, std::int64_t count, std::int64_t i, const Parts& parts, bf16* to) {
  const bool is_there = row != nullptr && i < count;
  if constexpr (std::is_same_v<T, bf16>) {
    *to = is_there ? row[i] : bf16();
  } else {
    float value = is_there ? row[i] : 0.0f;
    for (int part = 0; part < parts.count; ++part) {
      bf16& rounded = to[part * parts.stride];
      rounded = bf16(value);
      value = rest_of(value, rounded);
    }
  }
}

template <class T>
void copy_rows(const T* const* rows, std::int64_t count, const Parts& to) {
  for (std::int64_t row = 0; row < 16; ++row)
    for (std::int64_t i = 0; i < 32; ++i) put(rows[row], count, i, to, to.tile + 32 * row + i);
}

template <class T>
void copy_pairs(const T* const* rows, std::int64_t count, const Parts& to) {
  for (std::int64_t row = 0; row < 32; ++row)
    for (std::int64_t i = 0; i < 32; ++i)
      put(rows[row], count, i, to, to.tile + i / 16 * tile_values + 32 * (row / 2) + 2 * (i % 16) + row % 2);
}

void transpose(bf16* tile) {
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < i; ++j)
      std::swap_ranges(tile + 32 * i + 2 * j, tile + 32 * i + 2 * j + 2, tile + 32 * j + 2 * i);
}

void add(const float* more, std::int64_t count, float* sums) {
  for (std::int64_t i = 0; i < count; ++i) sums[i] += more[i];
}

template <class T>
void store(const float* sums, const float* bias, bool accumulate, std::int64_t count, T* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = bias != nullptr ? sums[i] + bias[i] : sums[i];
    to[i] = static_cast<T>(accumulate ? value + static_cast<float>(to[i]) : value);
  }
}

template <class T>
void store_square(const float* sums, const float* bias, std::int64_t count, T* const* rows) {
  for (std::int64_t row = 0; row < 32; ++row) {
    if (rows[row] == nullptr) continue;
    const float* const from = sums + row / 16 * 512 + row % 16 * 16;
    store(from, bias, false, std::min<std::int64_t>(count, 16), rows[row]);
    if (count > 16) store(from + 256, bias == nullptr ? nullptr : bias + 16, false, count - 16, rows[row] + 16);
  }
}

constexpr Copies copies{copy_rows<bf16>, copy_rows<float>, copy_pairs<bf16>,   copy_pairs<float>,  transpose, add,
                        store<bf16>,     store<float>,     store_square<bf16>, store_square<float>};

}  // namespace plain

#if HEARTH_BF16_VECTORS

namespace vectors {

#pragma GCC push_options
#pragma GCC diagnostic push
// Registers that GCC 12's own headers leave undefined on purpose.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")

#include "ops/matmul/cpu/bf16_vectors.inc"

/// What rounding has taken away; nothing of a value that it made infinite.
[[gnu::always_inline]] inline __m512 rest_of(__m512 value, __m256i rounded) {
  const __m512 wide = upcast(rounded);
  const __mmask16 finite = _mm512_cmp_ps_mask(_mm512_abs_ps(wide), _mm512_set1_ps(HUGE_VALF), _CMP_LT_OQ);
  return _mm512_maskz_sub_ps(finite, value, wide);
}
/// `count` values, at most 32, and zeros; f32 ones rounded to bf16, or in three parts. Null is zeros.
template <int parts, class T>
[[gnu::always_inline]] inline void load_parts(const T* from, std::int64_t count, __m512i (&to)[parts]) {
  if (from == nullptr) {
    for (__m512i& part : to) part = _mm512_setzero_si512();
    return;
  }
  to[0] = load_run(from, count);
  if constexpr (parts > 1) {
    __m512 low = _mm512_maskz_loadu_ps(mask_of(count, 0), from);
    __m512 high = _mm512_maskz_loadu_ps(mask_of(count, 16), from + 16);
#pragma GCC unroll 3
    for (int part = 1; part < parts; ++part) {
      low = rest_of(low, _mm512_castsi512_si256(to[part - 1]));
      high = rest_of(high, _mm512_extracti64x4_epi64(to[part - 1], 1));
      to[part] = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
    }
  }
}
/// Asks for the cache lines of a run that is read soon.
template <class T>
void prefetch_run(const T* from) {
  for (std::size_t byte = 0; byte < 32 * sizeof(T); byte += 64)
    _mm_prefetch(reinterpret_cast<const char*>(from) + byte, _MM_HINT_T0);
}

template <int parts, class T>
void rows_in(const T* const* rows, std::int64_t count, const Parts& to) {
  for (std::int64_t i = 0; i < 16; ++i) {
    // Likely what comes next.
    if (rows[i] != nullptr) prefetch_run(rows[i] + 32);
    __m512i row[parts];
    load_parts(rows[i], count, row);
#pragma GCC unroll 3
    for (int part = 0; part < parts; ++part) _mm512_store_si512(to.tile + part * to.stride + 32 * i, row[part]);
  }
}
template <class T>
void copy_rows(const T* const* rows, std::int64_t count, const Parts& to) {
  if constexpr (std::is_same_v<T, float>)
    if (to.count == 3) return rows_in<3>(rows, count, to);
  rows_in<1>(rows, count, to);
}

template <int parts, class T>
void pairs_in(const T* const* rows, std::int64_t count, const Parts& to) {
  for (std::int64_t pair = 0; pair < 16; ++pair) {
    __m512i even[parts], odd[parts];
    load_parts(rows[2 * pair], count, even);
    load_parts(rows[2 * pair + 1], count, odd);
#pragma GCC unroll 3
    for (int part = 0; part < parts; ++part) {
      bf16* const tile = to.tile + part * to.stride + 32 * pair;
      __m512i low, high;
      interleave(even[part], odd[part], low, high);
      _mm512_store_si512(tile, low);
      _mm512_store_si512(tile + tile_values, high);
    }
  }
}
template <class T>
void copy_pairs(const T* const* rows, std::int64_t count, const Parts& to) {
  if constexpr (std::is_same_v<T, float>)
    if (to.count == 3) return pairs_in<3>(rows, count, to);
  pairs_in<1>(rows, count, to);
}

void transpose(bf16* tile) {
  __m512i rows[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) rows[i] = _mm512_load_si512(tile + 32 * i);
  transpose_rows(rows);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm512_store_si512(tile + 32 * i, rows[i]);
}

void add(const float* more, std::int64_t count, float* sums) {
  for (std::int64_t i = 0; i < count; i += 16)
    _mm512_store_ps(sums + i, _mm512_add_ps(_mm512_load_ps(sums + i), _mm512_load_ps(more + i)));
}

template <class T>
void store(const float* sums, const float* bias, bool accumulate, std::int64_t count, T* to) {
  for (std::int64_t i = 0; i < count; i += 16) {
    const auto mask = static_cast<__mmask16>(count - i >= 16 ? 0xffffu : (1u << (count - i)) - 1);
    __m512 value = _mm512_maskz_loadu_ps(mask, sums + i);
    if (bias != nullptr) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, bias + i));
    if constexpr (std::is_same_v<T, float>) {
      if (accumulate) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, to + i));
      _mm512_mask_storeu_ps(to + i, mask, value);
    } else {
      if (accumulate) {
        value = _mm512_add_ps(value, upcast(_mm256_maskz_loadu_epi16(mask, to + i)));
      }
      _mm256_mask_storeu_epi16(to + i, mask, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(value)));
    }
  }
}

template <class T>
void store_square(const float* sums, const float* bias, std::int64_t count, T* const* rows) {
  const __mmask16 first = mask_of(count, 0), second = mask_of(count, 16);
  [[maybe_unused]] const __mmask32 mask = static_cast<__mmask32>(first) | static_cast<__mmask32>(second) << 16;
  const __m512 low_bias = bias == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(first, bias);
  const __m512 high_bias = bias == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(second, bias + 16);
  for (std::int64_t row = 0; row < 32; ++row) {
    if (rows[row] == nullptr) continue;
    const float* const from = sums + row / 16 * 512 + row % 16 * 16;
    const __m512 low = _mm512_add_ps(_mm512_load_ps(from), low_bias);
    const __m512 high = _mm512_add_ps(_mm512_load_ps(from + 256), high_bias);
    if constexpr (std::is_same_v<T, float>) {
      _mm512_mask_storeu_ps(rows[row], first, low);
      _mm512_mask_storeu_ps(rows[row] + 16, second, high);
    } else {
      _mm512_mask_storeu_epi16(rows[row], mask, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
    }
  }
}

#pragma GCC diagnostic pop
#pragma GCC pop_options

constexpr Copies copies{copy_rows<bf16>, copy_rows<float>, copy_pairs<bf16>,   copy_pairs<float>,  transpose, add,
                        store<bf16>,     store<float>,     store_square<bf16>, store_square<float>};

}  // namespace vectors

#endif

}  // namespace

const Copies& copies() {
#if HEARTH_BF16_VECTORS
  static const Copies& chosen = has_bf16_vectors() ? vectors::copies : plain::copies;
  return chosen;
#else
  return plain::copies;
#endif
}

}  // namespace hearth::cpu::amx
