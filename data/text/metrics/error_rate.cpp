// SPDX-License-Identifier: Apache-2.0
#include "data/text/metrics/error_rate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"

namespace hearth::data {
namespace {

template <class T>
std::int64_t distance(std::span<const T> a, std::span<const T> b) {
  // row[j]: from the part of a seen so far to the first j of b.
  std::vector<std::int64_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::int64_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::int64_t diagonal = row[0];
    row[0] = static_cast<std::int64_t>(i) + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::int64_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::int64_t edit_distance(std::span<const std::int32_t> a, std::span<const std::int32_t> b) { return distance(a, b); }
std::int64_t edit_distance(std::span<const std::string> a, std::span<const std::string> b) { return distance(a, b); }

void ErrorRate::add(std::span<const std::string> output, std::span<const std::vector<std::string>> references) {
  HEARTH_CHECK(UsageError, !references.empty(), "error rate: an output without a reference");
  std::int64_t least = -1;
  std::size_t length = 0;
  for (const std::vector<std::string>& reference : references) {
    const std::int64_t edits = edit_distance(output, reference);
    if (least >= 0 && edits >= least) continue;
    least = edits;
    length = reference.size();
  }
  edits_ += least;
  length_ += static_cast<std::int64_t>(length);
  wrong_ += least > 0 ? 1 : 0;
  ++count_;
}

double perplexity(double loss) { return std::exp(loss); }

double bits_per_character(double loss, std::int64_t tokens, std::int64_t characters) {
  if (characters == 0) return 0;
  return loss / std::log(2.0) * static_cast<double>(tokens) / static_cast<double>(characters);
}

}  // namespace hearth::data
