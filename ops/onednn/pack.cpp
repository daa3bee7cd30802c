// SPDX-License-Identifier: Apache-2.0
// Packing of filters. A task is one row of blocks of one tap. Units are rounded and paired in vectors along c, in
// which the filters lie densely; where k runs fastest, squares of units are transposed in registers.
#include "ops/onednn/pack.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/cpu/element.h"
#include "core/cpu/parallel.h"

#ifndef HEARTH_ISA_NAMESPACE
namespace hearth::cpu::dnn {

// Where a row of units comes from. Rows past the last are null and count as zeros.
template <class From, FilterBlocks::Unit unit>
struct Source {
  const From* row;
  const From* next;  // the row after it, for pairs of k
};

// A row of blocks of one tap as a table of units.
struct Table {
  std::int64_t height, width, blocks;  // units of a block in k and in c; blocks in c
  std::int64_t stride;                 // units between blocks
  std::int64_t c;                      // channels; units past them are zeros
  bool column_major;
};

}  // namespace hearth::cpu::dnn
#endif

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/onednn/pack.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::cpu::dnn::HEARTH_ISA_NAMESPACE {

constexpr std::int64_t lanes = HEARTH_ISA_VECTOR_BYTES / 4;
using Lanes = std::make_index_sequence<static_cast<std::size_t>(lanes)>;
using Vector = std::uint32_t __attribute__((vector_size(HEARTH_ISA_VECTOR_BYTES)));
using HalfVector = std::uint16_t __attribute__((vector_size(HEARTH_ISA_VECTOR_BYTES / 2)));

HEARTH_ALWAYS_INLINE Vector read(const void* from) {
  Vector v;
  std::memcpy(&v, from, sizeof(v));
  return v;
}

// The bf16 bits of f32 bits, in the upper half of each lane; the lower half is of no meaning.
HEARTH_ALWAYS_INLINE Vector rounded(Vector u) {
  const Vector nearest = u + 0x7fffu + ((u >> 16) & 1u);
  return (u & 0x7fffffffu) > 0x7f800000u ? (u | 0x400000u) : nearest;
}

HEARTH_ALWAYS_INLINE Vector joined(Vector low, Vector high) { return (low >> 16) | (high & 0xffff0000u); }

template <std::size_t... i>
HEARTH_ALWAYS_INLINE Vector even_lanes(Vector a, Vector b, std::index_sequence<i...>) {
  return __builtin_shufflevector(a, b, static_cast<int>(2 * i)...);
}
template <std::size_t... i>
HEARTH_ALWAYS_INLINE Vector odd_lanes(Vector a, Vector b, std::index_sequence<i...>) {
  return __builtin_shufflevector(a, b, static_cast<int>(2 * i + 1)...);
}
// Lanes of a and b in turn, from the lower (part 0) or upper (part 1) half of both.
template <int part, std::size_t... i>
HEARTH_ALWAYS_INLINE Vector woven(Vector a, Vector b, std::index_sequence<i...>) {
  return __builtin_shufflevector(a, b, static_cast<int>(i / 2 + part * sizeof...(i) / 2 + (i % 2) * sizeof...(i))...);
}

// Weaving row i with row i + lanes / 2 doubles the length of the runs that come of one column; doing so until a
// run is a row transposes the square.
HEARTH_ALWAYS_INLINE void transpose(Vector (&rows)[lanes]) {
  Vector other[lanes];
#pragma GCC unroll 4
  for (std::int64_t width = 1; width < lanes; width *= 2) {
#pragma GCC unroll 8
    for (std::int64_t i = 0; i < lanes / 2; ++i) {
      other[2 * i] = woven<0>(rows[i], rows[i + lanes / 2], Lanes{});
      other[2 * i + 1] = woven<1>(rows[i], rows[i + lanes / 2], Lanes{});
    }
#pragma GCC unroll 16
    for (std::int64_t i = 0; i < lanes; ++i) rows[i] = other[i];
  }
}

HEARTH_ALWAYS_INLINE std::uint32_t bits_of(const float* x, bool narrow) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(*x);
  return narrow ? std::uint32_t{bf16::from_float(*x)} : u;
}
HEARTH_ALWAYS_INLINE std::uint32_t bits_of(const bf16* x, bool) { return x->bits; }

