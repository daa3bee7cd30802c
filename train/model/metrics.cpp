// SPDX-License-Identifier: Apache-2.0
#include "train/model/metrics.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iomanip>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/text_stream.h"
#include "dist/agreement.h"
#include "ops/ops.h"

namespace hearth::train {
namespace {

double ratio(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

/// Over those that are present or predicted somewhere.
double mean_of(const std::vector<ClassCounts>& all, double (ClassCounts::*metric)() const) {
  double sum = 0;
  std::int64_t seen = 0;
  for (const ClassCounts& counts : all) {
    if (counts.present + counts.predicted == 0) continue;
    sum += (counts.*metric)();
    ++seen;
  }
  return seen > 0 ? sum / static_cast<double>(seen) : 0.0;
}

std::vector<double> on_host(const Tensor& tensor) { return tensor.to(Device{}).contiguous().to_doubles(); }

}  // namespace

std::vector<Tensor> gather_batches(Collective& group, const std::vector<Tensor>& mine, DType dtype) {
  std::vector<Tensor> all;
  // No rank has more batches than rank 0.
  const std::int64_t rounds = dist::gather(group, static_cast<std::int64_t>(mine.size()))[0];
  const std::int64_t width = rounds > 0 ? dist::gather(group, mine.empty() ? 0 : mine[0].dim(1))[0] : 0;
  for (std::int64_t round = 0; round < rounds; ++round) {
    const bool has = round < static_cast<std::int64_t>(mine.size());
    const Tensor none = Tensor::zeros({0, width}, dtype), own = has ? mine[static_cast<std::size_t>(round)] : none;
    const std::vector<std::int64_t> rows = dist::gather(group, own.dim(0));
    const std::int64_t most = *std::max_element(rows.begin(), rows.end());
    const Tensor part = Tensor::zeros({most * width}, dtype),
                 whole = Tensor::zeros({group.size() * most * width}, dtype);
    slice(part, 0, 0, own.size()).copy_from(reshape(own.contiguous(), {own.size()}));
    group.all_gather(part, whole).wait();
    for (std::int64_t rank = 0; rank < group.size(); ++rank) {
      const std::int64_t count = rows[static_cast<std::size_t>(rank)], begin = rank * most * width;
      if (count > 0) all.push_back(reshape(slice(whole, 0, begin, begin + count * width), {count, width}));
    }
  }
  return all;
}

double ClassCounts::precision() const { return ratio(correct, predicted); }
double ClassCounts::recall() const { return ratio(correct, present); }
double ClassCounts::f1() const { return ratio(2 * correct, predicted + present); }
double ClassCounts::iou() const { return ratio(correct, predicted + present - correct); }

std::vector<std::pair<std::string, double>> headline_metrics(const Json& record) {
  std::vector<std::pair<std::string, double>> found;
  for (const char* key : {"ap", "ap_50", "mean_iou", "top_k_accuracy", "precision", "recall", "f1", "micro_f1",
                          "exact_match", "map", "recall_at_1", "mse", "mae", "r2"})
    if (const Json* value = record.find(key); value != nullptr && value->is_number())
      found.emplace_back(key, value->as_number());
  return found;
}

std::string text_metrics(const Json& record, const char* before) {
  TextStream text;
  text << std::fixed << std::setprecision(2);
  if (const Json* value = record.find("bleu")) text << before << "BLEU " << value->as_number();
  if (const Json* value = record.find("chrf")) text << before << "chrF " << value->as_number();
  if (const Json* value = record.find("error_rate"))
    text << before << "error rate " << 100 * value->as_number() << " %, wrong "
         << 100 * record.at("sequence_error_rate").as_number() << " %";
  return text.str();
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

void ConfusionMatrix::reduce(Collective& group) {
  const Tensor all = Tensor::of(Shape{static_cast<std::int64_t>(counts_.size())}, counts_);
  group.all_reduce(all).wait();
  std::copy_n(all.data<const std::int64_t>(), counts_.size(), counts_.begin());
}

std::int64_t ConfusionMatrix::count(std::int64_t label, std::int64_t predicted) const {
  HEARTH_CHECK(IndexError, label >= 0 && label < classes_ && predicted >= 0 && predicted < classes_,
               "confusion matrix: label ", label, " and prediction ", predicted, " of ", classes_, " classes");
  return counts_[static_cast<std::size_t>(label * classes_ + predicted)];
}

ClassCounts ConfusionMatrix::of(std::int64_t label) const {
  ClassCounts counts{.correct = count(label, label)};
  for (std::int64_t other = 0; other < classes_; ++other) {
    counts.present += count(label, other);
    counts.predicted += count(other, label);
  }
  return counts;
}

double ConfusionMatrix::mean(double (ClassCounts::*metric)() const) const {
  std::vector<ClassCounts> all;
  for (std::int64_t label = 0; label < classes_; ++label) all.push_back(of(label));
  return mean_of(all, metric);
}

double ConfusionMatrix::accuracy() const {
  std::int64_t correct = 0;
  for (std::int64_t label = 0; label < classes_; ++label) correct += count(label, label);
  return ratio(correct, std::accumulate(counts_.begin(), counts_.end(), std::int64_t{0}));
}

void RegressionErrors::add(const Tensor& outputs, const Tensor& targets) {
  HEARTH_CHECK(ShapeError, outputs.shape() == targets.shape() && (outputs.rank() == 1 || outputs.rank() == 2),
               "regression errors: outputs ", describe(outputs), " and targets ", describe(targets),
               "; both are [N] or [N, T]");
  HEARTH_CHECK(DTypeError, is_floating(outputs.dtype()) && is_floating(targets.dtype()), "regression errors: outputs ",
               describe(outputs), " and targets ", describe(targets), " are floating");
  const std::size_t width = outputs.rank() == 2 ? static_cast<std::size_t>(outputs.dim(1)) : 1;
  HEARTH_CHECK(ShapeError, targets_.empty() || targets_.size() == width, "regression errors: ", width,
               " targets a sample after ", targets_.size());
  const std::vector<double> x = on_host(outputs), y = on_host(targets);
  std::vector<Target> batch(width);
  std::int64_t samples = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i % width == 0) ++samples;
    Target& target = batch[i % width];
    const double error = x[i] - y[i], from_mean = y[i] - target.mean;
    target.squared += error * error;
    target.absolute += std::abs(error);
    // Welford's update, which does not cancel.
    target.mean += from_mean / static_cast<double>(samples);
    target.around_mean += from_mean * (y[i] - target.mean);
  }
  if (samples == 0) return;
  merge(samples, batch);
  const Tensor row = Tensor::empty({1, 1 + numbers_of_target * static_cast<std::int64_t>(width)}, DType::f64);
  row.data<double>()[0] = static_cast<double>(samples);
  std::memcpy(row.data<double>() + 1, batch.data(), width * sizeof(Target));
  batches_.push_back(row);
}

// Chan, Golub and LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, 1979.
void RegressionErrors::merge(std::int64_t samples, const std::vector<Target>& targets) {
  targets_.resize(targets.size());
  const auto before = static_cast<double>(samples_), more = static_cast<double>(samples);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const Target& next = targets[i];
    Target& target = targets_[i];
    const double between = next.mean - target.mean;
    target.squared += next.squared;
    target.absolute += next.absolute;
    target.mean += between * more / (before + more);
    target.around_mean += next.around_mean + between * between * before * more / (before + more);
  }
  samples_ += samples;
}

