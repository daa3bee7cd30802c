// SPDX-License-Identifier: Apache-2.0
// The caching pool on a device whose memory runs out.
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "core/cuda/graph.h"
#include "core/cuda/memory.h"
#include "core/error.h"
#include "core/tensor.h"
#include "tests/emulated_gpu/runtime.h"

namespace hearth::pool_test {
namespace {

constexpr Device gpu{DeviceType::cuda, 0};
constexpr std::int64_t mebibyte = std::int64_t{1} << 20;

/// Leaves the device so many bytes beside what is in use, and its streams lazy: what is queued runs when somebody
/// waits.
class CudaPoolPressure : public testing::Test {
 protected:
  void SetUp() override {
    (void)cuda::stream_of(gpu);
    cuda::emulate::Settings few = cuda::emulate::settings();
    few.memory_bytes = cuda::emulate::memory_in_use(0) + 256 * mebibyte;
    few.streams = cuda::emulate::stream_policy_named("lazy");
    cuda::emulate::apply(few);
    pool_ = cuda::make_memory(gpu, true);
    scope_.emplace(gpu, *pool_);
  }
  void TearDown() override {
    scope_.reset();
    pool_.reset();
    cuda::emulate::apply(cuda::emulate::settings_from_environment());
  }

  std::unique_ptr<MemoryResource> pool_;
  std::optional<DeviceMemoryScope> scope_;

  static Tensor first(const Tensor& all) {
    const Shape shape{16};
    return Tensor::view(all.storage(), shape, contiguous_strides(shape), 0, DType::u8, gpu);
  }
  /// So many, the first 16 of which have this value.
  static Tensor bytes(std::int64_t count, double value) {
    const Tensor all = Tensor::empty({count}, DType::u8, gpu);
    first(all).fill_(value);
    return all;
  }
};

// As batches of growing length: each shape is larger than what the ones before it left cached.
TEST_F(CudaPoolPressure, ShapesThatFragmentItAreServed) {
  for (const std::int64_t megabytes : {40, 60, 90, 130, 200, 70, 240}) {
    const Tensor a = bytes(megabytes * mebibyte, 1);
    if (megabytes > 100) continue;
    const Tensor b = bytes(megabytes * mebibyte, 2);
    for (const auto& [of, value] : {std::pair(a, 1.0), {b, 2.0}})
      EXPECT_EQ(first(of).to_doubles(), std::vector<double>(16, value)) << megabytes;
  }
  EXPECT_THROW((void)bytes(static_cast<std::int64_t>(cuda::emulate::settings().memory_bytes), 1), OutOfMemory);
  EXPECT_EQ(first(bytes(mebibyte, 5)).to_doubles(), std::vector<double>(16, 5));
}

TEST_F(CudaPoolPressure, WhatIsQueuedKeepsItsMemory) {
  const Tensor small = bytes(16, 1);
  // Nobody has waited for the fill and the copy yet when their region is given back.
  small.copy_from(first(bytes(150 * mebibyte, 7)));
  const Tensor large = bytes(180 * mebibyte, 9);
  EXPECT_EQ(small.to_doubles(), std::vector<double>(16, 7.0));
  EXPECT_EQ(first(large).to_doubles(), std::vector<double>(16, 9));
}

TEST_F(CudaPoolPressure, NothingIsGivenBackWhileAStepIsRecorded) {
  cuda::Arena arena(gpu);
  (void)bytes(150 * mebibyte, 1);
  const std::size_t before = cuda::emulate::memory_in_use(0);
  EXPECT_THROW((void)cuda::Graph::record(cuda::stream_of(gpu), arena, [] { (void)bytes(180 * mebibyte, 1); }),
               DeviceError);
  EXPECT_EQ(cuda::emulate::memory_in_use(0), before);
}

}  // namespace
}  // namespace hearth::pool_test
