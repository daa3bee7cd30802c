// SPDX-License-Identifier: Apache-2.0
// Metrics of targets that are numbers, and of labels of which a sample has several.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "train/task/metrics.h"

namespace hearth::train {
namespace {

double ratio(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

std::vector<double> on_host(const Tensor& tensor) { return tensor.to(Device{}).contiguous().to_doubles(); }

}  // namespace

void RegressionErrors::add(const Tensor& outputs, const Tensor& targets) {
  HEARTH_CHECK(ShapeError, outputs.shape() == targets.shape() && (outputs.rank() == 1 || outputs.rank() == 2),
               "regression errors: outputs ", describe(outputs), " and targets ", describe(targets),
               "; both are [N] or [N, T]");
  HEARTH_CHECK(DTypeError, is_floating(outputs.dtype()) && is_floating(targets.dtype()), "regression errors: outputs ",
               describe(outputs), " and targets ", describe(targets), " are floating");
  const std::size_t width = outputs.rank() == 2 ? static_cast<std::size_t>(outputs.dim(1)) : 1;
  if (targets_.empty()) targets_.resize(width);
  HEARTH_CHECK(ShapeError, targets_.size() == width, "regression errors: ", width, " targets a sample after ",
               targets_.size());
  const std::vector<double> x = on_host(outputs), y = on_host(targets);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i % width == 0) ++samples_;
    Target& target = targets_[i % width];
    const double error = x[i] - y[i], from_mean = y[i] - target.mean;
    target.squared += error * error;
    target.absolute += std::abs(error);
    // Welford's update, which does not cancel.
    target.mean += from_mean / static_cast<double>(samples_);
    target.around_mean += from_mean * (y[i] - target.mean);
  }
}

double RegressionErrors::mse() const {
  double sum = 0;
  for (const Target& target : targets_) sum += target.squared;
  return samples_ > 0 ? sum / static_cast<double>(samples_) / static_cast<double>(targets_.size()) : 0;
}

double RegressionErrors::mae() const {
  double sum = 0;
  for (const Target& target : targets_) sum += target.absolute;
  return samples_ > 0 ? sum / static_cast<double>(samples_) / static_cast<double>(targets_.size()) : 0;
}

double RegressionErrors::r2() const {
  double sum = 0;
  for (const Target& target : targets_) {
    if (target.around_mean > 0)
      sum += 1 - target.squared / target.around_mean;
    else
      sum += target.squared > 0 ? 0 : 1;
  }
  return samples_ > 0 ? sum / static_cast<double>(targets_.size()) : 0;
}

MultiLabelCounts::MultiLabelCounts(std::int64_t labels, double threshold) : threshold_(threshold) {
  HEARTH_CHECK(ConfigError, labels >= 1 && labels <= 65536, "multi-label metrics: ", labels,
               " labels; 1 to 65536 are possible");
  counts_.resize(static_cast<std::size_t>(labels));
  scores_.resize(static_cast<std::size_t>(labels));
}

void MultiLabelCounts::add(const Tensor& scores, const Tensor& present) {
  const auto labels = static_cast<std::int64_t>(counts_.size());
  HEARTH_CHECK(ShapeError, scores.rank() == 2 && scores.dim(1) == labels && scores.shape() == present.shape(),
               "multi-label metrics: scores ", describe(scores), " and labels ", describe(present), "; both are [N, ",
               labels, "]");
  HEARTH_CHECK(DTypeError, is_floating(scores.dtype()), "multi-label metrics: scores ", describe(scores),
               " are floating");
  const std::vector<double> score = on_host(scores), there = on_host(present);
  for (std::size_t row = 0; row < score.size(); row += counts_.size()) {
    bool exact = true;
    for (std::size_t label = 0; label < counts_.size(); ++label) {
      const bool is_there = there[row + label] != 0, is_predicted = score[row + label] > threshold_;
      Counts& counts = counts_[label];
      counts.present += is_there;
      counts.predicted += is_predicted;
      counts.correct += is_there && is_predicted;
      exact = exact && is_there == is_predicted;
      // NaN has no order.
      constexpr float lowest = -std::numeric_limits<float>::infinity();
      const bool is_number = !std::isnan(score[row + label]);
      scores_[label].emplace_back(is_number ? static_cast<float>(score[row + label]) : lowest, is_there);
    }
    ++samples_;
    exact_ += exact;
  }
}

double MultiLabelCounts::Counts::precision() const { return ratio(correct, predicted); }
double MultiLabelCounts::Counts::recall() const { return ratio(correct, present); }
double MultiLabelCounts::Counts::f1() const { return ratio(2 * correct, predicted + present); }

const MultiLabelCounts::Counts& MultiLabelCounts::of(std::int64_t label) const {
  HEARTH_CHECK(IndexError, label >= 0 && label < static_cast<std::int64_t>(counts_.size()),
               "multi-label metrics: label ", label, " of ", counts_.size());
  return counts_[static_cast<std::size_t>(label)];
}

MultiLabelCounts::Counts MultiLabelCounts::all() const {
  Counts sum;
  for (const Counts& counts : counts_) {
    sum.correct += counts.correct;
    sum.predicted += counts.predicted;
    sum.present += counts.present;
  }
  return sum;
}

double MultiLabelCounts::mean(double (Counts::*metric)() const) const {
  double sum = 0;
  std::int64_t seen = 0;
  for (const Counts& counts : counts_) {
    if (counts.present + counts.predicted == 0) continue;
    sum += (counts.*metric)();
    ++seen;
  }
  return seen > 0 ? sum / static_cast<double>(seen) : 0.0;
}

double MultiLabelCounts::exact() const { return ratio(exact_, samples_); }

double MultiLabelCounts::average_precision(std::int64_t label) const {
  const Counts& counts = of(label);
  auto sorted = scores_[static_cast<std::size_t>(label)];
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  double sum = 0;
  std::int64_t correct = 0;
  for (std::size_t i = 0; i < sorted.size();) {
    const std::size_t first = i;
    std::int64_t found = 0;
    for (; i < sorted.size() && sorted[i].first == sorted[first].first; ++i) found += sorted[i].second;
    correct += found;
    sum += static_cast<double>(found) * ratio(correct, static_cast<std::int64_t>(i));
  }
  return counts.present > 0 ? sum / static_cast<double>(counts.present) : 0;
}

double MultiLabelCounts::mean_average_precision() const {
  double sum = 0;
  std::int64_t seen = 0;
  for (std::int64_t label = 0; label < static_cast<std::int64_t>(counts_.size()); ++label) {
    if (of(label).present == 0) continue;
    sum += average_precision(label);
    ++seen;
  }
  return seen > 0 ? sum / static_cast<double>(seen) : 0.0;
}

}  // namespace hearth::train
