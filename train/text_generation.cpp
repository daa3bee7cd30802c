// SPDX-License-Identifier: Apache-2.0
#include "train/text_generation.h"

#include <map>
#include <sstream>

#include "data/text/metrics/bleu.h"
#include "data/text/metrics/error_rate.h"
#include "data/text/text_data.h"
#include "data/text/unicode.h"
#include "train/step/visit_batches.h"

namespace hearth::train {
namespace {

using Ids = std::vector<std::int32_t>;

/// The ids of a text; DataError that begins with its position.
Ids encoded(const data::Tokenizer& tokenizer, const std::string& text, const std::string& place) {
  data::unicode::require_utf8(text, place);
  try {
    return tokenizer.encode(text);
  } catch (const DataError& error) {
    throw DataError(join_text(place, ": ", error.what()));
  }
}

/// UsageError for a run on something else, or on masked sequences.
const data::TokenDataset& token_stream_of(const Session& session) {
  HEARTH_CHECK(UsageError, session.task->predicts() == Predicts::continuations,
               "generate: the run was not trained on a token stream (data \"text\"), which prompts go on from");
  const auto* const text = session.config().data.options<data::TextData>();
  HEARTH_CHECK(UsageError, text == nullptr || text->mask_probability == 0,
               "generate: the run was trained to guess masked tokens (data.mask_probability ", text->mask_probability,
               "), not those that follow; train one without masks");
  return *session.data.train->tokens();
}

const data::PairDataset& set_of_pairs(const Session& session) {
  HEARTH_CHECK(UsageError, session.task->predicts() == Predicts::translations,
               "translate: the run was not trained on pairs of lines (data \"parallel_text\")");
  return *session.data.train->tokens()->pairs();
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  stream.imbue(std::locale::classic());
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

/// What is to be translated, and what may come out.
struct Tasks {
  std::vector<Ids> sources;
  std::vector<std::vector<std::string>> references;  // of each source
};

/// Of the first `limit` pairs; where `merged`, equal sources are one with the references of all pairs.
Tasks tasks_of(const data::PairDataset& part, std::int64_t limit, bool merged) {
  Tasks tasks;
  std::map<Ids, std::size_t> places;
  for (std::int64_t sample = 0; sample < part.size(); ++sample) {
    Ids source = part.source_ids(sample);
    std::size_t place = tasks.sources.size();
    if (const auto known = places.find(source); merged && known != places.end()) place = known->second;
    if (place == tasks.sources.size()) {
      if (limit > 0 && sample >= limit) continue;
      if (merged) places.emplace(source, place);
      tasks.sources.push_back(std::move(source));
      tasks.references.emplace_back();
    }
    tasks.references[place].push_back(part.tokenizer().decode(part.target_ids(sample)));
  }
  return tasks;
}

void set_error_rate(Json& record, const std::vector<std::string>& outputs,
                    const std::vector<std::vector<std::string>>& references) {
  data::ErrorRate rate;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    std::vector<std::vector<std::string>> words;
    for (const std::string& reference : references[i]) words.push_back(words_of(reference));
    rate.add(words_of(outputs[i]), words);
  }
  record.set("error_rate", rate.rate()).set("sequence_error_rate", rate.sequence_error_rate());
}

}  // namespace

std::vector<Continuation> generate_text(Session& session, const std::vector<std::string>& prompts,
                                        models::GenerateOptions options) {
  const data::Tokenizer& tokenizer = token_stream_of(session).tokenizer();
  std::vector<Ids> begun;
  for (const std::string& prompt : prompts) {
    begun.push_back(encoded(tokenizer, prompt, join_text("prompt ", begun.size() + 1)));
    // Sequences of the training follow the end of another.
    if (const std::int32_t end = tokenizer.special().end; begun.back().empty() && end >= 0) begun.back().push_back(end);
    HEARTH_CHECK(UsageError, !begun.back().empty(), "generate: prompt ", begun.size(), ", \"", prompt,
                 "\", gives no ids, and the tokenizer has none that begins a text; give a longer one");
  }
  return continue_ids(session, begun, std::move(options));
}

std::vector<Continuation> continue_ids(Session& session, const std::vector<std::vector<std::int32_t>>& prompts,
                                       models::GenerateOptions options) {
  const data::TokenDataset& set = token_stream_of(session);
  const EvaluationScope as_in_evaluations(session);
  return write_continuations(session, set, prompts, std::move(options));
}

std::vector<std::vector<std::int32_t>> encode_sources(const Session& session, const std::vector<std::string>& lines,
                                                      const std::string& source) {
  const data::PairDataset& set = set_of_pairs(session);
  const data::Tokenizer& tokenizer = set.source_tokenizer();
  std::vector<Ids> result;
  for (const std::string& line : lines) {
    const std::string place = join_text(source, ":", result.size() + 1);
    result.push_back(encoded(tokenizer, line, place));
    result.back().push_back(tokenizer.special().end);
    HEARTH_CHECK(DataError, static_cast<std::int64_t>(result.back().size()) <= set.longest(), place, ": ",
                 result.back().size(), " ids with the end; the run's model takes at most ", set.longest(),
                 "; cut it in two");
  }
  return result;
}

std::vector<Translation> translate(Session& session, const std::vector<std::vector<std::int32_t>>& sources,
                                   models::BeamOptions options) {
  const data::PairDataset& set = set_of_pairs(session);
  const EvaluationScope as_in_evaluations(session);
  return write_translations(session, set, sources, std::move(options));
}

void set_translation_metric(Json& record, Session& session, const data::PairDataset& part,
                            const models::BeamOptions& options, std::int64_t limit) {
  const bool by_edits = session.config().eval.metric == TranslationMetric::error_rate;
  const Tasks tasks = tasks_of(part, limit, by_edits);
  std::vector<std::string> outputs;
  for (Translation& translation : translate(session, tasks.sources, options))
    outputs.push_back(std::move(translation.text));
  record.set("decoded", static_cast<std::int64_t>(outputs.size()));
  if (by_edits) return set_error_rate(record, outputs, tasks.references);
  std::vector<std::string> references;
  for (const auto& each : tasks.references) references.push_back(each.front());
  record.set("bleu", data::bleu(outputs, references).score);
}

}  // namespace hearth::train
