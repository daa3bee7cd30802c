// SPDX-License-Identifier: Apache-2.0
// The products of matrices on the processor's tiles, which multiply bf16 and sum in f32, for operands of any form. For
// kernel sources of the CPU only; amx::unsupported() must be empty.
//
// C is cut into blocks of up to 256 x 256, each the work of one thread, which walks k in chunks: it copies a chunk of
// both operands into tiles, A [rows / 16][k / 32][16][32] and B [columns / 16][k / 32][16 pairs of k][16][2], and
// multiplies them two by two, so that four tiles are read for four products. Copies and f32 sums of a block stay in the
// second-level cache. What is missing at the edges is zeros. Chunks depend on k alone, so the bits do not depend on the
// number of threads. The tiles take denormals for zeros.
//
// Where both operands are f32 each value is split into three of bf16, x = x0 + x1 + x2 but for 2^-27 of it, and six
// products of these are summed: x0 y0, x0 y1, x1 y0, x1 y1, x0 y2, x2 y0 (what is left out is below 2^-25 of x y, less
// than an f32 product is rounded by). Sums of 128 products begin with the small ones, and are then added up in f32, so
// that the result is at least as close as an f32 loop's. Values below 2^-102 lose some of their bits; infinite ones
// give NaN. Henry, Tang and Heinecke, Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
// Computations, 2019.
//
// An operand is read by runs of 32 values. Stored rows of A and B lie along k (`along_k`: rows of A, columns of B) or
// across it (one for each k). Operand has:
//   Type                       bf16 or float, which is rounded where the other operand is bf16
//   along_k
//   Step step(inner)           what `inner`, a multiple of 32 along a stored row, comes to
//   prepare(first, count)      stored rows first.. are read next, in a copy of the operand
//   const Type* at(i, step)    32 values of the i-th of them, or null for zeros
// Store has operator()(row, column, count, const float* sums), for sums of one row of C.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "core/cpu/parallel.h"
#include "core/half.h"
#include "ops/matmul/amx.h"
#include "ops/scratch.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HEARTH_AMX 1
#include <immintrin.h>

namespace hearth::cpu::amx {

struct ProductSize {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
};

/// The operand whose stored rows are those of a matrix, `row_stride` apart.
template <class T, bool along>
struct Rows {
  using Type = T;
  static constexpr bool along_k = along;

  const T* data;
  std::int64_t row_stride;

