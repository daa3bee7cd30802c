// SPDX-License-Identifier: Apache-2.0
#include "ops/boxes/simota.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "core/cpu/parallel.h"
#include "core/dtype.h"
#include "core/profiler.h"
#include "core/run_on.h"
#include "ops/argument.h"
#include "ops/boxes/simota_rule.h"

namespace hearth {
namespace {

/// Logits as they lie in memory if those of a point are side by side and points a constant number apart.
Tensor as_rows(const Tensor& x) {
  const Tensor plain = x.detach();
  const bool has_rows = (x.rank() == 2 || x.strides()[2] == 1) && x.strides()[0] == x.dim(1) * x.strides()[1];
  return has_rows ? plain : plain.contiguous();
}

void check_simota(const char* op, const Tensor& anchors, const PointPredictions& predicted, const BoxList& list,
                  const Tensor& classes, const SimotaOptions& options) {
  require_floating(op, "anchors", anchors);
  require_floating(op, "predicted boxes", predicted.boxes);
  require_floating(op, "objectness", predicted.objectness);
  require_floating(op, "scores", predicted.scores);
  require_same_kind(op, "anchors", anchors, "predicted boxes", predicted.boxes);
  require_same_kind(op, "anchors", anchors, "objectness", predicted.objectness);
  require_same_kind(op, "anchors", anchors, "scores", predicted.scores);
  require_index_type(op, "classes", classes);
  HEARTH_CHECK(DTypeError, anchors.dtype() == DType::f32 || anchors.dtype() == DType::f64, op, ": anchors are ",
               describe(anchors), "; they must be f32 or f64");
  const Tensor &boxes = predicted.boxes, &scores = predicted.scores;
  HEARTH_CHECK(ShapeError,
               anchors.rank() == 2 && anchors.dim(1) == 4 && scores.rank() == 3 && scores.dim(1) == anchors.dim(0) &&
                   scores.dim(2) >= 1 && boxes.shape() == (Shape{scores.dim(0), scores.dim(1), 4}) &&
                   predicted.objectness.shape() == (Shape{scores.dim(0), scores.dim(1)}),
               op, ": anchors ", anchors.shape(), ", predicted boxes ", boxes.shape(), ", objectness ",
               predicted.objectness.shape(), ", scores ", scores.shape(),
               "; they are [P, 4], [N, P, 4], [N, P] and [N, P, C], with a class at least");
  HEARTH_CHECK(DeviceError, classes.device() == anchors.device(), op, ": classes are on ", name_of(classes.device()),
               " but anchors on ", name_of(anchors.device()), "; move one with to(device)");
  HEARTH_CHECK(UsageError,
               options.radius > 0 && std::isfinite(options.radius) && options.overlap_weight >= 0 &&
                   std::isfinite(options.overlap_weight),
               op, ": radius ", options.radius, ", overlap_weight ", options.overlap_weight,
               "; they must be finite, the radius above 0 and the weight at least 0");
  HEARTH_CHECK(ShapeError,
               list.counts.size() == scores.dim(0) && classes.rank() == 1 && classes.dim(0) == list.boxes.dim(0), op,
               ": counts ", list.counts.shape(), " and classes ", classes.shape(), " for ", scores.dim(0),
               " images and boxes ", list.boxes.shape(), "; there is a count for each image and a class for each box");
}

}  // namespace

SimotaAssignment assign_simota(const Tensor& anchors, const PointPredictions& predicted, const BoxList& list,
                               const Tensor& classes, const SimotaOptions& options) {
  const char* const op = "assign_simota";
  require_floating(op, "anchors", anchors);
  const BoxList checked = kernels::checked_list(op, anchors, list);
  check_simota(op, anchors, predicted, checked, classes, options);
  const profiler::Scope scope(op);
  const OriginScope origin = OriginScope::of_op(op);
  const PointPredictions rows{predicted.boxes.detach().contiguous(), as_rows(predicted.objectness),
                              as_rows(predicted.scores)};
  const Shape shape = predicted.objectness.shape();
  const SimotaAssignment y{Tensor::empty(shape, DType::i64, anchors.device()),
                           Tensor::empty(shape, anchors.dtype(), anchors.device())};
  run_on(anchors.device(), [&](auto& stream) {
    kernels::assign_simota(stream, anchors.detach().contiguous(), rows, checked, classes.to(DType::i64).contiguous(),
                           options, y);
  });
  return y;
}

namespace kernels {
namespace {

/// The work on one image with boxes [begin, end).
template <class P>
class SimotaImage {
 public:
  SimotaImage(const SimotaInput<P>& in, std::int64_t image, std::int64_t begin, std::int64_t end)
      : in_(in), first_row_(image * in.points), begin_(begin), end_(end) {}

