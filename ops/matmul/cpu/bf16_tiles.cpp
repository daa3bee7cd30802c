// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/cpu/bf16_tiles.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#if HEARTH_BF16_VECTORS
#include <immintrin.h>

namespace hearth::cpu::bf16_tiles {
namespace {

// Compiled for the processors that has_bf16_vectors() answers for.
#pragma GCC push_options
#pragma GCC diagnostic push
// Registers that GCC 12's own headers leave undefined on purpose.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")
// Measured on a Zen 5: 1 % of whole products.
#pragma GCC optimize("align-loops=64")

#include "ops/matmul/cpu/bf16_vectors.inc"

/// 16 lines of 32 terms, `step` apart, a line in a register; zeros for what is beyond `lines` and `terms`.
template <class T>
[[gnu::always_inline]] inline void load_lines(const T* from, std::int64_t step, std::int64_t lines, std::int64_t terms,
                                              __m512i (&to)[16]) {
  const auto load = [&](int i, std::int64_t count) {
    const T* const line = from + i * step;
    to[i] = load_run(line, count);
    // What comes next.
    __builtin_prefetch(line + 32);
    if constexpr (sizeof(T) == 4) __builtin_prefetch(line + 48);
  };
  if (lines >= 16 && terms >= 32) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) load(i, 32);
    return;
  }
  for (int i = 0; i < 16; ++i)
    if (i < lines)
      load(i, terms);
    else
      to[i] = _mm512_setzero_si512();
}

/// Terms, `step` apart, of lines that run across become panels [pairs][32], `panel_step` words apart. Stored rows are
/// walked two at a time, as memory is fastest.
template <class T>
void pack_across(const T* from, std::int64_t step, std::int64_t lines, std::int64_t terms, std::uint32_t* to,
                 std::int64_t panel_step) {
  constexpr std::int64_t ahead = 32;  // rows that come soon
  for (std::int64_t t = 0; t < terms; t += 2, from += 2 * step, to += panel) {
    const bool both = t + 1 < terms;
    std::uint32_t* pairs = to;
    for (std::int64_t line = 0; line < lines; line += panel, pairs += panel_step) {
      const T *const first = from + line, *const second = first + step;
      const std::int64_t count = std::min(panel, lines - line);
      __builtin_prefetch(first + ahead * step);
      __builtin_prefetch(second + ahead * step);
      __m512i low, high;
      interleave(load_run(first, count), both ? load_run(second, count) : _mm512_setzero_si512(), low, high);
      _mm512_store_si512(pairs, low);
      _mm512_store_si512(pairs + 16, high);
    }
  }
}

/// Terms of at most 32 lines, `step` apart, that run along become a panel.
template <class T>
void pack_along(const T* from, std::int64_t step, std::int64_t lines, std::int64_t terms, std::uint32_t* to) {
  __m512i low[16], high[16];
  for (std::int64_t t = 0; t < terms; t += 32, from += 32, to += 16 * panel) {
    const std::int64_t left = std::min<std::int64_t>(32, terms - t);
    load_lines(from, step, lines, left, low);
    load_lines(from + 16 * step, step, lines - 16, left, high);
    transpose_rows(low);
    transpose_rows(high);
    for (std::int64_t i = 0; i < (left + 1) / 2; ++i) {
      _mm512_store_si512(to + i * panel, low[i]);
      _mm512_store_si512(to + i * panel + 16, high[i]);
    }
  }
}

}  // namespace

void add_line_sums(const std::uint32_t* panel_of, std::int64_t pairs, std::int64_t lines, double* sums) {
  const auto ones = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f803f80));
  __m512 low[4] = {}, high[4] = {};
  const auto add = [&](int i) {
    low[i] = _mm512_dpbf16_ps(low[i], reinterpret_cast<__m512bh>(_mm512_load_si512(panel_of)), ones);
    high[i] = _mm512_dpbf16_ps(high[i], reinterpret_cast<__m512bh>(_mm512_load_si512(panel_of + 16)), ones);
    panel_of += panel;
  };
  std::int64_t p = 0;
  for (; p + 4 <= pairs; p += 4)
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) add(i);
  for (; p < pairs; ++p) add(0);
  float found[panel];
  _mm512_storeu_ps(found, _mm512_add_ps(_mm512_add_ps(low[0], low[1]), _mm512_add_ps(low[2], low[3])));
  _mm512_storeu_ps(found + 16, _mm512_add_ps(_mm512_add_ps(high[0], high[1]), _mm512_add_ps(high[2], high[3])));
  for (std::int64_t line = 0; line < lines; ++line) sums[line] += static_cast<double>(found[line]);
}

void pack_rows(const Operand& x, std::int64_t lines, std::int64_t terms, bf16* to, std::int64_t step) {
  for (std::int64_t line = 0; line < lines; ++line)
    for (std::int64_t t = 0; t < terms; t += 32) {
      const Operand at = x.shifted(line, t);
      const std::int64_t count = std::min<std::int64_t>(32, terms - t);
      _mm512_store_si512(to + line * step + t, x.is_f32 ? load_run(static_cast<const float*>(at.data), count)
                                                        : load_run(static_cast<const bf16*>(at.data), count));
    }
}

