// SPDX-License-Identifier: Apache-2.0
// The tensor-core kernels element by element. The op tests allow a 16-bit result an error relative to the largest one,
// which hides a fault of a thousandth; here sums are read in f32 where the kernel can leave them so, and 16-bit results
// must be within one rounding of their own value.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/cuda/counters.h"
#include "ops/conv/conv2d.h"
#include "ops/conv/cpu/conv2d_cpu.h"
#include "ops/conv/cuda/conv2d_cudnn.h"
#include "ops/conv/kernels.h"
#include "ops/dispatch/candidates.h"
#include "ops/image/padded_images.h"
#include "ops/matmul/product.h"
#include "tests/ops/cuda/rounded_once.h"

namespace hearth::tensor_cores_test {
namespace {

using test::expect_rounded;
using test::numbers;

constexpr Device gpu{DeviceType::cuda, 0};
constexpr DType low_precision_types[] = {DType::f16, DType::bf16};

class CudaTensorCores : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  }
  cuda::Stream& stream() { return cuda::stream_of(gpu); }
};

TEST_F(CudaTensorCores, ProductsAreRoundedOnce) {
  for (const DType dtype : low_precision_types)
    for (const DType result : {dtype, DType::f32})
      for (const bool transpose_a : {false, true})
        for (const bool transpose_b : {false, true}) {
          // Stored rows are multiples of 8 long; the other sizes are odd. Five steps, more than are on their way at
          // once.
          const std::int64_t m = transpose_a ? 136 : 133, n = transpose_b ? 141 : 144, k = 136;
          const Tensor a = numbers(transpose_a ? Shape{k, m} : Shape{m, k}, 1, dtype);
          const Tensor b = numbers(transpose_b ? Shape{n, k} : Shape{k, n}, 2, dtype);
          MatmulProblem problem{};
          problem.batch = 1;
          problem.m = m;
          problem.n = n;
          problem.k = k;
          problem.transpose_a = transpose_a;
          problem.transpose_b = transpose_b;
          problem.a = problem.b = dtype;
          problem.c = result;
          const Tensor c = Tensor::empty({m, n}, result, gpu);
          kernels::product_mma(stream(), problem, {.a = a.to(dtype).to(gpu), .b = b.to(dtype).to(gpu), .c = c});
          const std::vector<double> av = a.to_doubles(), bv = b.to_doubles();
          std::vector<double> expected;
          for (std::int64_t row = 0; row < m; ++row)
            for (std::int64_t column = 0; column < n; ++column) {
              double sum = 0;
              for (std::int64_t i = 0; i < k; ++i)
                sum += av[static_cast<std::size_t>(transpose_a ? i * m + row : row * k + i)] *
                       bv[static_cast<std::size_t>(transpose_b ? column * k + i : i * n + column)];
              expected.push_back(sum);
            }
          expect_rounded(c, Tensor::of<double>({m, n}, expected), k);
        }
}

// The activation is taken of the sum before that is rounded; an odd row length leaves neighbours at odd places.
TEST_F(CudaTensorCores, ActivatedProductsAreRoundedOnce) {
  for (const DType dtype : low_precision_types)
    for (const std::int64_t k : {136, 1032})
      for (const std::int64_t n : {16, 13}) {
        const std::int64_t m = 9;
        const Tensor a = numbers({m, k}, 1, dtype), b = numbers({n, k}, 2, dtype), bias = numbers({n}, 3, dtype);
        MatmulProblem problem{};
        problem.m = m;
        problem.n = n;
        problem.k = k;
        problem.transpose_b = true;
        problem.a = problem.b = problem.c = dtype;
        problem.activation = Activation::gelu;
        const Tensor c = Tensor::empty({m, n}, dtype, gpu), pre = Tensor::empty({m, n}, dtype, gpu);
        const auto there = [&](const Tensor& t) { return t.to(dtype).to(gpu); };
        kernels::product_mma(stream(), problem,
                             {.a = there(a), .b = there(b), .bias = there(bias), .c = c, .pre = pre});
        const std::vector<double> av = a.to_doubles(), bv = b.to_doubles(), add = bias.to_doubles();
        std::vector<double> sums, results;
        for (std::int64_t row = 0; row < m; ++row)
          for (std::int64_t column = 0; column < n; ++column) {
            double sum = add[static_cast<std::size_t>(column)];
            for (std::int64_t i = 0; i < k; ++i)
              sum += av[static_cast<std::size_t>(row * k + i)] * bv[static_cast<std::size_t>(column * k + i)];
            sums.push_back(sum);
            results.push_back(0.5 * sum * (1 + std::erf(sum / std::sqrt(2.0))));
          }
        expect_rounded(pre, Tensor::of<double>({m, n}, sums), k);
        expect_rounded(c, Tensor::of<double>({m, n}, results), k);
      }
}