void RegressionErrors::reduce(Collective& group) {
  const std::vector<Tensor> all = gather_batches(group, batches_, DType::f64);
  *this = {};
  for (const Tensor& row : all) {
    const double* const numbers = row.data<const double>();
    std::vector<Target> targets(static_cast<std::size_t>(row.size() / numbers_of_target));
    std::memcpy(targets.data(), numbers + 1, targets.size() * sizeof(Target));
    merge(static_cast<std::int64_t>(numbers[0]), targets);
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
      ClassCounts& counts = counts_[label];
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

void MultiLabelCounts::reduce(Collective& group) {
  const auto labels = static_cast<std::int64_t>(counts_.size());
  const Tensor rows = Tensor::empty({samples_, 2 * labels});
  float* to = rows.data<float>();
  for (std::size_t row = 0; row < static_cast<std::size_t>(samples_); ++row, to += 2 * labels)
    for (std::int64_t label = 0; label < labels; ++label) {
      const auto& [score, is_there] = scores_[static_cast<std::size_t>(label)][row];
      to[label] = score;
      to[labels + label] = is_there ? 1.0f : 0.0f;
    }
  *this = MultiLabelCounts(labels, threshold_);
  for (const Tensor& of_rank : gather_batches(group, {rows}, DType::f32))
    add(slice(of_rank, 1, 0, labels), slice(of_rank, 1, labels, 2 * labels));
}

const ClassCounts& MultiLabelCounts::of(std::int64_t label) const {
  HEARTH_CHECK(IndexError, label >= 0 && label < static_cast<std::int64_t>(counts_.size()),
               "multi-label metrics: label ", label, " of ", counts_.size());
  return counts_[static_cast<std::size_t>(label)];
}

ClassCounts MultiLabelCounts::all() const {
  ClassCounts sum;
  for (const ClassCounts& counts : counts_) {
    sum.correct += counts.correct;
    sum.predicted += counts.predicted;
    sum.present += counts.present;
  }
  return sum;
}

double MultiLabelCounts::mean(double (ClassCounts::*metric)() const) const { return mean_of(counts_, metric); }

double MultiLabelCounts::exact() const { return ratio(exact_, samples_); }

double MultiLabelCounts::average_precision(std::int64_t label) const {
  const ClassCounts& counts = of(label);
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