  void assign(std::int64_t* boxes, P* overlaps) {
    std::fill(boxes, boxes + in_.points, background_point);
    std::fill(overlaps, overlaps + in_.points, P(0));
    for (std::int64_t box = begin_; box < end_; ++box)
      if (in_.is_ignored(box))
        for (std::int64_t p = 0; p < in_.points; ++p)
          if (in_.is_inside(p, box)) boxes[p] = ignored_point;
    find_candidates();
    std::vector<int> takers(candidates_.size());
    for (std::int64_t box = begin_; box < end_; ++box) {
      if (in_.is_ignored(box)) continue;
      for (const std::size_t i : cheapest(box)) {
        boxes[candidates_[i]] = box;
        ++takers[i];
      }
    }
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      const std::int64_t p = candidates_[i];
      if (takers[i] > 1) boxes[p] = cheapest_box(i);
      if (takers[i] > 0) overlaps[p] = match(i, boxes[p]).overlap;
    }
  }

 private:
  SimotaMatch<P> match(std::size_t candidate, std::int64_t box) const {
    return in_.match(first_row_ + candidates_[candidate], box, background_[candidate]);
  }

  void find_candidates() {
    std::vector<char> is_candidate(static_cast<std::size_t>(in_.points), 0);
    for (std::int64_t box = begin_; box < end_; ++box)
      if (!in_.is_ignored(box))
        for (std::int64_t p = 0; p < in_.points; ++p)
          is_candidate[static_cast<std::size_t>(p)] |= static_cast<char>(in_.is_central(p, box));
    for (std::int64_t p = 0; p < in_.points; ++p) {
      if (is_candidate[static_cast<std::size_t>(p)] == 0) continue;
      P sum = 0;
      for (std::int64_t c = 0; c < in_.class_count; ++c) sum += in_.bce_of(P(1) - in_.probability(first_row_ + p, c));
      candidates_.push_back(p);
      background_.push_back(sum);
    }
  }

  /// The candidates that a box takes.
  std::vector<std::size_t> cheapest(std::int64_t box) const {
    std::vector<P> overlaps;
    std::vector<std::pair<double, std::size_t>> costs;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      const SimotaMatch<P> both = match(i, box);
      overlaps.push_back(both.overlap);
      costs.emplace_back(both.cost, i);
    }
    const std::ptrdiff_t largest = std::min<std::ptrdiff_t>(simota_points, std::ssize(overlaps));
    std::partial_sort(overlaps.begin(), overlaps.begin() + largest, overlaps.end(), std::greater<>());
    P sum = 0;
    for (std::ptrdiff_t i = 0; i < largest; ++i) sum += overlaps[static_cast<std::size_t>(i)];
    const std::ptrdiff_t count = std::min<std::ptrdiff_t>(simota_count(sum), largest);
    std::partial_sort(costs.begin(), costs.begin() + count, costs.end());
    std::vector<std::size_t> places;
    for (std::ptrdiff_t i = 0; i < count; ++i) places.push_back(costs[static_cast<std::size_t>(i)].second);
    return places;
  }

  std::int64_t cheapest_box(std::size_t candidate) const {
    std::int64_t best = background_point;
    double least = 0;
    for (std::int64_t box = begin_; box < end_; ++box) {
      if (in_.is_ignored(box)) continue;
      const double cost = match(candidate, box).cost;
      if (best >= 0 && !(cost < least)) continue;
      best = box;
      least = cost;
    }
    return best;
  }

  const SimotaInput<P>& in_;
  std::int64_t first_row_, begin_, end_;
  std::vector<std::int64_t> candidates_;  ///< points
  std::vector<P> background_;             ///< of each: the cost of no class being there
};

/// The first box of each image, and the end of the last.
std::vector<std::int64_t> first_boxes(const BoxList& list) {
  const std::int64_t images = list.counts.size(), all = list.boxes.dim(0);
  const std::int64_t* const counts = list.counts.data<const std::int64_t>();
  std::vector<std::int64_t> first{0};
  for (std::int64_t image = 0; image < images; ++image) {
    first.push_back(first.back() + counts[image]);
    HEARTH_CHECK(IndexError, counts[image] >= 0 && first.back() <= all, "assign_simota: counts of ", images,
                 " images are ", counts[image], " at image ", image, ", and there are ", all,
                 " boxes; their sum must be the number of boxes at most");
  }
  return first;
}

}  // namespace

void assign_simota(cpu::Stream&, const Tensor& anchors, const PointPredictions& predicted, const BoxList& list,
                   const Tensor& classes, const SimotaOptions& options, const SimotaAssignment& y) {
  const std::vector<std::int64_t> first = first_boxes(list);
  visit_dtype("assign_simota", anchors.dtype(), FullFloats{}, [&]<class P>() {
    const SimotaInput<P> in(anchors, predicted.boxes, predicted.objectness, predicted.scores, list.boxes, list.counts,
                            list.ignored, classes, options.radius, options.overlap_weight);
    for (std::int64_t box = 0; box < first.back(); ++box)
      HEARTH_CHECK(IndexError, in.is_ignored(box) || in.has_class(box), "assign_simota: class ", in.classes[box],
                   " of box ", box, "; classes are in [0, ", in.class_count, ")");
    std::int64_t* const boxes = y.boxes.data<std::int64_t>();
    P* const overlaps = y.overlaps.data<P>();
    cpu::parallel_chunks(in.images, [&](std::int64_t image) {
      const auto i = static_cast<std::size_t>(image);
      SimotaImage<P>(in, image, first[i], first[i + 1]).assign(boxes + image * in.points, overlaps + image * in.points);
    });
  });
}

}  // namespace kernels
}  // namespace hearth
