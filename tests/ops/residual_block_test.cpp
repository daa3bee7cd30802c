// SPDX-License-Identifier: Apache-2.0
// A residual block as one op, against its layers one by one: by the oracle in every type, and on a device by the same
// kernels, where the values have the same bits.
#include "ops/conv/residual_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/random.h"
#include "ops/candidates.h"
#include "ops/conv/conv_norm.h"
#include "tests/support/op_test.h"

namespace hearth::test::residual_block_test {
namespace {

struct Case {
  const char* what;
  Shape x;
  std::vector<Shape> w;
  std::int64_t stride = 1;  ///< of the first 3x3 convolution; where shapes change the shortcut is a layer
};

// Tiles are 64 or 128 rows and columns: one, several, ragged ones.
const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"bottleneck", {2, 5, 4, 16}, {{8, 1, 1, 16}, {8, 3, 3, 8}, {16, 1, 1, 8}}},
      {"basic", {2, 4, 4, 8}, {{8, 3, 3, 8}, {8, 3, 3, 8}}},
      {"projected bottleneck", {2, 6, 6, 8}, {{8, 1, 1, 8}, {16, 3, 3, 8}, {24, 1, 1, 16}}, 2},
      {"odd projected basic", {1, 7, 5, 8}, {{16, 3, 3, 8}, {16, 3, 3, 16}}, 2},
      {"projected without stride", {2, 3, 5, 8}, {{8, 1, 1, 8}, {16, 1, 1, 8}}},
      {"several tiles", {3, 8, 9, 136}, {{72, 1, 1, 136}, {136, 3, 3, 72}, {136, 1, 1, 136}}},
      {"many tiles", {4, 19, 20, 8}, {{8, 1, 1, 8}, {8, 3, 3, 8}, {8, 1, 1, 8}}},
      {"several tiles, projected", {2, 14, 9, 136}, {{72, 1, 1, 136}, {72, 3, 3, 72}, {144, 1, 1, 72}}, 2},
  };
  return all;
}

bool changes_shape(const Case& c) { return c.stride != 1 || c.w.back()[0] != c.x[3]; }

struct Drawn {
  Tensor x;
  std::vector<detail::BlockLayer> layers;
  std::optional<detail::BlockLayer> shortcut;

  /// From a Draw, or what has its functions.
  template <class Numbers>
  Drawn(Numbers& draw, const Case& c) : x(draw.normal(c.x, 1.0)) {
    const auto layer_of = [&](const Shape& filters, std::int64_t stride, Activation activation) {
      detail::BlockLayer layer;
      layer.w = draw.normal(filters, 1.0 / std::sqrt(static_cast<double>(filters.size() / filters[0])));
      layer.convolution = {.stride = stride, .padding = filters[1] / 2};
      layer.gamma = draw.away_from_zero({filters[0]}, Width::wide);
      layer.beta = draw.normal({filters[0]}, 0.5, Width::wide);
      layer.norm.activation = activation;
      return layer;
    };
    std::int64_t stride = c.stride;
    for (const Shape& filters : c.w)
      layers.push_back(layer_of(filters, filters[1] == 3 ? std::exchange(stride, 1) : 1, Activation::relu));
    if (changes_shape(c)) shortcut = layer_of({c.w.back()[0], 1, 1, c.x[3]}, c.stride, Activation::none);
  }
};

Tensor layer_apart(const detail::BlockLayer& layer, const Tensor& x, const Tensor& residual) {
  ChannelMoments moments;
  const Tensor y = detail::conv2d(x, layer.w, {}, layer.convolution, &moments);
  return detail::batch_norm(y, layer.gamma, layer.beta, layer.norm, layer.running_mean, layer.running_var, residual,
                            &moments);
}

Tensor apart(const Drawn& d) {
  const Tensor residual = d.shortcut ? layer_apart(*d.shortcut, d.x, {}) : d.x;
  Tensor y = d.x;
  for (const detail::BlockLayer& layer : d.layers)
    y = layer_apart(layer, y, &layer == &d.layers.back() ? residual : Tensor());
  return y;
}