  std::int64_t step(std::int64_t inner) const { return inner; }
  void prepare(std::int64_t first, std::int64_t) { data += first * row_stride; }
  const T* at(std::int64_t i, std::int64_t step) const { return data + i * row_stride + step; }
};

/// How a product is cut; all multiples of 32.
struct ProductBlocks {
  std::int64_t m, n, k;
};

constexpr std::int64_t tile_values = 512, max_block = 256, max_chunk = 768;

/// How many bf16 values stand for one of an operand.
template <class A, class B>
constexpr int parts_of = std::is_same_v<A, float>&& std::is_same_v<B, float> ? 3 : 1;

/// `size` in equal parts of at most `most`, each a multiple of 32.
inline std::int64_t even_part(std::int64_t size, std::int64_t most) {
  const std::int64_t parts = (size + most - 1) / most;
  return ((size + parts - 1) / parts + 31) / 32 * 32;
}

/// So many blocks that every thread has some; the bits do not depend on it.
inline ProductBlocks blocks_of(const ProductSize& size, int parts) {
  ProductBlocks blocks{even_part(size.m, max_block), even_part(size.n, max_block),
                       even_part(size.k, max_chunk / parts)};
  const std::int64_t wanted = threads() == 1 ? 1 : 4 * threads();
  const auto count = [&] {
    return size.batch * ((size.m + blocks.m - 1) / blocks.m) * ((size.n + blocks.n - 1) / blocks.n);
  };
  while (count() < wanted && std::max(blocks.m, blocks.n) > 64) {
    std::int64_t& larger = blocks.m >= blocks.n ? blocks.m : blocks.n;
    larger = even_part(larger, larger / 2);
  }
  return blocks;
}

#pragma GCC push_options
#pragma GCC diagnostic push
// Registers that GCC 12's own headers leave undefined on purpose.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")

/// Of so many values, at most 32, the mask of the 16 from `first` on.
inline __mmask16 mask_of(std::int64_t count, std::int64_t first) {
  return static_cast<__mmask16>((1u << std::clamp<std::int64_t>(count - first, 0, 16)) - 1);
}
/// What rounding has taken away; nothing of a value that it made infinite.
[[gnu::always_inline]] inline __m512 rest_of(__m512 value, __m256i rounded) {
  const __m512 wide = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded), 16));
  const __mmask16 finite = _mm512_cmp_ps_mask(_mm512_abs_ps(wide), _mm512_set1_ps(HUGE_VALF), _CMP_LT_OQ);
  return _mm512_maskz_sub_ps(finite, value, wide);
}
/// `count` values, at most 32, and zeros; f32 ones rounded to bf16, or in three parts. Null is zeros.
template <int parts, class T>
[[gnu::always_inline]] inline void load_run(const T* from, std::int64_t count, __m512i (&to)[parts]) {
  if (from == nullptr) {
    for (__m512i& part : to) part = _mm512_setzero_si512();
    return;
  }
  if constexpr (std::is_same_v<T, bf16>) {
    to[0] = count >= 32 ? _mm512_loadu_si512(from)
                        : _mm512_maskz_loadu_epi16(static_cast<__mmask32>((1u << count) - 1), from);
  } else {
    __m512 low, high;
    if (count >= 32) {
      low = _mm512_loadu_ps(from), high = _mm512_loadu_ps(from + 16);
    } else {
      low = _mm512_maskz_loadu_ps(mask_of(count, 0), from);
      high = _mm512_maskz_loadu_ps(mask_of(count, 16), from + 16);
    }
#pragma GCC unroll 3
    for (int part = 0; part < parts; ++part) {
      to[part] = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
      if (part + 1 == parts) break;
      low = rest_of(low, _mm512_castsi512_si256(to[part]));
      high = rest_of(high, _mm512_extracti64x4_epi64(to[part], 1));
    }
  }
}
/// Asks for the cache lines of a run that is read soon.
template <class T>
void prefetch_run(const T* from) {
  for (std::size_t byte = 0; byte < 32 * sizeof(T); byte += 64)
    _mm_prefetch(reinterpret_cast<const char*>(from) + byte, _MM_HINT_T0);
}

/// Rows of 16 words become columns.
inline void transpose(__m512i (&x)[16]) {
  __m512i y[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    y[2 * i] = _mm512_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
    y[2 * i + 1] = _mm512_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    x[4 * i] = _mm512_unpacklo_epi64(y[4 * i], y[4 * i + 2]);
    x[4 * i + 1] = _mm512_unpackhi_epi64(y[4 * i], y[4 * i + 2]);
    x[4 * i + 2] = _mm512_unpacklo_epi64(y[4 * i + 1], y[4 * i + 3]);
    x[4 * i + 3] = _mm512_unpackhi_epi64(y[4 * i + 1], y[4 * i + 3]);
  }
  // x[4 i + j] has, in its quarter q, word 4 q + j of rows 4 i to 4 i + 3.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i even_low = _mm512_shuffle_i32x4(x[j], x[4 + j], 0x88);
    const __m512i odd_low = _mm512_shuffle_i32x4(x[j], x[4 + j], 0xdd);
    const __m512i even_high = _mm512_shuffle_i32x4(x[8 + j], x[12 + j], 0x88);
    const __m512i odd_high = _mm512_shuffle_i32x4(x[8 + j], x[12 + j], 0xdd);
    y[j] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    y[8 + j] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
    y[4 + j] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    y[12 + j] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
  }
  std::copy(y, y + 16, x);
}

/// The values of two stored rows side by side: of columns 0 to 15 and of columns 16 to 31.
inline void interleave(__m512i first, __m512i second, __m512i& low, __m512i& high) {
  const __m512i a = _mm512_unpacklo_epi16(first, second), b = _mm512_unpackhi_epi16(first, second);
  low = _mm512_permutex2var_epi64(a, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), b);
  high = _mm512_permutex2var_epi64(a, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), b);
}

