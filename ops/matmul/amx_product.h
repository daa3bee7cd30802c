// SPDX-License-Identifier: Apache-2.0
// The products of matrices on the processor's tiles, in bf16 with f32 sums, for operands of any form. For kernel
// sources of the CPU only; amx::unsupported() must be empty.
//
// C is cut into blocks of up to 256 x 256, each the work of one thread, which walks k in chunks of about 768: it copies
// a chunk of both operands into tiles, A [rows / 16][k / 32][16][32] and B [columns / 16][k / 32][16 pairs of
// k][16][2], and multiplies them two by two, so that four tiles are read for four products. Copies and f32 sums of a
// block stay in the second-level cache. What is missing at the edges is zeros. Chunks depend on k alone, so the bits do
// not depend on the number of threads. The tiles take denormals for zeros.
//
// An operand is read by runs of 32 values. Stored rows of A and B lie along k (`along_k`: rows of A, columns of B) or
// across it (one for each k). Operand has:
//   Type                       bf16 or float, which is rounded
//   along_k
//   Step step(inner)           what `inner`, a multiple of 32 along a stored row, comes to
//   prepare(first, count)      stored rows first.. are read next, in a copy of the operand
//   const Type* at(i, step)    32 values of the i-th of them, or null for zeros
// Store has operator()(row, column, count, const float* sums), for sums of one row of C.
#pragma once

#include <algorithm>
#include <type_traits>

#include "core/cpu/amx.h"
#include "core/cpu/parallel.h"
#include "core/cpu/scratch.h"
#include "core/half.h"

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

constexpr std::int64_t tile_values = 512, max_block = 256, max_chunk = 768, panel_steps = 8;

/// `size` in equal parts of at most `most`, each a multiple of 32.
inline std::int64_t even_part(std::int64_t size, std::int64_t most) {
  const std::int64_t parts = (size + most - 1) / most;
  return ((size + parts - 1) / parts + 31) / 32 * 32;
}

