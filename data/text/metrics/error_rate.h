// SPDX-License-Identifier: Apache-2.0
// How far sequences are from what they should be: phoneme, word and character error rates.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/export.h"

namespace hearth::data {

/// The least number of insertions, deletions and substitutions that turn one sequence into the other (Levenshtein).
HEARTH_API std::int64_t edit_distance(std::span<const std::int32_t> a, std::span<const std::int32_t> b);
HEARTH_API std::int64_t edit_distance(std::span<const std::string> a, std::span<const std::string> b);

/// Sums over sequences.
class HEARTH_API ErrorRate {
 public:
  /// Counts an output against the nearest of its references, of equals the first. UsageError if there is none.
  void add(std::span<const std::string> output, std::span<const std::vector<std::string>> references);
  void add(std::span<const std::string> output, const std::vector<std::string>& reference) {
    add(output, std::span(&reference, 1));
  }

  /// Edits by the length of the references: the phoneme (word, character) error rate; it may be above 1.
  double rate() const { return length_ > 0 ? static_cast<double>(edits_) / static_cast<double>(length_) : 0; }
  /// The share of sequences with an error: of pronunciations, the word error rate.
  double sequence_error_rate() const {
    return count_ > 0 ? static_cast<double>(wrong_) / static_cast<double>(count_) : 0;
  }
  std::int64_t edits() const { return edits_; }
  std::int64_t length() const { return length_; }
  std::int64_t count() const { return count_; }

 private:
  std::int64_t edits_ = 0, length_ = 0, wrong_ = 0, count_ = 0;
};

/// Perplexity of a mean loss in nats a token.
HEARTH_API double perplexity(double loss);
/// Bits a character of a mean loss in nats a token, for a text of so many tokens and characters. 0 for an empty text.
HEARTH_API double bits_per_character(double loss, std::int64_t tokens, std::int64_t characters);

}  // namespace hearth::data
