// SPDX-License-Identifier: Apache-2.0
// Regular expressions to choose names by: POSIX extended ones, by the C library, whose matcher follows all ways at
// once. std::regex tries one way after the other, of which a short pattern can have more than anyone waits for.
#pragma once

#include <regex.h>

#include <memory>
#include <string>

namespace hearth::train {

class NameFilter {
 public:
  static constexpr std::size_t longest_pattern = 256;

  /// UsageError, saying why, for a pattern that is no extended regular expression, is longer or goes back to what was
  /// matched before (\1), which takes no bounded time.
  explicit NameFilter(const std::string& pattern);
  /// Whether the pattern is found anywhere in the name.
  bool matches(const std::string& name) const;

 private:
  struct Free {
    void operator()(regex_t* compiled) const;
  };
  std::unique_ptr<regex_t, Free> compiled_;
};

}  // namespace hearth::train
