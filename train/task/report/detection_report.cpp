// SPDX-License-Identifier: Apache-2.0
#include "train/task/report/detection_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iomanip>
#include <numeric>

#include "core/text_stream.h"
#include "data/boxes/draw_boxes.h"
#include "train/detection/detection_errors.h"

namespace hearth::train {
namespace {

constexpr std::size_t images_beside = 8, worst_images = 4;

struct OutcomeText {
  const char *name, *meaning;
};
/// By BoxOutcome.
constexpr std::array<OutcomeText, box_outcomes> outcome_texts{{
    {"correct", "IoU of at least 0.5 with a true box of the class, which no better detection matches"},
    {"wrong class", "IoU of at least 0.5 with a true box of another class"},
    {"duplicate", "IoU of at least 0.5 with a true box of the class, which a better detection matches"},
    {"wrong place", "IoU of 0.1 to 0.5 with a true box of the class"},
    {"background", "a false alarm of no other kind"},
    {"missed", "a true box without a correct detection, and without one of wrong class or place"},
}};

/// A box as it is drawn: true ones dashed where they stand beside a detection.
struct DrawnBox {
  BoxExtent box;
  std::int64_t label;
  bool is_dashed = false;
};

/// An image of the set as figures show it, with boxes. Their lines are a pixel wide, so it is shrunk before.
data::Image picture_of(const data::BoxDataset& part, std::int64_t sample, const std::vector<DrawnBox>& boxes) {
  data::Image whole;
  part.read(sample, whole);
  data::Image image = as_shown(whole);
  const double x = static_cast<double>(image.width) / whole.width, y = static_cast<double>(image.height) / whole.height;
  for (const auto& [box, label, is_dashed] : boxes)
    data::draw_box(image, {x * box.x, y * box.y, x * (box.x + box.width), y * (box.y + box.height)}, label, is_dashed);
  return image;
}

struct JudgedImage {
  std::int64_t sample;
  JudgedBox worst;  // of an outcome
  double size;      // the score of a false alarm, the area of a miss
};

/// How often each outcome occurs, and the images with the worst of each.
class ErrorsByKind {
 public:
  void add(std::int64_t sample, const Detections& detections, const GroundTruth& truth, std::int64_t classes) {
    std::array<std::vector<JudgedImage>, box_outcomes> here;
    for (const JudgedBox& box : judged_boxes(detections, truth, classes, shown_score)) {
      const auto kind = static_cast<std::size_t>(box.outcome);
      ++counts_[kind];
      const double size = box.detected ? box.detected->score : box.labelled->area;
      if (here[kind].empty())
        here[kind].push_back({sample, box, size});
      else if (size > here[kind][0].size)
        here[kind][0] = {sample, box, size};
    }
    for (std::size_t kind = 0; kind < box_outcomes; ++kind) {
      std::vector<JudgedImage>& worst = worst_[kind];
      worst.insert(worst.end(), here[kind].begin(), here[kind].end());
      std::stable_sort(worst.begin(), worst.end(),
                       [](const JudgedImage& a, const JudgedImage& b) { return a.size > b.size; });
      if (worst.size() > worst_images) worst.resize(worst_images);
    }
  }

  /// `objects`: true boxes that count.
  void report(const data::BoxDataset& part, std::int64_t objects, ReportSections& sections) const {
    constexpr auto missed = static_cast<std::size_t>(BoxOutcome::missed);
    const auto detections = std::accumulate(counts_.begin(), counts_.begin() + missed, std::int64_t{0});
    sections.heading("Errors by kind");
    sections.paragraph(join_text(
        "Detections with a score of at least ", shown_score, ", as shares of their ", detections,
        "; true boxes that are missed, as a share of ", objects,
        ". Crowds, boxes to be ignored and detections on them do not count. Kinds are simpler than those of TIDE."));
    std::vector<std::vector<std::string>> rows;
    for (std::size_t kind = 0; kind < box_outcomes; ++kind) {
      const std::int64_t all = kind == missed ? objects : detections;
      rows.push_back({join_text(outcome_texts[kind].name, ": ", outcome_texts[kind].meaning), join_text(counts_[kind]),
                      all == 0 ? "" : percent_text(static_cast<double>(counts_[kind]) / static_cast<double>(all))});
    }
    sections.table({"kind", "boxes", "share"}, rows);
    for (std::size_t kind = 0; kind < box_outcomes; ++kind)
      if (kind != static_cast<std::size_t>(BoxOutcome::correct) && !worst_[kind].empty()) {
        sections.heading(join_text(kind == missed ? "Largest boxes missed" : "False alarms of the highest score: ",
                                   kind == missed ? "" : outcome_texts[kind].name));
        sections.paragraph(kind == missed ? "A box of each image; IoU with the nearest detection of any class."
                                          : "A detection of each image; the true box that it is about is dashed.");
        std::vector<Figure> figures;
        for (const JudgedImage& image : worst_[kind]) figures.push_back(figure_of(part, image));
        sections.figures(figures);
      }
  }

 private:
  static Figure figure_of(const data::BoxDataset& part, const JudgedImage& image) {
    const std::vector<std::string>& names = part.class_names();
    const auto& [outcome, detected, labelled, overlap] = image.worst;
    std::vector<DrawnBox> boxes;
    TextStream caption;
    caption << std::fixed << std::setprecision(2) << part.sample_name(image.sample) << ": ";
    if (labelled) boxes.push_back({labelled->box, labelled->label, detected.has_value()});
    if (detected) {
      boxes.push_back({detected->box, detected->label});
      caption << names[static_cast<std::size_t>(detected->label)] << ", score " << detected->score;
    }
    if (labelled)
      caption << (detected ? "; true " : "") << names[static_cast<std::size_t>(labelled->label)] << ", "
              << std::lround(labelled->box.width) << " x " << std::lround(labelled->box.height) << " pixels";
    caption << ", IoU " << overlap;
    return {.caption = caption.str(), .images = {picture_of(part, image.sample, boxes)}};
  }

