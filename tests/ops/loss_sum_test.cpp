// SPDX-License-Identifier: Apache-2.0
// The running sum of losses: rounded after the product and after the sum, alike on every device.
#include "hearth/ops/loss/loss_sum.h"

#include <gtest/gtest.h>

#include "support/op_test.h"

namespace hearth::test {
namespace {

OP_TEST(LossSum) {
  const Site& site = current_site();
  const Tensor sum = Tensor::full({}, 0.1, DType::f64, site.device);
  double expected = 0.1;
  for (const double value : {1.7, 0.3, 2.5}) {
    const Tensor loss = Tensor::full({}, value, site.dtype, site.device);
    add_loss(sum, loss, 13);
    // Named, because a fused multiply-add would round once.
    const volatile double product = 13 * loss.item();
    expected += product;
  }
  EXPECT_EQ(sum.item(), expected);
}

TEST(LossSumRefusal, Arguments) {
  const Tensor sum = Tensor::zeros({}, DType::f64), loss = Tensor::zeros({});
  refuses<UsageError>("add_loss", [&] { return add_loss({}, loss, 1), 0; });
  refuses<DTypeError>("add_loss", [&] { return add_loss(loss, loss, 1), 0; });
  refuses<ShapeError>("add_loss", [&] { return add_loss(sum, Tensor::zeros({2}), 1), 0; });
  if (device_count(DeviceType::cuda) == 0) return;
  refuses<DeviceError>("add_loss", [&] {
    return add_loss(sum, Tensor::zeros({}, DType::f32, {DeviceType::cuda, 0}), 1), 0;
  });
}

}  // namespace
}  // namespace hearth::test
