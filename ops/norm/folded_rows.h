// SPDX-License-Identifier: Apache-2.0
// How batch_norm's kernels see x, on every device alike: the layout of the stored ReLU mask follows from it.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace hearth::kernels {

/// x [..., C] as [rows, lanes]. Where channels are few, several rows are laid side by side to fill vectors:
/// lanes = fold * channels, and lane l belongs to channel l % channels.
struct FoldedRows {
  std::int64_t channels, fold, lanes, rows;

  explicit FoldedRows(const Tensor& x) : channels(x.dim(-1)), fold(1), rows(channels == 0 ? 0 : x.size() / channels) {
    while (fold < 64 && channels * fold * 2 <= 128 && rows % 2 == 0 && rows > 0) {
      fold *= 2;
      rows /= 2;
    }
    lanes = channels * fold;
  }

  /// Of one row of the mask: a bit a lane, rounded up to bytes; lane l is bit l % 8 of byte l / 8.
  std::int64_t mask_bytes() const { return (lanes + 7) / 8; }
};

}  // namespace hearth::kernels
