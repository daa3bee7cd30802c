// SPDX-License-Identifier: Apache-2.0
#include "models/detection/yolox.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "autograd/grad_mode.h"
#include "core/creation.h"
#include "core/memory/lasting_memory.h"
#include "models/detection/candidates.h"
#include "models/detection/csp_darknet.h"
#include "ops/ops.h"

namespace hearth::models {

/// The trunk, and paths between its maps down to the small ones and up again.
class YoloxNeck : public nn::Module {
 public:
  YoloxNeck(std::int64_t in_channels, std::int64_t width, double depth, bool depthwise)
      : trunk_(in_channels, width, std::max<std::int64_t>(blocks_of(depth), 1), depthwise),
        lateral_(16 * width, 8 * width, 1),
        reduce_(8 * width, 4 * width, 1),
        to_p4_(16 * width, 8 * width, blocks_of(depth), false, depthwise),
        to_p3_(8 * width, 4 * width, blocks_of(depth), false, depthwise),
        to_n3_(8 * width, 8 * width, blocks_of(depth), false, depthwise),
        to_n4_(16 * width, 16 * width, blocks_of(depth), false, depthwise),
        up2_(silu_conv(4 * width, 4 * width, 2, depthwise)),
        up1_(silu_conv(8 * width, 8 * width, 2, depthwise)) {
    register_module("backbone", trunk_);
    register_module("lateral_conv0", lateral_);
    register_module("C3_p4", to_p4_);
    register_module("reduce_conv1", reduce_);
    register_module("C3_p3", to_p3_);
    register_module("bu_conv2", *up2_);
    register_module("C3_n3", to_n3_);
    register_module("bu_conv1", *up1_);
    register_module("C3_n4", to_n4_);
  }

  /// Maps of strides 8, 16 and 32 with 4, 8 and 16 times `width` channels.
  std::vector<Tensor> levels(const Tensor& x) {
    const std::vector<Tensor> maps = trunk_.features(x);
    const auto twice = [](const Tensor& map) { return interpolate(map, {.scale = 2}); };
    const Tensor lateral = lateral_(maps[2]);
    const Tensor reduced = reduce_(to_p4_(concat({twice(lateral), maps[1]}, -1)));
    const Tensor p3 = to_p3_(concat({twice(reduced), maps[0]}, -1));
    const Tensor n3 = to_n3_(concat({(*up2_)(p3), reduced}, -1));
    return {p3, n3, to_n4_(concat({(*up1_)(n3), lateral}, -1))};
  }

 private:
  /// As Python rounds.
  static std::int64_t blocks_of(double depth) { return static_cast<std::int64_t>(std::nearbyint(3 * depth)); }

  CspDarknet trunk_;
  SiluConv lateral_, reduce_;
  CspLayer to_p4_, to_p3_, to_n3_, to_n4_;
  std::unique_ptr<nn::Module> up2_, up1_;
};

/// For each map two convolutions for classes and two for boxes, and the outputs.
class YoloxHead : public nn::Module {
 public:
  YoloxHead(std::int64_t classes, std::int64_t width, bool depthwise) {
    // Points have an object of a class with this probability at first.
    constexpr double first_probability = 0.01;
    const double rare = -std::log((1 - first_probability) / first_probability);
    const std::int64_t channels = 4 * width;
    for (const std::int64_t of_level : {4, 8, 16}) {
      stems_.add<SiluConv>(of_level * width, channels, 1);
      for (nn::ModuleList* const branch : {&class_convs_, &box_convs_}) {
        auto& row = branch->add<Branch>();
        for (int i = 0; i < 2; ++i) row.add(silu_conv(channels, channels, 1, depthwise));
      }
      class_outputs_.add<nn::Conv2d>(channels, classes,
                                     nn::Conv2dLayerOptions{.kernel = 1, .bias_init = nn::init::constant(rare)});
      box_outputs_.add<nn::Conv2d>(channels, 4, nn::Conv2dLayerOptions{.kernel = 1});
      object_outputs_.add<nn::Conv2d>(channels, 1,
                                      nn::Conv2dLayerOptions{.kernel = 1, .bias_init = nn::init::constant(rare)});
    }
    register_module("cls_convs", class_convs_);
    register_module("reg_convs", box_convs_);
    register_module("cls_preds", class_outputs_);
    register_module("reg_preds", box_outputs_);
    register_module("obj_preds", object_outputs_);
    register_module("stems", stems_);
  }

