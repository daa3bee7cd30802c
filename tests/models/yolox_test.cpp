// SPDX-License-Identifier: Apache-2.0
// YOLOX beside a PyTorch network with the same weights: outputs, loss, gradients and detections (golden/make_yolox.py).
#include "models/detection/yolox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "autograd/parameters.h"
#include "core/io/json_text.h"
#include "models/registry.h"
#include "ops/ops.h"
#include "tests/models/formula_weights.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"

namespace hearth::test {
namespace {

using models::Detections;
using models::Yolox;

const Json& golden_yolox() {
  static const Json document = read_json(source_dir() + "/tests/golden/yolox.json");
  return document;
}

struct GoldenYolox {
  const Json& wanted;
  std::unique_ptr<Yolox> model;
  std::unique_ptr<FlatParameters> parameters;  // so that they have gradients
  Tensor images;
  models::TrueBoxes truth;
  std::int64_t height, width;

  explicit GoldenYolox(std::size_t index)
      : wanted(golden_yolox().at("cases").at(index)),
        height(golden_yolox().at("height").as_integer()),
        width(golden_yolox().at("width").as_integer()) {
    models::YoloxOptions options;
    options.size = wanted.at("depthwise").as_boolean() ? models::YoloxSize::nano : models::YoloxSize::s;
    options.depth = wanted.at("depth").as_number();
    options.width = wanted.at("width").as_number();
    options.classes = golden_yolox().at("classes").as_integer();
    model = std::make_unique<Yolox>(options);
    model->to(DType::f64);
    set_formula_weights(*model);
    for (const NamedTensor& named : model->parameters())
      if (named.name.starts_with("head.reg_preds") && named.name.ends_with("bias"))
        for (const int side : {2, 3}) named.tensor->data<double>()[side] += 1.4;
    parameters = std::make_unique<FlatParameters>(model->parameters());
    std::vector<double> pixels, boxes;
    std::vector<std::int64_t> classes, counts;
    const Json& all = golden_yolox().at("boxes");
    for (std::size_t i = 0; i < all.size(); ++i) {
      counts.push_back(static_cast<std::int64_t>(all.at(i).size()));
      for (std::size_t k = 0; k < all.at(i).size(); ++k) {
        for (std::size_t n = 0; n < 4; ++n) boxes.push_back(all.at(i).at(k).at(n).as_number());
        classes.push_back(golden_yolox().at("labels").at(i).at(k).as_integer());
      }
    }
    const Shape shape{static_cast<std::int64_t>(counts.size()), height, width, 3};
    for (std::int64_t i = 0; i < shape.size(); ++i) pixels.push_back(static_cast<double>((7 * i + 3) % 23 - 11) / 8);
    images = Tensor::of(shape, pixels);
    const auto n = static_cast<std::int64_t>(classes.size());
    truth = {{Tensor::of({n, 4}, boxes), Tensor::of<std::int64_t>({shape[0]}, counts)},
             Tensor::of<std::int64_t>({n}, classes)};
  }
  models::TrueBoxes without_boxes() const {
    return {{Tensor::zeros({0, 4}, DType::f64), Tensor::zeros({images.dim(0)}, DType::i64)},
            Tensor::zeros({0}, DType::i64)};
  }
};

/// 0: all convolutions plain; 1: depthwise, as nano has them.
class YoloxGolden : public testing::TestWithParam<std::size_t> {};

TEST_P(YoloxGolden, HasTheOutputsLossAndGradients) {
  GoldenYolox golden(GetParam());
  golden.model->train();
  const Tensor outputs = (*golden.model)(golden.images);
  const Tensor some = slice(outputs.detach(), 1, 0, outputs.dim(1), 17);
  const std::vector<double> values = some.to_doubles();
  const Json& wanted = golden.wanted.at("outputs");
  ASSERT_EQ(values.size(), wanted.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(values[i], wanted.at(i).as_number(), 1e-9 * std::max(1.0, std::abs(values[i]))) << i;
  const Tensor loss = golden.model->loss(outputs, golden.height, golden.width, golden.truth);
  EXPECT_NEAR(loss.item(), golden.wanted.at("loss").as_number(), 1e-9 * loss.item());
  backward(loss);
  const Json& gradients = golden.wanted.at("gradients");
  std::size_t compared = 0;
  for (const NamedTensor& named : golden.model->parameters()) {
    const Json* const both = gradients.find(named.name);
    ASSERT_NE(both, nullptr) << named.name;
    const Tensor gradient = grad_of(*named.tensor);
    const double norm = both->at(1).as_number();
    EXPECT_NEAR(sum(gradient).item(), both->at(0).as_number(), 1e-9 * std::max(1.0, norm)) << named.name;
    EXPECT_NEAR(std::sqrt(sum(square(gradient)).item()), norm, 1e-9 * std::max(1.0, norm)) << named.name;
    ++compared;
  }
  EXPECT_EQ(compared, gradients.size());
}

TEST_P(YoloxGolden, HasTheDetections) {
  GoldenYolox golden(GetParam());
  // As there, the running statistics have seen a batch.
  golden.model->train();
  (void)(*golden.model)(golden.images);
  golden.model->eval();
  const std::vector<Detections> all = golden.model->detections(
      (*golden.model)(golden.images), golden.height, golden.width, {.score_threshold = 0.2, .overlap_threshold = 0.6});
  const Json& wanted = golden.wanted.at("detections");
  ASSERT_EQ(all.size(), wanted.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Json &boxes = wanted.at(i).at("boxes"), &scores = wanted.at(i).at("scores"),
               &labels = wanted.at(i).at("labels");
    ASSERT_GE(static_cast<std::size_t>(all[i].scores.size()), scores.size());
    for (std::size_t k = 0; k < scores.size(); ++k) {
      EXPECT_NEAR(all[i].scores.to_doubles()[k], scores.at(k).as_number(), 1e-5);
      EXPECT_EQ(all[i].classes.to_doubles()[k], labels.at(k).as_number());
      for (std::size_t n = 0; n < 4; ++n)
        EXPECT_NEAR(all[i].boxes.to_doubles()[4 * k + n], boxes.at(4 * k + n).as_number(), 1e-3);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Convolutions, YoloxGolden, testing::Values(0, 1),
                         [](const auto& tried) { return tried.param == 0 ? "plain" : "depthwise"; });

TEST(Yolox, ImagesWithoutBoxesHaveAFiniteLoss) {
  GoldenYolox golden(0);
  golden.model->train();
  const Tensor outputs = (*golden.model)(golden.images);
  const Tensor loss = golden.model->loss(outputs, golden.height, golden.width, golden.without_boxes());
  EXPECT_TRUE(std::isfinite(loss.item()));
  EXPECT_GT(loss.item(), 0);
  backward(loss);
  for (const NamedTensor& named : golden.model->parameters())
    EXPECT_TRUE(std::isfinite(sum(grad_of(*named.tensor)).item())) << named.name;
}

TEST(Yolox, PointsOfIgnoredBoxesHaveNoLoss) {
  GoldenYolox golden(0);
  golden.model->eval();
  const NoGrad no_grad;
  const Tensor outputs = (*golden.model)(golden.images);
  const double background = golden.model->loss(outputs, golden.height, golden.width, golden.without_boxes()).item();
  models::TrueBoxes truth{
      {Tensor::of<double>({1, 4}, std::vector<double>{0, 0, 160, 96}),
       Tensor::of<std::int64_t>({3}, std::vector<std::int64_t>{0, 1, 0}), Tensor::full({1}, 1, DType::boolean)},
      Tensor::zeros({1}, DType::i64)};
  // The box covers the second of the three images.
  const double rest = golden.model->loss(outputs, golden.height, golden.width, truth).item();
  const models::TrueBoxes none{{Tensor::zeros({0, 4}, DType::f64), Tensor::zeros({2}, DType::i64)},
                               Tensor::zeros({0}, DType::i64)};
  const Tensor others = concat({slice(outputs, 0, 0, 1), slice(outputs, 0, 2, 3)}, 0);
  const double of_rest = golden.model->loss(others, golden.height, golden.width, none).item();
  EXPECT_NEAR(rest, of_rest, 1e-12 * background);
  EXPECT_LT(rest, background);
}

TEST(Yolox, SizesHaveTheParametersOfThePaper) {
  const auto millions = [](models::YoloxSize size) {
    return static_cast<double>(Yolox({.size = size}).parameter_count()) / 1e6;
  };
  EXPECT_NEAR(millions(models::YoloxSize::nano), 0.91, 0.005);
  EXPECT_NEAR(millions(models::YoloxSize::tiny), 5.06, 0.005);
  EXPECT_NEAR(millions(models::YoloxSize::s), 9.0, 0.05);
  EXPECT_NEAR(millions(models::YoloxSize::m), 25.3, 0.05);
  EXPECT_NEAR(millions(models::YoloxSize::l), 54.2, 0.05);
  EXPECT_NEAR(millions(models::YoloxSize::x), 99.1, 0.05);
}

TEST(YoloxRefusal, Arguments) {
  EXPECT_THROW(Yolox({.classes = 0}), ShapeError);
  EXPECT_THROW(Yolox({.width = 0.01}), ShapeError);
  EXPECT_THROW(Yolox({.depth = -1}), ShapeError);
  Yolox model({.size = models::YoloxSize::nano, .width = 0.125, .classes = 2});
  const std::string message = error_message<ShapeError>([&] { (void)model.forward(Tensor::zeros({1, 64, 72, 3})); });
  EXPECT_PRED2(contains, message, "[1, 64, 72, 3]");
  EXPECT_PRED2(contains, message, "32 divides H and W");
  EXPECT_THROW((void)model.forward(Tensor::zeros({1, 0, 64, 3})), ShapeError);
  const models::TrueBoxes none{{Tensor::zeros({0, 4}), Tensor::zeros({1}, DType::i64)}, Tensor::zeros({0}, DType::i64)};
  EXPECT_THROW(model.loss(Tensor::zeros({1, 84, 8}), 64, 64, none), ShapeError);
  EXPECT_THROW(model.loss(Tensor::zeros({1, 83, 7}), 64, 64, none), ShapeError);
  EXPECT_THROW(model.loss(Tensor::zeros({2, 84, 7}), 64, 64, none), ShapeError);
  EXPECT_THROW(model.detections(Tensor::zeros({1, 84, 6}), 64, 64, {}), ShapeError);
  // A configuration is refused before it trains.
  const Json node = parse_json(R"({"type": "yolox", "size": "yolox_nano"})", "test");
  const std::string refusal = error_message<ConfigError>(
      [&] { (void)models::make(node, {.height = 100, .width = 96, .channels = 3, .classes = 2}); });
  EXPECT_PRED2(contains, refusal, "100 x 96");
  EXPECT_PRED2(contains, refusal, "image_size");
}

}  // namespace
}  // namespace hearth::test