/// Part of an operand: `lines` rows of A or columns of B from number `first` on, `depth` of k from `k` on.
struct Part {
  std::int64_t first, lines, k, depth;

  std::int64_t steps() const { return (depth + 31) / 32; }
};

/// Where the tile of 16 lines by 32 of k lies: both of a pair of groups side by side for each part of each step.
template <int parts>
bf16* tile_at(bf16* tiles, std::int64_t group, std::int64_t step, std::int64_t steps, int part) {
  return tiles + (((group / 2 * steps + step) * parts + part) * 2 + group % 2) * tile_values;
}

inline void store_tile(const __m512i (&rows)[16], bf16* tile) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm512_store_si512(tile + 32 * i, rows[i]);
}
inline void transpose_tile(bf16* tile) {
  __m512i rows[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) rows[i] = _mm512_load_si512(tile + 32 * i);
  transpose(rows);
  store_tile(rows, tile);
}

/// Copies 16 lines by 32 of k at a time into tiles; those of B are transposed.
template <int parts, bool transposed, class Operand>
void pack_along(const Operand& operand, const Part& of, bf16* to) {
  const std::int64_t steps = of.steps(), groups = (of.lines + 31) / 32 * 2;
  decltype(operand.step(0)) at_step[max_chunk / 32 + 1];
  for (std::int64_t s = 0; s < steps; ++s) at_step[s] = operand.step(of.k + 32 * s);
  for (std::int64_t group = 0; group < groups; ++group)
    for (std::int64_t s = 0; s < steps; ++s) {
      const std::int64_t count = std::min<std::int64_t>(32, of.depth - 32 * s);
      bf16* const tile = tile_at<parts>(to, group, s, steps, 0);
      for (std::int64_t i = 0; i < 16; ++i) {
        const std::int64_t line = 16 * group + i;
        const auto* const from = line < of.lines ? operand.at(line, at_step[s]) : nullptr;
        // Likely the next step's.
        if (from != nullptr) prefetch_run(from + 32);
        __m512i row[parts];
        load_run(from, count, row);
#pragma GCC unroll 3
        for (int part = 0; part < parts; ++part) _mm512_store_si512(tile + part * 2 * tile_values + 32 * i, row[part]);
      }
      if constexpr (transposed)
        for (int part = 0; part < parts; ++part) transpose_tile(tile + part * 2 * tile_values);
    }
}

/// The same from stored rows that are one k each; tiles of A are transposed.
template <int parts, bool transposed, class Operand>
void pack_across(const Operand& operand, const Part& of, bf16* to) {
  const std::int64_t steps = of.steps();
  for (std::int64_t line = 0; line < of.lines; line += 32) {
    const auto step = operand.step(of.first + line);
    const std::int64_t count = std::min<std::int64_t>(32, of.lines - line);
    for (std::int64_t s = 0; s < steps; ++s) {
      bf16* const first = tile_at<parts>(to, line / 16, s, steps, 0);
      for (std::int64_t pair = 0; pair < 16; ++pair) {
        const std::int64_t k = 32 * s + 2 * pair;
        const auto row = [&](std::int64_t at) { return at < of.depth ? operand.at(at, step) : nullptr; };
        __m512i even[parts], odd[parts];
        load_run(row(k), count, even);
        load_run(row(k + 1), count, odd);
#pragma GCC unroll 3
        for (int part = 0; part < parts; ++part) {
          bf16* const tile = first + part * 2 * tile_values;
          __m512i low, high;
          interleave(even[part], odd[part], low, high);
          _mm512_store_si512(tile + 32 * pair, low);
          _mm512_store_si512(tile + tile_values + 32 * pair, high);
        }
      }
      if constexpr (transposed)
        for (int tile = 0; tile < 2 * parts; ++tile) transpose_tile(first + tile * tile_values);
    }
  }
}

template <int parts, bool is_b, class Operand>
void pack(Operand operand, const Part& of, bf16* to) {
  if constexpr (Operand::along_k) {
    operand.prepare(of.first, of.lines);
    pack_along<parts, is_b>(operand, of, to);
  } else {
    operand.prepare(of.k, of.depth);
    pack_across<parts, !is_b>(operand, of, to);
  }
}