  /// [N, H * W, classes + 5] of a level's map.
  Tensor outputs_of(const Tensor& map, std::size_t level) {
    const Tensor x = stems_[level](map);
    const Tensor of_classes = class_convs_[level](x), of_boxes = box_convs_[level](x);
    const Tensor y = concat(
        {box_outputs_[level](of_boxes), object_outputs_[level](of_boxes), class_outputs_[level](of_classes)}, -1);
    return reshape(y, {y.dim(0), y.dim(1) * y.dim(2), y.dim(3)});
  }

 private:
  /// Modules in a row, named by their order.
  class Branch : public nn::Module {
   public:
    void add(std::unique_ptr<nn::Module> module) {
      register_module(std::to_string(modules_.size()), *module);
      modules_.push_back(std::move(module));
    }
    Tensor forward(const Tensor& x) override {
      Tensor y = x;
      for (const auto& module : modules_) y = (*module)(y);
      return y;
    }

   private:
    std::vector<std::unique_ptr<nn::Module>> modules_;
  };

  nn::ModuleList class_convs_, box_convs_, class_outputs_, box_outputs_, object_outputs_, stems_;
};

namespace {

struct Multiples {
  double depth, width;
};

Multiples multiples_of(const YoloxOptions& options) {
  static constexpr std::array<Multiples, 6> sizes{
      {{0.33, 0.25}, {0.33, 0.375}, {0.33, 0.5}, {0.67, 0.75}, {1, 1}, {1.33, 1.25}}};
  const Multiples of_size = sizes[static_cast<std::size_t>(options.size)];
  return {options.depth > 0 ? options.depth : of_size.depth, options.width > 0 ? options.width : of_size.width};
}

/// Channels of the first stage.
std::int64_t first_channels(const YoloxOptions& options) {
  const double width = multiples_of(options).width;
  HEARTH_CHECK(ShapeError,
               options.classes >= 1 && options.in_channels >= 1 && options.depth >= 0 && options.width >= 0 &&
                   64 * width >= 1 && std::isfinite(options.depth + options.width),
               "yolox: ", options.classes, " classes, ", options.in_channels, " channels of an image, depth ",
               options.depth, ", width ", options.width,
               "; there is a class and a channel at least, and a width of 1/64 or more");
  return static_cast<std::int64_t>(64 * width);
}

/// The boxes [..., 4] that outputs mean at points with these anchors, as corners.
Tensor decoded(const Tensor& outputs, const Tensor& anchors) {
  const Tensor corner = slice(anchors, -1, 0, 2), side = slice(anchors, -1, 2, 4) - corner;
  const Tensor centre = slice(outputs, -1, 0, 2) * side + corner;
  const Tensor half = exp(slice(outputs, -1, 2, 4)) * side * 0.5;
  return concat({centre - half, centre + half}, -1);
}

constexpr double box_weight = 5;

}  // namespace

Yolox::Yolox(const YoloxOptions& options)
    : options_(options),
      neck_(std::make_unique<YoloxNeck>(options.in_channels, first_channels(options), multiples_of(options).depth,
                                        options.size == YoloxSize::nano)),
      head_(std::make_unique<YoloxHead>(options.classes, first_channels(options), options.size == YoloxSize::nano)) {
  register_module("backbone", *neck_);
  register_module("head", *head_);
}

Yolox::~Yolox() = default;

Tensor Yolox::forward(const Tensor& x) {
  HEARTH_CHECK(ShapeError,
               x.rank() == 4 && x.dim(1) > 0 && x.dim(2) > 0 && x.dim(1) % stride == 0 && x.dim(2) % stride == 0,
               "yolox: images ", x.shape(), "; they are [N, H, W, C], and ", stride,
               " divides H and W: resize or pad them (image_size in the data's \"augment\")");
  const std::vector<Tensor> maps = neck_->levels(x);
  std::vector<Tensor> parts;
  for (std::size_t level = 0; level < maps.size(); ++level) parts.push_back(head_->outputs_of(maps[level], level));
  return concat(parts, 1);
}

const Yolox::Points& Yolox::points_of(std::int64_t height, std::int64_t width, Device device) {
  if (const Points* const known = points_.find(height, width, device)) return *known;
  Points points{height, width, {}, {}};
  std::vector<float> anchors;
  for (const std::int64_t side : {8, 16, 32}) {
    points.levels.push_back((height / side) * (width / side));
    for (std::int64_t y = 0; y + side <= height; y += side)
      for (std::int64_t x = 0; x + side <= width; x += side)
        for (const std::int64_t corner : {x, y, x + side, y + side}) anchors.push_back(static_cast<float>(corner));
  }
  const LastingMemoryScope lasting;
  points.anchors = Tensor::of<float>({static_cast<std::int64_t>(anchors.size() / 4), 4}, anchors).to(device);
  return points_.add(height, width, device, std::move(points));
}

void Yolox::require_outputs(const Tensor& outputs, const Points& points) const {
  const std::int64_t count = points.anchors.dim(0);
  HEARTH_CHECK(ShapeError, outputs.rank() == 3 && outputs.dim(1) == count && outputs.dim(2) == options_.classes + 5,
               "yolox: outputs ", describe(outputs), " for images of ", points.height, " x ", points.width,
               "; they must be [N, ", count, ", ", options_.classes + 5, "]");
}

Tensor Yolox::loss(const Tensor& outputs, std::int64_t height, std::int64_t width, const TrueBoxes& truth) {
  const Points& points = points_of(height, width, outputs.device());
  require_outputs(outputs, points);
  const std::int64_t images = outputs.dim(0), count = points.anchors.dim(0), classes = options_.classes,
                     rows = images * count;
  const DType wide = outputs.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Tensor values = cast(outputs, wide), anchors = cast(points.anchors, wide);
  BoxList list = truth.list;
  list.boxes = cast(list.boxes, wide);
  const auto assigned = [&] {
    const NoGrad no_grad;
    return assign_simota(anchors,
                         {decoded(values, anchors), reshape(slice(values, -1, 4, 5), {images, count}),
                          slice(values, -1, 5, 5 + classes)},
                         list, truth.classes, {.radius = options_.radius});
  }();
  const Tensor chosen = reshape(assigned.boxes, {rows}), is_object = greater_equal(chosen, 0.0);
  const Tensor all_outputs = reshape(values, {rows, classes + 5});
  const Tensor of_objects = bce_with_logits(
      reshape(slice(all_outputs, -1, 4, 5), {rows}), is_object,
      {.weight = not_equal(chosen, static_cast<double>(ignored_point)).to(wide), .reduction = Reduction::sum});
  const Tensor objects = clamp(sum(is_object.to(wide)), 1.0);
  // The points with a box, which are some of many, and others behind them that weigh nothing.
  const std::int64_t most = std::min(rows, list.boxes.dim(0) * simota_points);
  if (most == 0) return of_objects / objects;
  const Compacted matched = compact(all_outputs, is_object, most);
  // Numbers from 1, counted on the device, since a copy from the host could not be recorded.
  const Tensor numbers = cumsum(Tensor::full({most}, 1, DType::i64, outputs.device()), 0);
  const Tensor counts = less_equal(numbers, matched.count);
  const Tensor weight = counts.to(wide);
  const auto of_points = [&](const Tensor& x) { return index_select(x, 0, matched.indices); };
  const Tensor box = where(counts, of_points(chosen), 0.0);
  const Tensor all_anchors = reshape(expand(anchors, {images, count, 4}), {rows, 4});
  const Tensor overlaps = iou(decoded(matched.values, of_points(all_anchors)), index_select(list.boxes, 0, box), 1e-16);
  const Tensor of_boxes = sum((1.0 - square(overlaps)) * weight);
  const Tensor class_targets = one_hot(index_select(truth.classes, 0, box), classes).to(wide) *
                               reshape(of_points(reshape(assigned.overlaps, {rows})), {most, 1});
  const Tensor of_classes = bce_with_logits(slice(matched.values, -1, 5, 5 + classes), class_targets,
                                            {.weight = reshape(weight, {most, 1}), .reduction = Reduction::sum});
  return (box_weight * of_boxes + of_objects + of_classes) / objects;
}

std::vector<Detections> Yolox::detections(const Tensor& outputs, std::int64_t height, std::int64_t width,
                                          const DetectionOptions& options) {
  const NoGrad no_grad;
  const Points& points = points_of(height, width, outputs.device());
  require_outputs(outputs, points);
  const Tensor values = cast(outputs, DType::f32), of_classes = slice(values, -1, 5, 5 + options_.classes);
  const Tensor best = one_hot(argmax(of_classes, -1), options_.classes);
  const Tensor scores = where(not_equal(best, 0.0), sigmoid(of_classes) * sigmoid(slice(values, -1, 4, 5)), 0.0)
                            .contiguous()
                            .to(Device{});
  const Tensor boxes = decoded(values, points.anchors).contiguous().to(Device{});
  std::vector<Detections> all;
  std::int64_t first = 0;
  for (std::int64_t image = 0; image < outputs.dim(0); ++image) {
    Candidates candidates;
    for (const std::int64_t count : points.levels) {
      candidates.add_level(scores.data<const float>(), boxes.data<const float>(), first, first + count,
                           options_.classes, options);
      first += count;
    }
    Detections detected = candidates.chosen(options);
    detected.boxes = clip_boxes(detected.boxes, static_cast<double>(height), static_cast<double>(width));
    all.push_back(std::move(detected));
  }
  return all;
}

}  // namespace hearth::models
