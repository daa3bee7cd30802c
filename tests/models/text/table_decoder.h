// SPDX-License-Identifier: Apache-2.0
// A decoder whose logits stand in a table.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "models/text/decoder.h"

namespace hearth::test {

/// Gives the logits of a table by the last id, and notes how many ids it was given.
class TableDecoder : public models::TextDecoder {
 public:
  TableDecoder(std::vector<std::vector<double>> table, std::int64_t sequences, std::int64_t capacity)
      : TextDecoder("table", {.sequences = sequences}, capacity), table_(std::move(table)) {}
  Tensor append(const Tensor& ids) override {
    check_appended(ids);
    length_ += ids.dim(1);
    appended.push_back(ids.dim(1));
    std::vector<double> logits;
    const std::vector<double> values = ids.to_doubles();
    for (std::int64_t row = 0; row < sequences_; ++row) {
      const auto last = static_cast<std::size_t>(values[static_cast<std::size_t>((row + 1) * ids.dim(1) - 1)]);
      logits.insert(logits.end(), table_[last].begin(), table_[last].end());
    }
    return Tensor::of<double>({sequences_, static_cast<std::int64_t>(table_.size())}, logits);
  }
  void select(std::span<const std::int64_t> from) override {
    check_selected(from);
    sequences_ = static_cast<std::int64_t>(from.size());
  }
  void clear() override { length_ = 0; }

  std::vector<std::int64_t> appended;

 private:
  std::vector<std::vector<double>> table_;
};

}  // namespace hearth::test
