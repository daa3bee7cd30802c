// SPDX-License-Identifier: Apache-2.0
#include "ops/index/one_hot.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/creation.h"
#include "core/cuda/counters.h"
#include "core/error.h"

namespace hearth::one_hot_test {
namespace {

TEST(OneHot, DoesNotWaitForADevice) {
  if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  const Device gpu{DeviceType::cuda, 0};
  const Tensor labels = tensor({2, 0}).to(DType::i32).to(gpu), wrong = tensor({0, 3}).to(DType::i64).to(gpu);
  const cuda::Counters start = cuda::counters();
  const Tensor y = one_hot(labels, 3);
  const cuda::Counters spent = cuda::counters() - start;
  EXPECT_EQ(spent.waits, 0);
  EXPECT_EQ(spent.copies_out, 0);
  EXPECT_EQ(y.to_doubles(), (std::vector<double>{0, 0, 1, 1, 0, 0}));
  EXPECT_THROW((void)one_hot(wrong, 3).to_doubles(), IndexError);
}

}  // namespace
}  // namespace hearth::one_hot_test
