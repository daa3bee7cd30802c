// SPDX-License-Identifier: Apache-2.0
// Tasks whose data are sequences of tokens.
#pragma once

#include "data/text/labelled.h"
#include "data/text/token_set.h"
#include "train/task/classification.h"
#include "train/task/task.h"

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
  Predicts predicts() const override { return Predicts::text_classes; }
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
  Predicts predicts() const override { return Predicts::continuations; }
  /// Positions that do not count are labelled data::ignored_label.
  void check(const Loss& loss) const override;
  /// `perplexity` and, where every token of the part was predicted, `bits_per_character`.
  void add_metrics(Json& record, const Loss& loss, const Meter& meter, const data::Dataset* part) const override;
  /// How the model continues two sequences of the split; nothing where tokens are masked.
  std::vector<Figure> samples(const TrainedModel& trained, const data::DatasetPointer& part) const override;

 protected:
  LanguageModelTask(const char* name, const data::DataSplits& data) : SequenceTask(name, data) {}

 private:
  bool is_masked_ = false;
};

/// The tokens of a sequence that answers another one.
class TranslationTask : public LanguageModelTask {
 public:
  explicit TranslationTask(const data::DataSplits& data);
  /// ConfigError for a model of the library other than `transformer`.
  void prepare(const TrainedModel& trained, const ChosenComponents& chosen) override;
  models::InputInfo input_info() const override;
  nn::Inputs inputs(const TrainedModel& trained, const data::Batch& batch) const override;
  Predicts predicts() const override { return Predicts::translations; }
  /// Translations of the first pairs of the split, by greedy decoding, beside what they should be.
  std::vector<Figure> samples(const TrainedModel& trained, const data::DatasetPointer& part) const override;
};

}  // namespace hearth::train
