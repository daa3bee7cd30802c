// SPDX-License-Identifier: Apache-2.0
// FCN and DeepLabV3 beside torchvision's, and U-Net beside a PyTorch module, with the same weights: outputs, losses and
// gradients (golden/make_segmentation.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "autograd/parameters.h"
#include "core/io/json_text.h"
#include "models/registry.h"
#include "models/segmentation/dilated.h"
#include "models/segmentation/unet.h"
#include "ops/ops.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"

namespace hearth::test::segmentation_models {
namespace {

constexpr std::int64_t classes = 5;

/// f(index here, index in PyTorch's order): [K, R, S, C] here, [K, C, R, S] there.
template <class F>
void each_element(const Tensor& x, const F& f) {
  const bool is_filter = x.rank() == 4;
  const std::int64_t rows = is_filter ? x.dim(1) : 1, columns = is_filter ? x.dim(2) : 1,
                     channels = is_filter ? x.dim(3) : 1;
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const std::int64_t c = i % channels, place = i / channels, s = place % columns, r = place / columns % rows;
    f(i, is_filter ? ((place / columns / rows * channels + c) * rows + r) * columns + s : i);
  }
}

/// Parameters by the formula of make_segmentation.py.
void set_weights(nn::Module& model) {
  for (const NamedTensor& named : model.parameters()) {
    Tensor& x = *named.tensor;
    const bool is_norm_weight = x.rank() == 1 && named.name.ends_with("weight");
    std::int64_t sum = 0;
    for (const char c : named.name) sum += static_cast<unsigned char>(c);
    const double scale = x.rank() == 4 ? 1.5 / std::sqrt(static_cast<double>(x.size() / x.dim(0))) : 0.1;
    double* const to = x.data<double>();
    each_element(x, [&](std::int64_t here, std::int64_t there) {
      to[here] = (is_norm_weight ? 1.0 : 0.0) + scale * static_cast<double>((37 * there + sum) % 1009 - 504) / 504;
    });
  }
}

void expect_near(double value, double wanted, double size, const std::string& what) {
  EXPECT_NEAR(value, wanted, 1e-9 * std::max(1.0, size)) << what;
}

void expect_outputs(const Tensor& outputs, const Json& wanted) {
  const std::vector<double> values = outputs.to_doubles();
  ASSERT_EQ((values.size() + 196) / 197, wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i)
    ASSERT_NEAR(values[197 * i], wanted.at(i).as_number(), 1e-9 * std::max(1.0, std::abs(values[197 * i]))) << i;
}

void compare(nn::Module& model, const char* name) {
  SCOPED_TRACE(name);
  static const Json document = read_json(source_dir() + "/tests/golden/segmentation.json");
  const Json& golden = document.at(name);
  const std::int64_t height = golden.at("height").as_integer(), width = golden.at("width").as_integer();
  model.to(DType::f64);
  set_weights(model);
  const FlatParameters parameters(model.parameters());
  std::vector<double> pixels;
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < 2 * height * width * 3; ++i)
    pixels.push_back(static_cast<double>((7 * i + 3) % 23 - 11) / 8);
  for (std::int64_t i = 0; i < 2 * height * width; ++i) labels.push_back(i % 7 == 0 ? -100 : i / 11 % classes);
  const Tensor images = Tensor::of<double>({2, height, width, 3}, pixels);
  model.train();
  const Tensor outputs = model(images);
  ASSERT_EQ(outputs.shape(), (Shape{2, height, width, classes}));
  expect_outputs(outputs.detach(), golden.at("outputs"));
  const Tensor loss =
      cross_entropy(outputs, Tensor::of<std::int64_t>({2, height, width}, labels), {.ignore_index = -100});
  expect_near(loss.item(), golden.at("loss").as_number(), 1, "loss");
  backward(loss);
  const Json& gradients = golden.at("gradients");
  std::size_t compared = 0;
  for (const NamedTensor& named : model.parameters()) {
    const Json* const wanted = gradients.find(named.name);
    ASSERT_NE(wanted, nullptr) << named.name;
    const Tensor gradient = grad_of(*named.tensor);
    const std::vector<double> values = gradient.to_doubles();
    double sum = 0, squares = 0, product = 0;
    each_element(gradient, [&](std::int64_t here, std::int64_t there) {
      const double value = values[static_cast<std::size_t>(here)];
      sum += value, squares += value * value, product += value * static_cast<double>((11 * there + 5) % 17 - 8);
    });
    const double norm = std::sqrt(squares);
    expect_near(sum, wanted->at(0).as_number(), norm, named.name);
    expect_near(norm, wanted->at(1).as_number(), norm, named.name);
    expect_near(product, wanted->at(2).as_number(), 8 * norm, named.name);
    ++compared;
  }
  EXPECT_EQ(compared, gradients.size());
  model.eval();
  expect_outputs(model(images).detach(), golden.at("evaluated"));
}

