// SPDX-License-Identifier: Apache-2.0
// The running sum of losses: rounded after the product and after the sum, alike on every device.
#include "ops/loss/loss_sum.h"

#include <gtest/gtest.h>

#include "tests/support/op_test.h"

namespace hearth::test::loss_sum_test {
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
  const Tensor loss = Tensor::full({}, 1.7, site.dtype, site.device),
               share = Tensor::full({1}, 0.3, DType::f64, site.device);
  add_loss(sum, loss, 13, share);
  const volatile double weight = 13 * 0.3, product = weight * loss.item();
  EXPECT_EQ(sum.item(), expected + product);
}

OP_TEST(LabelShares) {
  const Device device = current_site().device;
  const auto labels = [&](std::int64_t size, std::int64_t period) {
    std::vector<std::int64_t> values(static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int64_t>(i) % period == 0 ? 7 : 3;
    return Tensor::of<std::int64_t>({size}, values).to(device);
  };
  // 300 of 600, 2 of 3, none of 1, all of 10, all rows of 5 and of 2 x 3, and the empty part.
  const std::vector<Tensor> parts{labels(600, 2),
                                  labels(3, 3),
                                  labels(1, 1),
                                  labels(10, 100).clone(),
                                  Tensor::zeros({5, 4}, current_site().dtype, device),
                                  Tensor::zeros({2, 3, 4}, current_site().dtype, device),
                                  Tensor::zeros({0}, DType::i64, device)};
  parts[3].fill_(3);
  const std::vector<double> counts{300, 2, 0, 10, 5, 6, 0};
  const Tensor counted = label_counts(parts, 7);
  EXPECT_EQ(counted.to_doubles(), counts);
  const std::vector<double> shares = label_weights(counted).to_doubles();
  ASSERT_EQ(shares.size(), counts.size());
  for (std::size_t i = 0; i < counts.size(); ++i) EXPECT_EQ(shares[i], counts[i] / 323) << i;
  EXPECT_EQ(label_weights(label_counts(std::span(parts).subspan(2, 1), 7)).to_doubles(), std::vector<double>{0.0})
      << "no label counts";
}

TEST(LossSumRefusal, Arguments) {
  const Tensor sum = Tensor::zeros({}, DType::f64), loss = Tensor::zeros({});
  refuses<UsageError>("add_loss", [&] { return add_loss({}, loss, 1), 0; });
  refuses<DTypeError>("add_loss", [&] { return add_loss(loss, loss, 1), 0; });
  refuses<ShapeError>("add_loss", [&] { return add_loss(sum, Tensor::zeros({2}), 1), 0; });
  refuses<UsageError>("add_loss", [&] { return add_loss(sum, loss, 1, Tensor::zeros({2}, DType::f64)), 0; });
  refuses<UsageError>("label_counts", [&] { return label_counts({}, 7); });
  refuses<DTypeError>("label_counts", [&] {
    const Tensor bytes = Tensor::zeros({2}, DType::u8);
    return label_counts(std::span(&bytes, 1), 7);
  });
  refuses<ShapeError>("label_counts", [&] { return label_counts(std::span(&loss, 1), 7); });
  refuses<UsageError>("label_weights", [&] { return label_weights({}); });
  refuses<UsageError>("label_weights", [&] { return label_weights(loss); });
  if (device_count(DeviceType::cuda) == 0) return;
  refuses<DeviceError>("add_loss", [&] {
    return add_loss(sum, Tensor::zeros({}, DType::f32, {DeviceType::cuda, 0}), 1), 0;
  });
}

}  // namespace
}  // namespace hearth::test::loss_sum_test
