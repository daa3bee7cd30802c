// SPDX-License-Identifier: Apache-2.0
// Pieces and their numbers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/io/json_text.h"

namespace hearth::data {

/// Hash that lets a map of strings be searched by string_view.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
template <class Value>
using TextMap = std::unordered_map<std::string, Value, TextHash, std::equal_to<>>;

/// Pieces by id and ids by piece, both without gaps.
class Vocabulary {
 public:
  Vocabulary() = default;
  /// Ids in the order of the pieces. DataError naming `source` and both positions for a piece that comes twice.
  Vocabulary(std::vector<std::string> pieces, const std::string& source);
  /// From {"piece": id, ...}. DataError naming `source` for ids that repeat or leave gaps.
  Vocabulary(const Json& ids, const std::string& source);

  std::int64_t size() const { return static_cast<std::int64_t>(pieces_.size()); }
  std::optional<std::int32_t> find(std::string_view piece) const;
  /// IndexError outside the vocabulary.
  const std::string& piece(std::int32_t id) const;
  const std::vector<std::string>& pieces() const { return pieces_; }
  /// The id of a piece, -1 if it is not there.
  std::int32_t id_or_none(std::string_view piece) const { return find(piece).value_or(-1); }
  /// Adds a piece with the next id if it is not there yet; returns its id.
  std::int32_t add(const std::string& piece);
  /// {"piece": id, ...} in the order of ids.
  Json to_json() const;

 private:
  std::vector<std::string> pieces_;
  TextMap<std::int32_t> ids_;
};

/// Text pieces that count as one token wherever they stand, as a tokenizer.json lists them in "added_tokens".
struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool special = true;  ///< left out by decode()
  bool lstrip = false;  ///< takes the white space before it
  bool rstrip = false;  ///< takes the white space behind it
};

/// Finds added tokens in sequences.
class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);

  /// Calls on_text(part) and on_token(id) from left to right; of tokens beginning at one position the longest counts.
  template <class OnText, class OnToken>
  void split(std::string_view text, OnText&& on_text, OnToken&& on_token) const;
  const std::vector<AddedToken>& all() const { return tokens_; }
  /// The token with this id, or null.
  const AddedToken* with_id(std::int32_t id) const;

 private:
  struct Found {
    std::size_t begin = 0, end = 0;
    const AddedToken* token = nullptr;
  };
  /// The first token at or after `from`; begin and end contain the white space it takes.
  Found next(std::string_view text, std::size_t from) const;

  std::vector<AddedToken> tokens_;  // longest first
  std::map<std::int32_t, std::size_t> by_id_;
  std::string first_bytes_;
};

template <class OnText, class OnToken>
void AddedTokens::split(std::string_view text, OnText&& on_text, OnToken&& on_token) const {
  std::size_t from = 0;
  while (from < text.size()) {
    const Found found = next(text, from);
    const std::size_t end = found.token != nullptr ? found.begin : text.size();
    if (end > from) on_text(text.substr(from, end - from));
    if (found.token == nullptr) return;
    on_token(found.token->id);
    from = found.end;
  }
}

}  // namespace hearth::data
