// SPDX-License-Identifier: Apache-2.0
// Copies of values into matrix tiles and of sums out of them. For kernel sources of the CPU only.
//
// A tile is 16 rows of 32 bf16 values, 64-byte aligned. f32 values become one of bf16, rounded, or three whose sum they
// are but for 2^-27 (matmul_amx.cpp).
#pragma once

#include <cstdint>

#include "core/cpu/amx.h"
#include "core/half.h"

namespace hearth::cpu::amx {

/// Tiles of the parts of f32 values; bf16 values have one part.
struct Parts {
  bf16* tile;           ///< of the first part
  int count;            ///< 1 or 3
  std::int64_t stride;  ///< between parts, in values
};

/// The copies in one instruction set.
struct Copies {
  /// 16 rows of `count` values, at most 32, become the rows of a tile. Zeros follow, and stand for a null row.
  void (*rows_bf16)(const bf16* const* rows, std::int64_t count, const Parts& to);
  void (*rows_f32)(const float* const* rows, std::int64_t count, const Parts& to);
  /// 32 rows of `count` values become two tiles side by side, of columns 0 to 15 and 16 to 31: row i of a tile has rows
  /// 2 i and 2 i + 1, column by column.
  void (*pairs_bf16)(const bf16* const* rows, std::int64_t count, const Parts& to);
  void (*pairs_f32)(const float* const* rows, std::int64_t count, const Parts& to);
  /// Exchanges rows and columns of a tile of 16 by 16 pairs.
  void (*transpose)(bf16* tile);
  /// sums += more, `count` values, a multiple of 16.
  void (*add)(const float* more, std::int64_t count, float* sums);
  /// Stores `count` f32 values, with `bias` added unless it is null, and what is there before with `accumulate`.
  void (*store_bf16)(const float* sums, const float* bias, bool accumulate, std::int64_t count, bf16* to);
  void (*store_f32)(const float* sums, const float* bias, bool accumulate, std::int64_t count, float* to);
  /// Stores `count` columns, at most 32, of four tiles of sums, rows 0 to 15 first, each row where `rows` says; none
  /// where that is null.
  void (*store_square_bf16)(const float* sums, const float* bias, std::int64_t count, bf16* const* rows);
  void (*store_square_f32)(const float* sums, const float* bias, std::int64_t count, float* const* rows);
};

/// AVX-512 with conversions to bf16 where processor and build have it, else plain C++.
const Copies& copies();

inline void copy_rows(const bf16* const* rows, std::int64_t count, const Parts& to) {
  copies().rows_bf16(rows, count, to);
}
inline void copy_rows(const float* const* rows, std::int64_t count, const Parts& to) {
  copies().rows_f32(rows, count, to);
}
inline void copy_pairs(const bf16* const* rows, std::int64_t count, const Parts& to) {
  copies().pairs_bf16(rows, count, to);
}
inline void copy_pairs(const float* const* rows, std::int64_t count, const Parts& to) {
  copies().pairs_f32(rows, count, to);
}
inline void store_row(const float* sums, const float* bias, bool accumulate, std::int64_t count, bf16* to) {
  copies().store_bf16(sums, bias, accumulate, count, to);
}
inline void store_row(const float* sums, const float* bias, bool accumulate, std::int64_t count, float* to) {
  copies().store_f32(sums, bias, accumulate, count, to);
}
inline void store_square(const float* sums, const float* bias, std::int64_t count, bf16* const* rows) {
  copies().store_square_bf16(sums, bias, count, rows);
}
inline void store_square(const float* sums, const float* bias, std::int64_t count, float* const* rows) {
  copies().store_square_f32(sums, bias, count, rows);
}

}  // namespace hearth::cpu::amx
