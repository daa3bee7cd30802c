// SPDX-License-Identifier: Apache-2.0
// RetinaNet beside torchvision's with the same weights: outputs, losses, gradients and detections
// (golden/make_anchor_detectors.py).
#include "models/detection/retinanet.h"

#include "autograd/grad_mode.h"
#include "tests/models/golden_detector.h"

namespace hearth::test {
namespace {

using models::RetinaNet;

GoldenDetector golden_retinanet() {
  models::RetinaNetOptions options;
  options.trunk.depth = 10;
  options.classes = 3;
  options.channels = 32;
  return {"retinanet.json", std::make_unique<RetinaNet>(options)};
}

TEST(RetinaNet, HasTorchvisionsOutputsLossesAndGradients) { golden_retinanet().expect_outputs_loss_and_gradients(29); }

TEST(RetinaNet, HasTorchvisionsDetections) {
  golden_retinanet().expect_detections(
      {.score_threshold = 0.05, .overlap_threshold = 0.5, .level_limit = 1000, .detection_limit = 300});
}

TEST(RetinaNet, ImagesWithoutBoxesHaveAFiniteLoss) { golden_retinanet().expect_finite_loss_without_boxes(); }

TEST(RetinaNet, AnchorsInIgnoredBoxesHaveNoLoss) {
  GoldenDetector golden = golden_retinanet();
  golden.model->eval();
  const NoGrad no_grad;
  const Tensor outputs = golden.outputs();
  const double background = golden.loss(outputs, golden.no_boxes()).item();
  EXPECT_LT(golden.loss_of_box(outputs, {0, 0, 130, 97}, true), 0.85 * background);
  EXPECT_NE(golden.loss_of_box(outputs, {0, 0, 130, 97}, false), background);
}

TEST(RetinaNet, AnchorsGrowWithTheirScale) {
  models::RetinaNetOptions options;
  options.trunk.depth = 10;
  options.trunk.stem = models::ResNetStem::small;
  options.classes = 1;
  options.channels = 4;
  const NoGrad no_grad;
  // A box that is the smallest anchor of a position at (16, 16): only with that scale its deltas are 0.
  const models::TrueBoxes truth{
      {Tensor::of<float>({1, 4}, std::vector<float>{12, 12, 20, 20}), Tensor::full({1}, 1, DType::i64)},
      Tensor::zeros({1}, DType::i64)};
  // Anchors: 9 of each position of maps of 32, 16, 8, 4 and 2 rows.
  const Tensor outputs = concat({Tensor::full({1, 9 * 1364, 1}, 100), Tensor::zeros({1, 9 * 1364, 4})}, -1);
  const double same = RetinaNet(options).loss(outputs, 64, 64, truth).item();
  options.anchor_scale = 3;
  EXPECT_NE(RetinaNet(options).loss(outputs, 64, 64, truth).item(), same);
}

TEST(RetinaNetRefusal, Arguments) {
  models::RetinaNetOptions options;
  options.trunk.depth = 10;
  options.classes = 0;
  EXPECT_THROW(RetinaNet{options}, ShapeError);
  options.classes = 2;
  options.trunk.classes = 5;
  EXPECT_THROW(RetinaNet{options}, UsageError);
  options.trunk.classes = 0;
  options.trunk.blocks = {1, 1};
  EXPECT_THROW(RetinaNet{options}, UsageError);
  options.trunk.blocks = {};
  options.anchor_scale = 0;
  EXPECT_THROW(RetinaNet{options}, UsageError);
  options.anchor_scale = 4;
  options.channels = 8;
  RetinaNet model(options);
  const models::TrueBoxes none{{Tensor::zeros({0, 4}), Tensor::zeros({1}, DType::i64)}, Tensor::zeros({0}, DType::i64)};
  EXPECT_THROW(model.loss(Tensor::zeros({1, 5, 6}), 64, 64, none), ShapeError);
  EXPECT_THROW(model.loss(Tensor::zeros({2, 9 * 85, 6}), 64, 64, none), ShapeError);
  EXPECT_THROW(model.detections(Tensor::zeros({1, 9 * 85, 5}), 64, 64, {}), ShapeError);
}

}  // namespace
}  // namespace hearth::test
