// SPDX-License-Identifier: Apache-2.0
// The part of YAML that descriptions of datasets use: keys with a string, a list of strings or a map of strings each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hearth::data {

/// The value of a key.
struct FlatYamlValue {
  enum class Kind : std::uint8_t { empty, text, list, map, other };
  Kind kind = Kind::empty;
  std::int64_t line = 0;                                     ///< of the key, from 1
  std::string text{};                                        ///< of a text
  std::vector<std::pair<std::string, std::string>> items{};  ///< of a list with empty keys, or of a map
};

struct FlatYaml {
  std::string source;
  std::vector<std::pair<std::string, FlatYamlValue>> fields{};

  /// The value, or null where there is none: no such key, or nothing behind it.
  const FlatYamlValue* find(std::string_view key) const;
};

/// Reads a document of block style with one level of keys: plain and quoted strings, `[a, b]`, `{0: a, 1: b}`, and
/// indented lists and maps of strings. What is deeper (block strings, nested maps) becomes Kind::other. Comments, a
/// byte-order mark and any line ends are fine. DataError, with file and line, for what is none of this: tabs that
/// indent, anchors and tags, quotes and brackets that are not closed, keys that are there twice.
FlatYaml parse_flat_yaml(std::string_view text, const std::string& source);

}  // namespace hearth::data
