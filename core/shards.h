// SPDX-License-Identifier: Apache-2.0
// Flat tensors of which each rank of a group keeps a part.
#pragma once

#include <cstdint>
#include <vector>

#include "core/collective.h"
#include "core/export.h"
#include "core/tensor.h"

namespace hearth {

/// How tensors [total] are divided: rank r keeps the elements from cuts[r] to cuts[r + 1].
struct HEARTH_API Shards {
  Collective* group = nullptr;
  std::vector<std::int64_t> cuts{};  ///< as many as ranks, and one; from 0 to total

  std::int64_t total() const { return cuts.back(); }
  /// Of this rank.
  std::int64_t begin() const { return cuts[static_cast<std::size_t>(group->rank())]; }
  std::int64_t end() const { return cuts[static_cast<std::size_t>(group->rank()) + 1]; }
  /// This rank's part of `whole` [total], as a view.
  Tensor own(const Tensor& whole) const { return part(whole, group->rank()); }
  /// Each part of `whole` [total] becomes that of the rank that keeps it. All ranks call it.
  void gather(const Tensor& whole) const;

 private:
  Tensor part(const Tensor& whole, int rank) const;
};

}  // namespace hearth