Tensor whole(const Drawn& d) {
  if (!d.x.device().is_cuda()) return apart(d);
  return detail::residual_block(d.x, d.layers, d.shortcut ? &*d.shortcut : nullptr);
}

// 16-bit types decide otherwise than f64 where a ReLU's input is near zero; they are below.
OP_TEST(ResidualBlock) {
  if (size_of(site_dtype()) == 2) return;
  const ForceCandidate force("conv2d", "portable");
  for (const Case& c : cases()) {
    if (c.x.size() > 1000) continue;
    SCOPED_TRACE(c.what);
    // Behind up to three convolutions and norms.
    check([&](Draw& draw) { return whole(Drawn(draw, c)); }, {.tolerance_scale = 12.0});
  }
}

/// Numbers at the site, which are leaves.
struct Leaves {
  Random random{7, 1};
  std::vector<Tensor> made = {};

  Tensor normal(const Shape& shape, double scale, Width width = Width::site) {
    std::vector<double> values(static_cast<std::size_t>(shape.size()));
    for (double& value : values) value = scale * random.normal();
    const bool wide = width == Width::wide && size_of(site_dtype()) == 2;
    const Tensor plain = Tensor::of<double>(shape, values).to(wide ? DType::f32 : site_dtype());
    made.push_back(requires_grad(plain.to(current_site().device)));
    return made.back();
  }
  Tensor away_from_zero(const Shape& shape, Width width) { return normal(shape, 1.0, width); }
};

/// The result, and the gradients of all leaves but the one of this number, which wants none.
std::vector<Tensor> step_of(const Case& c, Tensor (*run)(const Drawn&), std::optional<std::size_t> frozen) {
  Leaves leaves;
  const Drawn d(leaves, c);
  if (frozen) leaves.made[*frozen].grad_state()->frozen = true;
  const Tensor y = run(d);
  std::vector<Tensor> results{y};
  backward(y, Leaves{Random(8, 1)}.normal(y.shape(), 1.0).detach());
  for (const Tensor& leaf : leaves.made) results.push_back(grad_of(leaf));
  return results;
}

void expect_as_apart(const Case& c, std::optional<std::size_t> frozen) {
  const std::vector<Tensor> found = step_of(c, whole, frozen), expected = step_of(c, apart, frozen);
  const double ulp = site_dtype() == DType::f64   ? 1e-14
                     : site_dtype() == DType::f32 ? 1e-6
                     : site_dtype() == DType::f16 ? 1e-3
                                                  : 8e-3;
  EXPECT_EQ(found[0].to_doubles(), expected[0].to_doubles()) << "the values";
  for (std::size_t i = 1; i < found.size(); ++i) {
    const std::vector<double> a = found[i].to_doubles(), b = expected[i].to_doubles();
    double largest = 0, off = 0;
    for (std::size_t at = 0; at < a.size(); ++at) {
      largest = std::max(largest, std::abs(b[at]));
      off = std::max(off, std::abs(a[at] - b[at]));
    }
    EXPECT_LE(off, 4 * ulp * largest) << "leaf " << i - 1;
    EXPECT_EQ(largest == 0, frozen == i - 1) << "leaf " << i - 1;
  }
}

// By the same kernels, of which the ones of parts have tests of their own. The ReLUs are open at the same places, so
// that only roundings of gradients differ.
OP_TEST(ResidualBlockAndItsParts) {
  if (!current_site().device.is_cuda()) return;
  for (const char* const candidate : {"portable", "mma"}) {
    if (candidate == std::string("mma") && size_of(site_dtype()) != 2) continue;
    const ForceCandidate force("conv2d", candidate);
    for (const Case& c : cases()) {
      SCOPED_TRACE(join_text(candidate, ", ", c.what));
      expect_as_apart(c, {});
    }
    // x; filters, weight and bias of the second layer; those of the shortcut.
    for (const std::size_t frozen : {0, 4, 5, 6, 10, 11, 12}) {
      SCOPED_TRACE(join_text(candidate, ", leaf ", frozen, " frozen"));
      if (frozen < 10) expect_as_apart(cases().front(), frozen);
      expect_as_apart(cases()[2], frozen);
    }
  }
}

}  // namespace
}  // namespace hearth::test::residual_block_test
