// SPDX-License-Identifier: Apache-2.0
// Filters from their plain layout into the blocked layouts that library convolutions want: every step copies all
// filters twice, which for small images costs as much as using them. Private to core/cpu.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace hearth::cpu::dnn {

/// A blocked layout of filters [g, k, r, s, c]. Elements of a block lie densely; blocks lie on strides. A block is a
/// table of units of 4 bytes: one f32 value, or two bf16 values that are neighbours in k or in c. Channels that do not
/// fill the last block are zeros.
struct FilterBlocks {
  enum class Unit { one, pair_of_k, pair_of_c };

  std::int64_t groups = 1, k = 1, r = 1, s = 1, c = 1;  ///< of the filters; k and c are of one group
  Unit unit = Unit::one;
  bool k_runs_fastest = false;              ///< which index of the table of units runs fastest: k, or else c
  std::int64_t block_k = 1, block_c = 1;    ///< elements of a block
  std::int64_t stride_g = 0, stride_k = 0;  ///< elements between groups, and between blocks in k
  std::int64_t stride_r = 0, stride_s = 0;  ///< elements between taps
  std::int64_t stride_c = 0;                ///< elements between blocks in c
};

/// Whether pack_filters takes this layout.
bool is_packable(const FilterBlocks& blocks);

/// Writes the filters `w`, contiguous [g, k, r, s, c], in the layout. Units of one are of f32 filters; pairs are bf16
/// of f32 filters (rounded to nearest even, NaN kept) or of bf16 filters.
void pack_filters(const FilterBlocks& blocks, const void* w, DType from, void* packed);

}  // namespace hearth::cpu::dnn
