// SPDX-License-Identifier: Apache-2.0
#include "data/text/batches/packing.h"

#include <set>

#include "core/error.h"

namespace hearth::data {
namespace {

/// Rows that are not full, by the positions that they have left.
class OpenRows {
 public:
  explicit OpenRows(std::int32_t room) : by_room_(static_cast<std::size_t>(room) + 1) {}

  void add(std::uint32_t row, std::int32_t room) {
    if (room == 0) return;
    std::vector<std::uint32_t>& rows = by_room_[static_cast<std::size_t>(room)];
    if (rows.empty()) rooms_.insert(room);
    rows.push_back(row);
  }
  /// Takes out the row with the least room of at least `length` and says how much it has; 0 if there is none.
  std::int32_t take(std::int32_t length, std::uint32_t& row) {
    const auto found = rooms_.lower_bound(length);
    if (found == rooms_.end()) return 0;
    const std::int32_t room = *found;
    std::vector<std::uint32_t>& rows = by_room_[static_cast<std::size_t>(room)];
    row = rows.back();
    rows.pop_back();
    if (rows.empty()) rooms_.erase(found);
    return room;
  }

 private:
  std::vector<std::vector<std::uint32_t>> by_room_;
  std::set<std::int32_t> rooms_;
};

}  // namespace

RowPacking::RowPacking(std::span<const std::int32_t> lengths, std::int32_t room) {
  HEARTH_CHECK(UsageError, lengths.size() < UINT32_MAX, "packing: ", lengths.size(),
               " sequences; at most 2^32 - 2 can be packed");
  sort(lengths, room);
  OpenRows open(room);
  std::vector<std::uint32_t> rows(lengths.size());  // of each slot
  std::vector<std::uint32_t> counts;                // of each row
  for (std::size_t slot = 0; slot < rows.size(); ++slot) {
    const std::int32_t length = lengths[by_length_[slot]];
    auto row = static_cast<std::uint32_t>(counts.size());
    std::int32_t left = open.take(length, row);
    if (left == 0) {
      left = room;
      counts.push_back(0);
    }
    rows[slot] = row;
    ++counts[row];
    open.add(row, left - length);
  }
  for (const std::uint32_t count : counts) begins_.push_back(begins_.back() + count);
  slots_.resize(rows.size());
  std::vector<std::size_t> next(begins_.begin(), begins_.end() - 1);
  for (std::size_t slot = 0; slot < rows.size(); ++slot) slots_[next[rows[slot]]++] = static_cast<std::uint32_t>(slot);
}

void RowPacking::sort(std::span<const std::int32_t> lengths, std::int32_t room) {
  std::vector<std::uint32_t> counts(static_cast<std::size_t>(room) + 1);
  for (const std::int32_t length : lengths) {
    HEARTH_CHECK(UsageError, length >= 1 && length <= room, "packing: a sequence of ", length, " into rows of ", room);
    ++counts[static_cast<std::size_t>(length)];
  }
  std::vector<std::uint32_t> next(counts.size());
  std::uint32_t begin = 0;
  for (std::size_t length = counts.size() - 1; length > 0; --length) {
    if (counts[length] == 0) continue;
    classes_.push_back(begin);
    next[length] = begin;
    begin += counts[length];
  }
  classes_.push_back(begin);
  by_length_.resize(lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i)
    by_length_[next[static_cast<std::size_t>(lengths[i])]++] = static_cast<std::uint32_t>(i);
}

}  // namespace hearth::data
