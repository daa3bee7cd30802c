// SPDX-License-Identifier: Apache-2.0
// Edit distance and suggestions.
#include "core/nearest.h"

#include <algorithm>
#include <vector>

namespace hearth {
namespace {

constexpr std::size_t shortest_prefix = 3;

std::string folded(std::string_view word) {
  std::string result(word);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-') c = '_';
  }
  return result;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> above(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  // Nobody mistypes a known word at such a length, and the table would cost too much.
  constexpr std::size_t longest_word = 200;
  if (word.empty() || word.size() > longest_word) return "";
  const std::string asked = folded(word);
  std::string best;
  // Distances are doubled so that a prefix ranks after one edit and before two.
  std::size_t best_rank = static_cast<std::size_t>(-1);
  for (const std::string& candidate : candidates) {
    const std::string known = folded(candidate);
    const std::size_t longer = std::max(asked.size(), known.size());
    const std::size_t distance = edit_distance(asked, known);
    std::size_t rank = 2 * distance;
    bool alike = distance <= std::max<std::size_t>(1, longer / 3) && distance < longer;
    if (asked.size() >= shortest_prefix && known.starts_with(asked)) {
      alike = true;
      rank = std::min<std::size_t>(rank, 3);
    }
    if (alike && rank < best_rank) {
      best = candidate;
      best_rank = rank;
    }
  }
  return best;
}

std::string suggest(std::string_view word, std::span<const std::string> candidates, std::string_view label) {
  std::string text;
  const std::string meant = nearest(word, candidates);
  if (!meant.empty()) text += "did you mean \"" + meant + "\"? ";
  text += label;
  text += ": ";
  for (const std::string& candidate : candidates) {
    if (&candidate != &candidates.front()) text += ", ";
    text += candidate;
  }
  return candidates.empty() ? text + "none" : text;
}

}  // namespace hearth
