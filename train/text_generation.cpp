// SPDX-License-Identifier: Apache-2.0
#include "hearth/train/text_generation.h"

#include <algorithm>

#include "hearth/autograd/grad_mode.h"
#include "hearth/data/text/token_set.h"
#include "hearth/data/text/unicode.h"

namespace hearth::train {
namespace {

using Ids = std::vector<std::int32_t>;

/// The session computes as in its evaluations.
struct WritingScope {
  explicit WritingScope(Session& session) : autocast(session.autocast()) {
    session.use_averaged_weights();
    session.model->eval();
  }
  NoGrad no_grad;
  AutocastScope autocast;
};

/// Bytes that are not UTF-8, as half a character at the end of a text of bytes, become U+FFFD.
std::string repaired(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const data::unicode::Character character = data::unicode::character_at(text, at);
    if (character.bytes > 0)
      result.append(text, at, character.bytes);
    else
      data::unicode::append(result, 0xFFFD);
    at += std::max<std::size_t>(1, character.bytes);
  }
  return result;
}

/// What ids add to the text of those before them: pieces may be joined, by a blank or within a character.
std::string text_behind(const data::Tokenizer& tokenizer, Ids before, const Ids& added) {
  const std::string prompt = tokenizer.decode(before);
  before.insert(before.end(), added.begin(), added.end());
  const std::string whole = tokenizer.decode(before);
  return repaired(whole.starts_with(prompt) ? whole.substr(prompt.size()) : tokenizer.decode(added));
}

}  // namespace

models::WritingLimits writing_limits(const data::Tokenizer& tokenizer, std::int64_t most) {
  const data::SpecialIds& special = tokenizer.special();
  models::WritingLimits limits{.most = most, .end = special.end, .vocabulary = tokenizer.size()};
  for (const std::int32_t id : {special.pad, special.unknown, special.begin, special.mask})
    if (id >= 0 && id != special.end) limits.never.push_back(id);
  return limits;
}

std::vector<Continuation> continue_texts(Session& session, const std::vector<std::string>& prompts,
                                         models::GenerateOptions options) {
  const data::TokenDataset* const set = session.data.train->tokens();
  HEARTH_CHECK(UsageError, set != nullptr && set->source_tokenizer() == nullptr,
               "generate: the run was not trained on a running text (data \"text\"), which prompts go on from");
  const Json* const masked = session.resolved().at("data").find("mask_share");
  HEARTH_CHECK(UsageError, masked == nullptr || masked->as_number() == 0,
               "generate: the run was trained to guess masked tokens (data.mask_share ", masked->as_number(),
               "), not those that follow; train one without masks");
  const data::Tokenizer& tokenizer = set->tokenizer();
  options.limits = writing_limits(tokenizer, options.limits.most);
  std::vector<Ids> begun;
  for (const std::string& prompt : prompts) {
    data::unicode::require_utf8(prompt, "prompt");
    begun.push_back(tokenizer.encode(prompt));
    // Texts of the training follow the end of another.
    if (begun.back().empty() && options.limits.end >= 0) begun.back().push_back(options.limits.end);
    HEARTH_CHECK(UsageError, !begun.back().empty(), "generate: the prompt \"", prompt,
                 "\" gives no ids, and the tokenizer has none that begins a text; give a longer one");
  }
  const WritingScope scope(session);
  const auto decoder =
      models::make_decoder(*session.model, {.texts = static_cast<std::int64_t>(begun.size()), .room = set->longest()});
  const std::vector<models::Written> written = models::generate(*decoder, begun, options);
  std::vector<Continuation> result;
  for (std::size_t i = 0; i < written.size(); ++i)
    result.push_back({text_behind(tokenizer, begun[i], written[i].ids),
                      static_cast<std::int64_t>(written[i].ids.size()), written[i].ended});
  return result;
}

}  // namespace hearth::train
