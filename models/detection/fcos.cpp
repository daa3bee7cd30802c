// SPDX-License-Identifier: Apache-2.0
#include "models/detection/fcos.h"

#include <limits>
#include <utility>
#include <vector>

#include "autograd/grad_mode.h"
#include "core/memory/lasting_memory.h"
#include "models/detection/candidates.h"
#include "ops/ops.h"

namespace hearth::models {
namespace {

constexpr std::int64_t extra_levels = 2;

const FcosOptions& checked_fcos(const FcosOptions& options) {
  HEARTH_CHECK(ShapeError, options.classes >= 1 && options.channels >= 1 && options.convolutions >= 0,
               "fcos: ", options.classes, " classes, ", options.channels, " channels, ", options.convolutions,
               " convolutions; there is a class and a channel at least");
  HEARTH_CHECK(ShapeError, options.groups >= 1, "fcos: ", options.groups, " groups; there is one at least");
  return options;
}

DenseHeadOptions head_of(const FcosOptions& options) {
  return {.channels = options.channels, .convolutions = options.convolutions, .groups = options.groups};
}

/// How central a point is in its box: the square root of the ratios of opposite distances.
Tensor centre_ness(const Tensor& distances) {
  const auto ratio = [&](std::int64_t first) {
    const Tensor a = slice(distances, -1, first, first + 1), b = slice(distances, -1, first + 2, first + 3);
    const Tensor larger = where(greater(a, b), a, b), smaller = where(greater(a, b), b, a);
    return smaller / clamp(larger, 1e-12);
  };
  return sqrt(clamp(reshape(ratio(0) * ratio(1), {distances.dim(0)}), 0.0));
}

}  // namespace

Fcos::Fcos(const FcosOptions& options)
    : options_(checked_fcos(options)),
      body_(options.trunk),
      pyramid_(pyramid_channels("fcos", options.trunk, body_), options.channels, extra_levels),
      classification_(head_of(options), {{"cls_logits", 1, options.classes, rare_object_bias()}}),
      regression_(head_of(options), {{"bbox_reg", 1, 4}, {"bbox_ctrness", 1, 1}}) {
  backbone_.add("body", body_);
  backbone_.add("fpn", pyramid_);
  head_.add("classification_head", classification_);
  head_.add("regression_head", regression_);
  register_module("backbone", backbone_);
  register_module("head", head_);
}

Tensor Fcos::forward(const Tensor& x) {
  std::vector<Tensor> parts;
  for (const Tensor& level : pyramid_.levels(body_, x)) {
    const std::vector<Tensor> classes = classification_.outputs_of(level), boxes = regression_.outputs_of(level);
    parts.push_back(concat({classes[0], relu(boxes[0]), boxes[1]}, -1));
  }
  return concat(parts, 1);
}

const Fcos::Points& Fcos::points_of(std::int64_t height, std::int64_t width, Device device) {
  if (const Points* const known = points_.find(height, width, device)) return *known;
  Points points;
  std::vector<double> anchors, reach;
  const std::vector<FeatureMap> maps = pyramid_maps(options_.trunk.stem, height, width, pyramid_.size());
  for (std::size_t level = 0; level < maps.size(); ++level) {
    const auto [rows, columns, stride] = maps[level];
    points.counts.push_back(rows * columns);
    const double half = static_cast<double>(stride) / 2, least = level == 0 ? 0 : 8 * half;
    const double most = level + 1 == maps.size() ? std::numeric_limits<double>::infinity() : 16 * half;
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < columns; ++column) {
        // Whole pixels, as torchvision's anchors: a level's points begin at the corner.
        const auto x = static_cast<double>(column * (width / columns)), y = static_cast<double>(row * (height / rows));
        anchors.insert(anchors.end(), {x - half, y - half, x + half, y + half});
        reach.insert(reach.end(), {least, most});
      }
  }
  const auto count = static_cast<std::int64_t>(anchors.size() / 4);
  const LastingMemoryScope lasting;
  points.boxes = Tensor::of({count, 4}, anchors).to(device);
  points.reach = Tensor::of({count, 2}, reach).to(device);
  return points_.add(height, width, device, std::move(points));
}

Tensor Fcos::loss(const Tensor& outputs, std::int64_t height, std::int64_t width, const TrueBoxes& truth) {
  const Points& points = points_of(height, width, outputs.device());
  const std::int64_t classes = options_.classes, count = points.boxes.dim(0);
  require_outputs("fcos", outputs, count, classes + 5, height, width);
  const BoxList list = boxes_for("fcos", outputs, truth);
  const std::int64_t all = outputs.dim(0) * count;
  const DType wide = list.boxes.dtype();
  const Tensor rows = cast(reshape(outputs, {all, classes + 5}), wide), anchors = cast(points.boxes, wide);
  const PointTargets targets = targets_of(assign_points(anchors, cast(points.reach, wide), list, options_.radius),
                                          list.boxes, truth.classes, classes);
  const Tensor class_targets = slice(one_hot(targets.labels, classes + 1), -1, 0, classes).to(wide);
  const Tensor all_anchors = reshape(expand(anchors, {outputs.dim(0), count, 4}), {all, 4});
  const Tensor predicted = decode_distances(slice(rows, -1, classes, classes + 4), all_anchors, true);
  const auto sum_of_objects = [&](const Tensor& values) { return sum(where(targets.is_object, values, 0.0)); };
  const Tensor of_classes = focal_loss(slice(rows, -1, 0, classes), class_targets, {},
                                       {.weight = targets.counts, .reduction = Reduction::sum});
  const Tensor of_boxes = sum_of_objects(giou_loss(predicted, targets.boxes, {.reduction = Reduction::none}));
  const Tensor central = where(targets.is_object, centre_ness(encode_distances(targets.boxes, all_anchors, true)), 0.0);
  const Tensor of_centres = sum_of_objects(bce_with_logits(reshape(slice(rows, -1, classes + 4, classes + 5), {all}),
                                                           central, {.reduction = Reduction::none}));
  return (of_classes + of_boxes + of_centres) / clamp(sum(targets.is_object.to(wide)), 1.0);
}

std::vector<Detections> Fcos::detections(const Tensor& outputs, std::int64_t height, std::int64_t width,
                                         const DetectionOptions& options) {
  const NoGrad no_grad;
  const Points& points = points_of(height, width, outputs.device());
  const std::int64_t classes = options_.classes;
  require_outputs("fcos", outputs, points.boxes.dim(0), classes + 5, height, width);
  const Tensor rows = cast(outputs, DType::f32);
  const Tensor scores = sqrt(sigmoid(slice(rows, -1, 0, classes)) * sigmoid(slice(rows, -1, classes + 4, classes + 5)));
  const Tensor boxes = decode_distances(slice(rows, -1, classes, classes + 4), cast(points.boxes, DType::f32), true);
  return detections_of(scores, clip_boxes(boxes, static_cast<double>(height), static_cast<double>(width)),
                       points.counts, CandidateLimit::of_map, options);
}

}  // namespace hearth::models
