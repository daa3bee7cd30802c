// SPDX-License-Identifier: Apache-2.0
// Tasks whose data are sequences of tokens.
#pragma once

#include "data/text/labelled.h"
#include "data/text/token_set.h"
#include "train/task/classification.h"
#include "train/task/task.h"
#include "train/task/written_text.h"

namespace hearth::train {

class SequenceTask : public Task {
 public:
  models::InputInfo input_info() const override;
  nn::Inputs inputs(const TrainedModel& trained, const data::Batch& batch) const override;
  std::string describe() const override;
  Shape longest(const Shape& shape) const override;
  std::int64_t rows_to_measure() const override;

 protected:
  /// ConfigError, naming the task, unless the data are sequences.
  SequenceTask(const char* name, const data::DataSplits& data);
  const data::TokenDataset& sequences() const { return *data_.train->tokens(); }

  const data::DataSplits& data_;
};

/// A class for each sequence.
class TextClassificationTask : public SequenceTask {
 public:
  explicit TextClassificationTask(const data::DataSplits& data, const ClassMetricOptions& options = {});
  models::InputInfo input_info() const override;
  /// ConfigError for a model of the library other than `bert`.
  void prepare(const TrainedModel& trained, const ChosenComponents& chosen) override;
  const char* unit() const override { return "sequences"; }
  InputPieces outside_inputs(const TrainedModel& trained, const OutsideSamples& samples) const override;
  const PredictForm& form() const override;
  std::unique_ptr<Metrics> metrics() const override;
  std::string describe() const override;
  void report(const TrainedModel& trained, const data::DatasetPointer& part, const VisitBatches& visit,
              ReportSections& sections) const override;

 private:
  ClassMetricOptions options_;
};

/// The next token at each position, or those that are masked.
class LanguageModelTask : public SequenceTask {
 public:
  explicit LanguageModelTask(const data::DataSplits& data);
  /// ConfigError for a model of the library that does not score each token, for a `bert` that sees those it is to
  /// predict, and for a `gpt` on masked ones.
  void prepare(const TrainedModel& trained, const ChosenComponents& chosen) override;
  const char* unit() const override { return "tokens"; }
  /// What a token is followed by has many right answers: the loss tells more.
  bool best_by_loss() const override { return true; }
  const PredictForm& form() const override;
  /// Continues prompts, each of one id or more. `options.limits` but for `most` come from the tokenizer. The model is
  /// in evaluation mode. UsageError for a run on pairs or on masked sequences.
  std::vector<Continuation> continue_ids(const TrainedModel& trained,
                                         const std::vector<std::vector<std::int32_t>>& prompts,
                                         models::GenerateOptions options) const;
  /// The same of prompts in UTF-8, of which an empty one stands for the beginning of a text. DataError, naming the
  /// prompt's number, for one that is not UTF-8 or has what the vocabulary lacks.
  std::vector<Continuation> continue_text(const TrainedModel& trained, const std::vector<std::string>& prompts,
                                          models::GenerateOptions options) const;
  /// Positions that do not count are labelled data::ignored_label.
  void check(const Loss& loss) const override;
  /// `perplexity` and, where every token of the part was predicted, `bits_per_character`.
  void add_metrics(Json& record, const Loss& loss, const Meter& meter, const data::Dataset* part) const override;
  /// How the model continues two sequences of the split; nothing where tokens are masked.
  std::vector<Figure> samples(const TrainedModel& trained, const data::DatasetPointer& part) const override;

 protected:
  LanguageModelTask(const char* name, const data::DataSplits& data) : SequenceTask(name, data) {}

 private:
  /// UsageError unless text can go on from prompts.
  const data::TokenDataset& stream() const;

  double mask_probability_ = 0;
};

/// The tokens of a sequence that answers another one.
class TranslationTask : public LanguageModelTask {
 public:
  explicit TranslationTask(const data::DataSplits& data);
  /// ConfigError for a model of the library other than `transformer`.
  void prepare(const TrainedModel& trained, const ChosenComponents& chosen) override;
  models::InputInfo input_info() const override;
  nn::Inputs inputs(const TrainedModel& trained, const data::Batch& batch) const override;
  const PredictForm& form() const override;
  /// The ids of lines as the run takes them. DataError naming `source` and the line for one that is longer than the
  /// model takes (the longest of the training, rounded up as its rows are), or has what the vocabulary lacks.
  std::vector<std::vector<std::int32_t>> source_ids(const std::vector<std::string>& lines,
                                                    const std::string& source) const;
  /// Translates sources, ids with an end. `options.limits` come from the tokenizer of translations, and `most`
  /// where it is 0 from the longest row of the training. Searches for those of about equal length together. A source of
  /// the end alone gives an empty text. The model is in evaluation mode.
  std::vector<Translation> translate(const TrainedModel& trained, const std::vector<std::vector<std::int32_t>>& sources,
                                     models::BeamOptions options) const;
  bool writes_comparable_text() const override { return true; }
  /// `decoded`, the number of translations, and `bleu` and `chrf`, or `error_rate` (edits by words) and
  /// `sequence_error_rate` (translations with an edit). For the latter pairs with one source are translated once and
  /// counted against the nearest of their references. References are what the tokenizer makes of them.
  void add_text_metrics(Json& record, const TrainedModel& trained, const data::DatasetPointer& part,
                        const TextMetricOptions& options) const override;
  /// Translations of the first pairs of the split, by greedy decoding, beside what they should be.
  std::vector<Figure> samples(const TrainedModel& trained, const data::DatasetPointer& part) const override;
};

}  // namespace hearth::train
