// SPDX-License-Identifier: Apache-2.0
#include "data/text/tokenizers/wordpiece.h"

#include "core/error.h"
#include "data/text/tokenizers/pretokenize.h"
#include "data/text/tokenizers/special.h"
#include "data/text/unicode.h"

namespace hearth::data {
namespace {

using unicode::Kind;

bool is_dropped(char32_t code) {
  if (code == '\t' || code == '\n' || code == '\r') return false;
  // The white space among the control characters.
  if (code == 0x0b || code == 0x0c || code == 0x85) return true;
  return code == 0 || code == 0xfffd || unicode::kind_of(code) == Kind::control;
}

/// f(code) for each character of a text.
template <class F>
std::string mapped(std::string_view text, F&& f) {
  std::string result;
  result.reserve(text.size() + text.size() / 8);
  for (std::size_t at = 0; at < text.size();) {
    const unicode::Character c = unicode::checked_character_at(text, at, "tokenizer");
    f(result, c.code);
    at += c.bytes;
  }
  return result;
}

// The blank before a sign or an ending goes.
void clean_up(std::string& word) {
  static const std::vector<std::pair<std::string, std::string>> changes{
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : changes)
    for (std::size_t at = word.find(from); at != std::string::npos; at = word.find(from, at + to.size()))
      word.replace(at, from.size(), to);
}

}  // namespace

WordPieceTokenizer::WordPieceTokenizer(Vocabulary vocabulary, std::vector<AddedToken> added, WordPieceOptions options,
                                       const std::string& source)
    : VocabularyTokenizer(std::move(vocabulary)), model_size_(vocabulary_.size()), options_(std::move(options)) {
  add_tokens(vocabulary_, added, source);
  added_ = AddedTokens(std::move(added));
  special_ = find_special(vocabulary_, options_.unknown);
  HEARTH_CHECK(DataError, special_.unknown >= 0, source, ": the vocabulary lacks '", options_.unknown,
               "', which stands for unknown words");
}

std::string WordPieceTokenizer::normalized(std::string_view text) const {
  std::string result(text);
  if (options_.clean_text)
    result = mapped(result, [](std::string& to, char32_t code) {
      if (!is_dropped(code)) unicode::append(to, unicode::kind_of(code) == Kind::space ? U' ' : code);
    });
  if (options_.handle_chinese_chars)
    result = mapped(result, [](std::string& to, char32_t code) {
      const bool apart = unicode::is_cjk_ideograph(code);
      if (apart) to += ' ';
      unicode::append(to, code);
      if (apart) to += ' ';
    });
  if (options_.strip_accents.value_or(options_.lower_case)) result = mapped(result, unicode::append_without_accents);
  if (options_.lower_case) result = mapped(result, unicode::append_lower);
  return result;
}

std::vector<std::int32_t> WordPieceTokenizer::encode(std::string_view text) const {
  unicode::require_utf8(text, "tokenizer");
  std::vector<std::int32_t> ids;
  std::vector<std::string_view> words;
  added_.split(
      text,
      [&](std::string_view part) {
        const std::string clean = normalized(part);
        words.clear();
        split_words(clean, true, words);
        for (const std::string_view word : words) encode_word(word, ids);
      },
      [&](std::int32_t id) { ids.push_back(id); });
  return ids;
}

void WordPieceTokenizer::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  const std::size_t before = ids.size();
  const auto give_up = [&] {
    ids.resize(before);
    ids.push_back(special_.unknown);
  };
  if (unicode::count_characters(word) > options_.longest_word) return give_up();
  std::string candidate;
  for (std::size_t begin = 0; begin < word.size();) {
    candidate.assign(begin == 0 ? "" : options_.prefix);
    const std::size_t prefix = candidate.size();
    candidate.append(word.substr(begin));
    std::optional<std::int32_t> found;
    while (candidate.size() > prefix && !(found = vocabulary_.find(candidate))) {
      // The last character goes, all bytes of it.
      while (!utf8::begins_character(candidate.back())) candidate.pop_back();
      candidate.pop_back();
    }
    if (!found) return give_up();
    ids.push_back(*found);
    begin += candidate.size() - prefix;
  }
}

std::string WordPieceTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  bool first = true;
  for (const std::int32_t id : ids) {
    std::string word = vocabulary_.piece(id);
    const AddedToken* token = added_.with_id(id);
    if (token != nullptr && token->special) continue;
    if (!first) {
      if (word.starts_with(options_.prefix))
        word.erase(0, options_.prefix.size());
      else
        word.insert(0, " ");
    }
    first = false;
    clean_up(word);
    text += word;
  }
  return text;
}

Json WordPieceTokenizer::to_json() const {
  Json vocabulary = Json::object();
  for (std::int64_t id = 0; id < model_size_; ++id)
    vocabulary.members().push_back({vocabulary_.pieces()[static_cast<std::size_t>(id)], Json(id), {}});
  Json model = Json::object();
  model.set("type", "WordPiece").set("unk_token", options_.unknown);
  model.set("continuing_subword_prefix", options_.prefix).set("max_input_chars_per_word", options_.longest_word);
  model.set("vocab", std::move(vocabulary));
  Json normalizer = Json::object();
  normalizer.set("type", "BertNormalizer").set("clean_text", options_.clean_text);
  normalizer.set("handle_chinese_chars", options_.handle_chinese_chars);
  normalizer.set("strip_accents", options_.strip_accents ? Json(*options_.strip_accents) : Json());
  normalizer.set("lowercase", options_.lower_case);
  Json decoder = Json::object();
  decoder.set("type", "WordPiece").set("prefix", options_.prefix).set("cleanup", true);
  return tokenizer_document(added_, std::move(normalizer), Json::object().set("type", "BertPreTokenizer"),
                            std::move(decoder), std::move(model));
}

}  // namespace hearth::data