// The unit `column`, with zeros past the last channel.
template <class From, FilterBlocks::Unit unit>
std::uint32_t unit_at(const Source<From, unit>& source, std::int64_t column, std::int64_t c) {
  constexpr bool narrow = unit != FilterBlocks::Unit::one;
  const auto value = [&](const From* row, std::int64_t i) -> std::uint32_t {
    return row && i < c ? bits_of(row + i, narrow) : 0;
  };
  if constexpr (unit == FilterBlocks::Unit::one) return value(source.row, column);
  if constexpr (unit == FilterBlocks::Unit::pair_of_k)
    return value(source.row, column) | value(source.next, column) << 16;
  return value(source.row, 2 * column) | value(source.row, 2 * column + 1) << 16;
}

// Units column .. column + lanes, all within the channels.
template <FilterBlocks::Unit unit>
HEARTH_ALWAYS_INLINE Vector whole_units(const Source<float, unit>& source, std::int64_t column) {
  const Vector zero = {};
  if (!source.row) return zero;
  if constexpr (unit == FilterBlocks::Unit::one) return read(source.row + column);
  if constexpr (unit == FilterBlocks::Unit::pair_of_k)
    return joined(rounded(read(source.row + column)), source.next ? rounded(read(source.next + column)) : zero);
  const Vector low = rounded(read(source.row + 2 * column)), high = rounded(read(source.row + 2 * column + lanes));
  return joined(even_lanes(low, high, Lanes{}), odd_lanes(low, high, Lanes{}));
}

template <FilterBlocks::Unit unit>
HEARTH_ALWAYS_INLINE Vector whole_units(const Source<bf16, unit>& source, std::int64_t column) {
  const Vector zero = {};
  if (!source.row) return zero;
  if constexpr (unit == FilterBlocks::Unit::pair_of_c) return read(source.row + 2 * column);
  const auto widened = [&](const bf16* from) {
    HalfVector half;
    std::memcpy(&half, from + column, sizeof(half));
    return __builtin_convertvector(half, Vector);
  };
  return widened(source.row) | (source.next ? widened(source.next) << 16 : zero);
}

template <class From, FilterBlocks::Unit unit>
HEARTH_ALWAYS_INLINE Vector units(const Source<From, unit>& source, std::int64_t column, std::int64_t c) {
  constexpr std::int64_t values = unit == FilterBlocks::Unit::pair_of_c ? 2 : 1;
  if ((column + lanes) * values <= c) [[likely]]
    return whole_units(source, column);
  std::uint32_t some[lanes];
  for (std::int64_t i = 0; i < lanes; ++i) some[i] = unit_at(source, column + i, c);
  return read(some);
}

template <class From, FilterBlocks::Unit unit>
void pack_row_major(const Source<From, unit>* rows, const Table& t, std::uint32_t* packed) {
  for (std::int64_t i = 0; i < t.height; ++i)
    for (std::int64_t block = 0; block < t.blocks; ++block) {
      std::uint32_t* to = packed + block * t.stride + i * t.width;
      std::int64_t j = 0;
      for (; j + lanes <= t.width; j += lanes) {
        const Vector v = units(rows[i], block * t.width + j, t.c);
        std::memcpy(to + j, &v, sizeof(v));
      }
      for (; j < t.width; ++j) to[j] = unit_at(rows[i], block * t.width + j, t.c);
    }
}

// The height must divide into vectors.
template <class From, FilterBlocks::Unit unit>
void pack_column_major(const Source<From, unit>* rows, const Table& t, std::uint32_t* packed) {
  const std::int64_t columns = t.blocks * t.width;
  for (std::int64_t i = 0; i < t.height; i += lanes)
    for (std::int64_t column = 0; column < columns; column += lanes) {
      Vector square[lanes];
#pragma GCC unroll 16
      for (std::int64_t row = 0; row < lanes; ++row) square[row] = units(rows[i + row], column, t.c);
      transpose(square);
      for (std::int64_t j = column; j < std::min(column + lanes, columns); ++j)
        std::memcpy(packed + j / t.width * t.stride + j % t.width * t.height + i, &square[j - column], sizeof(Vector));
    }
}

template <class From, FilterBlocks::Unit unit>
void pack_table(const Source<From, unit>* rows, const Table& table, void* packed) {
  if (table.column_major)
    pack_column_major(rows, table, static_cast<std::uint32_t*>(packed));
  else
    pack_row_major(rows, table, static_cast<std::uint32_t*>(packed));
}

}  // namespace hearth::cpu::dnn::HEARTH_ISA_NAMESPACE
#else

