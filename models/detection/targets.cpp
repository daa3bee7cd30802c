// SPDX-License-Identifier: Apache-2.0
#include "models/detection/targets.h"

#include "ops/ops.h"

namespace hearth::models {

std::vector<FeatureMap> pyramid_maps(ResNetStem stem, std::int64_t height, std::int64_t width, std::size_t count) {
  const auto halved = [](std::int64_t size) { return (size + 1) / 2; };
  // Of the trunk's second stage.
  FeatureMap map{height, width, 1};
  const auto halve = [&] { map = {halved(map.rows), halved(map.columns), 2 * map.stride}; };
  for (int halvings = stem == ResNetStem::imagenet ? 3 : 1; halvings > 0; --halvings) halve();
  std::vector<FeatureMap> all;
  for (; all.size() < count; halve()) all.push_back(map);
  return all;
}

void require_outputs(const char* model, const Tensor& outputs, std::int64_t points, std::int64_t numbers,
                     std::int64_t height, std::int64_t width) {
  HEARTH_CHECK(ShapeError, outputs.rank() == 3 && outputs.dim(1) == points && outputs.dim(2) == numbers, model,
               ": outputs ", describe(outputs), " for images of ", height, " x ", width, "; they must be [N, ", points,
               ", ", numbers, "]");
}

BoxList boxes_for(const char* model, const Tensor& outputs, const TrueBoxes& truth) {
  HEARTH_CHECK(ShapeError, truth.list.counts.size() == outputs.dim(0), model, ": counts ", describe(truth.list.counts),
               " for ", outputs.dim(0), " images");
  BoxList list = truth.list;
  list.boxes = cast(list.boxes, wide_type(outputs));
  return list;
}

PointTargets targets_of(const Tensor& assigned, const Tensor& boxes, const Tensor& classes, std::int64_t background) {
  const Tensor chosen = reshape(assigned, {assigned.size()});
  const Tensor is_object = greater_equal(chosen, 0.0);
  // A row behind the last box for points without any.
  const Tensor row = where(is_object, chosen, static_cast<double>(boxes.dim(0)));
  const Tensor no_class = Tensor::full({1}, static_cast<double>(background), DType::i64, classes.device());
  const Device device = boxes.device();
  const Tensor no_box =
      concat({Tensor::zeros({1, 2}, boxes.dtype(), device), Tensor::full({1, 2}, 1, boxes.dtype(), device)}, 1);
  return {is_object,
          reshape(not_equal(chosen, static_cast<double>(ignored_point)), {chosen.size(), 1}).to(boxes.dtype()),
          index_select(concat({classes, no_class}, 0), 0, row), index_select(concat({boxes, no_box}, 0), 0, row)};
}

}  // namespace hearth::models
