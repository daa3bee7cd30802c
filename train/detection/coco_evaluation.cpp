// SPDX-License-Identifier: Apache-2.0
#include "train/detection/coco_evaluation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

#include "core/error.h"
#include "train/model/metrics.h"

namespace hearth::train {
namespace {

constexpr std::size_t coco_thresholds = 10, coco_recalls = 101, max_detections = 100;

/// The values of numpy.linspace(0.5, 0.95, 10), to the bit.
double coco_threshold(std::size_t i) { return 0.5 + static_cast<double>(i) * ((0.95 - 0.5) / 9); }
/// The values of numpy.linspace(0, 1, 101), to the bit.
double coco_recall(std::size_t i) { return 0.01 * static_cast<double>(i); }

/// Areas in square pixels, with both bounds.
struct AreaRange {
  double least, most;
  bool contains(double area) const { return area >= least && area <= most; }
};
constexpr AreaRange coco_areas[] = {{0, 1e10}, {0, 32 * 32}, {32 * 32, 96 * 96}, {96 * 96, 1e10}};
enum : std::size_t { all_areas, small_areas, medium_areas, large_areas, area_count };

/// A bit of a range of areas and a threshold.
std::uint64_t coco_bit(std::size_t area, std::size_t threshold) {
  return std::uint64_t{1} << (area * coco_thresholds + threshold);
}

/// How a detection turned out, a bit for each range of areas and threshold.
struct Matches {
  std::uint64_t matched = 0, ignored = 0;
};

/// Of one image and class: COCOeval.evaluateImg. Detections by descending score.
class ImageMatcher {
 public:
  ImageMatcher(std::span<const DetectedBox> detected, std::span<const LabelledBox> labelled)
      : detected_(detected), labelled_(labelled), iou_(detected.size() * labelled.size()), result_(detected.size()) {
    for (std::size_t d = 0; d < detected.size(); ++d)
      for (std::size_t g = 0; g < labelled.size(); ++g)
        iou_[d * labelled.size() + g] = overlap_of(detected[d], labelled[g]);
    for (std::size_t area = 0; area < area_count; ++area) match_of(area);
  }
  const std::vector<Matches>& result() const { return result_; }

 private:
  void match_of(std::size_t area) {
    const AreaRange& range = coco_areas[area];
    // Boxes that count come first.
    order_.clear();
    for (const bool ignored : {false, true})
      for (std::size_t g = 0; g < labelled_.size(); ++g)
        if (is_ignored(g, range) == ignored) order_.push_back(g);
    for (std::size_t threshold = 0; threshold < coco_thresholds; ++threshold) {
      taken_.assign(labelled_.size(), 0);
      const std::uint64_t bit = coco_bit(area, threshold);
      for (std::size_t d = 0; d < detected_.size(); ++d) {
        const std::size_t best = best_of(d, range, coco_threshold(threshold));
        const bool matched = best < labelled_.size();
        if (matched) taken_[best] = 1;
        if (matched) result_[d].matched |= bit;
        if (matched ? is_ignored(best, range) : !range.contains(detected_[d].box.area())) result_[d].ignored |= bit;
      }
    }
  }

  bool is_ignored(std::size_t g, const AreaRange& range) const {
    return labelled_[g].ignored || !range.contains(labelled_[g].area);
  }

  /// The box that a detection matches, the last of equals; their number where it matches none.
  std::size_t best_of(std::size_t d, const AreaRange& range, double iou) const {
    std::size_t best = labelled_.size();
    for (const std::size_t g : order_) {
      if (taken_[g] != 0 && !labelled_[g].crowd) continue;
      // A box that counts goes before all that do not.
      if (best < labelled_.size() && !is_ignored(best, range) && is_ignored(g, range)) break;
      if (iou_[d * labelled_.size() + g] < iou) continue;
      iou = iou_[d * labelled_.size() + g];
      best = g;
    }
    return best;
  }

  std::span<const DetectedBox> detected_;
  std::span<const LabelledBox> labelled_;
  std::vector<double> iou_;  // [detected, labelled]
  std::vector<Matches> result_;
  std::vector<std::size_t> order_;
  std::vector<char> taken_;
};

/// A detection among those of its class.
struct ScoredMatches {
  double score;
  std::size_t place;  // among those of its image
  Matches matches;
};

/// Sums over classes: COCOeval.accumulate.
class ClassSums {
 public:
  /// Adds a class: its detections by descending score, and how many boxes count in each range of areas. Writes the
  /// precision of all areas, [10, 101], and returns its mean; -1 where no box counts.
  double add(const std::vector<ScoredMatches>& detected, std::span<const std::int64_t> objects, double* precision) {
    std::fill_n(precision, coco_thresholds * coco_recalls, -1.0);
    for (std::size_t area = 0; area < area_count; ++area) {
      if (objects[area] == 0) continue;
      ++classes_[area];
      for (std::size_t threshold = 0; threshold < coco_thresholds; ++threshold) {
        std::array<double, coco_recalls> unused{};
        add_curve(detected, objects[area], area, threshold,
                  area == all_areas ? precision + threshold * coco_recalls : unused.data());
      }
    }
    if (objects[all_areas] == 0) return -1;
    double sum = 0;
    for (std::size_t i = 0; i < coco_thresholds * coco_recalls; ++i) sum += precision[i];
    return sum / (coco_thresholds * coco_recalls);
  }

