// SPDX-License-Identifier: Apache-2.0
#include "train/task/metrics.h"

#include "core/error.h"

namespace hearth::train {
namespace {

double ratio(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

}  // namespace

std::vector<std::pair<std::string, double>> headline_metrics(const Json& record) {
  std::vector<std::pair<std::string, double>> found;
  for (const char* key : {"mean_iou", "top_k_accuracy", "precision", "recall", "f1", "micro_f1", "exact_match", "map",
                          "recall_at_1", "mse", "mae", "r2"})
    if (const Json* value = record.find(key); value != nullptr && value->is_number())
      found.emplace_back(key, value->as_number());
  return found;
}

ConfusionMatrix::ConfusionMatrix(std::int64_t classes) : classes_(classes) {
  HEARTH_CHECK(ConfigError, classes >= 1 && classes <= 65536, "confusion matrix: ", classes,
               " classes; 1 to 65536 are possible");
  counts_.assign(static_cast<std::size_t>(classes * classes), 0);
}

void ConfusionMatrix::add(const Tensor& predicted, const Tensor& labels, std::optional<std::int64_t> ignored) {
  HEARTH_CHECK(ShapeError, predicted.shape() == labels.shape(), "confusion matrix: predictions ", describe(predicted),
               " and labels ", describe(labels), " have different shapes");
  for (const Tensor& tensor : {predicted, labels})
    HEARTH_CHECK(DTypeError, tensor.dtype() == DType::i64 || tensor.dtype() == DType::i32,
                 "confusion matrix: ", describe(tensor), "; classes are i64 or i32");
  const Tensor a = predicted.to(Device{}).contiguous().to(DType::i64),
               b = labels.to(Device{}).contiguous().to(DType::i64);
  const std::int64_t* const guess = a.data<const std::int64_t>();
  const std::int64_t* const label = b.data<const std::int64_t>();
  const auto is_class = [&](std::int64_t value) { return value >= 0 && value < classes_; };
  for (std::int64_t i = 0; i < a.size(); ++i) {
    if (ignored && label[i] == *ignored) continue;
    HEARTH_CHECK(IndexError, is_class(label[i]) && is_class(guess[i]), "confusion matrix: label ", label[i],
                 " and prediction ", guess[i], " of ", classes_, " classes");
    ++counts_[static_cast<std::size_t>(label[i] * classes_ + guess[i])];
  }
}

std::int64_t ConfusionMatrix::count(std::int64_t label, std::int64_t predicted) const {
  HEARTH_CHECK(IndexError, label >= 0 && label < classes_ && predicted >= 0 && predicted < classes_,
               "confusion matrix: label ", label, " and prediction ", predicted, " of ", classes_, " classes");
  return counts_[static_cast<std::size_t>(label * classes_ + predicted)];
}

ConfusionMatrix::Sums ConfusionMatrix::sums_of(std::int64_t label) const {
  Sums sums{.correct = count(label, label)};
  for (std::int64_t other = 0; other < classes_; ++other) {
    sums.labelled += count(label, other);
    sums.predicted += count(other, label);
  }
  return sums;
}

double ConfusionMatrix::accuracy() const {
  std::int64_t correct = 0, all = 0;
  for (std::int64_t label = 0; label < classes_; ++label) {
    const Sums sums = sums_of(label);
    correct += sums.correct;
    all += sums.labelled;
  }
  return ratio(correct, all);
}

double ConfusionMatrix::precision(std::int64_t label) const {
  const Sums sums = sums_of(label);
  return ratio(sums.correct, sums.predicted);
}

double ConfusionMatrix::recall(std::int64_t label) const {
  const Sums sums = sums_of(label);
  return ratio(sums.correct, sums.labelled);
}

double ConfusionMatrix::f1(std::int64_t label) const {
  const Sums sums = sums_of(label);
  return ratio(2 * sums.correct, sums.predicted + sums.labelled);
}

double ConfusionMatrix::iou(std::int64_t label) const {
  const Sums sums = sums_of(label);
  return ratio(sums.correct, sums.predicted + sums.labelled - sums.correct);
}

double ConfusionMatrix::mean(double (ConfusionMatrix::*metric)(std::int64_t) const) const {
  double sum = 0;
  std::int64_t seen = 0;
  for (std::int64_t label = 0; label < classes_; ++label) {
    const Sums sums = sums_of(label);
    if (sums.labelled + sums.predicted == 0) continue;
    sum += (this->*metric)(label);
    ++seen;
  }
  return seen > 0 ? sum / static_cast<double>(seen) : 0.0;
}

double ConfusionMatrix::mean_precision() const { return mean(&ConfusionMatrix::precision); }
double ConfusionMatrix::mean_recall() const { return mean(&ConfusionMatrix::recall); }
double ConfusionMatrix::mean_f1() const { return mean(&ConfusionMatrix::f1); }
double ConfusionMatrix::mean_iou() const { return mean(&ConfusionMatrix::iou); }

}  // namespace hearth::train
