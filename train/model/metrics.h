// SPDX-License-Identifier: Apache-2.0
// What evaluations measure beside loss and accuracy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/collective.h"
#include "core/io/json_text.h"
#include "data/batch.h"

namespace hearth::train {

/// Sums over the batches of an evaluation.
class HEARTH_API Metrics {
 public:
  virtual ~Metrics() = default;
  /// Takes in a batch and what the model made of it, where the model computes.
  virtual void add(const Tensor& outputs, const data::Batch& batch) = 0;
  /// Writes what was measured into a record of metrics.
  virtual void report(Json& record) const = 0;
  /// Whether the ranks of a data parallel run may take in different batches and then reduce(). Where they may not,
  /// every rank takes in all.
  virtual bool is_reducible() const { return false; }
  /// Makes of what the ranks took in, each its own batches, what one process takes in; all ranks call it.
  virtual void reduce(Collective&) {}
};

/// For Metrics::reduce(): the rows that the ranks made of the batches of an evaluation, in the order of the batches.
/// `mine` are this rank's, [rows, width] on the host, all of `dtype` and one width.
HEARTH_API std::vector<Tensor> gather_batches(Collective& group, const std::vector<Tensor>& mine, DType dtype);

/// The numbers of a record of metrics that are told in one line, by their keys: those that tasks of the library
/// measure.
HEARTH_API std::vector<std::pair<std::string, double>> headline_metrics(const Json& record);
/// What a record has of written text, each with `before` in front: "BLEU 23.41", "error rate 12.50 %, wrong 40.00 %".
HEARTH_API std::string text_metrics(const Json& record, const char* before);

/// How predictions of a class, or of a label, turned out. Ratios are 0 where the denominator is.
struct HEARTH_API ClassCounts {
  std::int64_t correct = 0, predicted = 0, present = 0;
  double precision() const;  ///< correct of those predicted
  double recall() const;     ///< correct of those present
  double f1() const;         ///< their harmonic mean
  double iou() const;        ///< those predicted and present over those that are either
};

/// How often samples of each class were predicted as each class, and what follows from it.
class HEARTH_API ConfusionMatrix {
 public:
  /// ConfigError unless there are 1 to 65536 classes.
  explicit ConfusionMatrix(std::int64_t classes);
  /// Takes in predicted classes and labels, i64 or i32 of one shape (ShapeError, DTypeError), on any device. Labels
  /// equal to `ignored` do not count. IndexError for others outside the classes.
  void add(const Tensor& predicted, const Tensor& labels, std::optional<std::int64_t> ignored = std::nullopt);

  /// Adds up the counts of all ranks, which all call it.
  void reduce(Collective& group);

  std::int64_t classes() const { return classes_; }
  /// Samples of class `label` that were predicted as `predicted`. IndexError.
  std::int64_t count(std::int64_t label, std::int64_t predicted) const;
  /// Share of the samples that are predicted correctly; 0 without samples.
  double accuracy() const;
  /// Of a class; IndexError.
  ClassCounts of(std::int64_t label) const;
  double precision(std::int64_t label) const { return of(label).precision(); }
  double recall(std::int64_t label) const { return of(label).recall(); }
  double f1(std::int64_t label) const { return of(label).f1(); }
  double iou(std::int64_t label) const { return of(label).iou(); }
  /// Means over the classes that are labels or predictions of some sample.
  double mean_precision() const { return mean(&ClassCounts::precision); }
  double mean_recall() const { return mean(&ClassCounts::recall); }
  double mean_f1() const { return mean(&ClassCounts::f1); }
  double mean_iou() const { return mean(&ClassCounts::iou); }

 private:
  double mean(double (ClassCounts::*metric)() const) const;

  std::int64_t classes_;
  std::vector<std::int64_t> counts_;  // [classes, classes]: label, prediction
};

/// How far outputs are from targets: sums in f64.
class HEARTH_API RegressionErrors {
 public:
  /// Takes in outputs and targets, floating, [N] or [N, T], on any device. ShapeError where they differ in shape, or in
  /// T from those before; DTypeError.
  void add(const Tensor& outputs, const Tensor& targets);

  /// As Metrics::reduce().
  void reduce(Collective& group);

  std::int64_t samples() const { return samples_; }
  /// Means over samples and targets; 0 without samples.
  double mse() const;
  double mae() const;
  /// The coefficient of determination, 1 - squared errors / squared differences from the target's mean, averaged over
  /// the targets. A target that is constant counts 1 where all errors are 0, else 0.
  double r2() const;

 private:
  struct Target {
    double squared, absolute;  // errors
    double mean, around_mean;  // of the target, and the sum of its squared differences from that
  };
  static constexpr std::int64_t numbers_of_target = 4;
  /// Takes in `samples` more samples.
  void merge(std::int64_t samples, const std::vector<Target>& targets);

  std::int64_t samples_ = 0;
  std::vector<Target> targets_;
  std::vector<Tensor> batches_;  // f64 [1, 1 + 4 T]: samples and targets of each call of add()
};

/// Labels that a sample may have several of, against scores: where a score is above a threshold the label is predicted.
class HEARTH_API MultiLabelCounts {
 public:
  /// ConfigError unless there are 1 to 65536 labels.
  explicit MultiLabelCounts(std::int64_t labels, double threshold = 0.5);
  /// Takes in scores, [N, labels] floating, and which labels are there, [N, labels], not 0 where they are, on any
  /// device. ShapeError, DTypeError.
  void add(const Tensor& scores, const Tensor& present);
  /// As Metrics::reduce().
  void reduce(Collective& group);

  /// Of one label (IndexError); of all labels together, which is what micro averages are of.
  const ClassCounts& of(std::int64_t label) const;
  ClassCounts all() const;
  /// Means over the labels that are predicted or present somewhere (macro averages).
  double mean_precision() const { return mean(&ClassCounts::precision); }
  double mean_recall() const { return mean(&ClassCounts::recall); }
  double mean_f1() const { return mean(&ClassCounts::f1); }
  /// Share of the samples of which every label is predicted correctly.
  double exact() const;
  /// The precision at each sample that has the label, by descending score, averaged over these samples; equal scores
  /// count as one step. 0 for a label that no sample has; IndexError.
  double average_precision(std::int64_t label) const;
  /// Mean over the labels that some sample has.
  double mean_average_precision() const;

 private:
  double mean(double (ClassCounts::*metric)() const) const;

  double threshold_;
  std::int64_t samples_ = 0, exact_ = 0;
  std::vector<ClassCounts> counts_;
  std::vector<std::vector<std::pair<float, bool>>> scores_;  // of each label: score, and whether it is there
};

}  // namespace hearth::train
