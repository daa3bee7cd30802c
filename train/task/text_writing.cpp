// SPDX-License-Identifier: Apache-2.0
// Text that runs on token streams and on pairs write.
#include <map>
#include <sstream>
#include <utility>

#include "data/text/metrics/bleu.h"
#include "data/text/metrics/chrf.h"
#include "data/text/metrics/error_rate.h"
#include "data/text/unicode.h"
#include "train/predict/answer.h"
#include "train/task/text_tasks.h"

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

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  stream.imbue(std::locale::classic());
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

/// What is to be translated, and what may come out.
struct Exercises {
  std::vector<Ids> sources;
  std::vector<std::vector<std::string>> references;  // of each source
};

/// Of the first `limit` pairs; where `merged`, equal sources are one with the references of all pairs.
Exercises exercises_of(const data::PairDataset& part, std::int64_t limit, bool merged) {
  Exercises exercises;
  std::map<Ids, std::size_t> places;
  for (std::int64_t sample = 0; sample < part.size(); ++sample) {
    if (!merged && limit > 0 && sample >= limit) break;
    Ids source = part.source_ids(sample);
    std::size_t place = exercises.sources.size();
    if (const auto known = places.find(source); merged && known != places.end()) place = known->second;
    if (place == exercises.sources.size()) {
      if (limit > 0 && sample >= limit) continue;
      if (merged) places.emplace(source, place);
      exercises.sources.push_back(std::move(source));
      exercises.references.emplace_back();
    }
    exercises.references[place].push_back(part.tokenizer().decode(part.target_ids(sample)));
  }
  return exercises;
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

void answer_prompts(const PredictCall& call) {
  HEARTH_CHECK(UsageError, call.inputs.empty() && !call.options.prompts.empty(),
               "predict: the run was trained on a token stream and writes prompts on; use ", call.task.form().usage);
  const std::vector<std::string>& prompts = call.options.prompts;
  const std::vector<Continuation> written =
      dynamic_cast<const LanguageModelTask&>(call.task).continue_text(call.trained, prompts, call.options.generate);
  for (std::size_t i = 0; i < written.size(); ++i) {
    if (call.options.json) {
      call.out << to_text(Json::object()
                              .set("prompt", prompts[i])
                              .set("text", written[i].text)
                              .set("tokens", written[i].tokens)
                              .set("ended", written[i].ended))
               << "\n";
    } else {
      call.out << (i > 0 ? "\n" : "") << prompts[i] << written[i].text << "\n";
    }
  }
}

void answer_lines(const PredictCall& call) {
  HEARTH_CHECK(UsageError, !call.inputs.empty(),
               "predict: the run was trained on pairs of lines and translates files; use ", call.task.form().usage);
  const auto& task = dynamic_cast<const TranslationTask&>(call.task);
  for (const std::string& input : call.inputs)
    each_lines(input, [&](const std::vector<std::string>& lines) {
      const auto translations =
          task.translate(call.trained, task.source_ids(lines, input == "-" ? "the input" : input), call.options.search);
      for (std::size_t i = 0; i < lines.size(); ++i) {
        if (call.options.json)
          call.out << to_text(Json::object()
                                  .set("input", lines[i])
                                  .set("text", translations[i].text)
                                  .set("score", translations[i].score)
                                  .set("ended", translations[i].ended))
                   << "\n";
        else
          call.out << translations[i].text << "\n";
      }
      call.out.flush();
    });
}

}  // namespace

const PredictForm& LanguageModelTask::form() const {
  static const PredictForm form{
      .trained_on = "a token stream",
      .usage = "hearth predict RUN --prompt TEXT",
      .options = {"--prompt", "--max-tokens", "--temperature", "--top-k", "--top-p", "--seed", "--greedy"},
      .answer = answer_prompts};
  return form;
}

const data::TokenDataset& LanguageModelTask::stream() const {
  HEARTH_CHECK(UsageError, sequences().pairs() == nullptr,
               "generate: the run was not trained on a token stream (data \"text\"), which prompts go on from");
  HEARTH_CHECK(UsageError, mask_probability_ == 0,
               "generate: the run was trained to guess masked tokens (data.mask_probability ", mask_probability_,
               "), not those that follow; train one without masks");
  return sequences();
}

std::vector<Continuation> LanguageModelTask::continue_ids(const TrainedModel& trained,
                                                          const std::vector<std::vector<std::int32_t>>& prompts,
                                                          models::GenerateOptions options) const {
  return write_continuations(trained, stream(), prompts, std::move(options));
}

std::vector<Continuation> LanguageModelTask::continue_text(const TrainedModel& trained,
                                                           const std::vector<std::string>& prompts,
                                                           models::GenerateOptions options) const {
  const data::Tokenizer& tokenizer = stream().tokenizer();
  std::vector<Ids> begun;
  for (const std::string& prompt : prompts) {
    begun.push_back(encoded(tokenizer, prompt, join_text("prompt ", begun.size() + 1)));
    // Sequences of the training follow the end of another.
    if (const std::int32_t end = tokenizer.special().end; begun.back().empty() && end >= 0) begun.back().push_back(end);
    HEARTH_CHECK(UsageError, !begun.back().empty(), "generate: prompt ", begun.size(), ", \"", prompt,
                 "\", gives no ids, and the tokenizer has none that begins a text; give a longer one");
  }
  return continue_ids(trained, begun, std::move(options));
}

const PredictForm& TranslationTask::form() const {
  static const PredictForm form{.trained_on = "pairs of lines",
                                .usage = "hearth predict RUN FILE (or - for the input)",
                                .options = {"--beam", "--length-penalty", "--max-tokens"},
                                .answer = answer_lines};
  return form;
}

std::vector<std::vector<std::int32_t>> TranslationTask::source_ids(const std::vector<std::string>& lines,
                                                                   const std::string& source) const {
  const data::PairDataset& set = *sequences().pairs();
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

std::vector<Translation> TranslationTask::translate(const TrainedModel& trained,
                                                    const std::vector<std::vector<std::int32_t>>& sources,
                                                    models::BeamOptions options) const {
  if (options.limits.most == 0) options.limits.most = sequences().longest();
  return write_translations(trained, *sequences().pairs(), sources, std::move(options));
}

void TranslationTask::add_text_metrics(Json& record, const TrainedModel& trained, const data::DatasetPointer& part,
                                       const TextMetricOptions& options) const {
  const data::PairDataset& pairs = *part->tokens()->pairs();
  const Exercises exercises = exercises_of(pairs, options.limit, options.by_edits);
  models::BeamOptions search = options.search;
  if (search.limits.most == 0) search.limits.most = pairs.longest();
  std::vector<std::string> outputs;
  for (Translation& translation : translate(trained, exercises.sources, search))
    outputs.push_back(std::move(translation.text));
  record.set("decoded", static_cast<std::int64_t>(outputs.size()));
  if (options.by_edits) return set_error_rate(record, outputs, exercises.references);
  std::vector<std::string> references;
  for (const auto& each : exercises.references) references.push_back(each.front());
  record.set("bleu", data::bleu(outputs, references).score).set("chrf", data::chrf(outputs, references));
}

}  // namespace hearth::train