namespace {

/// Adds what `results` says to the sums of a row.
inline void add_to_sums(const Results& r, std::int64_t row, __mmask16 first, __mmask16 second, __m512& low,
                        __m512& high) {
  if (r.before != nullptr) {
    low = _mm512_add_ps(low, _mm512_maskz_loadu_ps(first, r.before + row * r.before_step));
    high = _mm512_add_ps(high, _mm512_maskz_loadu_ps(second, r.before + row * r.before_step + 16));
  }
  if (r.bias != nullptr) {
    low = _mm512_add_ps(low, _mm512_maskz_loadu_ps(first, r.bias));
    high = _mm512_add_ps(high, _mm512_maskz_loadu_ps(second, r.bias + 16));
  }
  if (!r.accumulates) return;
  if (r.is_f32) {
    const float* const held = static_cast<float*>(r.to) + row * r.step;
    low = _mm512_add_ps(low, _mm512_maskz_loadu_ps(first, held));
    high = _mm512_add_ps(high, _mm512_maskz_loadu_ps(second, held + 16));
  } else {
    const bf16* const held = static_cast<bf16*>(r.to) + row * r.step;
    low = _mm512_add_ps(low, upcast(_mm256_maskz_loadu_epi16(first, held)));
    high = _mm512_add_ps(high, upcast(_mm256_maskz_loadu_epi16(second, held + 16)));
  }
}

template <int rows>
[[gnu::always_inline]] inline void store_sums(__m512 (&sums)[rows][2], const Results& r) {
  const __mmask16 first = mask_of(r.columns, 0), second = mask_of(r.columns, 16);
  if (r.before != nullptr || r.bias != nullptr || r.accumulates)
#pragma GCC unroll 12
    for (int i = 0; i < rows; ++i) add_to_sums(r, i, first, second, sums[i][0], sums[i][1]);
  if (r.is_f32) {
#pragma GCC unroll 12
    for (int i = 0; i < rows; ++i) {
      float* const to = static_cast<float*>(r.to) + i * r.step;
      _mm512_mask_storeu_ps(to, first, sums[i][0]);
      _mm512_mask_storeu_ps(to + 16, second, sums[i][1]);
    }
    return;
  }
  const __mmask32 mask = static_cast<__mmask32>(first) | static_cast<__mmask32>(second) << 16;
#pragma GCC unroll 12
  for (int i = 0; i < rows; ++i)
    _mm512_mask_storeu_epi16(static_cast<bf16*>(r.to) + i * r.step, mask,
                             reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(sums[i][1], sums[i][0])));
}

/// Copies 32 values of two rows into a panel.
[[gnu::always_inline]] inline void copy_pair(Copying& c) {
  __m512i low, high;
  interleave(_mm512_loadu_si512(c.from), _mm512_loadu_si512(c.from + c.row), low, high);
  __builtin_prefetch(c.from + c.ahead);
  __builtin_prefetch(c.from + c.ahead + c.row);
  _mm512_store_si512(c.to, low);
  _mm512_store_si512(c.to + 64, high);
  c.from += 64;
  c.to += c.panel_bytes;
  if (c.from == c.end) {
    c.from += c.skip;
    c.end += 2 * c.row;
    c.to += c.back;
  }
}

void copy_what_is_left(Copying& c) {
  for (; c.left > 0; --c.left) copy_pair(c);
}

/// A register tile of rows of A by a panel of B. Rows of A that are dense lie in a panel like B's.
template <int rows, bool dense>
void multiply(const Rows& of, const std::uint32_t* b, std::int64_t pairs, const Results& results, Copying* copying) {
  __m512 sums[rows][2];
#pragma GCC unroll 12
  for (int i = 0; i < rows; ++i) sums[i][0] = sums[i][1] = _mm512_setzero_ps();
  const bf16* a = of.data;
  const std::int64_t row_step = dense ? 2 : of.row_step, pair_step = dense ? 2 * panel : 2;
  const auto add_pair = [&] {
    const auto low = reinterpret_cast<__m512bh>(_mm512_load_si512(b));
    const auto high = reinterpret_cast<__m512bh>(_mm512_load_si512(b + 16));
#pragma GCC unroll 12
    for (int i = 0; i < rows; ++i) {
      std::int32_t pair;
      std::memcpy(&pair, a + i * row_step, 4);
      const auto one = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
      sums[i][0] = _mm512_dpbf16_ps(sums[i][0], low, one);
      sums[i][1] = _mm512_dpbf16_ps(sums[i][1], high, one);
    }
    a += pair_step;
    b += panel;
  };
  std::int64_t p = 0;
  if (dense && copying != nullptr) {
    Copying c = *copying;
    const std::int64_t end = std::min(pairs, c.left * c.every);
    for (std::int64_t wait = 1; p < end; ++p) {
      add_pair();
      if (--wait > 0) continue;
      copy_pair(c);
      wait = c.every;
    }
    c.left -= (end + c.every - 1) / c.every;
    *copying = c;
  }
  for (; p < pairs; ++p) add_pair();
  store_sums(sums, results);
}

