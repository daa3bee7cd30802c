// SPDX-License-Identifier: Apache-2.0
#include "train/task/written_text.h"

#include <algorithm>

#include "core/io/utf8.h"
#include "train/model/trained_model.h"

namespace hearth::train {
namespace {

using Ids = std::vector<std::int32_t>;

/// What ids add to the text of those before them: pieces may be joined, by a blank or within a character.
std::string text_behind(const data::Tokenizer& tokenizer, Ids before, const Ids& added) {
  const std::string prompt = tokenizer.decode(before);
  before.insert(before.end(), added.begin(), added.end());
  const std::string whole = tokenizer.decode(before);
  return repaired_text(whole.starts_with(prompt) ? whole.substr(prompt.size()) : tokenizer.decode(added));
}

/// At most `most` ids of a tokenizer, none of them special; its end ends a text.
models::WritingLimits writing_limits(const data::Tokenizer& tokenizer, std::int64_t most) {
  const data::SpecialIds& special = tokenizer.special();
  models::WritingLimits limits{.most = most, .end = special.end, .vocabulary = tokenizer.size()};
  for (const std::int32_t id : {special.pad, special.unknown, special.begin, special.mask})
    if (id >= 0 && id != special.end) limits.never.push_back(id);
  return limits;
}

// Searched for together; each with its beam.
constexpr std::size_t sources_at_once = 32;

}  // namespace

std::string repaired_text(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const utf8::Character character = utf8::character_at(text, at);
    if (character.bytes > 0)
      result.append(text, at, character.bytes);
    else
      utf8::append(result, 0xFFFD);
    at += std::max<std::size_t>(1, character.bytes);
  }
  return result;
}

std::vector<Continuation> write_continuations(const TrainedModel& trained, const data::TokenDataset& set,
                                              const std::vector<std::vector<std::int32_t>>& prompts,
                                              models::GenerateOptions options) {
  const data::Tokenizer& tokenizer = set.tokenizer();
  options.limits = writing_limits(tokenizer, options.limits.most);
  const auto decoder = models::make_decoder(
      *trained.model, {.sequences = static_cast<std::int64_t>(prompts.size()), .capacity = set.longest()});
  const std::vector<models::Written> written = models::generate(*decoder, prompts, options);
  std::vector<Continuation> result;
  for (std::size_t i = 0; i < written.size(); ++i)
    result.push_back({text_behind(tokenizer, prompts[i], written[i].ids),
                      static_cast<std::int64_t>(written[i].ids.size()), written[i].ended});
  return result;
}

std::vector<Translation> write_translations(const TrainedModel& trained, const data::PairDataset& set,
                                            const std::vector<std::vector<std::int32_t>>& sources,
                                            models::BeamOptions options) {
  const data::Tokenizer& tokenizer = set.tokenizer();
  options.limits = writing_limits(tokenizer, options.limits.most);
  std::vector<Translation> result(sources.size(), {"", 0, true});
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (sources[i].size() > 1) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return sources[a].size() < sources[b].size(); });
  for (std::size_t first = 0; first < order.size(); first += sources_at_once) {
    const std::size_t count = std::min(sources_at_once, order.size() - first);
    std::vector<Ids> rows;
    for (std::size_t i = first; i < first + count; ++i) rows.push_back(sources[order[i]]);
    const auto decoder = models::make_decoder(
        *trained.model,
        {.sequences = checked_mul(static_cast<std::int64_t>(count), options.beam, "translate: sequences"),
         .capacity = set.longest(),
         .source = data::padded_rows(rows, set.source_tokenizer().special().pad)});
    const auto found = models::beam_search(*decoder, std::vector<Ids>(count, Ids{tokenizer.special().begin}), options);
    for (std::size_t i = 0; i < count; ++i)
      result[order[first + i]] = {repaired_text(tokenizer.decode(found[i].ids)), found[i].score, found[i].ended};
  }
  return result;
}

}  // namespace hearth::train
