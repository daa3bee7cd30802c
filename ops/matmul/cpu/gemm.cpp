// SPDX-License-Identifier: Apache-2.0
// Goto-style blocking: C is cut into tiles by its shape, and each tile is the work of one thread, which walks k in
// blocks, packs both operands into panels as wide as the register tile, and multiplies panel by panel. A whose rows lie
// along the sum is copied row by row; all else is turned or copied to [terms][lines].
// Source: Goto, van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (ACM TOMS 2008).
// Reference:
//   for i < m: for j < n:
//     sum = accumulate ? c[i, j] : 0
//     for l < k: sum += a[i, l] * b[l, j]
//     c[i, j] = sum
#include "ops/matmul/cpu/gemm.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/cpu/isa.h"
#include "core/cpu/lanes.h"
#include "core/cpu/parallel.h"
#include "core/error.h"
#include "ops/scratch.h"

#ifndef HEARTH_ISA_NAMESPACE
namespace hearth::cpu::gemm_blocks {

// An operand as the packing sees it: element (i, p) lies at data[i * outer + p * inner], where i runs along the edge
// of C and p along the sum. One of the strides is 1.
template <class T>
struct Operand {
  const T* data;
  std::int64_t outer, inner;

  Operand shifted(std::int64_t i, std::int64_t p) const { return {data + i * outer + p * inner, outer, inner}; }
};

// Terms of the sum that are added up in registers before C is touched: a panel of B of that depth stays in L1.
constexpr std::int64_t depth = 256;
// Tile of C that one thread computes at a time. Rows are a multiple of the register tile's rows in every ISA level;
// packed, a tile's operands fill about three quarters of a megabyte of L2.
constexpr std::int64_t tile_rows = 336, tile_columns = 512;

}  // namespace hearth::cpu::gemm_blocks
#endif

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/matmul/cpu/gemm.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::cpu::HEARTH_ISA_NAMESPACE {

#include "core/cpu/lanes.inc"

// As many rows as the registers hold: 32 vectors of 64 bytes, 16 of the shorter ones.
constexpr int register_rows = HEARTH_ISA_VECTOR_BYTES == 64 ? 14 : 6;
constexpr int register_vectors = 2;

template <class T>
constexpr int register_columns = register_vectors* Lanes<T>::count;

// Elements between the rows of a copied A: they lie in different sets of the L1.
constexpr std::int64_t row_step = gemm_blocks::depth + 16;

// Turns `count` lines along the edge of C, `terms` deep, into one panel [terms][Width]; missing lines are zero.
template <int Width, class T>
inline void turn_panel(gemm_blocks::Operand<T> from, std::int64_t count, std::int64_t terms, T* to) {
  if (count < Width) std::fill_n(to, terms * Width, T(0));
  constexpr std::int64_t lanes = Lanes<T>::count;
  const std::int64_t squares = count / lanes * lanes;
  // Squares of vectors side by side keep the written lines in L1.
  for (std::int64_t p0 = 0; p0 < terms; p0 += lanes) {
    const std::int64_t p1 = std::min(p0 + lanes, terms);
    std::int64_t i = 0;
    if (p1 == p0 + lanes)
      for (; i < squares; i += lanes) {
        typename Lanes<T>::Vector square[lanes];
#pragma GCC unroll 16
        for (int j = 0; j < lanes; ++j) {
          const T* const line = from.data + (i + j) * from.outer + p0;
          square[j] = load_lanes(line);
          __builtin_prefetch(line + 4 * lanes);
        }
        turn_vectors<1>(square);
#pragma GCC unroll 16
        for (int j = 0; j < lanes; ++j) store_lanes(to + (p0 + j) * Width + i, square[j]);
      }
    for (; i < count; ++i)
      for (std::int64_t p = p0; p < p1; ++p) to[p * Width + i] = from.data[i * from.outer + p];
  }
}

// Rows to come that are asked for while one is copied: memory answers as late as that.
constexpr std::int64_t rows_ahead = 8;

// Copies `count` elements, while those `later` on are asked for.
template <class T>
inline void copy_run(const T* from, std::int64_t count, std::int64_t later, T* to) {
  constexpr std::int64_t lanes = Lanes<T>::count, line = 64 / static_cast<std::int64_t>(sizeof(T));
  std::int64_t i = 0;
  for (; i + line <= count; i += line) {
    __builtin_prefetch(from + i + later);
#pragma GCC unroll 4
    for (std::int64_t v = i; v < i + line; v += lanes) store_lanes(to + v, load_lanes(from + v));
  }
  for (; i < count; ++i) to[i] = from[i];
}

// `count` lines in panels [terms][Width].
template <int Width, class T>
inline void pack(gemm_blocks::Operand<T> from, std::int64_t count, std::int64_t terms, T* to) {
  if (from.outer != 1) {
    for (std::int64_t i = 0; i < count; i += Width)
      turn_panel<Width>(from.shifted(i, 0), std::min<std::int64_t>(Width, count - i), terms, to + i * terms);
    return;
  }
  const std::int64_t whole = count / Width * Width, later = rows_ahead * from.inner;
  if (whole < count) std::fill_n(to + whole * terms, terms * Width, T(0));
  for (std::int64_t p = 0; p < terms; ++p) {
    const T* const line = from.data + p * from.inner;
    T* const into = to + p * Width;
    for (std::int64_t i = 0; i < whole; i += Width) {
      for (std::int64_t j = 0; j < Width; j += 64 / static_cast<std::int64_t>(sizeof(T)))
        __builtin_prefetch(line + i + j + later);
      std::memcpy(into + i * terms, line + i, Width * sizeof(T));
    }
    for (std::int64_t i = whole; i < count; ++i) into[whole * terms + i - whole] = line[i];
  }
}

// Copies rows along the sum, `row_step` apart; those missing to whole panels are zero.
template <class T>
inline void copy_rows(gemm_blocks::Operand<T> from, std::int64_t count, std::int64_t terms, T* to) {
  for (std::int64_t i = 0; i < count; ++i)
    copy_run(from.data + i * from.outer, terms, rows_ahead * from.outer, to + i * row_step);
  for (std::int64_t i = count; i % register_rows != 0; ++i) std::fill_n(to + i * row_step, terms, T(0));
}

// c[Rows][register_columns] = or += the first rows of a panel by a panel. `copied`: the rows of A lie along the sum.
template <int Rows, bool copied, class T>
inline void multiply_panels(std::int64_t terms, const T* a, const T* b, T* c, std::int64_t ldc, bool accumulate) {
  using V = typename Lanes<T>::Vector;
  constexpr std::int64_t lanes = Lanes<T>::count;
  V sum[Rows][register_vectors] = {};
  for (std::int64_t p = 0; p < terms; ++p) {
    const V b0 = load_lanes(b), b1 = load_lanes(b + lanes);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const T factor = a[copied ? i * row_step : i];
      sum[i][0] += factor * b0;
      sum[i][1] += factor * b1;
    }
    a += copied ? 1 : register_rows;
    b += register_columns<T>;
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < register_vectors; ++v) {
      T* const to = c + i * ldc + v * lanes;
      store_lanes(to, accumulate ? load_lanes(static_cast<const T*>(to)) + sum[i][v] : sum[i][v]);
    }
}

