// SPDX-License-Identifier: Apache-2.0
#include "train/task/text_tasks.h"

#include <algorithm>

#include "data/text/metrics/error_rate.h"
#include "data/text/mixture.h"
#include "data/text/text_data.h"
#include "train/model/meter.h"
#include "train/predict/answer.h"
#include "train/predict/outside_inputs.h"
#include "train/task/fitting_model.h"
#include "train/task/report/class_report.h"

namespace hearth::train {
namespace {

/// A token stream of a configuration, and the path of its options there.
struct Stream {
  const data::TextData* text;
  std::string path;
};

/// Those that the data is made of; none where the program brings its own.
std::vector<Stream> streams_of(const data::Datasets::Component& data, const std::string& path = "/data") {
  std::vector<Stream> found;
  if (const auto* const text = data.options<data::TextData>()) found.push_back({text, path});
  if (const auto* const mixture = data.options<data::MixtureData>())
    for (std::size_t i = 0; i < mixture->sources.size(); ++i)
      for (Stream& each : streams_of(mixture->sources[i], join_text(path, "/sources/", i)))
        found.push_back(std::move(each));
  return found;
}

double mask_probability_of(const data::Datasets::Component& data) {
  const std::vector<Stream> streams = streams_of(data);
  return streams.empty() ? 0 : streams.front().text->mask_probability;
}

/// In which direction a model attends is known of those of the library.
void require_fitting_masks(const ChosenComponents& chosen) {
  const std::string& model = chosen.model.type();
  for (const auto& [text, path] : streams_of(chosen.data)) {
    HEARTH_CHECK(ConfigError, model != "bert" || text->mask_probability > 0, path,
                 "/mask_probability: 0 with /model/type \"bert\", which attends in both directions and so sees each "
                 "id that it is to predict; give a mask_probability, as 0.15, or use the model \"gpt\"");
    HEARTH_CHECK(ConfigError, model != "gpt" || text->mask_probability == 0, path,
                 "/mask_probability: ", text->mask_probability,
                 " with /model/type \"gpt\", which attends to earlier ids only, and predicts the next one; leave "
                 "mask_probability out, or use the model \"bert\"");
  }
}

/// Of a `bert` the head that scores tokens; the others make one result of a row.
void require_scores_of_tokens(const ChosenComponents& chosen) {
  if (chosen.model.type() != "bert") return;
  const std::string& head = chosen.model.node().at("head").as_string();
  HEARTH_CHECK(ConfigError, head == "masked_lm", "/model/head: \"", head,
               "\" gives one result of a row, but each id of /data/type \"", chosen.data.type(),
               "\" has a label; use \"masked_lm\", or for \"classification\" the data \"labelled_text\"");
}

}  // namespace

SequenceTask::SequenceTask(const char* name, const data::DataSplits& data) : data_(data) {
  HEARTH_CHECK(ConfigError, data.train->tokens() != nullptr, "/task/type: ", name,
               " is of sequences of tokens, which the data are not; leave it out, or name another task");
}

models::InputInfo SequenceTask::input_info() const {
  return {.channels = data_.input_shape().channels,
          .classes = data_.classes(),
          .length = sequences().longest(),
          .vocabulary = sequences().tokenizer().size(),
          .pad = sequences().tokenizer().special().pad};
}

nn::Inputs SequenceTask::inputs(const TrainedModel&, const data::Batch& batch) const {
  if (batch.has("segments")) return {batch["input"], batch["segments"]};
  return {batch["input"]};
}

std::string SequenceTask::describe() const {
  return join_text("rows of ", sequences().longest(), " ids or fewer, vocabulary ", sequences().tokenizer().size());
}

Shape SequenceTask::longest(const Shape& shape) const {
  return shape.rank() > 1 ? shape.with(1, sequences().longest()) : shape;
}

std::int64_t SequenceTask::rows_to_measure() const {
  constexpr std::int64_t enough_ids = 2048, most = 16;
  return std::clamp<std::int64_t>(enough_ids / sequences().longest(), 2, most);
}

TextClassificationTask::TextClassificationTask(const data::DataSplits& data, const ClassMetricOptions& options)
    : SequenceTask("text_classification", data), options_(options) {
  HEARTH_CHECK(ConfigError, !options.top_k || *options.top_k <= data.classes(), "/task/top_k: ", *options.top_k, " of ",
               data.classes(), " classes");
  require_several_classes(data);
  HEARTH_CHECK(ConfigError, sequences().labelled() != nullptr,
               "/task/type: text_classification needs a label for each sequence, as of data \"labelled_text\"");
}

models::InputInfo TextClassificationTask::input_info() const {
  models::InputInfo info = SequenceTask::input_info();
  info.labelled = true;
  return info;
}

void TextClassificationTask::prepare(const TrainedModel&, const ChosenComponents& chosen) {
  require_model_among(chosen, {"bert"});
}

InputPieces TextClassificationTask::outside_inputs(const TrainedModel&, const OutsideSamples& samples) const {
  if (auto pieces = text_inputs(*sequences().labelled(), samples)) return *std::move(pieces);
  refuse_samples();
}

const PredictForm& TextClassificationTask::form() const { return sequences_form(); }

std::unique_ptr<Metrics> TextClassificationTask::metrics() const {
  return class_metrics(options_, data_.train->class_names());
}

std::string TextClassificationTask::describe() const {
  return join_text(SequenceTask::describe(), ", ", data_.classes(), " classes");
}

void TextClassificationTask::report(const TrainedModel& trained, const data::DatasetPointer& part,
                                    const VisitBatches& visit, ReportSections& sections) const {
  const data::LabelledText& labelled_text = *part->tokens()->labelled();
  report_classes(*this, trained, part, visit, sections, [&](std::int64_t sample) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(labelled_text.length_of(sample)));
    labelled_text.copy(sample, ids.data());
    return Figure{.text = repaired_text(labelled_text.tokenizer().decode(ids))};
  });
}

