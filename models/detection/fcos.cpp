// SPDX-License-Identifier: Apache-2.0
#include "models/detection/fcos.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/grad_mode.h"
#include "core/memory/lasting_memory.h"
#include "models/detection/candidates.h"
#include "ops/ops.h"

namespace hearth::models {

/// The convolutions of a head, with group norm and ReLU, and one more for each output.
class FcosHead : public nn::Module {
 public:
  struct Output {
    const char* name;
    std::int64_t channels;
    double bias;
  };
  FcosHead(const FcosOptions& options, const std::vector<Output>& outputs) {
    for (std::int64_t i = 0; i < options.convolutions; ++i) {
      const std::int64_t index = 3 * i;  // the ReLU behind the norm has a number too
      convolutions_.add_named<nn::Conv2d>(std::to_string(index), options.channels, options.channels, convolution(0));
      convolutions_.add_named<nn::GroupNorm>(std::to_string(index + 1), options.groups, options.channels);
    }
    register_module("conv", convolutions_);
    for (const Output& output : outputs) {
      outputs_.push_back(std::make_unique<nn::Conv2d>(options.channels, output.channels, convolution(output.bias)));
      register_module(output.name, *outputs_.back());
    }
  }

  /// The outputs for a map [N, H, W, C], each [N, H * W, channels].
  std::vector<Tensor> outputs_of(const Tensor& map) {
    Tensor x = map;
    for (std::size_t i = 0; i < convolutions_.size(); i += 2) x = relu(convolutions_[i + 1](convolutions_[i](x)));
    std::vector<Tensor> all;
    for (const auto& output : outputs_) {
      const Tensor y = (*output)(x);
      all.push_back(reshape(y, {y.dim(0), y.dim(1) * y.dim(2), y.dim(3)}));
    }
    return all;
  }

 private:
  static nn::Conv2dLayerOptions convolution(double bias) {
    return {.padding = 1, .weight_init = nn::init::normal(0.01), .bias_init = nn::init::constant(bias)};
  }