namespace hearth::cpu::dnn {
namespace {

using Unit = FilterBlocks::Unit;

constexpr std::int64_t max_rows = 64;

std::int64_t height_of(const FilterBlocks& b) { return b.unit == Unit::pair_of_k ? b.block_k / 2 : b.block_k; }
std::int64_t width_of(const FilterBlocks& b) { return b.unit == Unit::pair_of_c ? b.block_c / 2 : b.block_c; }
std::int64_t block_rows_of(const FilterBlocks& b) { return (b.k + b.block_k - 1) / b.block_k; }

// In the ISA level of this processor, or in the narrower one where columns of 8 do not fill its vectors.
template <class From, Unit unit>
void pack_for_isa(const Source<From, unit>* rows, const Table& table, void* packed) {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
  if (isa() == Isa::v4 && table.column_major && table.height % 16 != 0) {
    isa_v3::pack_table(rows, table, packed);
    return;
  }
#endif
  HEARTH_ISA_CALL(pack_table, rows, table, packed);
}

// Packs one row of blocks of one tap. `index` counts groups, rows of blocks and taps, the taps fastest.
template <class From, Unit unit>
void pack_task(const FilterBlocks& b, const From* w, void* packed, std::int64_t index) {
  constexpr std::int64_t values = unit == Unit::one ? 1 : 2, rows_of_unit = unit == Unit::pair_of_k ? 2 : 1;
  const std::int64_t taps = b.r * b.s, tap = index % taps;
  const std::int64_t block_row = index / taps % block_rows_of(b), group = index / taps / block_rows_of(b);
  const auto row = [&](std::int64_t k) -> const From* {
    return k < b.k ? w + ((group * b.k + k) * taps + tap) * b.c : nullptr;
  };
  Source<From, unit> rows[max_rows];
  const std::int64_t height = height_of(b);
  for (std::int64_t i = 0; i < height; ++i) {
    const std::int64_t k = block_row * b.block_k + i * rows_of_unit;
    rows[i] = {row(k), rows_of_unit == 2 ? row(k + 1) : nullptr};
  }
  const std::int64_t offset =
      group * b.stride_g + block_row * b.stride_k + tap / b.s * b.stride_r + tap % b.s * b.stride_s;
  const Table table{height, width_of(b), (b.c + b.block_c - 1) / b.block_c, b.stride_c / values, b.c, b.k_runs_fastest};
  pack_for_isa(rows, table, static_cast<std::uint32_t*>(packed) + offset / values);
}

template <class From, Unit unit>
void pack(const FilterBlocks& b, const void* w, void* packed) {
  parallel_chunks(b.groups * block_rows_of(b) * b.r * b.s,
                  [&](std::int64_t i) { pack_task<From, unit>(b, static_cast<const From*>(w), packed, i); });
}

}  // namespace

bool is_packable(const FilterBlocks& b) {
  const std::int64_t values = b.unit == Unit::one ? 1 : 2;
  for (const std::int64_t stride : {b.stride_g, b.stride_k, b.stride_r, b.stride_s, b.stride_c})
    if (stride % values != 0) return false;
  if (b.unit == Unit::pair_of_k && (b.k_runs_fastest || b.block_k % 2 != 0)) return false;
  if (b.unit == Unit::pair_of_c && b.block_c % 2 != 0) return false;
  return height_of(b) <= max_rows && (b.k_runs_fastest ? height_of(b) % 8 == 0 : width_of(b) % 16 == 0);
}

void pack_filters(const FilterBlocks& b, const void* w, DType from, void* packed) {
  switch (b.unit) {
    case Unit::one:
      pack<float, Unit::one>(b, w, packed);
      break;
    case Unit::pair_of_k:
      from == DType::f32 ? pack<float, Unit::pair_of_k>(b, w, packed) : pack<bf16, Unit::pair_of_k>(b, w, packed);
      break;
    case Unit::pair_of_c:
      from == DType::f32 ? pack<float, Unit::pair_of_c>(b, w, packed) : pack<bf16, Unit::pair_of_c>(b, w, packed);
      break;
  }
}

}  // namespace hearth::cpu::dnn
#endif