/// So many blocks that every thread has some; the bits do not depend on it.
inline ProductBlocks blocks_of(const ProductSize& size) {
  ProductBlocks blocks{even_part(size.m, max_block), even_part(size.n, max_block), even_part(size.k, max_chunk)};
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
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")

inline __m512i load_run(const bf16* from, std::int64_t count) {
  if (count >= 32) return _mm512_loadu_si512(from);
  return _mm512_maskz_loadu_epi16(static_cast<__mmask32>((1u << count) - 1), from);
}
inline __m512i load_run(const float* from, std::int64_t count) {
  const auto mask = [](std::int64_t valid) {
    return static_cast<__mmask16>(valid >= 16 ? 0xffffu : valid <= 0 ? 0u : (1u << valid) - 1);
  };
  const __m512 low = _mm512_maskz_loadu_ps(mask(count), from);
  const __m512 high = _mm512_maskz_loadu_ps(mask(count - 16), from + 16);
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}
template <class T>
__m512i load_or_zeros(const T* from, std::int64_t count) {
  return from == nullptr ? _mm512_setzero_si512() : load_run(from, count);
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

/// Where the tile of 16 lines by 32 of k lies: both of a pair of groups side by side for each step.
inline bf16* tile_at(bf16* tiles, std::int64_t group, std::int64_t step, std::int64_t steps) {
  return tiles + ((group / 2 * steps + step) * 2 + group % 2) * tile_values;
}

/// Copies 16 lines by 32 of k at a time into tiles; those of B are transposed.
template <bool transposed, class Operand>
void pack_along(const Operand& operand, const Part& part, bf16* to) {
  const std::int64_t steps = part.steps(), groups = (part.lines + 31) / 32 * 2;
  for (std::int64_t s = 0; s < steps; ++s) {
    const auto step = operand.step(part.k + 32 * s);
    const std::int64_t count = std::min<std::int64_t>(32, part.depth - 32 * s);
    for (std::int64_t group = 0; group < groups; ++group) {
      __m512i rows[16];
      for (std::int64_t i = 0; i < 16; ++i)
        rows[i] = 16 * group + i < part.lines ? load_or_zeros(operand.at(16 * group + i, step), count)
                                              : _mm512_setzero_si512();
      if constexpr (transposed) transpose(rows);
      bf16* const tile = tile_at(to, group, s, steps);
      for (std::int64_t i = 0; i < 16; ++i) _mm512_store_si512(tile + 32 * i, rows[i]);
    }
  }
}

/// The same from stored rows that are one k each; tiles of A are transposed.
template <bool transposed, class Operand>
void pack_across(const Operand& operand, const Part& part, bf16* to) {
  const std::int64_t steps = part.steps();
  for (std::int64_t line = 0; line < part.lines; line += 32) {
    const auto step = operand.step(part.first + line);
    const std::int64_t count = std::min<std::int64_t>(32, part.lines - line);
    for (std::int64_t s = 0; s < steps; ++s) {
      __m512i low[16], high[16];
      for (std::int64_t pair = 0; pair < 16; ++pair) {
        const std::int64_t k = 32 * s + 2 * pair;
        const auto row = [&](std::int64_t at) {
          return at < part.depth ? load_or_zeros(operand.at(at, step), count) : _mm512_setzero_si512();
        };
        interleave(row(k), row(k + 1), low[pair], high[pair]);
      }
      if constexpr (transposed) {
        transpose(low);
        transpose(high);
      }
      bf16* const tile = tile_at(to, line / 16, s, steps);
      for (std::int64_t i = 0; i < 16; ++i) {
        _mm512_store_si512(tile + 32 * i, low[i]);
        _mm512_store_si512(tile + tile_values + 32 * i, high[i]);
      }
    }
  }
}

template <bool is_b, class Operand>
void pack(Operand operand, const Part& part, bf16* to) {
  if constexpr (Operand::along_k) {
    operand.prepare(part.first, part.lines);
    pack_along<is_b>(operand, part, to);
  } else {
    operand.prepare(part.k, part.depth);
    pack_across<!is_b>(operand, part, to);
  }
}

/// sums = or += A B for a chunk in tiles; m and n are multiples of 32. `sums` lies by squares of 32, each of four
/// tiles.
template <class TileUnit>
void multiply_chunk(const bf16* a, const bf16* b, std::int64_t m, std::int64_t n, std::int64_t steps, bool add,
                    float* sums) {
  TileUnit tiles;
  for (std::int64_t first = 0; first < steps; first += panel_steps, add = true)
    for (std::int64_t j = 0; j < n; j += 32)
      for (std::int64_t i = 0; i < m; i += 32) {
        float* const c = sums + i * n + j * 32;
        if (add) {
          tiles.template load<0>(c, 64);
          tiles.template load<1>(c + 256, 64);
          tiles.template load<2>(c + 512, 64);
          tiles.template load<3>(c + 768, 64);
        } else {
          tiles.template clear<0>();
          tiles.template clear<1>();
          tiles.template clear<2>();
          tiles.template clear<3>();
        }
        const bf16 *x = a + (i * steps + first * 32) * 32, *w = b + (j * steps + first * 32) * 32;
        const std::int64_t last = std::min(steps, first + panel_steps);
        for (std::int64_t s = first; s < last; ++s, x += 2 * tile_values, w += 2 * tile_values) {
          tiles.template load<4>(x, 64);
          tiles.template load<6>(w, 64);
          tiles.template multiply<0, 4, 6>();
          tiles.template load<7>(w + tile_values, 64);
          tiles.template multiply<1, 4, 7>();
          tiles.template load<5>(x + tile_values, 64);
          tiles.template multiply<2, 5, 6>();
          tiles.template multiply<3, 5, 7>();
        }
        tiles.template store<0>(c, 64);
        tiles.template store<1>(c + 256, 64);
        tiles.template store<2>(c + 512, 64);
        tiles.template store<3>(c + 768, 64);
      }
}

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
  const ProductBlocks blocks = blocks_of(size);
  const std::int64_t down = (size.m + blocks.m - 1) / blocks.m, across = (size.n + blocks.n - 1) / blocks.n;
  parallel_chunks(size.batch * down * across, [&](std::int64_t task) {
    const std::int64_t batch = task / (down * across), i = task / across % down * blocks.m,
                       j = task % across * blocks.n;
    const std::int64_t rows = std::min(blocks.m, size.m - i), columns = std::min(blocks.n, size.n - j);
    const std::int64_t m = (rows + 31) / 32 * 32, n = (columns + 31) / 32 * 32;
    Scratch scratch;
    bf16* const a = scratch.take<bf16>(m * blocks.k);
    bf16* const b = scratch.take<bf16>(n * blocks.k);
    float* const sums = scratch.take<float>(m * n);
    for (std::int64_t k = 0; k < size.k; k += blocks.k) {
      const std::int64_t depth = std::min(blocks.k, size.k - k), steps = (depth + 31) / 32;
      pack<false>(make_a(batch), {i, rows, k, depth}, a);
      pack<true>(make_b(batch), {j, columns, k, depth}, b);
      (emulated() ? multiply_chunk<EmulatedTiles> : multiply_chunk<Tiles>)(a, b, m, n, steps, k > 0, sums);
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
