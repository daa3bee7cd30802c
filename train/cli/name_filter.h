// SPDX-License-Identifier: Apache-2.0
// Regular expressions to choose names by. Matching takes time in proportion to pattern and name, whatever the pattern:
// std::regex tries one way after the other, of which a short pattern can have more than anyone waits for.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace hearth::train {

class NameFilter {
 public:
  static constexpr std::size_t longest_pattern = 256;

  /// Takes a pattern of characters, `.`, `[a-z]`, `[^a-z]`, `(...)`, `|`, `*`, `+`, `?`, `^` and `$`, with a backslash
  /// before a sign that is meant itself. UsageError, naming the character's number, for anything else.
  explicit NameFilter(std::string_view pattern);
  /// Whether the pattern is found anywhere in the name.
  bool matches(std::string_view name) const;

 private:
  friend class PatternParser;
  /// One step of a search: passes a character of a set, goes on at one or two other steps, which are told relative to
  /// this one, or looks whether it is at the name's begin or end.
  struct Step {
    enum class Kind : std::uint8_t { set, jump, split, begin, end } kind;
    std::bitset<256> set{};
    std::ptrdiff_t to = 1;
    std::ptrdiff_t or_to = 1;
  };
  using Steps = std::vector<Step>;

  void reach(std::size_t step, std::size_t at, std::size_t size, std::vector<bool>& reached) const;

  Steps steps_;
};

}  // namespace hearth::train
