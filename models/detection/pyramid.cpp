// SPDX-License-Identifier: Apache-2.0
#include "models/detection/pyramid.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "models/detection/dense_head.h"
#include "ops/ops.h"

namespace hearth::models {
namespace {

nn::Conv2dLayerOptions pyramid_conv(std::int64_t in_channels, std::int64_t kernel, std::int64_t stride) {
  const double fan = static_cast<double>(std::max<std::int64_t>(in_channels, 1) * kernel * kernel);
  return {.kernel = kernel,
          .stride = stride,
          .padding = kernel / 2,
          .weight_init = nn::init::uniform(std::sqrt(3 / fan)),
          .bias_init = nn::init::zeros()};
}

}  // namespace

FeaturePyramid::FeaturePyramid(const std::vector<std::int64_t>& in_channels, std::int64_t channels,
                               std::int64_t extra) {
  HEARTH_CHECK(ShapeError, !in_channels.empty() && channels >= 1 && extra >= 0, "pyramid: ", in_channels.size(),
               " maps, ", channels, " channels, ", extra, " extra levels; there is a map and a channel at least");
  for (const std::int64_t of_map : in_channels) {
    inner_.add<ListedConv>(of_map, channels, pyramid_conv(of_map, 1, 1));
    layer_.add<ListedConv>(channels, channels, pyramid_conv(channels, 3, 1));
  }
  const auto first_extra = static_cast<std::int64_t>(in_channels.size()) + 3;  // p6 where there are p3, p4 and p5
  for (std::int64_t i = 0; i < extra; ++i)
    extra_.add_named<nn::Conv2d>("p" + std::to_string(first_extra + i), channels, channels,
                                 pyramid_conv(channels, 3, 2));
  register_module("inner_blocks", inner_);
  register_module("layer_blocks", layer_);
  register_module("extra_blocks", extra_);
}

std::vector<Tensor> FeaturePyramid::levels(const std::vector<Tensor>& maps) {
  HEARTH_CHECK(ShapeError, maps.size() == inner_.size(), "pyramid: ", maps.size(), " maps; it was made for ",
               inner_.size());
  std::vector<Tensor> all(maps.size());
  Tensor joined;
  for (std::size_t i = maps.size(); i-- > 0;) {
    const Tensor lateral = inner_[i](maps[i]);
    joined = joined.defined() ? lateral + interpolate(joined, {.size = Pair(lateral.dim(1), lateral.dim(2))}) : lateral;
    all[i] = layer_[i](joined);
  }
  for (std::size_t i = 0; i < extra_.size(); ++i) all.push_back(extra_[i](i == 0 ? all.back() : relu(all.back())));
  return all;
}

std::vector<Tensor> FeaturePyramid::levels(ResNet& trunk, const Tensor& images) {
  const std::vector<Tensor> maps = trunk.features(images);
  return levels({maps.begin() + 1, maps.end()});
}

std::vector<std::int64_t> pyramid_channels(const char* model, const ResNetOptions& options, const ResNet& trunk) {
  HEARTH_CHECK(UsageError, options.classes == 0, model, ": the trunk has a head of ", options.classes,
               " classes; set its classes to 0");
  const std::vector<std::int64_t>& all = trunk.feature_channels();
  HEARTH_CHECK(UsageError, all.size() == 4, model, ": the trunk has ", all.size(), " stages; it must have 4");
  return {all.begin() + 1, all.end()};
}

}  // namespace hearth::models