  std::array<std::int64_t, box_outcomes> counts_{};
  std::array<std::vector<JudgedImage>, box_outcomes> worst_;  // the worst first
};

/// An image with detections, and with the true boxes.
struct ImageBeside {
  std::int64_t sample;
  std::vector<DrawnBox> detected, labelled;

  ImageBeside(std::int64_t index, const Detections& detections, const GroundTruth& truth, std::int64_t classes)
      : sample(index) {
    for (const DetectedBox& box : detected_boxes(detections, classes))
      if (box.score >= shown_score) detected.push_back({box.box, box.label});
    for (const LabelledBox& box : labelled_boxes(truth, classes)) labelled.push_back({box.box, box.label, box.crowd});
  }
};

void report_precision(const CocoResult& result, const std::vector<std::string>& names, ReportSections& sections) {
  sections.heading("Average precision");
  const double all = std::max(result.ap, 0.0);
  std::vector<ReportSections::Bar> bars{{"all classes", percent_text(all), all}};
  for (std::size_t label = 0; label < names.size(); ++label)
    if (const double ap = result.ap_by_class[label]; ap >= 0) bars.push_back({names[label], percent_text(ap), ap});
  sections.bars(bars);
  const std::vector<Chart> charts = precision_charts(result, names);
  const std::vector<Curve>& curves = charts[0].curves;
  if (curves.empty()) return;
  sections.heading("Precision by recall");
  sections.paragraph(join_text("As COCO measures it, at overlaps of 0.50 and 0.75; it is 0 above the recall reached. ",
                               std::ssize(bars) - 1 > std::ssize(curves) ? "Of the classes those" : "The classes",
                               " with the most true boxes, whose numbers stand beside their names."));
  std::vector<std::string> legend, colours;
  for (std::size_t i = 0; i < curves.size(); ++i) {
    legend.push_back(curves[i].name);
    colours.push_back(join_text("var(--c", i, ")"));
  }
  sections.legend(legend, colours);
  sections.charts(charts);
}

}  // namespace

std::vector<Chart> precision_charts(const CocoResult& result, const std::vector<std::string>& names) {
  std::vector<std::size_t> classes(names.size());
  std::iota(classes.begin(), classes.end(), std::size_t{0});
  std::erase_if(classes, [&](std::size_t label) { return result.objects_by_class[label] == 0; });
  std::stable_sort(classes.begin(), classes.end(), [&](std::size_t a, std::size_t b) {
    return result.objects_by_class[a] > result.objects_by_class[b];
  });
  classes.resize(std::min(classes.size(), curve_colours));
  const std::int64_t thresholds = result.precision.dim(1), recalls = result.precision.dim(2);
  std::vector<Chart> charts;
  for (const auto& [threshold, title] : {std::pair<std::int64_t, const char*>{0, "precision at IoU 0.50"},
                                         std::pair<std::int64_t, const char*>{5, "precision at IoU 0.75"}}) {
    Chart& chart = charts.emplace_back(
        Chart{.title = title, .x_label = "recall in %", .percent = true, .scale = Scale::from_zero, .legend = false});
    for (const std::size_t label : classes) {
      Curve& curve =
          chart.curves.emplace_back(Curve{join_text(names[label], " (", result.objects_by_class[label], ")"), {}});
      const double* const precision =
          result.precision.data<const double>() + (static_cast<std::int64_t>(label) * thresholds + threshold) * recalls;
      for (std::int64_t i = 0; i < recalls; ++i)
        curve.points.emplace_back(100.0 * static_cast<double>(i) / static_cast<double>(recalls - 1), precision[i]);
    }
  }
  return charts;
}

void report_detection(const data::BoxDataset& part, const std::function<void(const UseBoxes&)>& visit,
                      ReportSections& sections) {
  const std::vector<std::string>& names = part.class_names();
  const auto classes = static_cast<std::int64_t>(names.size());
  CocoEvaluation evaluation(classes);
  ConfusionMatrix confusions(classes + 1);
  ErrorsByKind errors;
  std::vector<ImageBeside> beside;
  visit([&](std::int64_t sample, const Detections& detections, const GroundTruth& truth) {
    evaluation.add(sample, detections, truth);
    add_confusions(detections, truth, shown_score, confusions);
    errors.add(sample, detections, truth, classes);
    if (beside.size() < images_beside) beside.emplace_back(sample, detections, truth, classes);
  });
  const CocoResult result = evaluation.result();
  report_precision(result, names, sections);
  sections.heading("Confusion matrix");
  sections.paragraph(join_text(
      "True boxes, and the class of the detection with a score of at least ", shown_score,
      " that matches each: by descending score the nearest with an IoU of at least 0.5, whatever its class. The row ",
      "\"background\" counts detections that match no box, its column boxes that no detection matches."));
  std::vector<std::string> with_background = names;
  with_background.push_back("background");
  sections.confusion(confusions, with_background);
  errors.report(part, std::accumulate(result.objects_by_class.begin(), result.objects_by_class.end(), std::int64_t{0}),
                sections);
  sections.heading("Boxes");
  sections.paragraph(join_text("Boxes found with a score of at least ", shown_score, ", then the true ones."));
  std::vector<Figure> figures;
  for (const ImageBeside& image : beside)
    figures.push_back(
        {.caption = part.sample_name(image.sample),
         .images = {picture_of(part, image.sample, image.detected), picture_of(part, image.sample, image.labelled)}});
  sections.figures(figures);
}

}  // namespace hearth::train
