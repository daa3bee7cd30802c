// SPDX-License-Identifier: Apache-2.0
// What the op tests at the CUDA sites do not reach: addresses that no pack of 16 bytes fits, sizes around those of
// blocks and pieces, and the number of launches. Values are vouched for by the op tests.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "autograd/accumulate.h"
#include "autograd/grad_mode.h"
#include "core/cuda/counters.h"
#include "core/random.h"
#include "ops/epilogue/epilogue.h"
#include "ops/pointwise/binary.h"
#include "ops/pointwise/drop_path.h"
#include "ops/pointwise/dropout.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/concat.h"

namespace hearth::elementwise_test {
namespace {

constexpr Device gpu{DeviceType::cuda, 0};
constexpr DType floats[] = {DType::f32, DType::f64, DType::f16, DType::bf16};

Tensor numbers(const Shape& shape, std::uint64_t stream, DType dtype, Device device = gpu) {
  Random random(7, stream);
  std::vector<double> values(static_cast<std::size_t>(shape.size()));
  for (double& value : values) value = random.normal();
  return Tensor::of<double>(shape, values).to(dtype).to(device);
}

/// The same elements one position behind an aligned address.
Tensor misaligned(const Tensor& x) {
  const Tensor room = Tensor::empty({x.size() + 1}, x.dtype(), x.device());
  const Tensor part = Tensor::view(room.storage(), x.shape(), contiguous_strides(x.shape()), 1, x.dtype(), x.device());
  part.copy_from(x);
  return part;
}

/// The largest difference of elements beside the largest element.
double distance(const Tensor& a, const Tensor& b) {
  const std::vector<double> of_a = a.to_doubles(), of_b = b.to_doubles();
  double most = 0, scale = 1e-300;
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    const double difference = std::abs(of_a[i] - of_b[i]);
    if (!(difference <= most)) most = difference;
    scale = std::max(scale, std::abs(of_b[i]));
  }
  return most / scale;
}

class CudaElementwise : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  }
  cuda::Stream& stream() { return cuda::stream_of(gpu); }
};

TEST_F(CudaElementwise, MisalignedArraysGiveTheSameBits) {
  using kernels::Pointwise;
  for (const DType dtype : floats) {
    for (const std::int64_t size : {1, 15, 64, 1000, 4099}) {
      const Tensor x = numbers({size}, 1, dtype), dy = numbers({size}, 2, dtype);
      const Tensor y = Tensor::empty_like(x), other = misaligned(y);
      kernels::pointwise(stream(), Pointwise::gelu, x, y);
      kernels::pointwise(stream(), Pointwise::gelu, misaligned(x), other);
      EXPECT_EQ(other.to_doubles(), y.to_doubles()) << dtype << size;
      kernels::pointwise_grad(stream(), Pointwise::gelu, x, dy, y);
      kernels::pointwise_grad(stream(), Pointwise::gelu, x, misaligned(dy), y.clone());
      kernels::pointwise_grad(stream(), Pointwise::gelu, misaligned(x), dy, other);
      EXPECT_EQ(other.to_doubles(), y.to_doubles()) << dtype << size;
      kernels::binary(stream(), kernels::Binary::mul, x, dy, y);
      kernels::binary(stream(), kernels::Binary::mul, x, misaligned(dy), other);
      EXPECT_EQ(other.to_doubles(), y.to_doubles()) << dtype << size;
      kernels::add_into(stream(), y, x);
      kernels::add_into(stream(), other, x);
      EXPECT_EQ(other.to_doubles(), y.to_doubles()) << dtype << size;
      kernels::activate(stream(), Activation::silu, x, y);
      kernels::activate(stream(), Activation::silu, misaligned(x), other);
      EXPECT_EQ(other.to_doubles(), y.to_doubles()) << dtype << size;
    }
  }
}

TEST_F(CudaElementwise, BroadcastRowsGiveTheSameBitsWithAndWithoutPacks) {
  for (const DType dtype : floats) {
    for (const Shape& shape : {Shape{37, 64}, {5, 3, 1040}, {300, 8}, {3, 4, 24}}) {
      const Tensor x = numbers(shape, 1, dtype), row = numbers({shape.dim(-1)}, 2, dtype);
      const Tensor column = numbers(shape.with(shape.rank() - 1, 1), 3, dtype);
      const Tensor y = Tensor::empty_like(x), other = misaligned(y);
      for (const Tensor& repeated : {row, column}) {
        kernels::binary(stream(), kernels::Binary::sub, x, repeated, y);
        kernels::binary(stream(), kernels::Binary::sub, misaligned(x), misaligned(repeated), other);
        EXPECT_EQ(other.to_doubles(), y.to_doubles()) << dtype << shape;
        kernels::binary(stream(), kernels::Binary::sub, repeated, x, other);
        const std::vector<double> there = y.to_doubles(), back = other.to_doubles();
        for (std::size_t i = 0; i < there.size(); ++i) ASSERT_EQ(there[i], -back[i]) << dtype << shape;
      }
    }
  }
}

