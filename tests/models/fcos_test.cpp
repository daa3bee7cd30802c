// SPDX-License-Identifier: Apache-2.0
// FCOS beside torchvision's with the same weights: outputs, losses, gradients and detections (golden/make_fcos.py).
#include "models/detection/fcos.h"

#include "autograd/grad_mode.h"
#include "tests/models/golden_detector.h"

namespace hearth::test {
namespace {

using models::Fcos;

GoldenDetector golden_fcos() {
  models::FcosOptions options;
  options.trunk.depth = 10;
  options.classes = 3;
  options.channels = 32;
  return {"fcos.json", std::make_unique<Fcos>(options)};
}

TEST(Fcos, HasTorchvisionsOutputsLossesAndGradients) { golden_fcos().expect_outputs_loss_and_gradients(7); }

TEST(Fcos, HasTorchvisionsDetections) { golden_fcos().expect_detections({.score_threshold = 0.05}); }

TEST(Fcos, ImagesWithoutBoxesHaveAFiniteLoss) { golden_fcos().expect_finite_loss_without_boxes(); }

TEST(Fcos, PointsOfIgnoredBoxesHaveNoLoss) {
  GoldenDetector golden = golden_fcos();
  golden.model->eval();
  const NoGrad no_grad;
  const Tensor outputs = golden.outputs();
  // All but the points on the upper and left edge of the first image are left out.
  const double background = golden.loss(outputs, golden.no_boxes()).item();
  EXPECT_LT(golden.loss_of_box(outputs, {0, 0, 130, 97}, true), 0.8 * background);
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
  options.groups = 0;
  EXPECT_THROW(Fcos{options}, ShapeError);
  options.groups = 32;
  Fcos model(options);
  const models::TrueBoxes none{{Tensor::zeros({0, 4}), Tensor::zeros({1}, DType::i64)}, Tensor::zeros({0}, DType::i64)};
  EXPECT_THROW(model.loss(Tensor::zeros({1, 5, 7}), 64, 64, none), ShapeError);
  EXPECT_THROW(model.detections(Tensor::zeros({1, 85, 6}), 64, 64, {}), ShapeError);
}

}  // namespace
}  // namespace hearth::test
