// SPDX-License-Identifier: Apache-2.0
#include "models/detection/ssd.h"

#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "autograd/grad_mode.h"
#include "core/memory/lasting_memory.h"
#include "models/detection/candidates.h"
#include "ops/ops.h"

namespace hearth::models {
namespace {

constexpr std::size_t trunk_stages = 3;
constexpr DeltaWeights ssd_weights = {10, 10, 5, 5};
constexpr AnchorRule ssd_rule = {.foreground = 0.5, .background = 0.5, .best = BestAnchors::first};

/// Of a feature map: the side of its boxes as a share of the image's, and whether boxes of the ratio 3 are among them.
struct MapBoxes {
  double side, next_side;
  bool has_thirds;
  std::int64_t anchors() const { return has_thirds ? 6 : 4; }
};
constexpr std::array<MapBoxes, 6> boxes_of_maps = {{{0.07, 0.15, false},
                                                    {0.15, 0.33, true},
                                                    {0.33, 0.51, true},
                                                    {0.51, 0.69, true},
                                                    {0.69, 0.87, false},
                                                    {0.87, 1.05, false}}};

/// What makes a map of the one before: a 1x1 convolution, and a 3x3 one.
struct ExtraBlock {
  std::int64_t narrow, wide;  ///< channels, in those of the trunk's first stage
  bool is_padded;             ///< then with a stride of 2
};
constexpr std::array<ExtraBlock, 5> extra_blocks = {
    {{4, 8, true}, {4, 8, true}, {2, 4, true}, {2, 4, false}, {2, 4, false}}};

const SsdOptions& checked_ssd(const SsdOptions& options) {
  HEARTH_CHECK(ShapeError, options.classes >= 1, "ssd: ", options.classes, " classes; there is one at least");
  HEARTH_CHECK(UsageError, options.trunk.classes == 0 && options.trunk.stages == 0 && options.trunk.strides.empty(),
               "ssd: the trunk has a head of ", options.trunk.classes, " classes, ", options.trunk.stages,
               " stages and ", options.trunk.strides.size(),
               " strides; set its classes and stages to 0, without strides");
  HEARTH_CHECK(ShapeError, options.trunk.blocks.empty() || options.trunk.blocks.size() >= trunk_stages,
               "ssd: the trunk has ", options.trunk.blocks.size(), " stages; it needs ", trunk_stages);
  return options;
}

ResNetOptions ssd_trunk(ResNetOptions trunk) {
  trunk.stages = trunk_stages;
  trunk.strides = {1, 2, 1};
  return trunk;
}

nn::Conv2dLayerOptions ssd_conv(std::int64_t kernel, std::int64_t stride, std::int64_t padding, Activation activation) {
  return {.kernel = kernel,
          .stride = stride,
          .padding = padding,
          .activation = activation,
          .weight_init = nn::init::xavier_uniform(),
          .bias_init = nn::init::zeros()};
}

class SsdBlock : public nn::Module {
 public:
  SsdBlock(std::int64_t in_channels, std::int64_t narrow, std::int64_t wide, bool is_padded)
      : first_(in_channels, narrow, ssd_conv(1, 1, 0, Activation::relu)),
        second_(narrow, wide, ssd_conv(3, is_padded ? 2 : 1, is_padded ? 1 : 0, Activation::relu)) {
    register_module("0", first_);
    register_module("2", second_);  // the ReLU between has a number too
  }
  Tensor forward(const Tensor& x) override { return second_(first_(x)); }

