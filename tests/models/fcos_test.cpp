// SPDX-License-Identifier: Apache-2.0
// FCOS beside torchvision's with the same weights: outputs, losses, gradients and detections (golden/make_fcos.py).
#include "models/detection/fcos.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "autograd/parameters.h"
#include "core/io/json_text.h"
#include "ops/ops.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"

namespace hearth::test {
namespace {

using models::Detections;
using models::Fcos;

const Json& golden_fcos() {
  static const Json document = read_json(source_dir() + "/tests/golden/fcos.json");
  return document;
}

/// Parameters by the formula of make_fcos.py.
void set_weights(Fcos& model) {
  for (const NamedTensor& named : model.parameters()) {
    Tensor& x = *named.tensor;
    const bool is_filter = x.rank() == 4, is_norm_weight = x.rank() == 1 && named.name.ends_with("weight");
    std::int64_t sum = 0;
    for (const char c : named.name) sum += static_cast<unsigned char>(c);
    const double scale = is_filter ? 1.5 / std::sqrt(static_cast<double>(x.size() / x.dim(0))) : 0.1;
    const std::int64_t rows = is_filter ? x.dim(1) : 1, columns = is_filter ? x.dim(2) : 1,
                       channels = is_filter ? x.dim(3) : 1;
    double* const to = x.data<double>();
    for (std::int64_t i = 0; i < x.size(); ++i) {
      // [K, R, S, C] here, [K, C, R, S] there.
      const std::int64_t c = i % channels, place = i / channels, s = place % columns, r = place / columns % rows;
      const std::int64_t there = is_filter ? ((place / columns / rows * channels + c) * rows + r) * columns + s : i;
      to[i] = (is_norm_weight ? 1.0 : 0.0) + scale * static_cast<double>((37 * there + sum) % 1009 - 504) / 504;
    }
  }
}

struct GoldenFcos {
  std::unique_ptr<Fcos> model;
  std::unique_ptr<FlatParameters> parameters;  // so that they have gradients
  Tensor images;
  models::TrueBoxes truth;
  std::int64_t height, width;

