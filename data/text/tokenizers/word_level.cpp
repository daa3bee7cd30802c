// SPDX-License-Identifier: Apache-2.0
#include "data/text/tokenizers/word_level.h"

#include <algorithm>

#include "core/error.h"
#include "data/text/tokenizers/pretokenize.h"
#include "data/text/tokenizers/special.h"
#include "data/text/unicode.h"

namespace hearth::data {
namespace {

/// Calls f(character) for the characters of a text.
template <class F>
void for_each_character(std::string_view text, F&& f) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = unicode::checked_character_at(text, at, "tokenizer").bytes;
    f(text.substr(at, bytes));
    at += bytes;
  }
}

std::string lowered(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const unicode::Character c = unicode::checked_character_at(text, at, "tokenizer");
    unicode::append_lower(result, c.code);
    at += c.bytes;
  }
  return result;
}

void add_one(TextMap<std::int64_t>& counts, std::string_view piece) {
  const auto place = counts.find(piece);
  if (place != counts.end())
    ++place->second;
  else
    counts.emplace(std::string(piece), 1);
}

Vocabulary most_frequent(const TextMap<std::int64_t>& counts, CountLimits limits) {
  Vocabulary vocabulary(own_special_tokens(), "tokenizer");
  std::vector<std::pair<std::int64_t, std::string_view>> order;
  for (const auto& [piece, count] : counts)
    if (count >= limits.min_count) order.emplace_back(-count, piece);
  std::sort(order.begin(), order.end());
  for (const auto& [count, piece] : order) {
    if (limits.most > 0 && vocabulary.size() >= limits.most) break;
    vocabulary.add(std::string(piece));
  }
  return vocabulary;
}

std::int32_t known_id(const Vocabulary& vocabulary, const SpecialIds& special, std::string_view piece) {
  const std::int32_t id = vocabulary.find(piece).value_or(special.unknown);
  HEARTH_CHECK(DataError, id >= 0, "tokenizer: '", piece,
               "' is not in the vocabulary, which has no id for unknown pieces");
  return id;
}

// Of own_special_tokens().
constexpr std::string_view own_unknown = "<unk>";

/// No other piece stands for unknown ones than the one that is named.
SpecialIds special_of(const Vocabulary& vocabulary, std::string_view unknown) {
  SpecialIds ids = find_special(vocabulary, "");
  ids.unknown = vocabulary.id_or_none(unknown);
  return ids;
}

Json word_level_model(const Vocabulary& vocabulary, const SpecialIds& special) {
  Json model = Json::object();
  model.set("type", "WordLevel").set("vocab", vocabulary.to_json());
  model.set("unk_token", special.unknown >= 0 ? vocabulary.piece(special.unknown) : "");
  return model;
}

}  // namespace

CharacterTokenizer::CharacterTokenizer(Vocabulary vocabulary, std::vector<AddedToken> added, std::string_view unknown)
    : VocabularyTokenizer(std::move(vocabulary)) {
  added_ = AddedTokens(std::move(added));
  special_ = special_of(vocabulary_, unknown);
}

TokenizerPointer CharacterTokenizer::train(Corpus sequences, CountLimits limits) {
  TextMap<std::int64_t> counts;
  for (const std::string_view text : sequences)
    for_each_character(text, [&](std::string_view character) { add_one(counts, character); });
  return std::make_shared<CharacterTokenizer>(most_frequent(counts, limits), own_added_tokens(), own_unknown);
}

std::vector<std::int32_t> CharacterTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  ids.reserve(text.size());
  added_.split(
      text,
      [&](std::string_view part) {
        for_each_character(
            part, [&](std::string_view character) { ids.push_back(known_id(vocabulary_, special_, character)); });
      },
      [&](std::int32_t id) { ids.push_back(id); });
  return ids;
}

std::string CharacterTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) {
    const std::string& piece = vocabulary_.piece(id);
    const AddedToken* token = added_.with_id(id);
    if (token == nullptr || !token->special) text += piece;
  }
  return text;
}

Json CharacterTokenizer::to_json() const {
  Json cutting = Json::object();
  cutting.set("type", "Split").set("pattern", Json::object().set("Regex", "[\\s\\S]"));
  cutting.set("behavior", "Isolated").set("invert", false);
  return tokenizer_document(added_, nullptr, std::move(cutting), Json::object().set("type", "Fuse"),
                            word_level_model(vocabulary_, special_));
}

WordTokenizer::WordTokenizer(Vocabulary vocabulary, std::vector<AddedToken> added, std::string_view unknown,
                             WordOptions options)
    : VocabularyTokenizer(std::move(vocabulary)), options_(options) {
  added_ = AddedTokens(std::move(added));
  special_ = special_of(vocabulary_, unknown);
}

TokenizerPointer WordTokenizer::train(Corpus sequences, CountLimits limits, WordOptions options) {
  TextMap<std::int64_t> counts;
  std::vector<std::string_view> words;
  for (const std::string_view given : sequences) {
    const std::string changed = options.lower_case ? lowered(given) : std::string();
    words.clear();
    split_words(options.lower_case ? std::string_view(changed) : given, options.punctuation, words);
    for (const std::string_view word : words) add_one(counts, word);
  }
  return std::make_shared<WordTokenizer>(most_frequent(counts, limits), own_added_tokens(), own_unknown, options);
}

std::vector<std::int32_t> WordTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  std::vector<std::string_view> words;
  added_.split(
      text,
      [&](std::string_view part) {
        const std::string changed = options_.lower_case ? lowered(part) : std::string();
        words.clear();
        split_words(options_.lower_case ? std::string_view(changed) : part, options_.punctuation, words);
        for (const std::string_view word : words) ids.push_back(known_id(vocabulary_, special_, word));
      },
      [&](std::int32_t id) { ids.push_back(id); });
  return ids;
}

std::string WordTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) {
    const std::string& piece = vocabulary_.piece(id);
    const AddedToken* token = added_.with_id(id);
    if (token != nullptr && token->special && id != special_.unknown) continue;
    if (!text.empty()) text += ' ';
    text += piece;
  }
  return text;
}

Json WordTokenizer::to_json() const {
  Json cutting = Json::object().set("type", "WhitespaceSplit");
  if (options_.punctuation) {
    Json signs = Json::object().set("type", "Punctuation").set("behavior", "Isolated");
    Json both = Json::array().push_back(std::move(cutting)).push_back(std::move(signs));
    cutting = Json::object().set("type", "Sequence").set("pretokenizers", std::move(both));
  }
  Json normalizer = options_.lower_case ? Json::object().set("type", "Lowercase") : Json();
  return tokenizer_document(added_, std::move(normalizer), std::move(cutting), nullptr,
                            word_level_model(vocabulary_, special_));
}

}  // namespace hearth::data
