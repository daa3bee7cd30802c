// SPDX-License-Identifier: Apache-2.0
// The products of matrices on the processor's tiles, which multiply bf16 and sum in f32.
// Reference: gemm.cpp, with operands rounded to bf16 where one of them is.
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
#include "ops/matmul/cpu/matmul_amx.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/cpu/amx.h"
#include "core/cpu/parallel.h"
#include "core/error.h"
#include "core/half.h"
#include "ops/matmul/cpu/amx_copies.h"
#include "ops/matmul/cpu/matmul_gemm.h"
#include "ops/scratch.h"

namespace hearth::cpu {
namespace {

using namespace amx;

/// An operand: stored rows `stride` apart lie along k (rows of A, columns of B) or across it, one for each k.
template <class T, bool along>
struct TileRows {
  using Type = T;
  static constexpr bool along_k = along;

  const T* data;
  std::int64_t stride;
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
std::int64_t even_part(std::int64_t size, std::int64_t most) {
  const std::int64_t parts = (size + most - 1) / most;
  return ((size + parts - 1) / parts + 31) / 32 * 32;
}

/// So many blocks that every thread has some; the bits do not depend on it.
ProductBlocks blocks_of(const MatmulProblem& size, int parts) {
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
void tile_along(const Operand& operand, const Part& of, bf16* to) {
  const std::int64_t steps = of.steps(), groups = (of.lines + 31) / 32 * 2;
  const auto* const from = operand.data + of.first * operand.stride + of.k;
  for (std::int64_t group = 0; group < groups; ++group)
    for (std::int64_t s = 0; s < steps; ++s) {
      const typename Operand::Type* rows[16];
      for (std::int64_t i = 0; i < 16; ++i) {
        const std::int64_t line = 16 * group + i;
        rows[i] = line < of.lines ? from + line * operand.stride + 32 * s : nullptr;
      }
      const Parts tiles = tiles_at<parts>(to, group, s, steps);
      copy_rows(rows, std::min<std::int64_t>(32, of.depth - 32 * s), tiles);
      if constexpr (transposed)
        for (int part = 0; part < parts; ++part) copies().transpose(tiles.tile + part * tiles.stride);
    }
}

/// The same from stored rows that are one k each; tiles of A are transposed.
template <int parts, bool transposed, class Operand>
void tile_across(const Operand& operand, const Part& of, bf16* to) {
  const std::int64_t steps = of.steps();
  const auto* const from = operand.data + of.k * operand.stride + of.first;
  for (std::int64_t line = 0; line < of.lines; line += 32)
    for (std::int64_t s = 0; s < steps; ++s) {
      const typename Operand::Type* rows[32];
      for (std::int64_t i = 0; i < 32; ++i) {
        const std::int64_t k = 32 * s + i;
        rows[i] = k < of.depth ? from + k * operand.stride + line : nullptr;
      }
      const Parts tiles = tiles_at<parts>(to, line / 16, s, steps);
      copy_pairs(rows, std::min<std::int64_t>(32, of.lines - line), tiles);
      if constexpr (transposed)
        for (int tile = 0; tile < 2 * parts; ++tile) copies().transpose(tiles.tile + tile * tile_values);
    }
}

template <int parts, bool is_b, class Operand>
void pack(const Operand& operand, const Part& of, bf16* to) {
  if constexpr (Operand::along_k)
    tile_along<parts, is_b>(operand, of, to);
  else
    tile_across<parts, !is_b>(operand, of, to);
}

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
void gather_row(const float* sums, std::int64_t row, std::int64_t n, float* to) {
  const float* from = sums + row / 32 * 32 * n + row % 32 / 16 * 512 + row % 16 * 16;
  for (std::int64_t j = 0; j < n; j += 32, from += 1024) {
    std::copy_n(from, 16, to + j);
    std::copy_n(from + 256, 16, to + j + 16);
  }
}

/// Where the results go.
struct TileResults {
  void* c;
  DType dtype;
  const float* bias;
  std::int64_t batch_stride, stride;
  bool accumulate;

  void store(std::int64_t batch, std::int64_t row, std::int64_t column, std::int64_t count, const float* sums) const {
    const std::int64_t at = batch * batch_stride + row * stride + column;
    const float* const of_row = bias == nullptr ? nullptr : bias + column;
    if (dtype == DType::f32)
      store_row(sums, of_row, accumulate, count, static_cast<float*>(c) + at);
    else
      store_row(sums, of_row, accumulate, count, static_cast<bf16*>(c) + at);
  }
};

/// For sizes that are not 0.
template <class A, class B>
void multiply_tiles(const MatmulProblem& p, const A& of_a, const B& of_b, const TileResults& results) {
  constexpr int parts = parts_of<typename A::Type, typename B::Type>;
  const ProductBlocks blocks = blocks_of(p, parts);
  const std::int64_t down = (p.m + blocks.m - 1) / blocks.m, across = (p.n + blocks.n - 1) / blocks.n;
  parallel_chunks(p.batch * down * across, [&](std::int64_t task) {
    const std::int64_t batch = task / (down * across), i = task / across % down * blocks.m,
                       j = task % across * blocks.n;
    const std::int64_t rows = std::min(blocks.m, p.m - i), columns = std::min(blocks.n, p.n - j);
    const std::int64_t m = (rows + 31) / 32 * 32, n = (columns + 31) / 32 * 32;
    const A from_a{of_a.data + batch * p.batch_stride_a, of_a.stride};
    const B from_b{of_b.data + batch * p.batch_stride_b, of_b.stride};
    Scratch scratch;
    bf16* const a = scratch.take<bf16>(parts * m * blocks.k);
    bf16* const b = scratch.take<bf16>(parts * n * blocks.k);
    float* const sums = scratch.take<float>(m * n);
    for (std::int64_t k = 0; k < p.k; k += blocks.k) {
      const std::int64_t depth = std::min(blocks.k, p.k - k), steps = (depth + 31) / 32;
      pack<parts, false>(from_a, {i, rows, k, depth}, a);
      pack<parts, true>(from_b, {j, columns, k, depth}, b);
      (emulated() ? multiplies<parts, EmulatedTiles> : multiplies<parts, Tiles>)(a, b, m, n, steps, k > 0, sums);
    }
    float* const of_row = scratch.take<float>(n);
    for (std::int64_t row = 0; row < rows; ++row) {
      gather_row(sums, row, n, of_row);
      results.store(batch, i + row, j, columns, of_row);
    }
  });
}

template <class A, bool a_along, class B, bool b_along>
void multiply_rows(const MatmulProblem& p, const void* a, const void* b, const TileResults& results) {
  multiply_tiles(p, TileRows<A, a_along>{static_cast<const A*>(a), p.lda},
                 TileRows<B, b_along>{static_cast<const B*>(b), p.ldb}, results);
}

template <class A, class B>
void multiply_stored(const MatmulProblem& p, const void* a, const void* b, const TileResults& results) {
  if (p.transpose_a)
    return (p.transpose_b ? multiply_rows<A, false, B, true> : multiply_rows<A, false, B, false>)(p, a, b, results);
  (p.transpose_b ? multiply_rows<A, true, B, true> : multiply_rows<A, true, B, false>)(p, a, b, results);
}

}  // namespace

void matmul_by_amx(const MatmulProblem& problem, const void* a, const void* b, const void* bias, void* c) {
  const MatmulProblem p = complete(problem);
  HEARTH_CHECK(UsageError, amx_unsupported(p).empty(), "matmul by amx: ", amx_unsupported(p));
  if (p.batch == 0 || p.m == 0 || p.n == 0) return;
  if (p.k == 0) return matmul_by_gemm(p, a, b, bias, c);
  const TileResults results{c, p.c, static_cast<const float*>(bias), p.batch_stride_c, p.ldc, p.accumulate};
  if (p.a == DType::bf16)
    return (p.b == DType::bf16 ? multiply_stored<bf16, bf16> : multiply_stored<bf16, float>)(p, a, b, results);
  (p.b == DType::bf16 ? multiply_stored<float, bf16> : multiply_stored<float, float>)(p, a, b, results);
}

std::string amx_unsupported(const MatmulProblem& p) {
  for (const DType type : {p.a, p.b, p.c})
    if (type != DType::bf16 && type != DType::f32) return join_text("an operand of ", type);
  return amx::unsupported();
}

std::string amx_slower(const MatmulProblem& p) {
  // Copying the operands into tiles and clearing their rest costs more than it saves.
  if (p.m < 16 || p.n < 16 || p.k < 32) return "a side shorter than a tile";
  // Three parts are copied; products of 384 and more are measured to gain.
  if (p.a != DType::bf16 && p.b != DType::bf16 && std::min({p.m, p.n, p.k}) < 128) return "an f32 side below 128";
  return "";
}

}  // namespace hearth::cpu