  GoldenFcos() : height(golden_fcos().at("height").as_integer()), width(golden_fcos().at("width").as_integer()) {
    models::FcosOptions options;
    options.trunk.depth = 10;
    options.classes = golden_fcos().at("classes").as_integer();
    options.channels = golden_fcos().at("channels").as_integer();
    model = std::make_unique<Fcos>(options);
    model->to(DType::f64);
    set_weights(*model);
    parameters = std::make_unique<FlatParameters>(model->parameters());
    std::vector<double> pixels, boxes;
    std::vector<std::int64_t> classes, counts;
    const Json& all = golden_fcos().at("boxes");
    for (std::size_t i = 0; i < all.size(); ++i) {
      counts.push_back(static_cast<std::int64_t>(all.at(i).size()));
      for (std::size_t k = 0; k < all.at(i).size(); ++k) {
        for (std::size_t n = 0; n < 4; ++n) boxes.push_back(all.at(i).at(k).at(n).as_number());
        classes.push_back(golden_fcos().at("labels").at(i).at(k).as_integer());
      }
    }
    const Shape shape{static_cast<std::int64_t>(counts.size()), height, width, 3};
    for (std::int64_t i = 0; i < shape.size(); ++i) pixels.push_back(static_cast<double>((7 * i + 3) % 23 - 11) / 8);
    images = Tensor::of(shape, pixels);
    const auto n = static_cast<std::int64_t>(classes.size());
    truth = {{Tensor::of({n, 4}, boxes), Tensor::of<std::int64_t>({shape[0]}, counts)},
             Tensor::of<std::int64_t>({n}, classes)};
  }
};

TEST(Fcos, HasTorchvisionsOutputsLossesAndGradients) {
  GoldenFcos golden;
  golden.model->train();
  const Tensor outputs = (*golden.model)(golden.images);
  const Tensor some = slice(outputs.detach(), 1, 0, outputs.dim(1), 7);
  const std::vector<double> values = some.to_doubles();
  const Json& wanted = golden_fcos().at("outputs");
  ASSERT_EQ(values.size(), wanted.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(values[i], wanted.at(i).as_number(), 1e-9 * std::max(1.0, std::abs(values[i]))) << i;
  const Tensor loss = golden.model->loss(outputs, golden.height, golden.width, golden.truth);
  EXPECT_NEAR(loss.item(), golden_fcos().at("loss").as_number(), 1e-9 * loss.item());
  backward(loss);
  const Json& gradients = golden_fcos().at("gradients");
  std::size_t compared = 0;
  for (const NamedTensor& named : golden.model->parameters()) {
    const Json* const both = gradients.find(named.name);
    ASSERT_NE(both, nullptr) << named.name;
    const Tensor gradient = grad_of(*named.tensor);
    double norm = both->at(1).as_number();
    EXPECT_NEAR(sum(gradient).item(), both->at(0).as_number(), 1e-9 * std::max(1.0, norm)) << named.name;
    EXPECT_NEAR(std::sqrt(sum(square(gradient)).item()), norm, 1e-9 * std::max(1.0, norm)) << named.name;
    ++compared;
  }
  EXPECT_EQ(compared, gradients.size());
}

TEST(Fcos, HasTorchvisionsDetections) {
  GoldenFcos golden;
  // As there, the running statistics have seen a batch.
  golden.model->train();
  (void)(*golden.model)(golden.images);
  golden.model->eval();
  const std::vector<Detections> all =
      golden.model->detections((*golden.model)(golden.images), golden.height, golden.width, {.score_threshold = 0.05});
  const Json& wanted = golden_fcos().at("detections");
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

TEST(Fcos, ImagesWithoutBoxesHaveAFiniteLoss) {
  GoldenFcos golden;
  golden.model->train();
  const Tensor outputs = (*golden.model)(golden.images);
  const models::TrueBoxes none{{Tensor::zeros({0, 4}, DType::f64), Tensor::zeros({3}, DType::i64)},
                               Tensor::zeros({0}, DType::i64)};
  const Tensor loss = golden.model->loss(outputs, golden.height, golden.width, none);
  EXPECT_TRUE(std::isfinite(loss.item()));
  EXPECT_GT(loss.item(), 0);
  backward(loss);
  for (const NamedTensor& named : golden.model->parameters())
    EXPECT_TRUE(std::isfinite(sum(grad_of(*named.tensor)).item())) << named.name;
}

TEST(Fcos, PointsOfIgnoredBoxesHaveNoLoss) {
  GoldenFcos golden;
  golden.model->eval();
  const NoGrad no_grad;
  const Tensor outputs = (*golden.model)(golden.images);
  const auto loss_of = [&](std::vector<bool> ignored) {
    models::TrueBoxes truth{{Tensor::of<double>({1, 4}, std::vector<double>{0, 0, 130, 97}),
                             Tensor::of<std::int64_t>({3}, std::vector<std::int64_t>{1, 0, 0})},
                            Tensor::zeros({1}, DType::i64)};
    if (!ignored.empty()) truth.list.ignored = Tensor::full({1}, ignored[0] ? 1 : 0, DType::boolean);
    return golden.model->loss(outputs, golden.height, golden.width, truth).item();
  };
  EXPECT_EQ(loss_of({false}), loss_of({}));
  // All but the points on the upper and left edge of the first image are left out.
  const models::TrueBoxes none{{Tensor::zeros({0, 4}, DType::f64), Tensor::zeros({3}, DType::i64)},
                               Tensor::zeros({0}, DType::i64)};
  const double background = golden.model->loss(outputs, golden.height, golden.width, none).item();
  EXPECT_LT(loss_of({true}), 0.8 * background);
}

TEST(FcosRefusal, Arguments) {
  models::FcosOptions options;
  options.trunk.depth = 10;
  options.classes = 0;
  EXPECT_THROW(Fcos{options}, ShapeError);
  options.classes = 2;
  options.trunk.classes = 5;
  EXPECT_THROW(Fcos{options}, UsageError);
  options.trunk.classes = 0;
  options.trunk.blocks = {1, 1};
  EXPECT_THROW(Fcos{options}, UsageError);
  options.trunk.blocks = {1, 1, 1, 1};
  options.channels = 33;
  EXPECT_THROW(Fcos{options}, ShapeError);
  options.channels = 32;
  Fcos model(options);
  const models::TrueBoxes none{{Tensor::zeros({0, 4}), Tensor::zeros({1}, DType::i64)}, Tensor::zeros({0}, DType::i64)};
  EXPECT_THROW(model.loss(Tensor::zeros({1, 5, 7}), 64, 64, none), ShapeError);
  EXPECT_THROW(model.detections(Tensor::zeros({1, 85, 6}), 64, 64, {}), ShapeError);
}

}  // namespace
}  // namespace hearth::test
