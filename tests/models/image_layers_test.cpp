// SPDX-License-Identifier: Apache-2.0
// Layers of images: sizes, initial values, and that they pass their options on.
#include <gtest/gtest.h>

#include <vector>

#include "models/nn/nn.h"

namespace hearth {
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

}  // namespace
}  // namespace hearth
