// SPDX-License-Identifier: Apache-2.0
// What head and cross entropy by chunks cost on a device: launches, and the logits that exist at a time.
#include <gtest/gtest.h>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "core/cuda/counters.h"
#include "ops/loss/linear_cross_entropy.h"

namespace hearth::linear_cross_entropy_launches_test {
namespace {

constexpr Device gpu{DeviceType::cuda, 0};

std::int64_t calls(const cuda::Counters& counters) { return counters.launches + counters.library_calls; }

class CudaLinearCrossEntropy : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  }
};

// A chunk: the logits, their loss and gradient in one, and from it that of x and of w; without a gradient the first
// two. In all, the mean and the scale of the gradients; backward, the scaling of both.
TEST_F(CudaLinearCrossEntropy, CostsFourCallsAChunkAndNoCopies) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = requires_grad(Tensor::full({64, 32}, 0.5, dtype, gpu)),
                 w = requires_grad(Tensor::full({48, 32}, 0.25, dtype, gpu));
    const Tensor labels = Tensor::zeros({64}, DType::i64, gpu), correct = Tensor::zeros({1}, DType::i64, gpu);
    for (const Tensor& leaf : {x, w}) (void)grad_of(leaf), zero_grad(leaf);
    const auto loss_of = [&](std::int64_t chunk) {
      return linear_cross_entropy(x, w, {}, labels, {.chunk_rows = chunk}, correct);
    };
    const auto cost = [&](std::int64_t chunk) {
      // A library makes and times its plans in the first call of a shape.
      (void)loss_of(chunk);
      const cuda::Counters start = cuda::counters();
      const Tensor loss = loss_of(chunk);
      const cuda::Counters spent = cuda::counters() - start;
      EXPECT_EQ(spent.conversions + spent.layout_changes + spent.waits, 0);
      return calls(spent);
    };
    EXPECT_EQ(cost(16) - cost(32), 2 * 4);
    {
      const NoGrad no_grad;
      EXPECT_EQ(cost(16) - cost(32), 2 * 2);
    }
    const Tensor loss = loss_of(16);
    const Tensor dy = Tensor::full({}, 1.0, DType::f32, gpu);
    const cuda::Counters start = cuda::counters();
    backward(loss, dy);
    const cuda::Counters spent = cuda::counters() - start;
    // Beside scaling, the tape copies what x gets in its own type into its leaf.
    EXPECT_LE(calls(spent), 3);
  }
}

}  // namespace
}  // namespace hearth::linear_cross_entropy_launches_test