LanguageModelTask::LanguageModelTask(const data::DataSplits& data) : LanguageModelTask("language_model", data) {
  HEARTH_CHECK(ConfigError, sequences().labelled() == nullptr && sequences().pairs() == nullptr,
               "/task/type: language_model is of a token stream, as of data \"text\"");
}

void LanguageModelTask::prepare(const TrainedModel&, const ChosenComponents& chosen) {
  require_model_among(chosen, {"gpt", "bert"});
  require_scores_of_tokens(chosen);
  require_fitting_masks(chosen);
  mask_probability_ = mask_probability_of(chosen.data);
}

void LanguageModelTask::check(const Loss& loss) const {
  Task::check(loss);
  HEARTH_CHECK(ConfigError, !loss.ignored_label || *loss.ignored_label == data::ignored_label,
               "/loss/ignore_index: ", *loss.ignored_label,
               ", but in batches of sequences the positions that do not count are labelled ", data::ignored_label,
               "; leave it out");
}

void LanguageModelTask::add_metrics(Json& record, const Loss& loss, const Meter& meter,
                                    const data::Dataset* part) const {
  if (!loss.is_likelihood) return;
  record.set("perplexity", data::perplexity(meter.loss()));
  if (part == nullptr) return;
  const data::TokenDataset& evaluated = *part->tokens();
  if (meter.samples == evaluated.predicted_tokens() && evaluated.characters() > 0)
    record.set("bits_per_character", data::bits_per_character(meter.loss(), meter.samples, evaluated.characters()));
}

std::vector<Figure> LanguageModelTask::samples(const TrainedModel& trained, const data::DatasetPointer& part) const {
  constexpr std::int64_t max_prompt = 24, max_new = 120;
  if (mask_probability_ > 0) return {};
  // The beginnings of the split's first two rows.
  data::Loader loader(part, {.batch_size = std::min<std::int64_t>(2, part->size()), .workers = 0});
  const data::Batch batch = loader.next();
  const Tensor rows = batch["input"].contiguous();
  const Tensor segments = batch.find("segments");
  std::vector<std::vector<std::int32_t>> prompts;
  for (std::int64_t row = 0; row < rows.dim(0); ++row) {
    const std::int32_t* const ids = rows.data<const std::int32_t>() + row * rows.dim(1);
    const std::int64_t there =
        segments.defined() ? segments.data<const std::int32_t>()[2 * row * rows.dim(1) + 1] : rows.dim(1);
    const std::int64_t length = std::min(max_prompt, (there + 1) / 2);
    prompts.emplace_back(ids, ids + length);
  }
  const std::vector<Continuation> generated =
      write_continuations(trained, sequences(), prompts, {.limits = {.most = max_new}, .temperature = 0.8});
  std::vector<Figure> figures;
  for (std::size_t i = 0; i < generated.size(); ++i)
    figures.push_back(
        {.caption = join_text("after the prompt \"", repaired_text(sequences().tokenizer().decode(prompts[i])), "\""),
         .text = generated[i].text});
  return figures;
}

TranslationTask::TranslationTask(const data::DataSplits& data) : LanguageModelTask("translation", data) {
  HEARTH_CHECK(ConfigError, sequences().pairs() != nullptr,
               "/task/type: translation is of pairs of sequences, as of data \"parallel_text\"");
}

models::InputInfo TranslationTask::input_info() const {
  models::InputInfo info = SequenceTask::input_info();
  const data::Tokenizer& source = sequences().pairs()->source_tokenizer();
  info.source_vocabulary = source.size();
  info.source_pad = source.special().pad;
  return info;
}

void TranslationTask::prepare(const TrainedModel&, const ChosenComponents& chosen) {
  require_model_among(chosen, {"transformer"});
}

nn::Inputs TranslationTask::inputs(const TrainedModel&, const data::Batch& batch) const {
  return {batch["source"], batch["target"]};
}

std::vector<Figure> TranslationTask::samples(const TrainedModel& trained, const data::DatasetPointer& part) const {
  constexpr std::int64_t most = 3;
  const data::PairDataset& set = *part->tokens()->pairs();
  std::vector<std::vector<std::int32_t>> sources;
  for (std::int64_t pair = 0; pair < std::min(most, set.size()); ++pair) sources.push_back(set.source_ids(pair));
  const std::vector<Translation> found =
      write_translations(trained, set, sources, {.limits = {.most = set.longest()}, .beam = 1});
  std::vector<Figure> figures;
  for (std::size_t i = 0; i < found.size(); ++i)
    figures.push_back({.caption = repaired_text(
                           join_text("\"", set.source_tokenizer().decode(sources[i]), "\", should be \"",
                                     set.tokenizer().decode(set.target_ids(static_cast<std::int64_t>(i))), "\"")),
                       .text = found[i].text});
  return figures;
}

}  // namespace hearth::train
