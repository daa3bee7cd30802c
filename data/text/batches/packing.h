// SPDX-License-Identifier: Apache-2.0
// How sequences of many lengths share rows of one length.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hearth::data {

/// Which lengths stand beside each other in which row. A function of how many sequences have which length alone, so
/// that rows are equally many however the sequences of one length are shuffled: an epoch is a permutation of each
/// length. Best-fit decreasing: the longest sequence first, each into the row with the least room that it fits into.
/// Source: Krell et al., "Efficient Sequence Packing without Cross-contamination" (2021), who pack histograms so.
class RowPacking {
 public:
  /// Lengths from 1 to `room`, of at most 2^32 - 1 sequences.
  RowPacking(std::span<const std::int32_t> lengths, std::int32_t room);

  std::int64_t rows() const { return static_cast<std::int64_t>(begins_.size()) - 1; }
  /// The sequences in the order of their lengths, the longest first, equal ones in their own order.
  const std::vector<std::uint32_t>& by_length() const { return by_length_; }
  /// Where the next shorter ones begin in by_length(); the last number is its size.
  const std::vector<std::uint32_t>& classes() const { return classes_; }
  /// What a row holds, as slots in by_length().
  std::span<const std::uint32_t> row(std::int64_t number) const {
    const auto at = static_cast<std::size_t>(number);
    return std::span(slots_).subspan(begins_[at], begins_[at + 1] - begins_[at]);
  }

 private:
  void sort(std::span<const std::int32_t> lengths, std::int32_t room);

  std::vector<std::uint32_t> by_length_, classes_, slots_;
  std::vector<std::size_t> begins_{0};
};

}  // namespace hearth::data