// c = the first `rows` of the panel of A, and at most one more, by the panel of B.
template <int Rows, bool copied, class T>
inline void multiply_rows(std::int64_t rows, std::int64_t terms, const T* a, const T* b, T* c, std::int64_t ldc) {
  if constexpr (Rows > 2) {
    if (rows <= Rows - 2) return multiply_rows<Rows - 2, copied>(rows, terms, a, b, c, ldc);
  }
  multiply_panels<Rows, copied>(terms, a, b, c, ldc, false);
}

// A register tile that sticks out of C goes through a buffer.
template <bool copied, class T>
inline void multiply_edge(std::int64_t terms, const T* a, const T* b, T* c, std::int64_t ldc, bool accumulate,
                          std::int64_t rows, std::int64_t columns) {
  alignas(64) T tile[register_rows * register_columns<T>];
  multiply_rows<register_rows, copied>(rows, terms, a, b, tile, register_columns<T>);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      const T value = tile[i * register_columns<T> + j];
      c[i * ldc + j] = accumulate ? c[i * ldc + j] + value : value;
    }
}

// One tile of C, m x n, on the calling thread.
template <bool copied, class T>
void multiply_tile(std::int64_t m, std::int64_t n, std::int64_t k, gemm_blocks::Operand<T> a, gemm_blocks::Operand<T> b,
                   bool accumulate, T* c, std::int64_t ldc) {
  constexpr int rows = register_rows, columns = register_columns<T>;
  const auto rounded = [](std::int64_t size, std::int64_t step) { return (size + step - 1) / step * step; };
  const std::int64_t most = std::min(k, gemm_blocks::depth);
  Scratch scratch;
  T* packed_a = scratch.take<T>(rounded(m, rows) * (copied ? row_step : most));
  T* packed_b = scratch.take<T>(rounded(n, columns) * most);
  for (std::int64_t p = 0; p < k; p += gemm_blocks::depth) {
    const std::int64_t terms = std::min(gemm_blocks::depth, k - p);
    if constexpr (copied)
      copy_rows(a.shifted(0, p), m, terms, packed_a);
    else
      pack<rows>(a.shifted(0, p), m, terms, packed_a);
    pack<columns>(b.shifted(0, p), n, terms, packed_b);
    const bool add = accumulate || p > 0;
    for (std::int64_t j = 0; j < n; j += columns)
      for (std::int64_t i = 0; i < m; i += rows) {
        T* const tile = c + i * ldc + j;
        const T *panel_a = packed_a + i * (copied ? row_step : terms), *panel_b = packed_b + j * terms;
        if (i + rows <= m && j + columns <= n)
          multiply_panels<rows, copied>(terms, panel_a, panel_b, tile, ldc, add);
        else
          multiply_edge<copied>(terms, panel_a, panel_b, tile, ldc, add, std::min<std::int64_t>(rows, m - i),
                                std::min<std::int64_t>(columns, n - j));
      }
  }
}

}  // namespace hearth::cpu::HEARTH_ISA_NAMESPACE
#else