 private:
  nn::Conv2d first_, second_;
};

/// The maps of an image; the stride is 0 where positions are spread evenly.
std::vector<FeatureMap> ssd_maps(ResNetStem stem, std::int64_t height, std::int64_t width) {
  std::vector<FeatureMap> all = pyramid_maps(stem, height, width, 4);
  for (int i = 0; i < 2; ++i) all.push_back({all.back().rows - 2, all.back().columns - 2, 0});
  return all;
}

/// The width and height of a map's boxes as shares of the image's. In f32, as torchvision's.
std::vector<std::array<double, 2>> shapes_of(const MapBoxes& map) {
  const double between = std::sqrt(map.side * map.next_side);
  std::vector<std::array<double, 2>> all = {{map.side, map.side}, {between, between}};
  for (int ratio = 2; ratio <= (map.has_thirds ? 3 : 2); ++ratio) {
    const double root = std::sqrt(static_cast<double>(ratio)), wide = map.side * root, narrow = map.side / root;
    all.push_back({wide, narrow});
    all.push_back({narrow, wide});
  }
  for (auto& shape : all)
    for (double& side : shape) side = std::min(static_cast<double>(static_cast<float>(side)), 1.0);
  return all;
}

}  // namespace

Ssd::MapHead::MapHead(const std::vector<std::int64_t>& channels, std::int64_t numbers) : numbers_(numbers) {
  for (std::size_t map = 0; map < channels.size(); ++map)
    convolutions_.add<nn::Conv2d>(channels[map],
                                  checked_mul(boxes_of_maps[map].anchors(), numbers, "channels of a head"),
                                  ssd_conv(3, 1, 1, Activation::none));
  register_module("module_list", convolutions_);
}

Tensor Ssd::MapHead::output_of(std::size_t map, const Tensor& x) {
  const Tensor y = convolutions_[map](x);
  return reshape(y, {y.dim(0), y.size() / y.dim(0) / numbers_, numbers_});
}

Ssd::Ssd(const SsdOptions& options) : options_(checked_ssd(options)), body_(ssd_trunk(options.trunk)) {
  std::vector<std::int64_t> channels{body_.feature_channels().back()};
  for (const ExtraBlock& block : extra_blocks) {
    const std::int64_t width = options.trunk.width;
    const std::int64_t wide = checked_mul(width, block.wide, "ssd width");
    extra_.add<SsdBlock>(channels.back(), checked_mul(width, block.narrow, "ssd width"), wide, block.is_padded);
    channels.push_back(wide);
  }
  classification_ = std::make_unique<MapHead>(channels, checked_add(options.classes, 1, "ssd classes"));
  regression_ = std::make_unique<MapHead>(channels, 4);
  backbone_.add("body", body_);
  backbone_.add("extra", extra_);
  head_.add("classification_head", *classification_);
  head_.add("regression_head", *regression_);
  register_module("backbone", backbone_);
  register_module("head", head_);
}

std::int64_t Ssd::smallest_image(ResNetStem stem) {
  // Five positions of the fourth map, since two convolutions without padding follow.
  return 4 * (stem == ResNetStem::imagenet ? 64 : 16) + 1;
}

Tensor Ssd::forward(const Tensor& x) {
  const std::int64_t least = smallest_image(options_.trunk.stem);
  HEARTH_CHECK(ShapeError, x.rank() == 4 && x.dim(1) >= least && x.dim(2) >= least, "ssd: images ", describe(x),
               "; they must be [N, H, W, C] of at least ", least, " rows and columns");
  std::vector<Tensor> parts;
  Tensor map = body_.features(x).back();
  for (std::size_t i = 0; i < boxes_of_maps.size(); ++i) {
    if (i > 0) map = extra_[i - 1](map);
    parts.push_back(concat({classification_->output_of(i, map), regression_->output_of(i, map)}, -1));
  }
  return concat(parts, 1);
}

const Anchors& Ssd::anchors_of(std::int64_t height, std::int64_t width, Device device) {
  if (const Anchors* const known = anchors_.find(height, width, device)) return *known;
  const std::int64_t least = smallest_image(options_.trunk.stem);
  HEARTH_CHECK(ShapeError, height >= least && width >= least, "ssd: images of ", height, " x ", width,
               "; they must have at least ", least, " rows and columns");
  Anchors anchors;
  const auto tall = static_cast<double>(height), wide = static_cast<double>(width);
  std::vector<double> corners;
  const std::vector<FeatureMap> maps = ssd_maps(options_.trunk.stem, height, width);
  for (std::size_t i = 0; i < maps.size(); ++i) {
    const auto [rows, columns, stride] = maps[i];
    const auto step = static_cast<double>(stride);
    const double down = stride > 0 ? step : tall / static_cast<double>(rows);
    const double across = stride > 0 ? step : wide / static_cast<double>(columns);
    const auto shapes = shapes_of(boxes_of_maps[i]);
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < columns; ++column)
        for (const auto& shape : shapes) {
          const double x = (static_cast<double>(column) + 0.5) * across, y = (static_cast<double>(row) + 0.5) * down;
          const double half_width = shape[0] * wide / 2, half_height = shape[1] * tall / 2;
          corners.insert(corners.end(), {x - half_width, y - half_height, x + half_width, y + half_height});
        }
    anchors.counts.push_back(rows * columns * boxes_of_maps[i].anchors());
  }
  const LastingMemoryScope lasting;
  anchors.boxes = Tensor::of({static_cast<std::int64_t>(corners.size() / 4), 4}, corners).to(device);
  return anchors_.add(height, width, device, std::move(anchors));
}

Tensor Ssd::loss(const Tensor& outputs, std::int64_t height, std::int64_t width, const TrueBoxes& truth) {
  const Anchors& anchors = anchors_of(height, width, outputs.device());
  const std::int64_t scores = options_.classes + 1, count = anchors.boxes.dim(0), images = outputs.dim(0);
  require_outputs("ssd", outputs, count, scores + 4, height, width);
  const BoxList list = boxes_for("ssd", outputs, truth);
  const DType wide = list.boxes.dtype();
  const Tensor rows = cast(outputs, wide), boxes = cast(anchors.boxes, wide);
  const Tensor assigned = assign_anchors(boxes, list, ssd_rule);
  const PointTargets targets = targets_of(assigned, list.boxes, truth.classes, -1);
  const Tensor labels =
      where(equal(assigned, static_cast<double>(ignored_point)), -1.0, reshape(targets.labels, {images, count}) + 1.0);
  const Tensor of_classes = multibox_loss(slice(rows, -1, 0, scores), labels);
  const Tensor deltas =
      encode_deltas(targets.boxes, reshape(expand(boxes, {images, count, 4}), {images * count, 4}), ssd_weights);
  const Tensor is_object = targets.is_object.to(wide);
  const Tensor of_boxes =
      smooth_l1_loss(reshape(slice(rows, -1, scores, scores + 4), {images * count, 4}), deltas, 1,
                     {.weight = reshape(is_object, {images * count, 1}), .reduction = Reduction::sum});
  return (of_classes + of_boxes) / clamp(sum(is_object), 1.0);
}

std::vector<Detections> Ssd::detections(const Tensor& outputs, std::int64_t height, std::int64_t width,
                                        const DetectionOptions& options) {
  const NoGrad no_grad;
  const Anchors& anchors = anchors_of(height, width, outputs.device());
  const std::int64_t scores = options_.classes + 1;
  require_outputs("ssd", outputs, anchors.boxes.dim(0), scores + 4, height, width);
  const Tensor rows = cast(outputs, DType::f32);
  const Tensor boxes = decode_deltas(slice(rows, -1, scores, scores + 4), cast(anchors.boxes, DType::f32), ssd_weights);
  return detections_of(slice(softmax(slice(rows, -1, 0, scores)), -1, 1, scores),
                       clip_boxes(boxes, static_cast<double>(height), static_cast<double>(width)), anchors.counts,
                       CandidateLimit::of_class, options);
}

}  // namespace hearth::models
