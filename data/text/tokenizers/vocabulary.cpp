// SPDX-License-Identifier: Apache-2.0
#include "data/text/tokenizers/vocabulary.h"

#include <algorithm>

#include "core/error.h"
#include "data/text/unicode.h"

namespace hearth::data {

Vocabulary::Vocabulary(std::vector<std::string> pieces, const std::string& source) : pieces_(std::move(pieces)) {
  ids_.reserve(pieces_.size());
  for (std::size_t id = 0; id < pieces_.size(); ++id) {
    const auto [place, fresh] = ids_.emplace(pieces_[id], static_cast<std::int32_t>(id));
    HEARTH_CHECK(DataError, fresh, source, ":", id + 1, ": the piece '", pieces_[id], "' is already in line ",
                 place->second + 1);
  }
}

Vocabulary::Vocabulary(const Json& ids, const std::string& source) {
  HEARTH_CHECK(DataError, ids.is_object(), source, ": the vocabulary is ", ids.describe(),
               "; it must be an object of pieces and ids");
  pieces_.resize(ids.size());
  std::vector<bool> taken(ids.size());
  for (const JsonMember& member : ids.members()) {
    HEARTH_CHECK(DataError, member.value.is_integer(), source, ": the id of '", member.key, "' is ",
                 member.value.describe());
    const std::int64_t id = member.value.as_integer();
    HEARTH_CHECK(DataError, id >= 0 && id < static_cast<std::int64_t>(pieces_.size()), source, ": the id of '",
                 member.key, "' is ", id, " in a vocabulary of ", pieces_.size(), " pieces; ids must have no gaps");
    const auto place = static_cast<std::size_t>(id);
    HEARTH_CHECK(DataError, !taken[place], source, ": '", pieces_[place], "' and '", member.key, "' both have the id ",
                 id);
    taken[place] = true;
    pieces_[place] = member.key;
    ids_.emplace(member.key, static_cast<std::int32_t>(id));
  }
}

std::optional<std::int32_t> Vocabulary::find(std::string_view piece) const {
  const auto place = ids_.find(piece);
  return place == ids_.end() ? std::nullopt : std::optional(place->second);
}

const std::string& Vocabulary::piece(std::int32_t id) const {
  HEARTH_CHECK(IndexError, id >= 0 && id < size(), "tokenizer: id ", id, " is outside the vocabulary of ", size(),
               " pieces");
  return pieces_[static_cast<std::size_t>(id)];
}

std::int32_t Vocabulary::add(const std::string& piece) {
  const auto [place, fresh] = ids_.emplace(piece, static_cast<std::int32_t>(pieces_.size()));
  if (fresh) pieces_.push_back(piece);
  return place->second;
}

Json Vocabulary::to_json() const {
  Json result = Json::object();
  for (std::size_t id = 0; id < pieces_.size(); ++id)
    result.members().push_back({pieces_[id], Json(static_cast<std::int64_t>(id)), {}});
  return result;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.content.size() > b.content.size(); });
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    by_id_.emplace(tokens_[i].id, i);
    if (first_bytes_.find(tokens_[i].content.front()) == std::string::npos) first_bytes_ += tokens_[i].content.front();
  }
}

const AddedToken* AddedTokens::with_id(std::int32_t id) const {
  const auto place = by_id_.find(id);
  return place == by_id_.end() ? nullptr : &tokens_[place->second];
}

AddedTokens::Found AddedTokens::next(std::string_view text, std::size_t from) const {
  for (std::size_t at = text.find_first_of(first_bytes_, from); at != std::string_view::npos;
       at = text.find_first_of(first_bytes_, at + 1)) {
    const auto token = std::find_if(tokens_.begin(), tokens_.end(), [&](const AddedToken& candidate) {
      return text.substr(at, candidate.content.size()) == candidate.content;
    });
    if (token == tokens_.end()) continue;
    Found found{at, at + token->content.size(), &*token};
    const auto is_space = [](unicode::Character c) {
      return c.bytes > 0 && unicode::kind_of(c.code) == unicode::Kind::space;
    };
    while (token->rstrip && found.end < text.size()) {
      const unicode::Character c = unicode::character_at(text, found.end);
      if (!is_space(c)) break;
      found.end += c.bytes;
    }
    while (token->lstrip && found.begin > from) {
      std::size_t before = found.begin - 1;
      while (before > from && !utf8::begins_character(text[before])) --before;
      if (!is_space(unicode::character_at(text, before))) break;
      found.begin = before;
    }
    return found;
  }
  return {};
}

}  // namespace hearth::data
