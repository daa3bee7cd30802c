// SPDX-License-Identifier: Apache-2.0
// Gradients of a device are summed there, while the backward pass goes on.
#include "dist/data_parallel.h"

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/cuda/counters.h"
#include "ops/ops.h"
#include "tests/reference_libraries/nccl/tests/reference.h"

namespace hearth::test {
namespace {

TEST_P(CudaNccl, DataParallelSumsBucketsOnTheDeviceDuringTheBackwardPass) {
  constexpr std::int64_t width = 64;
  run_ranks(3, [&](Collective& group) {
    std::vector<NamedTensor> named;
    std::vector<Tensor> layers;
    for (int i = 0; i < 4; ++i)
      layers.push_back(requires_grad(Tensor::full({width, width}, 0.01 * (i + 1), DType::f32, group.device())));
    for (int i = 0; i < 4; ++i) named.push_back({join_text("layer", i), &layers[static_cast<std::size_t>(i)]});
    FlatParameters parameters(named);
    dist::DataParallel parallel(group, parameters, {.bucket_mb = 0.01, .first_bucket_mb = 0.01});
    ASSERT_EQ(parallel.buckets().size(), 4U);
    const Tensor x = Tensor::full({2, width}, group.rank() + 1.0, DType::f32, group.device());
    group.barrier();
    const cuda::Counters before = cuda::counters();
    Tensor y = x;
    for (const Tensor& layer : layers) y = matmul(y, layer);
    backward(sum(y));
    parallel.reduce();
    group.barrier();
    const cuda::Counters spent = cuda::counters() - before;
    group.barrier();
    EXPECT_GE(parallel.overlapped(), 3);
    EXPECT_EQ(spent.copies_out, 0);
    EXPECT_EQ(spent.waits, 0);
    // Linear in x: the sum over ranks is that of one rank with 1 + 2 + 3.
    const Tensor last = parameters.grads().to(Device{});
    double column = 6;
    for (int i = 0; i < 3; ++i) column *= 0.01 * (i + 1) * width;
    EXPECT_NEAR(last.data<const float>()[3 * width * width], 2 * column, 1e-4 * column);
  });
}

}  // namespace
}  // namespace hearth::test