namespace hearth::cpu {
namespace {

using gemm_blocks::Operand;

std::int64_t ceil_div(std::int64_t x, std::int64_t y) { return (x + y - 1) / y; }

template <class T>
void clear(std::int64_t m, std::int64_t n, T* c, std::int64_t ldc) {
  for (std::int64_t i = 0; i < m; ++i) std::fill(c + i * ldc, c + i * ldc + n, T(0));
}

// Rows and columns of the tiles: smaller than the best ones where C would otherwise make too few to share out.
struct Tiling {
  std::int64_t rows, columns;
  std::int64_t count(std::int64_t m, std::int64_t n) const { return ceil_div(m, rows) * ceil_div(n, columns); }
};

Tiling tiling_of(std::int64_t m, std::int64_t n) {
  constexpr std::int64_t wanted = 8, min_rows = 84, min_columns = 128;
  const std::int64_t register_rows = isa() == Isa::v4 ? 14 : 6;
  const auto even = [](std::int64_t size, std::int64_t most, std::int64_t step) {
    const std::int64_t share = ceil_div(size, ceil_div(size, most));
    return ceil_div(share, step) * step;
  };
  std::int64_t rows = gemm_blocks::tile_rows, columns = gemm_blocks::tile_columns;
  const auto tiling = [&] { return Tiling{even(m, rows, register_rows), even(n, columns, 32)}; };
  while (tiling().count(m, n) < wanted && (rows > min_rows || columns > min_columns)) {
    if (rows > min_rows && (m > rows / 2 || columns <= min_columns))
      rows /= 2;
    else
      columns = std::max(columns / 2, min_columns);
  }
  return tiling();
}

// A tile of C by the kernel for A.
template <class T>
void multiply_tile_of(std::int64_t m, std::int64_t n, std::int64_t k, Operand<T> a, Operand<T> b, bool accumulate, T* c,
                      std::int64_t ldc) {
  if (a.inner == 1)
    HEARTH_ISA_CALL(multiply_tile<true>, m, n, k, a, b, accumulate, c, ldc);
  else
    HEARTH_ISA_CALL(multiply_tile<false>, m, n, k, a, b, accumulate, c, ldc);
}

template <class T>
void multiply_tiles(std::int64_t m, std::int64_t n, std::int64_t k, Operand<T> a, Operand<T> b, bool accumulate, T* c,
                    std::int64_t ldc) {
  const Tiling tile = tiling_of(m, n);
  const std::int64_t across = ceil_div(n, tile.columns);
  parallel_chunks(tile.count(m, n), [&](std::int64_t index) {
    const std::int64_t i = index / across * tile.rows, j = index % across * tile.columns;
    multiply_tile_of(std::min(tile.rows, m - i), std::min(tile.columns, n - j), k, a.shifted(i, 0), b.shifted(j, 0),
                     accumulate, c + i * ldc + j, ldc);
  });
}

// A small C under a long sum, as in the gradient of a filter: shares of the sum side by side, added in order.
template <class T>
void multiply_shares(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t shares, Operand<T> a, Operand<T> b,
                     bool accumulate, T* c, std::int64_t ldc) {
  const std::int64_t terms = ceil_div(ceil_div(k, shares), gemm_blocks::depth) * gemm_blocks::depth;
  const std::int64_t count = ceil_div(k, terms);
  const Tiling tile = tiling_of(m, n);
  const std::int64_t tiles = tile.count(m, n), across = ceil_div(n, tile.columns);
  Scratch scratch;
  T* parts = scratch.take<T>(count * m * n);
  parallel_chunks(count * tiles, [&](std::int64_t index) {
    const std::int64_t p = index / tiles * terms, i = index % tiles / across * tile.rows;
    const std::int64_t j = index % across * tile.columns;
    T* part = parts + index / tiles * m * n;
    multiply_tile_of(std::min(tile.rows, m - i), std::min(tile.columns, n - j), std::min(terms, k - p), a.shifted(i, p),
                     b.shifted(j, p), false, part + i * n + j, n);
  });
  parallel_for(m, std::max<std::int64_t>(1, 4096 / n), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        T sum = accumulate ? c[i * ldc + j] : T(0);
        for (std::int64_t part = 0; part < count; ++part) sum += parts[(part * m + i) * n + j];
        c[i * ldc + j] = sum;
      }
  });
}

