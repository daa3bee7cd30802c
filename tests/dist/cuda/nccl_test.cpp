// SPDX-License-Identifier: Apache-2.0
// NCCL with one rank, as a machine with one GPU can try it: every kind of call, eager and replayed. With several ranks:
// tests/reference_libraries/nccl.
#include <gtest/gtest.h>

#include "core/build.h"
#include "core/cuda/graph.h"
#include "core/error.h"
#include "dist/process_group.h"

namespace hearth::dist::nccl_test {
namespace {

class CudaNcclOfOneRank : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::why_no_device();
    if (!why_no_nccl().empty()) GTEST_SKIP() << why_no_nccl();
    group_ = nccl_group(std::move(loopback_groups(1)[0]), device_, {.ordered = GetParam()});
  }

  Tensor numbers(DType dtype) const {
    std::vector<double> values;
    for (int i = 0; i < 5000; ++i) values.push_back(0.001 * i - 1.7);
    return Tensor::of({5000}, values).to(dtype).to(device_);
  }
  static void expect_equal(const Tensor& x, const Tensor& expected) {
    const Tensor a = x.to(DType::f64).to(Device{}), b = expected.to(DType::f64).to(Device{});
    for (std::int64_t i = 0; i < a.size(); ++i) ASSERT_EQ(a.data<const double>()[i], b.data<const double>()[i]) << i;
  }

  const Device device_{DeviceType::cuda, 0};
  std::unique_ptr<Collective> group_;
};

INSTANTIATE_TEST_SUITE_P(Sums, CudaNcclOfOneRank, testing::Bool(),
                         [](const auto& one) { return one.param ? "InOrder" : "OfNccl"; });

TEST_P(CudaNcclOfOneRank, GivesBackWhatItGets) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32, DType::i64}) {
    const Tensor x = numbers(dtype), y = x.clone();
    group_->all_reduce(y).wait();
    expect_equal(y, x);
    group_->all_reduce(y, Reduce::max).wait();
    expect_equal(y, x);
    const Tensor part = Tensor::zeros({5000}, dtype, device_), all = part.clone();
    group_->reduce_scatter(x, part).wait();
    expect_equal(part, x);
    group_->all_gather(x, all).wait();
    expect_equal(all, x);
    group_->broadcast(y).wait();
    expect_equal(y, x);
    group_->all_to_all(x, part).wait();
    expect_equal(part, x);
  }
}

TEST_P(CudaNcclOfOneRank, RoundsToTheTypeOnTheWire) {
  for (const DType wire : {DType::bf16, DType::f16}) {
    const Tensor x = numbers(DType::f32);
    const Tensor expected = x.to(wire);
    group_->all_reduce(x, Reduce::sum, wire).wait();
    expect_equal(x, expected);
  }
}

TEST_P(CudaNcclOfOneRank, IsReplayed) {
  const Tensor x = Tensor::full({5000}, 3, DType::f32, device_), y = Tensor::full({5000}, 7, DType::f32, device_);
  cuda::Arena arena(device_);
  const auto step = [&] {
    const Work first = group_->all_reduce(x), second = group_->all_reduce(x, Reduce::sum, DType::bf16);
    first.wait();
    second.wait();
    y.copy_from(x);
  };
  arena.run(step);
  const cuda::Graph graph = cuda::Graph::record(cuda::stream_of(device_), arena, step);
  for (int value = 1; value < 20; ++value) {
    x.fill_(value);
    graph.launch(cuda::stream_of(device_));
    ASSERT_EQ(y.to(Device{}).data<const float>()[4999], static_cast<float>(value));
  }
}

}  // namespace
}  // namespace hearth::dist::nccl_test
