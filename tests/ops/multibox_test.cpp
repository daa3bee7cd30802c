// SPDX-License-Identifier: Apache-2.0
// SSD's loss of class scores: which anchors count, and the gradient.
#include "ops/loss/multibox.h"

#include <cmath>

#include "ops/loss/cross_entropy.h"
#include "tests/support/op_test.h"

namespace hearth::test::multibox_test {
namespace {

Tensor labels_of(const Shape& shape, const std::vector<std::int64_t>& values) {
  return Tensor::of<std::int64_t>(shape, values);
}

OP_TEST(MultiboxLoss) {
  for (const Shape& shape : {Shape{1, 1, 2}, {2, 37, 3}, {3, 70, 5}}) {
    check([&](Draw& draw) {
      const Tensor logits = draw.normal(shape);
      std::vector<std::int64_t> labels;
      for (std::int64_t i = 0; i < shape[0] * shape[1]; ++i)
        labels.push_back(i % 11 == 0 ? 1 + i % (shape[2] - 1) : i % 7 == 3 ? -1 : 0);
      return multibox_loss(logits, labels_of({shape[0], shape[1]}, labels).to(logits.device()));
    });
  }
}

TEST(MultiboxLoss, CountsTheHardestBackgrounds) {
  // Two classes: of logits (0, x) the cross entropy of background is log(1 + e^x). Anchors of two images.
  const std::vector<double> x{3, -1, 2, 2, 5, 1, /* second */ 4, 4, 4, 4, 4, 4};
  std::vector<double> logits;
  for (const double each : x) logits.insert(logits.end(), {0, each});
  const Tensor scores = Tensor::of({2, 6, 2}, logits);
  const auto loss_of = [&](std::vector<std::int64_t> labels, double ratio) {
    return multibox_loss(scores, labels_of({2, 6}, labels), ratio).item();
  };
  const auto background = [](double each) { return std::log1p(std::exp(each)); };
  const auto object = [](double each) { return std::log1p(std::exp(-each)); };
  // The first anchor has an object; the fifth does not count. The second image has no object and so no background.
  const std::vector<std::int64_t> labels{1, 0, 0, 0, -1, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_NEAR(loss_of(labels, 0), object(3), 1e-12);
  EXPECT_NEAR(loss_of(labels, 1), object(3) + background(2), 1e-12);
  EXPECT_NEAR(loss_of(labels, 3), object(3) + 2 * background(2) + background(1), 1e-12);
  EXPECT_NEAR(loss_of(labels, 100), object(3) + 2 * background(2) + background(1) + background(-1), 1e-12);
  EXPECT_EQ(loss_of({0, 0, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0}, 3), 0);
  // Of equals the first counts: with an object at the second of the equal anchors the third is taken.
  EXPECT_NEAR(loss_of({-1, 0, 1, 0, 0, 0, -1, -1, -1, -1, -1, -1}, 2), object(2) + background(5) + background(2),
              1e-12);
}

TEST(MultiboxLossRefusal, Arguments) {
  const Tensor logits = Tensor::zeros({2, 3, 4}), labels = Tensor::zeros({2, 3}, DType::i64);
  refuses<UsageError>("multibox_loss", [&] { return multibox_loss(Tensor(), labels); });
  refuses<DTypeError>("multibox_loss", [&] { return multibox_loss(labels, labels); });
  refuses<DTypeError>("multibox_loss", [&] { return multibox_loss(logits, Tensor::zeros({2, 3})); });
  refuses<ShapeError>("multibox_loss", [&] { return multibox_loss(logits, Tensor::zeros({3, 2}, DType::i64)); });
  refuses<ShapeError>("multibox_loss", [&] { return multibox_loss(Tensor::zeros({6, 4}), labels); });
  refuses<UsageError>("multibox_loss", [&] { return multibox_loss(logits, labels, -1); });
  refuses<UsageError>("multibox_loss", [&] { return multibox_loss(logits, labels, std::nan("")); });
  EXPECT_THROW((void)multibox_loss(logits, Tensor::full({2, 3}, 4, DType::i64)), IndexError);
  EXPECT_THROW((void)multibox_loss(logits, Tensor::full({2, 3}, -2, DType::i64)), IndexError);
}

}  // namespace
}  // namespace hearth::test::multibox_test
