// SPDX-License-Identifier: Apache-2.0
// Flat tensors of which each rank of a group keeps a part.
#pragma once

#include <cstdint>
#include <vector>

#include "core/collective.h"
#include "core/export.h"
#include "core/tensor.h"

namespace hearth {

/// How tensors [total] are divided among n ranks: in blocks, one after the other, of which each rank keeps a part. Part
/// k, from cuts[k] to cuts[k + 1], is that of rank k % n.
struct HEARTH_API Shards {
  Collective* group = nullptr;
  std::vector<std::int64_t> cuts{};  ///< blocks times ranks, and one; from 0 to total

  /// Elements of a tensor [total] that a rank keeps, and where they lie among all that it keeps.
  struct Range {
    std::int64_t begin;
    std::int64_t end;
    std::int64_t place;
  };

  std::int64_t total() const { return cuts.back(); }
  std::size_t blocks() const { return (cuts.size() - 1) / static_cast<std::size_t>(group->size()); }
  /// The ranks' cuts of one block, as many as ranks, and one.
  std::vector<std::int64_t> cuts_of(std::size_t block) const;
  /// This rank's elements of one block.
  Range range(std::size_t block) const;
  /// Of this rank: those of all blocks that have some.
  std::vector<Range> ranges() const;
  /// How many elements this rank keeps.
  std::int64_t size() const;
  /// This rank's part of `flat` [total], as a view; of one block (UsageError).
  Tensor own(const Tensor& flat) const;
  /// This rank's elements of `flat` [total] become those of `part` [size()], which it keeps, in the type of `flat`.
  void put(const Tensor& part, const Tensor& flat) const;
  /// `part` [size()] becomes this rank's elements of `flat` [total].
  void take(const Tensor& flat, const Tensor& part) const;
  /// Each part of `flat` [total] becomes that of the rank that keeps it. All ranks call it.
  void gather(const Tensor& flat) const;
};

}  // namespace hearth