models::ResNetOptions small_trunk(bool bottleneck, std::int64_t dilated_stages) {
  return {.blocks = {1, 1, 2, 2}, .bottleneck = bottleneck, .width = 8, .classes = 0, .dilated_stages = dilated_stages};
}

TEST(SegmentationModels, FcnHasTorchvisionsOutputsAndGradients) {
  models::Fcn dilated({.trunk = small_trunk(true, 2), .classes = classes, .dropout = 0});
  compare(dilated, "fcn");
  models::Fcn basic({.trunk = small_trunk(false, 2), .classes = classes, .dropout = 0});
  compare(basic, "fcn_basic");
  models::Fcn less_dilated({.trunk = small_trunk(true, 1), .classes = classes, .dropout = 0});
  compare(less_dilated, "fcn_one_dilated");
}

TEST(SegmentationModels, DeepLabHasTorchvisionsOutputsAndGradients) {
  models::DeepLabV3 model({.trunk = small_trunk(true, 2), .classes = classes, .rates = {2, 3, 5}, .dropout = 0});
  compare(model, "deeplabv3");
}

TEST(SegmentationModels, UnetHasPyTorchsOutputsAndGradients) {
  models::Unet model({.classes = classes, .width = 6, .levels = 4});
  compare(model, "unet");
}

TEST(SegmentationModels, AreMadeFromConfigurations) {
  const models::InputInfo input{.height = 40, .width = 40, .channels = 3, .classes = 7, .labelled = true};
  for (const char* const text :
       {R"({"type": "fcn", "depth": 18, "width": 8})",
        R"({"type": "deeplabv3", "blocks": [1, 1], "width": 8, "stem": "small", "dilated_stages": 1, "channels": 8})",
        R"({"type": "unet", "width": 4, "levels": 3})"}) {
    const auto model = models::make(parse_json(text, "test"), input);
    nn::initialize(*model, 1);
    EXPECT_EQ((*model)(Tensor::zeros({2, 40, 33, 3})).shape(), (Shape{2, 40, 33, 7})) << text;
  }
  EXPECT_PRED2(contains, error_message<ConfigError>([&] {
                 (void)models::make(parse_json(R"({"type": "fcn", "blocks": [1, 1]})", "test"), input);
               }),
               "\"dilated_stages\" (2) must be fewer than the 2 stages");
}

TEST(SegmentationModels, RefuseArguments) {
  using namespace models;
  EXPECT_THROW(Fcn({.trunk = {.depth = 18}}), UsageError);
  EXPECT_THROW(Fcn({.trunk = small_trunk(true, 2), .classes = 0}), ShapeError);
  EXPECT_THROW(Fcn({.trunk = small_trunk(true, 4)}), ShapeError);
  EXPECT_THROW(Fcn({.trunk = {.blocks = {1}, .width = 3, .classes = 0}}), ShapeError);
  EXPECT_THROW(DeepLabV3({.trunk = small_trunk(true, 2), .channels = 0}), ShapeError);
  EXPECT_THROW(DeepLabV3({.trunk = small_trunk(true, 2), .rates = {0}}), ShapeError);
  EXPECT_THROW(Unet({.classes = 0}), ShapeError);
  EXPECT_THROW(Unet({.levels = 11}), ShapeError);
  Unet unet({.classes = 2, .width = 2, .levels = 4});
  EXPECT_PRED2(contains, error_message<ShapeError>([&] { (void)unet(Tensor::zeros({1, 7, 20, 3})); }), "fewer levels");
  EXPECT_THROW((void)unet(Tensor::zeros({20, 20, 3})), ShapeError);
  DeepLabV3 deep({.trunk = small_trunk(false, 2), .channels = 4});
  EXPECT_THROW((void)deep(Tensor::zeros({1, 33, 33, 3})), ShapeError);  // one value a channel
}

}  // namespace
}  // namespace hearth::test::segmentation_models
