// SPDX-License-Identifier: Apache-2.0
// SimOTA's costs as plain arithmetic, the same on both devices. P is float or double.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/cpu/vector_math.h"
#include "core/tensor.h"

namespace hearth::kernels {

/// The cost of a point that is not near the centre of the box.
inline constexpr double simota_far_cost = 1e6;

template <class P>
struct SimotaMatch {
  P overlap;
  double cost;  ///< so that the cost of far points is added without loss
};

template <class P>
struct SimotaInput {
  const P *anchors, *predicted, *objectness, *scores, *boxes;
  const std::int64_t *counts, *classes;
  const bool* ignored;  ///< null: none is
  std::int64_t images, points, all, class_count;
  std::int64_t objectness_stride, score_stride;  ///< from point to point
  P radius, overlap_weight;

  SimotaInput(const Tensor& anchors_, const Tensor& predicted_, const Tensor& objectness_, const Tensor& scores_,
              const Tensor& boxes_, const Tensor& counts_, const Tensor& ignored_, const Tensor& classes_,
              double radius_, double overlap_weight_)
      : anchors(anchors_.data<const P>()),
        predicted(predicted_.data<const P>()),
        objectness(objectness_.data<const P>()),
        scores(scores_.data<const P>()),
        boxes(boxes_.data<const P>()),
        counts(counts_.data<const std::int64_t>()),
        classes(classes_.data<const std::int64_t>()),
        ignored(ignored_.defined() ? ignored_.data<const bool>() : nullptr),
        images(counts_.size()),
        points(anchors_.dim(0)),
        all(boxes_.dim(0)),
        class_count(scores_.dim(2)),
        objectness_stride(objectness_.strides()[1]),
        score_stride(scores_.strides()[1]),
        radius(static_cast<P>(radius_)),
        overlap_weight(static_cast<P>(overlap_weight_)) {}

  HEARTH_ALWAYS_INLINE bool is_ignored(std::int64_t box) const { return ignored != nullptr && ignored[box]; }
  HEARTH_ALWAYS_INLINE bool has_class(std::int64_t box) const {
    return classes[box] >= 0 && classes[box] < class_count;
  }

  /// Whether the point is near the centre of the box.
  HEARTH_ALWAYS_INLINE bool is_central(std::int64_t point, std::int64_t box) const {
    const P *const a = anchors + point * 4, *const b = boxes + box * 4;
    const P x = (a[0] + a[2]) / 2 - (b[0] + b[2]) / 2, y = (a[1] + a[3]) / 2 - (b[1] + b[3]) / 2;
    return std::abs(x) < radius * (a[2] - a[0]) && std::abs(y) < radius * (a[3] - a[1]);
  }
  HEARTH_ALWAYS_INLINE bool is_inside(std::int64_t point, std::int64_t box) const {
    const P *const a = anchors + point * 4, *const b = boxes + box * 4;
    const P x = (a[0] + a[2]) / 2, y = (a[1] + a[3]) / 2;
    return x > b[0] && y > b[1] && x < b[2] && y < b[3];
  }

  /// Whether an object of the class is at the point of an image, as the point predicts it. `row`: image * points +
  /// point.
  HEARTH_ALWAYS_INLINE P probability(std::int64_t row, std::int64_t c) const {
    return std::sqrt(cpu::math::sigmoid(scores[row * score_stride + c]) *
                     cpu::math::sigmoid(objectness[row * objectness_stride]));
  }
  /// The cross entropy of a probability that is to be 1. As PyTorch's, at most 100.
  HEARTH_ALWAYS_INLINE static P bce_of(P probability) {
    const P loss = -cpu::math::log(probability);
    return loss > P(100) ? P(100) : loss;
  }

  /// `background`: the sum of bce_of(1 - probability) over the classes.
  HEARTH_ALWAYS_INLINE SimotaMatch<P> match(std::int64_t row, std::int64_t box, P background) const {
    const P *const a = predicted + row * 4, *const b = boxes + box * 4;
    const P w = (a[2] < b[2] ? a[2] : b[2]) - (a[0] > b[0] ? a[0] : b[0]);
    const P h = (a[3] < b[3] ? a[3] : b[3]) - (a[1] > b[1] ? a[1] : b[1]);
    const P shared = w > P(0) && h > P(0) ? w * h : P(0);
    const P joined = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared;
    const P overlap = joined > P(0) ? shared / joined : P(0);
    const P p = probability(row, classes[box]);
    const P cost = background - bce_of(P(1) - p) + bce_of(p) - overlap_weight * cpu::math::log(overlap + P(1e-8));
    const double far = is_central(row % points, box) ? 0.0 : simota_far_cost;
    // A prediction that is no number is the last choice.
    const bool is_number = joined == joined && cost == cost;
    return {overlap, is_number ? static_cast<double>(cost) + far : static_cast<double>(INFINITY)};
  }
};

/// How many points a box takes, of the sum of its largest ious.
template <class P>
HEARTH_ALWAYS_INLINE int simota_count(P sum) {
  return sum >= P(2) ? static_cast<int>(sum) : 1;
}

}  // namespace hearth::kernels