TEST_F(CudaTensorCores, ConvolutionsAreRoundedOnce) {
  const ConvShape shape{.n = 2,
                        .h = 9,
                        .w = 8,
                        .c = 16,
                        .k = 24,
                        .r = 3,
                        .s = 3,
                        .p = 5,
                        .q = 4,
                        .stride_h = 2,
                        .stride_w = 2,
                        .pad_h = 1,
                        .pad_w = 1};
  const Shape of_x{shape.n, shape.h, shape.w, shape.c}, of_w{shape.k, shape.r, shape.s, shape.c};
  const Shape of_y{shape.n, shape.p, shape.q, shape.k};
  for (const DType dtype : low_precision_types) {
    const Tensor x = numbers(of_x, 1, dtype), w = numbers(of_w, 2, dtype), y = numbers(of_y, 3, dtype);
    for (const Pass pass : {Pass::forward, Pass::backward_data, Pass::backward_weights}) {
      const ConvProblem problem{.shape = shape, .pass = pass};
      const auto run = [&](auto& where, const Device& device, const Shape& result, DType type, auto&& kernel) {
        const DType in = device.is_cpu() ? DType::f64 : dtype;
        const Tensor made = Tensor::empty(result, type, device);
        const auto operand = [&](const Tensor& t, Pass is_result) {
          return pass == is_result ? made : t.to(in).to(device);
        };
        const Tensor of_pass[] = {operand(x, Pass::backward_data), operand(w, Pass::backward_weights),
                                  operand(y, Pass::forward)};
        kernel(where, problem, kernels::Conv2dOperands{of_pass[0], of_pass[1], Tensor(), of_pass[2]});
        return made;
      };
      const Shape result = pass == Pass::forward ? of_y : pass == Pass::backward_data ? of_x : of_w;
      const Tensor expected =
          run(cpu::stream_of({}), {}, result, DType::f64,
              [](auto&, const auto& p, const auto& operands) { kernels::conv2d_im2col(p, operands); });
      const std::int64_t terms = pass == Pass::forward         ? of_w.size() / shape.k
                                 : pass == Pass::backward_data ? of_w.size() / shape.c
                                                               : shape.n * shape.p * shape.q;
      for (const DType type : {dtype, DType::f32}) {
        if (type == DType::f32 && pass != Pass::backward_weights) continue;
        expect_rounded(run(stream(), gpu, result, type,
                           [](auto& s, const auto& p, const auto& operands) { kernels::conv2d_mma(s, p, operands); }),
                       expected, terms);
      }
    }
  }
}

struct FirstConvolution {
  std::vector<double> y, dw;
  cuda::Counters forward, backward;
};

FirstConvolution first_convolution(const Tensor& x, const Tensor& weights) {
  FirstConvolution result;
  const Tensor w = requires_grad(weights);
  const cuda::Counters start = cuda::counters();
  const Tensor y = conv2d(x, w, {.stride = 2, .padding = 3});
  const cuda::Counters middle = cuda::counters();
  backward(y, Tensor::full(y.shape(), 0.5, y.dtype(), gpu));
  result.backward = cuda::counters() - middle;
  result.forward = middle - start;
  result.y = y.to_doubles();
  result.dw = grad_of(w).to_doubles();
  return result;
}

