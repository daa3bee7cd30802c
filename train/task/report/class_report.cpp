// SPDX-License-Identifier: Apache-2.0
#include "train/task/report/class_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "ops/ops.h"
#include "train/model/trained_model.h"

namespace hearth::train {
namespace {

constexpr std::int64_t few_classes = 30;
constexpr std::size_t worst_classes = 20;
constexpr std::size_t max_mistakes = 16;

struct Mistake {
  std::int64_t sample = 0, label = 0, predicted = 0;
  double probability = 0, of_label = 0;
};

bool is_worse_mistake(const Mistake& a, const Mistake& b) {
  return a.probability != b.probability ? a.probability > b.probability : a.sample < b.sample;
}

/// How often predictions are right that the model is equally certain of.
class Calibration {
 public:
  void add(double probability, bool is_right) {
    Bin& bin =
        bins_[std::min(static_cast<std::size_t>(probability * static_cast<double>(bins_.size())), bins_.size() - 1)];
    ++bin.count, bin.right += is_right ? 1 : 0, bin.probability += probability;
  }
  void report(ReportSections& sections) const {
    double count = 0, error = 0;
    std::vector<ReportSections::Bar> bars;
    for (std::size_t i = 0; i < bins_.size(); ++i) {
      const Bin& bin = bins_[i];
      if (bin.count == 0) continue;
      count += bin.count, error += std::abs(bin.right - bin.probability);
      const double accuracy = bin.right / bin.count;
      bars.push_back({join_text(100 / bins_.size() * i, " to ", 100 / bins_.size() * (i + 1), " % certain"),
                      join_text(percent_text(accuracy), " right of ", bin.count), accuracy});
    }
    if (bars.empty()) return;
    sections.heading("Calibration");
    sections.paragraph(
        join_text("How often predictions are right, by the probability that the model gives them. Both differ by ",
                  percent_text(error / count), " on average (expected calibration error)."));
    sections.bars(bars);
  }

 private:
  struct Bin {
    double count = 0, right = 0, probability = 0;
  };
  std::array<Bin, 10> bins_{};
};

/// Takes in the predictions of a batch, and keeps the most confident mistakes.
void collect(const data::Batch& batch, const Tensor& outputs, const Tensor& labels, std::vector<Mistake>& worst,
             Calibration& calibration) {
  const Tensor here = softmax(outputs.to(DType::f32)).to(Device{}).contiguous();
  const std::int64_t classes = here.dim(1);
  for (std::int64_t i = 0; i < here.dim(0); ++i) {
    const float* const row = here.data<const float>() + i * classes;
    const std::int64_t predicted = std::max_element(row, row + classes) - row;
    const std::int64_t label = labels.data<const std::int64_t>()[i];
    if (label < 0 || label >= classes) continue;
    calibration.add(row[predicted], predicted == label);
    if (predicted == label) continue;
    worst.push_back({batch.samples.at(static_cast<std::size_t>(i)), label, predicted, row[predicted], row[label]});
  }
  std::sort(worst.begin(), worst.end(), is_worse_mistake);
  if (worst.size() > max_mistakes) worst.resize(max_mistakes);
}

}  // namespace

void report_each_class(const ConfusionMatrix& matrix, const std::vector<std::string>& names, ReportSections& sections) {
  const auto samples = [&](std::int64_t label) { return matrix.of(label).present; };
  std::vector<std::int64_t> order(static_cast<std::size_t>(matrix.classes()));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  if (matrix.classes() > few_classes) {
    std::vector<double> f1;
    for (const std::int64_t label : order) f1.push_back(matrix.f1(label));
    std::erase_if(order, [&](std::int64_t label) { return samples(label) == 0; });
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return f1[static_cast<std::size_t>(a)] < f1[static_cast<std::size_t>(b)];
    });
    if (order.size() > worst_classes) {
      order.resize(worst_classes);
      sections.paragraph(join_text("The ", worst_classes, " classes with the lowest F1 of ", matrix.classes()));
    }
  }
  std::vector<std::vector<std::string>> rows;
  for (const std::int64_t label : order) {
    const auto index = static_cast<std::size_t>(label);
    rows.push_back({index < names.size() ? names[index] : join_text(label), join_text(samples(label)),
                    percent_text(matrix.precision(label)), percent_text(matrix.recall(label)),
                    percent_text(matrix.f1(label)), percent_text(matrix.iou(label))});
  }
  sections.table({"class", "count", "precision", "recall", "F1", "IoU"}, rows);
}

void report_classes(const Task& task, const TrainedModel& trained, const data::DatasetPointer& part,
                    const VisitBatches& visit, ReportSections& sections,
                    const std::function<Figure(std::int64_t sample)>& figure_of) {
  const std::vector<std::string>& names = part->class_names();
  ConfusionMatrix matrix(part->classes());
  std::vector<Mistake> worst;
  Calibration calibration;
  visit([&](const data::Batch& batch) {
    const Tensor outputs = (*trained.model)(task.inputs(trained, batch));
    HEARTH_CHECK(ShapeError, outputs.rank() == 2 && outputs.dim(1) == part->classes(), "report: the model gives ",
                 describe(outputs), ", but the data has ", part->classes(), " classes");
    const Tensor labels = batch["labels"].to(Device{}).contiguous();
    matrix.add(argmax(outputs, -1).to(Device{}), labels, trained.loss.ignored_label);
    collect(batch, outputs, labels, worst, calibration);
  });
  sections.heading("Confusion matrix");
  sections.confusion(matrix, names);
  sections.heading("Classes");
  report_each_class(matrix, names, sections);
  calibration.report(sections);
  if (worst.empty()) return;
  std::vector<Figure> figures;
  for (const Mistake& mistake : worst) {
    Figure figure = figure_of(mistake.sample);
    figure.caption =
        join_text("predicted ", names[static_cast<std::size_t>(mistake.predicted)], " (",
                  percent_text(mistake.probability), "), label ", names[static_cast<std::size_t>(mistake.label)], " (",
                  percent_text(mistake.of_label), ")", figure.caption.empty() ? "" : "; ", figure.caption);
    figures.push_back(std::move(figure));
  }
  sections.heading("Worst mistakes");
  sections.paragraph(
      "Wrong predictions that the model is most certain of: the class predicted, the label, and the "
      "probability of each");
  sections.figures(figures);
}

}  // namespace hearth::train
