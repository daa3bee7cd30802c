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
#include <cstdint>
#include <type_traits>

#include "core/cpu/parallel.h"
#include "core/half.h"
#include "ops/matmul/amx.h"
#include "ops/matmul/amx_copies.h"
#include "ops/scratch.h"

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

constexpr std::int64_t max_block = 256, max_chunk = 768;

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

/// Part of an operand: `lines` rows of A or columns of B from number `first` on, `depth` of k from `k` on.
struct Part {
  std::int64_t first, lines, k, depth;

  std::int64_t steps() const { return (depth + 31) / 32; }
};

/// Where the tiles of 16 lines by 32 of k lie: both of a pair of groups side by side for each part of each step.
template <int parts>
Parts tiles_at(bf16* tiles, std::int64_t group, std::int64_t step, std::int64_t steps) {
  return {tiles + ((group / 2 * steps + step) * parts * 2 + group % 2) * tile_values, parts, 2 * tile_values};
}

/// Copies 16 lines by 32 of k at a time into tiles; those of B are transposed.
template <int parts, bool transposed, class Operand>
void pack_along(const Operand& operand, const Part& of, bf16* to) {
  const std::int64_t steps = of.steps(), groups = (of.lines + 31) / 32 * 2;
  decltype(operand.step(0)) at_step[max_chunk / 32 + 1];
  for (std::int64_t s = 0; s < steps; ++s) at_step[s] = operand.step(of.k + 32 * s);
  for (std::int64_t group = 0; group < groups; ++group)
    for (std::int64_t s = 0; s < steps; ++s) {
      const typename Operand::Type* rows[16];
      for (std::int64_t i = 0; i < 16; ++i) {
        const std::int64_t line = 16 * group + i;
        rows[i] = line < of.lines ? operand.at(line, at_step[s]) : nullptr;
      }
      const Parts tiles = tiles_at<parts>(to, group, s, steps);
      copy_rows(rows, std::min<std::int64_t>(32, of.depth - 32 * s), tiles);
      if constexpr (transposed)
        for (int part = 0; part < parts; ++part) copies().transpose(tiles.tile + part * tiles.stride);
    }
}

/// The same from stored rows that are one k each; tiles of A are transposed.
template <int parts, bool transposed, class Operand>
void pack_across(const Operand& operand, const Part& of, bf16* to) {
  const std::int64_t steps = of.steps();
  for (std::int64_t line = 0; line < of.lines; line += 32) {
    const auto step = operand.step(of.first + line);
    for (std::int64_t s = 0; s < steps; ++s) {
      const typename Operand::Type* rows[32];
      for (std::int64_t i = 0; i < 32; ++i) {
        const std::int64_t k = 32 * s + i;
        rows[i] = k < of.depth ? operand.at(k, step) : nullptr;
      }
      const Parts tiles = tiles_at<parts>(to, line / 16, s, steps);
      copy_pairs(rows, std::min<std::int64_t>(32, of.lines - line), tiles);
      if constexpr (transposed)
        for (int tile = 0; tile < 2 * parts; ++tile) copies().transpose(tiles.tile + tile * tile_values);
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
  /// Rows lie `row` values apart.
  void load_a(const bf16* x, std::int64_t row = 32) {
    tiles.template load<4>(x, 2 * row);
    tiles.template load<5>(x + 16 * row, 2 * row);
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
        if (add) copies().add(more, 1024, c);
      }
}

template <int parts, class TileUnit>
constexpr auto multiplies = parts == 1 ? multiply_chunk<TileUnit> : multiply_parts<TileUnit>;

/// One row of sums, gathered from its tiles.
inline void gather_row(const float* sums, std::int64_t row, std::int64_t n, float* to) {
  const float* from = sums + row / 32 * 32 * n + row % 32 / 16 * 512 + row % 16 * 16;
  for (std::int64_t j = 0; j < n; j += 32, from += 1024) {
    std::copy_n(from, 16, to + j);
    std::copy_n(from + 256, 16, to + j + 16);
  }
}

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
