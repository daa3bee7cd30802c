// SPDX-License-Identifier: Apache-2.0
// SSD beside torchvision's on MLPerf's trunk with the same weights: outputs, losses, gradients and detections
// (golden/make_anchor_detectors.py).
#include "models/detection/ssd.h"

#include <map>

#include "autograd/grad_mode.h"
#include "tests/models/golden_detector.h"

namespace hearth::test {
namespace {

using models::Ssd;

GoldenDetector golden_ssd() {
  models::SsdOptions options;
  options.trunk.depth = 10;
  options.trunk.width = 16;
  options.classes = 3;
  return {"ssd.json", std::make_unique<Ssd>(options)};
}

TEST(Ssd, HasTorchvisionsOutputsLossesAndGradients) { golden_ssd().expect_outputs_loss_and_gradients(83); }

TEST(Ssd, HasTorchvisionsDetections) {
  golden_ssd().expect_detections(
      {.score_threshold = 0.05, .overlap_threshold = 0.45, .level_limit = 400, .detection_limit = 200});
}

TEST(Ssd, ImagesWithoutBoxesHaveAFiniteLoss) { golden_ssd().expect_finite_loss_without_boxes(); }

TEST(Ssd, HasMlperfsParametersAndAnchors) {
  Ssd model({.classes = 80});
  std::map<std::string, Shape> shapes;
  for (const NamedTensor& named : model.parameters()) shapes[named.name] = named.tensor->shape();
  EXPECT_EQ(shapes["backbone.body.layer3.5.conv2.weight"], (Shape{256, 3, 3, 256}));
  EXPECT_FALSE(shapes.contains("backbone.body.layer4.0.conv1.weight"));
  EXPECT_FALSE(shapes.contains("backbone.body.fc.weight"));
  EXPECT_EQ(shapes["backbone.extra.1.0.weight"], (Shape{256, 1, 1, 512}));
  EXPECT_EQ(shapes["backbone.extra.4.2.weight"], (Shape{256, 3, 3, 128}));
  EXPECT_EQ(shapes["head.classification_head.module_list.1.weight"], (Shape{6 * 81, 3, 3, 512}));
  EXPECT_EQ(shapes["head.regression_head.module_list.5.weight"], (Shape{4 * 4, 3, 3, 256}));
  const models::TrueBoxes none{{Tensor::zeros({0, 4}), Tensor::zeros({1}, DType::i64)}, Tensor::zeros({0}, DType::i64)};
  EXPECT_EQ(model.loss(Tensor::zeros({1, 8732, 85}), 300, 300, none).item(), 0);
}

TEST(Ssd, AnchorsInIgnoredBoxesAreNoHardNegatives) {
  GoldenDetector golden = golden_ssd();
  golden.model->eval();
  const NoGrad no_grad;
  const Tensor outputs = golden.outputs();
  // A small box, and all anchors ignored, also those that leave the image: the hardest negatives are gone.
  const auto loss_of = [&](std::vector<std::int64_t> ignored) {
    const auto n = static_cast<std::int64_t>(ignored.size());
    models::TrueBoxes boxes{
        {slice(Tensor::of<double>({2, 4}, std::vector<double>{60, 60, 90, 95, -400, -400, 700, 700}), 0, 0, n),
         Tensor::of<std::int64_t>({3}, std::vector<std::int64_t>{n, 0, 0}),
         Tensor::of<std::int64_t>({n}, ignored).to(DType::boolean)},
        Tensor::zeros({n}, DType::i64)};
    return golden.loss(outputs, boxes).item();
  };
  EXPECT_LT(loss_of({0, 1}), loss_of({0}));
  EXPECT_EQ(loss_of({1, 1}), 0);
}

TEST(SsdRefusal, Arguments) {
  models::SsdOptions options;
  options.trunk.depth = 10;
  options.trunk.width = 4;
  options.classes = 0;
  EXPECT_THROW(Ssd{options}, ShapeError);
  options.classes = 2;
  options.trunk.classes = 5;
  EXPECT_THROW(Ssd{options}, UsageError);
  options.trunk.classes = 0;
  options.trunk.stages = 2;
  EXPECT_THROW(Ssd{options}, UsageError);
  options.trunk.stages = 0;
  options.trunk.blocks = {1, 1};
  EXPECT_THROW(Ssd{options}, ShapeError);
  options.trunk.blocks = {};
  Ssd model(options);
  EXPECT_THROW(model(Tensor::zeros({1, 256, 300, 3})), ShapeError);
  EXPECT_THROW(model(Tensor::zeros({257, 300, 3})), ShapeError);
  const models::TrueBoxes none{{Tensor::zeros({0, 4}), Tensor::zeros({1}, DType::i64)}, Tensor::zeros({0}, DType::i64)};
  EXPECT_THROW(model.loss(Tensor::zeros({1, 8732, 7}), 256, 300, none), ShapeError);
  EXPECT_THROW(model.loss(Tensor::zeros({1, 8732, 6}), 300, 300, none), ShapeError);
  EXPECT_THROW(model.detections(Tensor::zeros({1, 8731, 7}), 300, 300, {}), ShapeError);
  // The smallest images, with either stem.
  const NoGrad no_grad;
  EXPECT_EQ(model(Tensor::zeros({1, 257, 257, 3})).dim(2), 7);
  options.trunk.stem = models::ResNetStem::small;
  EXPECT_EQ(Ssd(options)(Tensor::zeros({1, 65, 65, 3})).dim(2), 7);
}

}  // namespace
}  // namespace hearth::test