  void write(CocoResult& result) const {
    result.ap = precision_of(all_areas, 0, coco_thresholds);
    result.ap_50 = precision_of(all_areas, 0, 1);
    result.ap_75 = precision_of(all_areas, 5, 6);
    result.ap_small = precision_of(small_areas, 0, coco_thresholds);
    result.ap_medium = precision_of(medium_areas, 0, coco_thresholds);
    result.ap_large = precision_of(large_areas, 0, coco_thresholds);
    result.ar_1 = recall_of(all_areas, recall_1_);
    result.ar_10 = recall_of(all_areas, recall_10_);
    result.ar_100 = recall_of(all_areas, recall_[all_areas]);
    result.ar_small = recall_of(small_areas, recall_[small_areas]);
    result.ar_medium = recall_of(medium_areas, recall_[medium_areas]);
    result.ar_large = recall_of(large_areas, recall_[large_areas]);
  }

 private:
  void add_curve(const std::vector<ScoredMatches>& detected, std::int64_t objects, std::size_t area,
                 std::size_t threshold, double* curve) {
    const std::uint64_t bit = coco_bit(area, threshold);
    const auto present = static_cast<double>(objects);
    double correct = 0, wrong = 0, correct_1 = 0, correct_10 = 0;
    recalls_.clear();
    precisions_.clear();
    for (const ScoredMatches& each : detected) {
      if ((each.matches.ignored & bit) == 0) {
        const double right = (each.matches.matched & bit) != 0 ? 1 : 0;
        correct += right;
        wrong += 1 - right;
        if (each.place < 1) correct_1 += right;
        if (each.place < 10) correct_10 += right;
      }
      recalls_.push_back(correct / present);
      precisions_.push_back(correct / (wrong + correct + std::numeric_limits<double>::epsilon()));
    }
    for (std::size_t i = precisions_.size(); i > 1; --i)
      precisions_[i - 2] = std::max(precisions_[i - 2], precisions_[i - 1]);
    for (std::size_t i = 0; i < coco_recalls; ++i) {
      const auto at = std::lower_bound(recalls_.begin(), recalls_.end(), coco_recall(i)) - recalls_.begin();
      curve[i] = at < std::ssize(precisions_) ? precisions_[static_cast<std::size_t>(at)] : 0;
      precision_[area][threshold] += curve[i];
    }
    recall_[area] += correct / present;
    if (area == all_areas) recall_1_ += correct_1 / present;
    if (area == all_areas) recall_10_ += correct_10 / present;
  }

  double precision_of(std::size_t area, std::size_t begin, std::size_t end) const {
    if (classes_[area] == 0) return -1;
    double sum = 0;
    for (std::size_t threshold = begin; threshold < end; ++threshold) sum += precision_[area][threshold];
    return sum / static_cast<double>(classes_[area] * coco_recalls * (end - begin));
  }
  double recall_of(std::size_t area, double sum) const {
    return classes_[area] == 0 ? -1 : sum / static_cast<double>(classes_[area] * coco_thresholds);
  }

