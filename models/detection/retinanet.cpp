// SPDX-License-Identifier: Apache-2.0
#include "models/detection/retinanet.h"

#include <array>
#include <cmath>
#include <utility>

#include "autograd/grad_mode.h"
#include "core/memory/lasting_memory.h"
#include "models/detection/candidates.h"
#include "ops/ops.h"

namespace hearth::models {
namespace {

constexpr std::int64_t extra_maps = 2;
constexpr std::int64_t sizes_of_position = 3;
constexpr std::array<float, 3> ratios_of_position = {0.5F, 1.0F, 2.0F};
constexpr std::int64_t anchors_of_position = sizes_of_position * static_cast<std::int64_t>(ratios_of_position.size());

const RetinaNetOptions& checked_retinanet(const RetinaNetOptions& options) {
  HEARTH_CHECK(ShapeError, options.classes >= 1 && options.channels >= 1 && options.convolutions >= 0,
               "retinanet: ", options.classes, " classes, ", options.channels, " channels, ", options.convolutions,
               " convolutions; there is a class and a channel at least");
  HEARTH_CHECK(UsageError, options.anchor_scale >= 1 && std::isfinite(options.anchor_scale), "retinanet: anchor_scale ",
               options.anchor_scale, "; it must be finite and at least 1");
  return options;
}

DenseHeadOptions head_of(const RetinaNetOptions& options) {
  return {.channels = options.channels, .convolutions = options.convolutions};
}

/// The anchors around (0, 0) of a map whose smallest has this side. Whole pixels, in f32, as torchvision's.
std::vector<std::array<double, 4>> anchors_around_zero(double side) {
  std::vector<std::array<double, 4>> all;
  for (const float ratio : ratios_of_position) {
    const float tall = std::sqrt(ratio), wide = 1 / tall;
    for (std::int64_t k = 0; k < sizes_of_position; ++k) {
      const auto size = static_cast<float>(std::floor(side * std::exp2(static_cast<double>(k) / 3)));
      const double x = std::nearbyint(wide * size / 2), y = std::nearbyint(tall * size / 2);
      all.push_back({-x, -y, x, y});
    }
  }
  return all;
}

}  // namespace

RetinaNet::RetinaNet(const RetinaNetOptions& options)
    : options_(checked_retinanet(options)),
      body_(options.trunk),
      pyramid_(pyramid_channels("retinanet", options.trunk, body_), options.channels, extra_maps),
      classification_(head_of(options), {{"cls_logits", anchors_of_position, options.classes, rare_object_bias()}}),
      regression_(head_of(options), {{"bbox_reg", anchors_of_position, 4}}) {
  backbone_.add("body", body_);
  backbone_.add("fpn", pyramid_);
  head_.add("classification_head", classification_);
  head_.add("regression_head", regression_);
  register_module("backbone", backbone_);
  register_module("head", head_);
}

Tensor RetinaNet::forward(const Tensor& x) {
  std::vector<Tensor> parts;
  for (const Tensor& level : pyramid_.levels(body_, x))
    parts.push_back(concat({classification_.outputs_of(level)[0], regression_.outputs_of(level)[0]}, -1));
  return concat(parts, 1);
}

const Anchors& RetinaNet::anchors_of(std::int64_t height, std::int64_t width, Device device) {
  if (const Anchors* const known = anchors_.find(height, width, device)) return *known;
  Anchors anchors;
  std::vector<double> corners;
  for (const auto& [rows, columns, stride] : pyramid_maps(options_.trunk.stem, height, width, pyramid_.size())) {
    anchors.counts.push_back(rows * columns * anchors_of_position);
    const auto around_zero = anchors_around_zero(options_.anchor_scale * static_cast<double>(stride));
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < columns; ++column)
        for (const auto& box : around_zero) {
          // Whole pixels, as torchvision's anchors: a level's positions begin at the corner.
          const auto x = static_cast<double>(column * (width / columns)),
                     y = static_cast<double>(row * (height / rows));
          corners.insert(corners.end(), {x + box[0], y + box[1], x + box[2], y + box[3]});
        }
  }
  const LastingMemoryScope lasting;
  anchors.boxes = Tensor::of({static_cast<std::int64_t>(corners.size() / 4), 4}, corners).to(device);
  return anchors_.add(height, width, device, std::move(anchors));
}

Tensor RetinaNet::loss(const Tensor& outputs, std::int64_t height, std::int64_t width, const TrueBoxes& truth) {
  const Anchors& anchors = anchors_of(height, width, outputs.device());
  const std::int64_t classes = options_.classes, count = anchors.boxes.dim(0), images = outputs.dim(0);
  require_outputs("retinanet", outputs, count, classes + 4, height, width);
  const BoxList list = boxes_for("retinanet", outputs, truth);
  const DType wide = list.boxes.dtype();
  const Tensor rows = cast(reshape(outputs, {images * count, classes + 4}), wide);
  const Tensor boxes = cast(anchors.boxes, wide);
  const Tensor assigned =
      assign_anchors(boxes, list, {.foreground = 0.5, .background = 0.4, .best = BestAnchors::each});
  const PointTargets targets = targets_of(assigned, list.boxes, truth.classes, classes);
  // What each anchor of an image is divided by.
  const Tensor objects =
      clamp(sum(greater_equal(assigned, 0.0).to(wide), {1}, true), 1.0) * static_cast<double>(images);
  const auto share = [&](const Tensor& of_anchors) {
    return reshape(reshape(of_anchors, {images, count}) / objects, {images * count, 1});
  };
  const Tensor class_targets = slice(one_hot(targets.labels, classes + 1), -1, 0, classes).to(wide);
  const Tensor of_classes = focal_loss(slice(rows, -1, 0, classes), class_targets, {},
                                       {.weight = share(targets.counts), .reduction = Reduction::sum});
  const Tensor deltas = encode_deltas(targets.boxes, reshape(expand(boxes, {images, count, 4}), {images * count, 4}));
  const Tensor of_boxes = l1_loss(slice(rows, -1, classes, classes + 4), deltas,
                                  {.weight = share(targets.is_object.to(wide)), .reduction = Reduction::sum});
  return of_classes + of_boxes;
}

std::vector<Detections> RetinaNet::detections(const Tensor& outputs, std::int64_t height, std::int64_t width,
                                              const DetectionOptions& options) {
  const NoGrad no_grad;
  const Anchors& anchors = anchors_of(height, width, outputs.device());
  const std::int64_t classes = options_.classes;
  require_outputs("retinanet", outputs, anchors.boxes.dim(0), classes + 4, height, width);
  const Tensor rows = cast(outputs, DType::f32);
  const Tensor boxes = decode_deltas(slice(rows, -1, classes, classes + 4), cast(anchors.boxes, DType::f32));
  return detections_of(sigmoid(slice(rows, -1, 0, classes)),
                       clip_boxes(boxes, static_cast<double>(height), static_cast<double>(width)), anchors.counts,
                       CandidateLimit::of_map, options);
}

}  // namespace hearth::models
