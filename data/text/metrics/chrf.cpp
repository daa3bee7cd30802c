// SPDX-License-Identifier: Apache-2.0
#include "data/text/metrics/chrf.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <unordered_map>

#include "core/error.h"
#include "data/text/unicode.h"

namespace hearth::data {
namespace {

constexpr std::size_t longest_run = 6;

struct RunCounts {
  std::int64_t output = 0, reference = 0, both = 0;
};

std::u32string without_space(const std::string& text) {
  std::u32string characters;
  for (std::size_t at = 0; at < text.size();) {
    const unicode::Character c = unicode::checked_character_at(text, at, "chrf");
    if (!unicode::splits_words(c.code)) characters += static_cast<char32_t>(c.code);
    at += c.bytes;
  }
  return characters;
}

std::unordered_map<std::u32string_view, std::int64_t> counts_of(const std::u32string& text, std::size_t length) {
  std::unordered_map<std::u32string_view, std::int64_t> counts;
  for (std::size_t i = 0; i + length <= text.size(); ++i) ++counts[std::u32string_view(text).substr(i, length)];
  return counts;
}

void add_pair(const std::u32string& output, const std::u32string& reference,
              std::array<RunCounts, longest_run>& counts) {
  for (std::size_t length = 1; length <= std::min(longest_run, reference.size()); ++length) {
    RunCounts& sums = counts[length - 1];
    const auto wanted = counts_of(reference, length);
    sums.reference += static_cast<std::int64_t>(reference.size() - length + 1);
    if (output.size() < length) continue;
    sums.output += static_cast<std::int64_t>(output.size() - length + 1);
    for (const auto& [run, count] : counts_of(output, length))
      if (const auto place = wanted.find(run); place != wanted.end()) sums.both += std::min(count, place->second);
  }
}

}  // namespace

double chrf(std::span<const std::string> outputs, std::span<const std::string> references) {
  HEARTH_CHECK(DataError, outputs.size() == references.size(), "chrf: ", outputs.size(), " outputs for ",
               references.size(), " references");
  std::array<RunCounts, longest_run> counts{};
  for (std::size_t i = 0; i < outputs.size(); ++i)
    add_pair(without_space(outputs[i]), without_space(references[i]), counts);
  // Means over the lengths that occur in both.
  double precision = 0, recall = 0, lengths = 0;
  for (const RunCounts& sums : counts) {
    if (sums.output == 0 || sums.reference == 0) continue;
    precision += static_cast<double>(sums.both) / static_cast<double>(sums.output);
    recall += static_cast<double>(sums.both) / static_cast<double>(sums.reference);
    ++lengths;
  }
  if (precision + recall == 0) return 0;
  constexpr double weight = 4;  // of recall: beta 2, squared
  precision /= lengths, recall /= lengths;
  return 100 * (1 + weight) * precision * recall / (weight * precision + recall);
}

}  // namespace hearth::data