TEST_F(CudaElementwise, DropoutChoosesAsTheCpuDoes) {
  const RandomKey key{.seed = 0x123456789abcdefULL, .step = 5'000'000'000, .op = 3};
  for (const DType dtype : floats) {
    for (const std::int64_t size : {1, 16, 63, 64, 65, 5000}) {
      const Tensor x = numbers({size}, 1, dtype, {});
      const Tensor y = Tensor::empty_like(x);
      kernels::dropout(cpu::stream_of({}), x, key, 0.3, y);
      const Tensor on_gpu = misaligned(x.to(gpu));
      kernels::dropout(stream(), on_gpu, key, 0.3, on_gpu);
      EXPECT_EQ(on_gpu.to_doubles(), y.to_doubles()) << dtype << size;
    }
  }
}

TEST_F(CudaElementwise, DropPathChoosesAsTheCpuDoesInOneLaunch) {
  const RandomKey key{.seed = 0x123456789abcdefULL, .step = 5'000'000'000, .op = 3};
  for (const DType dtype : floats)
    for (const Shape& shape : {Shape{1, 1}, {90, 16}, {70, 3}, {3, 5001}}) {
      const Tensor x = numbers(shape, 1, dtype, {});
      const Tensor y = Tensor::empty_like(x);
      kernels::drop_path(cpu::stream_of({}), x, {}, key, 0.3, y);
      const Tensor on_gpu = misaligned(x.to(gpu)), aligned = x.to(gpu);
      kernels::drop_path(stream(), on_gpu, {}, key, 0.3, on_gpu);
      const cuda::Counters before = cuda::counters();
      kernels::drop_path(stream(), aligned, {}, key, 0.3, aligned);
      EXPECT_EQ((cuda::counters() - before).launches, 1);
      EXPECT_EQ(on_gpu.to_doubles(), y.to_doubles()) << dtype << shape;
      EXPECT_EQ(aligned.to_doubles(), y.to_doubles()) << dtype << shape;
    }
}

TEST_F(CudaElementwise, BiasesAndTheirGradientsAgreeWithTheCpu) {
  for (const DType dtype : floats) {
    const double tolerance = dtype == DType::f64   ? 1e-14
                             : dtype == DType::f32 ? 1e-6
                             : dtype == DType::f16 ? 1e-3
                                                   : 8e-3;
    for (const Shape& shape : {Shape{1, 1}, {3, 5}, {1000, 10}, {77, 24}, {1500, 64}, {9, 1111}, {700, 288}}) {
      for (const DType bias_type : {dtype, dtype == DType::f64 ? DType::f64 : DType::f32}) {
        const Tensor x = numbers(shape, 1, dtype, {}), dy = numbers(shape, 2, dtype, {});
        const Tensor bias = numbers({shape.dim(-1)}, 3, bias_type, {});
        const Tensor db = Tensor::empty_like(bias), sums = Tensor::empty_like(bias);
        const Tensor dx = Tensor::empty_like(x), y = x.clone(), rows = Tensor::empty_like(x);
        kernels::add_bias(cpu::stream_of({}), bias, y);
        kernels::fill_rows(cpu::stream_of({}), bias, rows);
        kernels::activate_grad(cpu::stream_of({}), Activation::gelu, x, dy, dx, db);
        kernels::sum_rows(cpu::stream_of({}), x, sums);
        for (const bool aligned : {true, false}) {
          const auto move = [&](const Tensor& t) { return aligned ? t.to(gpu) : misaligned(t.to(gpu)); };
          const Tensor gx = move(x), gy = move(x), gdy = move(dy), of_bias = bias.to(gpu);
          const Tensor gdb = Tensor::empty_like(of_bias);
          kernels::add_bias(stream(), of_bias, gy);
          EXPECT_LE(distance(gy, y), tolerance) << dtype << shape;
          kernels::activate_grad(stream(), Activation::gelu, gx, gdy, gdy, gdb);
          EXPECT_LE(distance(gdy, dx), tolerance) << dtype << shape;
          EXPECT_LE(distance(gdb, db), 4 * tolerance) << dtype << shape;
          kernels::sum_rows(stream(), gx, gdb);
          EXPECT_LE(distance(gdb, sums), 4 * tolerance) << dtype << shape;
          kernels::fill_rows(stream(), of_bias, gy);
          EXPECT_EQ(gy.to_doubles(), rows.to_doubles()) << dtype << shape;
        }
      }
    }
  }
}

TEST_F(CudaElementwise, RunsOfEveryWidthAreCopied) {
  for (const DType dtype : {DType::u8, DType::f16, DType::f32, DType::f64}) {
    for (const std::int64_t width : {1, 3, 8, 513}) {
      const auto count = [&](std::int64_t first, const Shape& shape) {
        std::vector<double> values(static_cast<std::size_t>(shape.size()));
        for (std::size_t i = 0; i < values.size(); ++i)
          values[i] = static_cast<double>((first + static_cast<std::int64_t>(i)) % 251);
        return Tensor::of<double>(shape, values).to(dtype);
      };
      const Tensor a = count(0, {300, width}), b = count(17, {300, 2 * width});
      EXPECT_EQ(concat({a.to(gpu), b.to(gpu)}, 1).to_doubles(), concat({a, b}, 1).to_doubles()) << dtype << width;
    }
  }
}

TEST_F(CudaElementwise, OneLaunchEach) {
  const NoGrad no_grad;
  const Tensor x = numbers({64, 100}, 1, DType::f32), row = numbers({100}, 2, DType::f32);
  const auto spent = [&](const auto& call) {
    const cuda::Counters before = cuda::counters();
    (void)call();
    return cuda::counters() - before;
  };
  const cuda::Counters each[] = {spent([&] { return gelu(x); }), spent([&] { return add(x, row); }),
                                 spent([&] { return mul(x, 0.5); }), spent([&] { return dropout(x, 0.1, true); })};
  for (const cuda::Counters& counters : each) {
    EXPECT_EQ(counters.launches, 1);
    EXPECT_EQ(counters.waits + counters.copies_in + counters.copies_out + counters.copies_within, 0);
  }
  EXPECT_EQ(spent([&] { return concat({x, x}, 0); }).launches, 2);
}

}  // namespace
}  // namespace hearth::elementwise_test