  std::array<std::size_t, area_count> classes_{};  // with boxes that count
  double precision_[area_count][coco_thresholds] = {};
  std::array<double, area_count> recall_{};
  double recall_1_ = 0, recall_10_ = 0;
  std::vector<double> recalls_, precisions_;
};

/// The elements from `begin` on that are of its class, no more than `most` of them; sets `begin` to the next class.
template <class Box>
std::span<const Box> next_of_class(const std::vector<Box>& boxes, std::size_t& begin, std::int64_t label,
                                   std::size_t most) {
  const std::size_t first = begin;
  while (begin < boxes.size() && boxes[begin].label == label) ++begin;
  return std::span(boxes).subspan(first, std::min(begin - first, most));
}

}  // namespace

CocoEvaluation::CocoEvaluation(std::int64_t classes) : classes_(classes) {
  HEARTH_CHECK(ConfigError, classes >= 1 && classes <= 65536, "coco evaluation: ", classes,
               " classes; 1 to 65536 are possible");
  objects_.assign(static_cast<std::size_t>(classes) * area_count, 0);
}

void CocoEvaluation::add(std::int64_t image, const Detections& detections, const GroundTruth& truth) {
  HEARTH_CHECK(UsageError, !images_.contains(image), "coco evaluation: image ", image,
               " was added before; add an image once, with all of its boxes");
  const std::vector<DetectedBox> detected = detected_boxes(detections, classes_);
  const std::vector<LabelledBox> labelled = labelled_boxes(truth, classes_);
  images_.insert(image);
  for (std::size_t d = 0, g = 0; d < detected.size();) {
    const std::int64_t label = detected[d].label;
    while (g < labelled.size() && labelled[g].label < label) ++g;
    const std::span<const DetectedBox> of_class = next_of_class(detected, d, label, max_detections);
    const ImageMatcher matcher(of_class, next_of_class(labelled, g, label, labelled.size()));
    for (std::size_t i = 0; i < of_class.size(); ++i)
      outcomes_.push_back({image, label, of_class[i].score, matcher.result()[i].matched, matcher.result()[i].ignored});
  }
  for (const LabelledBox& each : labelled)
    for (std::size_t area = 0; area < area_count; ++area)
      if (!each.ignored && coco_areas[area].contains(each.area))
        ++objects_[static_cast<std::size_t>(each.label) * area_count + area];
}

void CocoEvaluation::reduce(Collective& group) {
  constexpr std::int64_t words = 5;
  static_assert(sizeof(Outcome) == words * sizeof(std::int64_t) && std::is_trivially_copyable_v<Outcome>);
  const Tensor objects = Tensor::of(Shape{static_cast<std::int64_t>(objects_.size())}, objects_);
  const Tensor images = Tensor::of(Shape{this->images(), 1}, std::vector<std::int64_t>(images_.begin(), images_.end()));
  const Tensor outcomes = Tensor::empty({static_cast<std::int64_t>(outcomes_.size()), words}, DType::i64);
  if (!outcomes_.empty())
    std::memcpy(outcomes.data<std::int64_t>(), outcomes_.data(), outcomes_.size() * sizeof(Outcome));
  group.all_reduce(objects).wait();
  const std::vector<Tensor> all_images = gather_batches(group, {images}, DType::i64),
                            all_outcomes = gather_batches(group, {outcomes}, DType::i64);
  images_.clear();
  for (const Tensor& ids : all_images)
    for (std::int64_t i = 0; i < ids.size(); ++i) {
      const std::int64_t id = ids.data<const std::int64_t>()[i];
      HEARTH_CHECK(UsageError, images_.insert(id).second, "coco evaluation: two ranks have image ", id,
                   "; give each rank images of its own, and reduce once");
    }
  std::copy_n(objects.data<const std::int64_t>(), objects_.size(), objects_.begin());
  outcomes_.clear();
  for (const Tensor& rows : all_outcomes) {
    const std::size_t before = outcomes_.size();
    outcomes_.resize(before + static_cast<std::size_t>(rows.dim(0)));
    std::memcpy(&outcomes_[before], rows.data<const std::int64_t>(), (outcomes_.size() - before) * sizeof(Outcome));
  }
}

CocoResult CocoEvaluation::result() const {
  std::vector<const Outcome*> sorted;
  for (const Outcome& outcome : outcomes_) sorted.push_back(&outcome);
  std::stable_sort(sorted.begin(), sorted.end(), [](const Outcome* a, const Outcome* b) {
    return a->label != b->label ? a->label < b->label : a->image < b->image;
  });
  CocoResult result;
  result.precision = Tensor::empty({classes_, coco_thresholds, coco_recalls}, DType::f64);
  double* const precision = result.precision.data<double>();
  ClassSums sums;
  std::vector<ScoredMatches> detected;
  for (std::size_t label = 0, i = 0; label < static_cast<std::size_t>(classes_); ++label) {
    detected.clear();
    for (std::size_t first = i; i < sorted.size() && sorted[i]->label == static_cast<std::int64_t>(label); ++i) {
      if (sorted[i]->image != sorted[first]->image) first = i;
      detected.push_back({sorted[i]->score, i - first, {sorted[i]->matched, sorted[i]->ignored}});
    }
    std::stable_sort(detected.begin(), detected.end(),
                     [](const ScoredMatches& a, const ScoredMatches& b) { return a.score > b.score; });
    result.objects_by_class.push_back(objects_[label * area_count + all_areas]);
    result.ap_by_class.push_back(sums.add(detected, std::span(objects_).subspan(label * area_count, area_count),
                                          precision + label * coco_thresholds * coco_recalls));
  }
  sums.write(result);
  return result;
}

}  // namespace hearth::train