  nn::ModuleList convolutions_;
  std::vector<std::unique_ptr<nn::Conv2d>> outputs_;
};

namespace {

constexpr std::size_t trunk_stages = 4;
constexpr std::int64_t extra_levels = 2;
/// Points are background with this probability at first (Lin et al. 2017, arXiv:1708.02002).
constexpr double first_foreground = 0.01;

std::vector<std::int64_t> channels_of_maps(const ResNet& body) {
  const std::vector<std::int64_t>& all = body.feature_channels();
  HEARTH_CHECK(UsageError, all.size() == trunk_stages, "fcos: the trunk has ", all.size(), " stages; it must have ",
               trunk_stages);
  return {all.begin() + 1, all.end()};
}

const FcosOptions& checked_fcos(const FcosOptions& options) {
  HEARTH_CHECK(ShapeError, options.classes >= 1 && options.channels >= 1 && options.convolutions >= 0,
               "fcos: ", options.classes, " classes, ", options.channels, " channels, ", options.convolutions,
               " convolutions; there is a class and a channel at least");
  HEARTH_CHECK(UsageError, options.trunk.classes == 0, "fcos: the trunk has a head of ", options.trunk.classes,
               " classes; set its classes to 0");
  return options;
}

/// Rows or columns after a convolution of stride 2.
std::int64_t halved(std::int64_t size) { return (size + 1) / 2; }

Tensor sum_where(const Tensor& mask, const Tensor& values) { return sum(where(mask, values, 0.0)); }

/// How central a point is in its box: the square root of the ratios of opposite distances.
Tensor centre_ness(const Tensor& distances) {
  const auto ratio = [&](std::int64_t first) {
    const Tensor a = slice(distances, -1, first, first + 1), b = slice(distances, -1, first + 2, first + 3);
    const Tensor larger = where(greater(a, b), a, b), smaller = where(greater(a, b), b, a);
    return smaller / clamp(larger, 1e-12);
  };
  return sqrt(clamp(reshape(ratio(0) * ratio(1), {distances.dim(0)}), 0.0));
}

void require_outputs(const Tensor& outputs, std::int64_t points, std::int64_t classes, std::int64_t height,
                     std::int64_t width) {
  HEARTH_CHECK(ShapeError, outputs.rank() == 3 && outputs.dim(1) == points && outputs.dim(2) == classes + 5,
               "fcos: outputs ", describe(outputs), " for images of ", height, " x ", width, "; they must be [N, ",
               points, ", ", classes + 5, "]");
}

}  // namespace

Fcos::Fcos(const FcosOptions& options)
    : options_(checked_fcos(options)),
      body_(options.trunk),
      pyramid_(channels_of_maps(body_), options.channels, extra_levels),
      classification_(std::make_unique<FcosHead>(
          options, std::vector<FcosHead::Output>{{"cls_logits", options.classes,
                                                  -std::log((1 - first_foreground) / first_foreground)}})),
      regression_(std::make_unique<FcosHead>(
          options, std::vector<FcosHead::Output>{{"bbox_reg", 4, 0}, {"bbox_ctrness", 1, 0}})) {
  backbone_.add("body", body_);
  backbone_.add("fpn", pyramid_);
  head_.add("classification_head", *classification_);
  head_.add("regression_head", *regression_);
  register_module("backbone", backbone_);
  register_module("head", head_);
}

Fcos::~Fcos() = default;

Tensor Fcos::forward(const Tensor& x) {
  const std::vector<Tensor> maps = body_.features(x);
  std::vector<Tensor> parts;
  for (const Tensor& level : pyramid_.levels({maps.begin() + 1, maps.end()})) {
    const std::vector<Tensor> classes = classification_->outputs_of(level), boxes = regression_->outputs_of(level);
    parts.push_back(concat({classes[0], relu(boxes[0]), boxes[1]}, -1));
  }
  return concat(parts, 1);
}

const Fcos::Points& Fcos::points_of(std::int64_t height, std::int64_t width, Device device) {
  const auto [place, is_new] = points_.try_emplace({device.type, device.index, height, width});
  Points& points = place->second;
  if (!is_new) return points;
  // Of the trunk's second stage: pixels from point to point.
  std::int64_t rows = height, columns = width, side = options_.trunk.stem == ResNetStem::imagenet ? 8 : 2;
  for (std::int64_t halvings = side; halvings > 1; halvings /= 2) rows = halved(rows), columns = halved(columns);
  std::vector<float> anchors, reach;
  const std::size_t levels = trunk_stages - 1 + extra_levels;
  for (std::size_t level = 0; level < levels; ++level) {
    points.levels.push_back({rows, columns, side});
    const float half = static_cast<float>(side) / 2;
    const float least = level == 0 ? 0.0F : 8 * half;
    const float most = level + 1 == levels ? std::numeric_limits<float>::infinity() : 16 * half;
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < columns; ++column) {
        // Whole pixels, as torchvision's anchors: a level's points begin at the corner.
        const auto x = static_cast<float>(column * (width / columns)), y = static_cast<float>(row * (height / rows));
        anchors.insert(anchors.end(), {x - half, y - half, x + half, y + half});
        reach.insert(reach.end(), {least, most});
      }
    rows = halved(rows), columns = halved(columns), side *= 2;
  }
  const auto count = static_cast<std::int64_t>(anchors.size() / 4);
  const LastingMemoryScope lasting;
  points.anchors = Tensor::of<float>({count, 4}, anchors).to(device);
  points.reach = Tensor::of<float>({count, 2}, reach).to(device);
  return points;
}

