// SPDX-License-Identifier: Apache-2.0
// What evaluations measure beside loss and accuracy.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

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
};

/// How often samples of each class were predicted as each class, and what follows from it.
class HEARTH_API ConfusionMatrix {
 public:
  /// ConfigError unless there are 1 to 65536 classes.
  explicit ConfusionMatrix(std::int64_t classes);
  /// Takes in predicted classes and labels, i64 or i32 of one shape (ShapeError, DTypeError), on any device. Labels
  /// equal to `ignored` do not count. IndexError for others outside the classes.
  void add(const Tensor& predicted, const Tensor& labels, std::optional<std::int64_t> ignored = std::nullopt);

  std::int64_t classes() const { return classes_; }
  /// Samples of class `label` that were predicted as `predicted`. IndexError.
  std::int64_t count(std::int64_t label, std::int64_t predicted) const;
  /// Share of the samples that are predicted correctly; 0 without samples.
  double accuracy() const;
  /// Of a class: correct of those predicted so, correct of those that are so, their harmonic mean, and the intersection
  /// of both sets over their union. 0 where the denominator is; IndexError.
  double precision(std::int64_t label) const;
  double recall(std::int64_t label) const;
  double f1(std::int64_t label) const;
  double iou(std::int64_t label) const;
  /// Means over the classes that are labels or predictions of some sample.
  double mean_f1() const;
  double mean_iou() const;

 private:
  struct Sums {
    std::int64_t correct = 0, predicted = 0, labelled = 0;
  };
  Sums sums_of(std::int64_t label) const;
  double mean(double (ConfusionMatrix::*metric)(std::int64_t) const) const;

  std::int64_t classes_;
  std::vector<std::int64_t> counts_;  // [classes, classes]: label, prediction
};

}  // namespace hearth::train