// One launch pads images that come dense, and what comes padded is read where it is: in forward and for the gradient.
TEST_F(CudaTensorCores, PaddedImagesAreNotCopied) {
  const ForceCandidate force("conv2d", "mma");
  for (const DType dtype : low_precision_types) {
    const Tensor pixels = Tensor::full({2, 14, 14, 5}, 77, DType::u8, gpu);
    const Tensor values = numbers({5, 256}, 4, dtype).to(DType::f32).to(gpu);
    const Tensor w = numbers({16, 7, 7, 5}, 5, dtype).to(DType::f32).to(gpu);
    EXPECT_EQ(detail::pixel_capacity(dtype, 5, gpu), 8);
    EXPECT_EQ(detail::pixel_capacity(dtype, 8, gpu), 8);
    const Tensor dense = normalize_images(pixels, values, {.dtype = dtype});
    const Tensor padded = detail::normalize_images(pixels, values, {.dtype = dtype}, 8);
    (void)first_convolution(dense, w);
    const FirstConvolution of_dense = first_convolution(dense, w), of_padded = first_convolution(padded, w);
    EXPECT_EQ(of_dense.y, of_padded.y);
    EXPECT_EQ(of_dense.dw, of_padded.dw);
    // Filters to 8 channels, and the product.
    EXPECT_EQ(of_padded.forward.launches, 2);
    EXPECT_EQ(of_dense.forward.launches, 3);
    EXPECT_EQ(of_dense.backward.launches, of_padded.backward.launches);
    for (const cuda::Counters& spent : {of_dense.forward, of_dense.backward, of_padded.forward, of_padded.backward}) {
      EXPECT_EQ(spent.layout_changes, 0);
      EXPECT_EQ(spent.waits, 0);
    }
  }
}

TEST_F(CudaTensorCores, ChannelsAreCopiedToTheBit) {
  for (const DType from : {DType::f16, DType::bf16, DType::f32})
    for (const DType to : {DType::f16, DType::bf16, DType::f32}) {
      if (from != to && from != DType::f32) continue;
      for (const std::int64_t channels : {1, 3, 7, 8})
        for (const std::int64_t channel_capacity : {2, 4, 8}) {
          // More pixels than threads of one block.
          const Tensor x = numbers({3, 10, 9, channels}, 6, from).to(from);
          const Tensor y = Tensor::full({3, 10, 9, channel_capacity}, 9, to, gpu);
          kernels::copy_channels(stream(), x.to(gpu), y);
          const std::vector<double> values = x.to(to).to_doubles();
          std::vector<double> expected;
          for (std::int64_t pixel = 0; pixel < 270; ++pixel)
            for (std::int64_t c = 0; c < channel_capacity; ++c)
              expected.push_back(c < channels ? values[static_cast<std::size_t>(pixel * channels + c)] : 0);
          EXPECT_EQ(y.to_doubles(), expected) << from << " " << channels << " to " << to << " " << channel_capacity;
        }
    }
}

// Memory beside the channels that is not known to hold zeros is left alone.
TEST_F(CudaTensorCores, ASliceOfChannelsIsNoPaddedImage) {
  for (const char* candidate : {"mma", "portable"}) {
    const ForceCandidate force("conv2d", candidate);
    const Tensor whole = Tensor::full({1, 5, 5, 8}, std::numeric_limits<double>::infinity(), DType::bf16, gpu);
    const Tensor part = Tensor::view(whole.storage(), {1, 5, 5, 3}, whole.strides(), 0, DType::bf16, gpu);
    part.copy_from(Tensor::full({1, 5, 5, 3}, 1, DType::bf16, gpu));
    const Tensor y = conv2d(part, Tensor::full({8, 3, 3, 3}, 1, DType::bf16, gpu));
    EXPECT_EQ(y.to_doubles(), std::vector<double>(72, 27.0)) << candidate;
  }
}

}  // namespace
}  // namespace hearth::tensor_cores_test
