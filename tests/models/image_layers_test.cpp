// SPDX-License-Identifier: Apache-2.0
// Layers of images: sizes, initial values, and that they pass their options on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "models/nn/nn.h"
#include "ops/conv/conv_transpose2d.h"
#include "ops/norm/group_norm.h"

namespace hearth::image_layers_test {
namespace {

TEST(ImageLayers, UpsamplePassesItsOptionsOn) {
  const Tensor x = Tensor::of<float>({1, 2, 1, 1}, {1, 3});
  nn::Upsample nearest({.scale = 2}),
      bilinear({.size = Pair{3, 1}, .mode = Interpolation::bilinear, .align_corners = true});
  EXPECT_EQ(nearest(x).to_doubles(), (std::vector<double>{1, 1, 1, 1, 3, 3, 3, 3}));
  EXPECT_EQ(bilinear(x).to_doubles(), (std::vector<double>{1, 2, 3}));
  EXPECT_TRUE(nearest.parameters().empty());
  nn::Upsample neither({});
  EXPECT_THROW(neither(x), UsageError);
}

TEST(ImageLayers, ConvTranspose2dPassesItsOptionsOn) {
  nn::ConvTranspose2d layer(4, 6,
                            {.kernel = 3, .stride = 2, .padding = 1, .output_padding = 1, .dilation = 2, .groups = 2});
  EXPECT_EQ(layer.weight.shape(), (Shape{4, 3, 3, 3}));
  EXPECT_EQ(layer.bias.shape(), (Shape{6}));
  nn::initialize(layer, 1);
  const Tensor x = Tensor::full({1, 3, 2, 4}, 0.5);
  const Tensor y = layer(x);
  EXPECT_EQ(y.shape(), (Shape{1, 8, 6, 6}));
  const ConvTranspose2dOptions options{.stride = 2, .padding = 1, .output_padding = 1, .dilation = 2, .groups = 2};
  EXPECT_EQ(y.to_doubles(), conv_transpose2d(x, layer.weight, layer.bias, options).to_doubles());
  EXPECT_EQ(nn::ConvTranspose2d(4, 6, {.bias = false}).parameters().size(), 1u);
}

// PyTorch draws both uniformly within 1 / sqrt(fan in) of [in, out / groups, R, S], whose fan in is that of the
// outputs.
TEST(ImageLayers, ConvTranspose2dDrawsAsPyTorch) {
  nn::ConvTranspose2d layer(64, 128, {.kernel = 2, .groups = 2});
  nn::initialize(layer, 5);
  const double bound = 1 / std::sqrt(2.0 * 2 * 64);
  for (const Tensor& drawn : {layer.weight, layer.bias}) {
    const std::vector<double> values = drawn.to_doubles();
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    EXPECT_GE(*low, -bound);
    EXPECT_LE(*high, bound);
    EXPECT_GT(*high - *low, 1.9 * bound);
  }
}

TEST(ImageLayers, ConvTranspose2dRefusesWhatDoesNotFit) {
  EXPECT_THROW(nn::ConvTranspose2d(0, 8, {}), ShapeError);
  EXPECT_THROW(nn::ConvTranspose2d(4, 8, {.kernel = 0}), ShapeError);
  EXPECT_THROW(nn::ConvTranspose2d(4, 8, {.stride = 0}), ShapeError);
  EXPECT_THROW(nn::ConvTranspose2d(4, 8, {.padding = -1}), ShapeError);
  EXPECT_THROW(nn::ConvTranspose2d(4, 8, {.output_padding = 1}), ShapeError);
  EXPECT_THROW(nn::ConvTranspose2d(4, 6, {.groups = 4}), ShapeError);
}

TEST(ImageLayers, GroupNormPassesItsOptionsOn) {
  nn::GroupNorm layer(2, 4, 0.5);
  nn::initialize(layer, 1);
  EXPECT_EQ(layer.weight.to_doubles(), std::vector<double>(4, 1.0));
  EXPECT_EQ(layer.bias.to_doubles(), std::vector<double>(4, 0.0));
  EXPECT_TRUE(layer.keep_fp32());
  const Tensor x = Tensor::of<float>({1, 1, 2, 4}, {1, 2, 3, 4, 5, 6, 7, -8});
  EXPECT_EQ(layer(x).to_doubles(), group_norm(x, layer.weight, layer.bias, 2, 0.5).to_doubles());
  EXPECT_THROW(nn::GroupNorm(3, 4), ShapeError);
  EXPECT_THROW(nn::GroupNorm(0, 4), ShapeError);
  EXPECT_THROW(nn::GroupNorm(1, 0), ShapeError);
  EXPECT_THROW(nn::GroupNorm(2, 4, 0.0), ShapeError);
}

}  // namespace
}  // namespace hearth::image_layers_test
