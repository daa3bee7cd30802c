// SPDX-License-Identifier: Apache-2.0
#include "data/loading/balanced_rows.h"

#include <algorithm>
#include <utility>

namespace hearth::data {

std::vector<std::int64_t> balanced_rows(const BatchMaker& maker, const std::vector<std::int64_t>& samples,
                                        std::int64_t cuts, std::int64_t which) {
  struct Piece {
    std::int64_t tokens = 0, lacks = 0;
  };
  const auto count = static_cast<std::int64_t>(samples.size());
  std::vector<std::pair<std::int64_t, std::int64_t>> by_length;
  for (std::int64_t row = 0; row < count; ++row)
    by_length.emplace_back(-maker.length_of(samples[static_cast<std::size_t>(row)]), row);
  std::sort(by_length.begin(), by_length.end());
  std::vector<Piece> pieces(static_cast<std::size_t>(cuts));
  for (std::int64_t i = 0; i < cuts; ++i)
    pieces[static_cast<std::size_t>(i)].lacks = count * (i + 1) / cuts - count * i / cuts;
  std::vector<std::int64_t> rows;
  for (const auto& [shortness, row] : by_length) {
    const auto least = std::min_element(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
      return std::pair(a.lacks == 0, a.tokens) < std::pair(b.lacks == 0, b.tokens);
    });
    least->tokens -= shortness;
    --least->lacks;
    if (least - pieces.begin() == which) rows.push_back(row);
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

}  // namespace hearth::data