/// The four tiles of sums of a square of 32, and two tiles of each operand, a part of one step.
template <class TileUnit>
struct Square {
  TileUnit tiles;

  void clear() {
    tiles.template clear<0>();
    tiles.template clear<1>();
    tiles.template clear<2>();
    tiles.template clear<3>();
  }
  void load(const float* c) {
    tiles.template load<0>(c, 64);
    tiles.template load<1>(c + 256, 64);
    tiles.template load<2>(c + 512, 64);
    tiles.template load<3>(c + 768, 64);
  }
  void store(float* c) {
    tiles.template store<0>(c, 64);
    tiles.template store<1>(c + 256, 64);
    tiles.template store<2>(c + 512, 64);
    tiles.template store<3>(c + 768, 64);
  }
  void load_a(const bf16* x) {
    tiles.template load<4>(x, 64);
    tiles.template load<5>(x + tile_values, 64);
  }
  void load_b(const bf16* w) {
    tiles.template load<6>(w, 64);
    tiles.template load<7>(w + tile_values, 64);
  }
  void multiply() {
    tiles.template multiply<0, 4, 6>();
    tiles.template multiply<1, 4, 7>();
    tiles.template multiply<2, 5, 6>();
    tiles.template multiply<3, 5, 7>();
  }
};

/// sums = or += A B for a chunk in tiles; m and n are multiples of 32. `sums` lies by squares of 32, each of four
/// tiles.
template <class TileUnit>
void multiply_chunk(const bf16* a, const bf16* b, std::int64_t m, std::int64_t n, std::int64_t steps, bool add,
                    float* sums) {
  constexpr std::int64_t panel = 8, step_values = 2 * tile_values;
  Square<TileUnit> square;
  for (std::int64_t first = 0; first < steps; first += panel, add = true)
    for (std::int64_t j = 0; j < n; j += 32)
      for (std::int64_t i = 0; i < m; i += 32) {
        float* const c = sums + i * n + j * 32;
        add ? square.load(c) : square.clear();
        const bf16 *x = a + (i / 32 * steps + first) * step_values, *w = b + (j / 32 * steps + first) * step_values;
        const std::int64_t last = std::min(steps, first + panel);
        for (std::int64_t s = first; s < last; ++s, x += step_values, w += step_values) {
          square.load_a(x);
          square.load_b(w);
          square.multiply();
        }
        square.store(c);
      }
}

/// The same for operands in three parts.
template <class TileUnit>
void multiply_parts(const bf16* a, const bf16* b, std::int64_t m, std::int64_t n, std::int64_t steps, bool add,
                    float* sums) {
  constexpr std::int64_t panel = 4, part = 2 * tile_values, step_values = 3 * part;
  Square<TileUnit> square;
  alignas(64) float more[1024];
  for (std::int64_t first = 0; first < steps; first += panel, add = true)
    for (std::int64_t j = 0; j < n; j += 32)
      for (std::int64_t i = 0; i < m; i += 32) {
        const bf16 *const x = a + (i / 32 * steps + first) * step_values, *const w = b + (j / 32 * steps + first) *
                                                                                             step_values;
        const std::int64_t end = std::min(panel, steps - first) * step_values;
        square.clear();
        for (std::int64_t s = 0; s < end; s += step_values) {
          // One operand at a time moves on.
          square.load_b(w + s);
          square.load_a(x + s + 2 * part);
          square.multiply();
          square.load_a(x + s + part);
          square.multiply();
          square.load_b(w + s + part);
          square.multiply();
          square.load_a(x + s);
          square.multiply();
          square.load_b(w + s + 2 * part);
          square.multiply();
        }
        for (std::int64_t s = 0; s < end; s += step_values) {
          square.load_a(x + s);
          square.load_b(w + s);
          square.multiply();
        }
        float* const c = sums + i * n + j * 32;
        square.store(add ? more : c);
        for (int at = 0; add && at < 1024; at += 16)
          _mm512_store_ps(c + at, _mm512_add_ps(_mm512_load_ps(c + at), _mm512_load_ps(more + at)));
      }
}