void check(std::int64_t rows, std::int64_t columns, std::int64_t leading, const char* name) {
  HEARTH_CHECK(ShapeError, rows >= 0 && columns >= 0, "gemm: ", name, " is ", rows, " by ", columns);
  HEARTH_CHECK(ShapeError, leading >= columns, "gemm: the rows of ", name, " are ", leading,
               " elements apart but have ", columns);
}

}  // namespace

template <class T>
void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
          std::int64_t lda, const T* b, std::int64_t ldb, bool accumulate, T* c, std::int64_t ldc) {
  check(transpose_a ? k : m, transpose_a ? m : k, lda, "A");
  check(transpose_b ? n : k, transpose_b ? k : n, ldb, "B");
  check(m, n, ldc, "C");
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (!accumulate) clear(m, n, c, ldc);
    return;
  }
  const Operand<T> left = transpose_a ? Operand<T>{a, 1, lda} : Operand<T>{a, lda, 1};
  const Operand<T> right = transpose_b ? Operand<T>{b, ldb, 1} : Operand<T>{b, 1, ldb};
  constexpr std::int64_t wanted = 8, min_terms = 1024;
  const std::int64_t tiles = tiling_of(m, n).count(m, n);
  const std::int64_t shares = std::min(ceil_div(wanted, tiles), k / min_terms);
  if (tiles < wanted && shares > 1)
    multiply_shares(m, n, k, shares, left, right, accumulate, c, ldc);
  else
    multiply_tiles(m, n, k, left, right, accumulate, c, ldc);
}

template void gemm<float>(bool, bool, std::int64_t, std::int64_t, std::int64_t, const float*, std::int64_t,
                          const float*, std::int64_t, bool, float*, std::int64_t);
template void gemm<double>(bool, bool, std::int64_t, std::int64_t, std::int64_t, const double*, std::int64_t,
                           const double*, std::int64_t, bool, double*, std::int64_t);

}  // namespace hearth::cpu
#endif
