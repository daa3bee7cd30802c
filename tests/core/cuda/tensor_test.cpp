// SPDX-License-Identifier: Apache-2.0
// Tensors on a CUDA device, real or emulated: making, moving, converting, and what is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "core/cuda/counters.h"
#include "core/cuda/stream.h"
#include "core/error.h"
#include "core/io/state.h"
#include "core/tensor.h"

namespace hearth::tensor_test {
namespace {

constexpr Device gpu{DeviceType::cuda, 0};

class CudaTensor : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::why_no_device();
  }
};

std::vector<double> ramp(std::int64_t n) {
  std::vector<double> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i) - 3.0;
  return values;
}

TEST_F(CudaTensor, GoesThereAndBackUnchangedInEveryType) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32, DType::i64, DType::u8}) {
    const Tensor here = Tensor::of<double>({3, 37}, ramp(3 * 37)).to(dtype);
    const Tensor there = here.to(gpu);
    EXPECT_EQ(there.device(), gpu);
    EXPECT_EQ(there.to_doubles(), here.to_doubles()) << dtype;
  }
}

TEST_F(CudaTensor, IsFilledZeroedAndCloned) {
  for (const std::int64_t n : {0, 1, 5, 1023, 4096}) {
    EXPECT_EQ(Tensor::zeros({n}, DType::f32, gpu).to_doubles(), std::vector<double>(static_cast<std::size_t>(n), 0.0));
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i64, DType::boolean}) {
      const Tensor ones = Tensor::full({n}, 1.0, dtype, gpu);
      EXPECT_EQ(ones.clone().to_doubles(), std::vector<double>(static_cast<std::size_t>(n), 1.0)) << dtype;
    }
  }
  EXPECT_EQ(Tensor::full({}, 2.5, DType::f64, gpu).item(), 2.5);
}

TEST_F(CudaTensor, ConvertsAsTheCpuDoes) {
  const Tensor here = Tensor::of<double>({2, 131}, ramp(262));
  for (const DType from : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32})
    for (const DType to : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64, DType::u8, DType::boolean})
      EXPECT_EQ(here.to(from).to(gpu).to(to).to_doubles(), here.to(from).to(to).to_doubles()) << from << " to " << to;
}

TEST_F(CudaTensor, CopiesStridedViewsBothWays) {
  const Tensor here = Tensor::of<double>({4, 6}, ramp(24)).to(DType::f32);
  const auto transposed = [](const Tensor& x) {
    Strides strides{};
    strides[0] = 1;
    strides[1] = 6;
    return Tensor::view(x.storage(), {6, 4}, strides, 0, x.dtype(), x.device());
  };
  const Tensor there = here.to(gpu);
  EXPECT_EQ(transposed(there).contiguous().to_doubles(), transposed(here).contiguous().to_doubles());
  EXPECT_EQ(transposed(there).to(Device{}).to_doubles(), transposed(here).to_doubles());
  EXPECT_EQ(transposed(there).to(DType::f64).to_doubles(), transposed(here).to_doubles());
  // Into a view, from the other device.
  const Tensor target = Tensor::zeros({4, 6}, DType::f32, gpu);
  transposed(target).copy_from(Tensor::of<double>({6, 4}, ramp(24)));
  EXPECT_EQ(transposed(target).to_doubles(), ramp(24));
}

TEST_F(CudaTensor, CountsCopiesWaitsAndLayoutChanges) {
  const Tensor here = Tensor::zeros({64});
  const cuda::Counters before = cuda::counters();
  const Tensor there = here.to(gpu);
  cuda::Counters spent = cuda::counters() - before;
  EXPECT_EQ(spent.copies_in, 1);
  EXPECT_EQ(spent.pageable_copies, 1);
  EXPECT_EQ(spent.bytes_copied, 256);
  EXPECT_EQ(spent.waits, 0);
  (void)there.to(Device{});
  spent = cuda::counters() - before;
  EXPECT_EQ(spent.copies_out, 1);
  EXPECT_EQ(spent.waits, 1);
  (void)there.to(DType::f64);
  spent = cuda::counters() - before;
  EXPECT_EQ(spent.launches, 1);
  EXPECT_EQ(spent.layout_changes, 0);
}

TEST_F(CudaTensor, StateOnTheDeviceIsHashedSavedAndLoaded) {
  Tensor here = Tensor::of<double>({5, 7}, ramp(35)).to(DType::f32), there = here.to(gpu);
  State a, b;
  a.add("w", &here);
  b.add("w", &there);
  EXPECT_EQ(a.hash(), b.hash());
  const std::string path = ::testing::TempDir() + "/hearth_cuda_state.safetensors";
  b.save(path);
  there.fill_(0);
  EXPECT_NE(a.hash(), b.hash());
  b.load(path);
  EXPECT_EQ(a.hash(), b.hash());
}

TEST_F(CudaTensor, OutOfMemoryNamesShapeAndUse) {
  try {
    (void)Tensor::empty({std::int64_t{1} << 40}, DType::f32, gpu);
    FAIL() << "4 TiB were given";
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("f32 [1099511627776]"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("in use"), std::string::npos) << error.what();
    EXPECT_EQ(error.exit_code(), 4);
  }
  EXPECT_EQ(Tensor::full({8}, 1.0, DType::f32, gpu).to_doubles(), std::vector<double>(8, 1.0));
}

TEST_F(CudaTensor, RefusesAnAbsentDeviceByName) {
  const Device absent{DeviceType::cuda, 63};
  try {
    (void)Tensor::empty({1}, DType::f32, absent);
    FAIL();
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("cuda:63"), std::string::npos) << error.what();
    EXPECT_EQ(error.exit_code(), 4);
  }
}

}  // namespace
}  // namespace hearth::tensor_test