template <int parts, class TileUnit>
constexpr auto multiplies = parts == 1 ? multiply_chunk<TileUnit> : multiply_parts<TileUnit>;

/// One row of sums, gathered from its tiles.
inline void gather_row(const float* sums, std::int64_t row, std::int64_t n, float* to) {
  const float* from = sums + row / 32 * 32 * n + row % 32 / 16 * 512 + row % 16 * 16;
  for (std::int64_t j = 0; j < n; j += 32, from += 1024) {
    _mm512_store_ps(to + j, _mm512_load_ps(from));
    _mm512_store_ps(to + j + 16, _mm512_load_ps(from + 256));
  }
}

/// Stores `count` f32 values in bf16 or f32, with what is there added first and `bias`, unless null.
template <class T>
void store_row(const float* sums, const float* bias, bool accumulate, std::int64_t count, T* to) {
  for (std::int64_t i = 0; i < count; i += 16) {
    const auto mask = static_cast<__mmask16>(count - i >= 16 ? 0xffffu : (1u << (count - i)) - 1);
    __m512 value = _mm512_maskz_loadu_ps(mask, sums + i);
    if (bias != nullptr) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, bias + i));
    if constexpr (std::is_same_v<T, float>) {
      if (accumulate) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, to + i));
      _mm512_mask_storeu_ps(to + i, mask, value);
    } else {
      if (accumulate) {
        const __m256i before = _mm256_maskz_loadu_epi16(mask, to + i);
        const __m512i wide = _mm512_slli_epi32(_mm512_cvtepu16_epi32(before), 16);
        value = _mm512_add_ps(value, _mm512_castsi512_ps(wide));
      }
      _mm256_mask_storeu_epi16(to + i, mask, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(value)));
    }
  }
}

#pragma GCC diagnostic pop
#pragma GCC pop_options

/// C = A B for sizes that are not 0: operands and store by the number of the matrix in the batch.
template <class MakeA, class MakeB, class MakeStore>
void product(const ProductSize& size, const MakeA& make_a, const MakeB& make_b, const MakeStore& make_store) {
  using A = std::remove_cvref_t<decltype(make_a(0))>;
  using B = std::remove_cvref_t<decltype(make_b(0))>;
  constexpr int parts = parts_of<typename A::Type, typename B::Type>;
  const ProductBlocks blocks = blocks_of(size, parts);
  const std::int64_t down = (size.m + blocks.m - 1) / blocks.m, across = (size.n + blocks.n - 1) / blocks.n;
  parallel_chunks(size.batch * down * across, [&](std::int64_t task) {
    const std::int64_t batch = task / (down * across), i = task / across % down * blocks.m,
                       j = task % across * blocks.n;
    const std::int64_t rows = std::min(blocks.m, size.m - i), columns = std::min(blocks.n, size.n - j);
    const std::int64_t m = (rows + 31) / 32 * 32, n = (columns + 31) / 32 * 32;
    Scratch scratch;
    bf16* const a = scratch.take<bf16>(parts * m * blocks.k);
    bf16* const b = scratch.take<bf16>(parts * n * blocks.k);
    float* const sums = scratch.take<float>(m * n);
    for (std::int64_t k = 0; k < size.k; k += blocks.k) {
      const std::int64_t depth = std::min(blocks.k, size.k - k), steps = (depth + 31) / 32;
      pack<parts, false>(make_a(batch), {i, rows, k, depth}, a);
      pack<parts, true>(make_b(batch), {j, columns, k, depth}, b);
      (emulated() ? multiplies<parts, EmulatedTiles> : multiplies<parts, Tiles>)(a, b, m, n, steps, k > 0, sums);
    }
    const auto store = make_store(batch);
    float* const of_row = scratch.take<float>(n);
    for (std::int64_t row = 0; row < rows; ++row) {
      gather_row(sums, row, n, of_row);
      store(i + row, j, columns, of_row);
    }
  });
}

}  // namespace hearth::cpu::amx

#else
#define HEARTH_AMX 0
#endif