#pragma GCC diagnostic pop
#pragma GCC pop_options

using Multiply = void (*)(const Rows&, const std::uint32_t*, std::int64_t, const Results&, Copying*);

template <bool dense, std::size_t... i>
constexpr std::array<Multiply, sizeof...(i)> make_kernels(std::index_sequence<i...>) {
  return {multiply<static_cast<int>(i) + 1, dense>...};
}
/// By the number of rows less one.
template <bool dense>
constexpr auto kernels = make_kernels<dense>(std::make_index_sequence<max_rows>());

/// Asks for the cache lines of results that will be written soon.
[[gnu::always_inline]] inline void fetch_results(const Results& of, std::int64_t rows) {
  const std::int64_t row = of.step * (of.is_f32 ? 4 : 2);
  const char* to = static_cast<const char*>(of.to);
  for (std::int64_t i = 0; i < rows; ++i, to += row) {
    __builtin_prefetch(to, 1);
    if (of.is_f32) __builtin_prefetch(to + 64, 1);
  }
}

/// Asks for the cache lines of rows of `terms` values that will be read soon.
[[gnu::always_inline]] inline void fetch_rows(const Rows& of, std::int64_t rows, std::int64_t terms) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t t = 0; t < terms; t += 32) __builtin_prefetch(of.data + i * of.row_step + t);
}

}  // namespace

template <bool dense>
void multiply_rows(Rows a, std::int64_t rows, const Panels& b, std::int64_t pairs, bool first, const Results& results,
                   NextChunk* copies) {
  const std::int64_t tiles = ceil_div(rows, max_rows);
  std::int64_t row = 0;
  for (std::int64_t tile = 1; tile <= tiles; ++tile) {
    const std::int64_t end = tile * rows / tiles, next = std::min(rows, (tile + 1) * rows / tiles);
    if (first && !dense) fetch_rows({a.data + end * a.row_step, a.row_step}, next - end, 2 * pairs);
    if (!dense) fetch_results(results.shifted(end, 0), next - end);
    const std::uint32_t* panel_of = b.data;
    for (std::int64_t j = 0; j < b.columns; j += panel, panel_of += b.step) {
      if (dense && j + panel < b.columns) fetch_results(results.shifted(row, j + panel), end - row);
      kernels<dense>[static_cast<std::size_t>(end - row - 1)]({a.data + row * a.row_step, a.row_step}, panel_of, pairs,
                                                              results.shifted(row, j),
                                                              copies != nullptr ? &copies->current() : nullptr);
    }
    row = end;
  }
}

template void multiply_rows<false>(Rows, std::int64_t, const Panels&, std::int64_t, bool, const Results&, NextChunk*);
template void multiply_rows<true>(Rows, std::int64_t, const Panels&, std::int64_t, bool, const Results&, NextChunk*);

void pack_panels(const Operand& x, std::int64_t lines, std::int64_t terms, std::uint32_t* to, std::int64_t step) {
  const auto pack = [&](const auto* from) {
    if (!x.along()) return pack_across(from, x.inner, lines, terms, to, step);
    for (std::int64_t line = 0; line < lines; line += panel, to += step)
      pack_along(from + line * x.outer, x.outer, std::min(panel, lines - line), terms, to);
  };
  x.is_f32 ? pack(static_cast<const float*>(x.data)) : pack(static_cast<const bf16*>(x.data));
}

void NextChunk::add(const Operand& x, std::int64_t lines, std::int64_t terms, std::uint32_t* to, std::int64_t step) {
  const std::int64_t whole = x.is_f32 || terms % 2 != 0 || x.along() ? 0 : lines / panel;
  if (whole > 0) {
    const std::int64_t row = 2 * x.inner, width = 2 * panel * whole, soon = std::max<std::int64_t>(2, 64 / whole);
    const auto* const from = static_cast<const char*>(x.data);
    copies_[waiting_++] = {from,
                           from + width,
                           reinterpret_cast<char*>(to),
                           row,
                           2 * soon * row,
                           4 * step,
                           2 * row - width,
                           4 * panel - 4 * step * whole,
                           whole * (terms / 2),
                           1};
  }
  if (whole * panel < lines)
    rests_[rest_count_++] = {x.shifted(whole * panel, 0), lines - whole * panel, terms, to + whole * step, step};
}

void NextChunk::spread(std::int64_t pairs) {
  std::int64_t all = 0;
  for (int i = 0; i < waiting_; ++i) all += copies_[i].left;
  for (int i = 0; i < waiting_; ++i)
    copies_[i].every = std::clamp<std::int64_t>(pairs / std::max<std::int64_t>(1, all), 1, 32);
}

void NextChunk::finish() {
  while (current().left > 0) copy_what_is_left(now_);
  for (int i = 0; i < rest_count_; ++i) {
    const Rest& r = rests_[i];
    pack_panels(r.x, r.lines, r.terms, r.to, r.step);
  }
}

}  // namespace hearth::cpu::bf16_tiles

#endif
