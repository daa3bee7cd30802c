// SPDX-License-Identifier: Apache-2.0
#include "train/detection/image_boxes.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace hearth::train {
namespace {

/// The numbers of a tensor that has `count` rows, [count] or [count, width]; `name` is "detections: scores".
std::vector<double> numbers_of_rows(const Tensor& tensor, const char* name, std::int64_t count,
                                    std::int64_t width = 1) {
  const bool fits = width == 1 ? tensor.rank() == 1 : tensor.rank() == 2 && tensor.dim(1) == width;
  HEARTH_CHECK(ShapeError, fits && tensor.dim(0) == count, "boxes of an image: ", name, ' ', describe(tensor), " for ",
               count, " boxes; give a row for each box");
  return tensor.to(Device{}).contiguous().to_doubles();
}

void check_floating(const Tensor& tensor, const char* name) {
  HEARTH_CHECK(DTypeError, is_floating(tensor.dtype()), "boxes of an image: ", name, ' ', describe(tensor),
               "; give them as floating numbers");
}

std::vector<BoxExtent> boxes_of_tensor(const Tensor& boxes, const char* name) {
  HEARTH_CHECK(UsageError, boxes.defined(), "boxes of an image: no ", name,
               "; an image without any has boxes [0, 4], and the other tensors [0]");
  HEARTH_CHECK(ShapeError, boxes.rank() == 2 && boxes.dim(1) == 4, "boxes of an image: ", name, ' ', describe(boxes),
               "; boxes are [N, 4]: x0, y0, x1, y1");
  check_floating(boxes, name);
  const std::vector<double> corners = numbers_of_rows(boxes, name, boxes.dim(0), 4);
  std::vector<BoxExtent> result(corners.size() / 4);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const double *const at = &corners[4 * i], x0 = at[0], y0 = at[1], x1 = at[2], y1 = at[3];
    result[i] = {x0, y0, x1 - x0, y1 - y0};
    // The area is finite where all corners are.
    HEARTH_CHECK(UsageError, std::isfinite(result[i].area()) && x0 <= x1 && y0 <= y1, "boxes of an image: ", name,
                 ": box ", i, " is ", x0, ' ', y0, ' ', x1, ' ', y1,
                 "; corners are finite numbers x0 <= x1 and y0 <= y1, not a corner and a size");
  }
  return result;
}

std::vector<std::int64_t> labels_of_tensor(const Tensor& labels, const char* name, std::size_t boxes,
                                           std::int64_t classes) {
  HEARTH_CHECK(UsageError, labels.defined(), "boxes of an image: no ", name, "; give the class of each box");
  HEARTH_CHECK(DTypeError, labels.dtype() == DType::i64 || labels.dtype() == DType::i32, "boxes of an image: ", name,
               ' ', describe(labels), "; classes are i64 or i32");
  const std::vector<double> numbers = numbers_of_rows(labels, name, static_cast<std::int64_t>(boxes));
  std::vector<std::int64_t> result(boxes);
  for (std::size_t i = 0; i < boxes; ++i) {
    result[i] = static_cast<std::int64_t>(numbers[i]);
    HEARTH_CHECK(IndexError, result[i] >= 0 && result[i] < classes, "boxes of an image: ", name, ": box ", i,
                 " has class ", result[i], " of ", classes, "; classes count from 0 and have no holes");
  }
  return result;
}

}  // namespace

double overlap_of(const DetectedBox& detected, const LabelledBox& labelled) {
  const BoxExtent &a = detected.box, &b = labelled.box;
  const auto common_length = [](double a_low, double a_size, double b_low, double b_size) {
    return std::min(a_size + a_low, b_size + b_low) - std::max(a_low, b_low);
  };
  const double width = common_length(a.x, a.width, b.x, b.width);
  const double height = common_length(a.y, a.height, b.y, b.height);
  if (width <= 0 || height <= 0) return 0;
  const double common = width * height;
  return common / (labelled.crowd ? a.area() : a.area() + b.area() - common);
}

std::vector<DetectedBox> detected_boxes(const Detections& detections, std::int64_t classes) {
  const std::vector<BoxExtent> boxes = boxes_of_tensor(detections.boxes, "detections: boxes");
  const std::vector<std::int64_t> labels =
      labels_of_tensor(detections.labels, "detections: labels", boxes.size(), classes);
  HEARTH_CHECK(UsageError, detections.scores.defined(),
               "boxes of an image: no detections: scores; give the score of each box");
  check_floating(detections.scores, "detections: scores");
  const std::vector<double> scores =
      numbers_of_rows(detections.scores, "detections: scores", static_cast<std::int64_t>(boxes.size()));
  std::vector<DetectedBox> result(boxes.size());
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    HEARTH_CHECK(UsageError, std::isfinite(scores[i]), "boxes of an image: detections: box ", i, " has score ",
                 scores[i], "; scores are finite, as they order the detections");
    result[i] = {boxes[i], scores[i], labels[i]};
  }
  std::stable_sort(result.begin(), result.end(), [](const DetectedBox& a, const DetectedBox& b) {
    return a.label != b.label ? a.label < b.label : a.score > b.score;
  });
  return result;
}

std::vector<LabelledBox> labelled_boxes(const GroundTruth& truth, std::int64_t classes) {
  const std::vector<BoxExtent> boxes = boxes_of_tensor(truth.boxes, "truth: boxes");
  const std::vector<std::int64_t> labels = labels_of_tensor(truth.labels, "truth: labels", boxes.size(), classes);
  const auto count = static_cast<std::int64_t>(boxes.size());
  const auto numbers = [&](const Tensor& tensor, const char* name) {
    return tensor.defined() ? numbers_of_rows(tensor, name, count) : std::vector<double>(boxes.size());
  };
  if (truth.areas.defined()) check_floating(truth.areas, "truth: areas");
  const std::vector<double> areas = numbers(truth.areas, "truth: areas"), crowd = numbers(truth.crowd, "truth: crowd"),
                            ignored = numbers(truth.ignored, "truth: ignored");
  std::vector<LabelledBox> result(boxes.size());
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    const double area = truth.areas.defined() ? areas[i] : boxes[i].area();
    HEARTH_CHECK(UsageError, std::isfinite(area) && area >= 0, "boxes of an image: truth: box ", i, " has area ", area,
                 "; areas are in square pixels; leave them out for those of the boxes");
    result[i] = {boxes[i], area, labels[i], crowd[i] != 0, crowd[i] != 0 || ignored[i] != 0};
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const LabelledBox& a, const LabelledBox& b) { return a.label < b.label; });
  return result;
}

}  // namespace hearth::train