Tensor Fcos::loss(const Tensor& outputs, std::int64_t height, std::int64_t width, const TrueBoxes& truth) {
  const Points& points = points_of(height, width, outputs.device());
  const std::int64_t classes = options_.classes, count = points.anchors.dim(0);
  require_outputs(outputs, count, classes, height, width);
  const std::int64_t images = outputs.dim(0);
  HEARTH_CHECK(ShapeError, truth.list.counts.size() == images, "fcos: counts ", describe(truth.list.counts), " for ",
               images, " images");
  const DType wide = outputs.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Tensor rows = cast(reshape(outputs, {images * count, classes + 5}), wide);
  const Tensor anchors = cast(points.anchors, wide);
  BoxList list = truth.list;
  list.boxes = cast(list.boxes, wide);
  const Tensor chosen =
      reshape(assign_points(anchors, cast(points.reach, wide), list, options_.radius), {images * count});
  const Tensor is_object = greater_equal(chosen, 0.0);
  // A row for points without a box: the class behind the last, which is taken off again, and an empty box.
  const Tensor row = where(is_object, chosen, static_cast<double>(list.boxes.dim(0)));
  const Tensor labels = index_select(
      concat({truth.classes, Tensor::full({1}, static_cast<double>(classes), DType::i64, outputs.device())}, 0), 0,
      row);
  const Tensor boxes = index_select(concat({list.boxes, Tensor::zeros({1, 4}, wide, outputs.device())}, 0), 0, row);
  const Tensor wanted = slice(one_hot(labels, classes + 1), -1, 0, classes).to(wide);
  const Tensor counts = reshape(not_equal(chosen, static_cast<double>(ignored_point)), {images * count, 1}).to(wide);

  const Tensor all_anchors = reshape(expand(anchors, {images, count, 4}), {images * count, 4});
  const Tensor predicted = decode_distances(slice(rows, -1, classes, classes + 4), all_anchors, true);
  const Tensor true_distances = encode_distances(boxes, all_anchors, true);
  const Tensor objects = clamp(sum(is_object.to(wide)), 1.0);
  const Tensor of_classes =
      focal_loss(slice(rows, -1, 0, classes), wanted, {}, {.weight = counts, .reduction = Reduction::sum});
  const Tensor of_boxes = sum_where(is_object, giou_loss(predicted, boxes, {.reduction = Reduction::none}));
  const Tensor central = where(is_object, centre_ness(true_distances), 0.0);
  const Tensor of_centres =
      sum_where(is_object, bce_with_logits(reshape(slice(rows, -1, classes + 4, classes + 5), {images * count}),
                                           central, {.reduction = Reduction::none}));
  return (of_classes + of_boxes + of_centres) / objects;
}

std::vector<Detections> Fcos::detections(const Tensor& outputs, std::int64_t height, std::int64_t width,
                                         const DetectionOptions& options) {
  const NoGrad no_grad;
  const Points& points = points_of(height, width, outputs.device());
  require_outputs(outputs, points.anchors.dim(0), options_.classes, height, width);
  const std::int64_t images = outputs.dim(0), count = points.anchors.dim(0), classes = options_.classes;
  const Tensor rows = cast(outputs, DType::f32);
  const Tensor scores = sqrt(sigmoid(slice(rows, -1, 0, classes)) * sigmoid(slice(rows, -1, classes + 4, classes + 5)))
                            .contiguous()
                            .to(Device{});
  const Tensor boxes = clip_boxes(decode_distances(slice(rows, -1, classes, classes + 4), points.anchors, true),
                                  static_cast<double>(height), static_cast<double>(width))
                           .contiguous()
                           .to(Device{});
  std::vector<Detections> all;
  for (std::int64_t image = 0; image < images; ++image) {
    Candidates candidates;
    std::int64_t first = image * count;
    for (const Level& level : points.levels) {
      candidates.add_level(scores.data<const float>(), boxes.data<const float>(), first,
                           first + level.rows * level.columns, classes, options);
      first += level.rows * level.columns;
    }
    all.push_back(candidates.chosen(options));
  }
  return all;
}

}  // namespace hearth::models
