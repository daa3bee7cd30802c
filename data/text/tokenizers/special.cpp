// SPDX-License-Identifier: Apache-2.0
#include "data/text/tokenizers/special.h"

#include <algorithm>
#include <initializer_list>

#include "core/error.h"

namespace hearth::data {
namespace {

std::int32_t first_of(const Vocabulary& vocabulary, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names)
    if (const auto id = vocabulary.find(name)) return *id;
  return -1;
}

}  // namespace

const std::vector<std::string>& own_special_tokens() {
  static const std::vector<std::string> tokens{"<pad>", "<unk>", "<s>", "</s>", "<mask>"};
  return tokens;
}

std::vector<AddedToken> own_added_tokens() {
  std::vector<AddedToken> added;
  for (const std::string& token : own_special_tokens())
    added.push_back({token, static_cast<std::int32_t>(added.size())});
  return added;
}

SpecialIds find_special(const Vocabulary& vocabulary, std::string_view unknown) {
  SpecialIds ids;
  ids.pad = first_of(vocabulary, {"[PAD]", "<pad>", "<|pad|>"});
  ids.unknown = unknown.empty() ? first_of(vocabulary, {"[UNK]", "<unk>"}) : vocabulary.id_or_none(unknown);
  ids.begin = first_of(vocabulary, {"[CLS]", "<s>", "<|startoftext|>", "<|endoftext|>"});
  ids.end = first_of(vocabulary, {"[SEP]", "</s>", "<|endoftext|>"});
  ids.mask = first_of(vocabulary, {"[MASK]", "<mask>"});
  return ids;
}

void add_tokens(Vocabulary& vocabulary, const std::vector<AddedToken>& added, const std::string& source) {
  std::vector<const AddedToken*> in_order;
  for (const AddedToken& token : added) in_order.push_back(&token);
  std::sort(in_order.begin(), in_order.end(), [](const auto* a, const auto* b) { return a->id < b->id; });
  for (const AddedToken* token : in_order) {
    HEARTH_CHECK(DataError, !token->content.empty(), source, ": the added token with id ", token->id, " is empty");
    const std::int32_t id = vocabulary.add(token->content);
    HEARTH_CHECK(DataError, id == token->id, source, ": the added token '", token->content, "' has id ", token->id,
                 " where the vocabulary gives ", id);
  }
}

Json tokenizer_document(const AddedTokens& added, Json normalizer, Json pre_tokenizer, Json decoder, Json model) {
  std::vector<AddedToken> tokens = added.all();
  std::sort(tokens.begin(), tokens.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  Json list = Json::array();
  for (const AddedToken& token : tokens) {
    Json entry = Json::object();
    entry.set("id", static_cast<std::int64_t>(token.id)).set("content", token.content).set("single_word", false);
    entry.set("lstrip", token.lstrip).set("rstrip", token.rstrip).set("normalized", false);
    entry.set("special", token.special);
    list.push_back(std::move(entry));
  }
  Json document = Json::object();
  document.set("version", "1.0").set("truncation", nullptr).set("padding", nullptr);
  document.set("added_tokens", std::move(list)).set("normalizer", std::move(normalizer));
  document.set("pre_tokenizer", std::move(pre_tokenizer)).set("post_processor", nullptr);
  document.set("decoder", std::move(decoder)).set("model", std::move(model));
  return document;
}

}  // namespace hearth::data
