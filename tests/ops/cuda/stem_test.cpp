// SPDX-License-Identifier: Apache-2.0
// The kernels of first convolutions: element by element against f64, where they are taken, and what they refuse.
#include "ops/conv/cuda/stem.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/cuda/counters.h"
#include "ops/conv/conv2d.h"
#include "ops/conv/cpu/conv2d_cpu.h"
#include "ops/dispatch/candidates.h"
#include "ops/image/padded_images.h"
#include "tests/ops/cuda/rounded_once.h"

namespace hearth::stem_test {
namespace {

using test::expect_rounded;
using test::numbers;

constexpr Device gpu{DeviceType::cuda, 0};

class CudaStem : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  }
  cuda::Stream& stream() { return cuda::stream_of(gpu); }
};

ConvShape stem(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c, std::int64_t k, std::int64_t taps,
               std::int64_t stride, std::int64_t pad) {
  ConvShape s{.n = n,
              .h = h,
              .w = w,
              .c = c,
              .k = k,
              .r = taps,
              .s = taps,
              .p = (h + 2 * pad - taps) / stride + 1,
              .q = (w + 2 * pad - taps) / stride + 1,
              .stride_h = stride,
              .stride_w = stride,
              .pad_h = pad,
              .pad_w = pad};
  return s;
}

/// Of ResNets, Swin and others; results that fill no unit of 64 or 16, one filter block and two, one step of a row and
/// two, strips that an image's height does not divide, and padding from none to more than a filter.
std::vector<ConvShape> shapes() {
  std::vector<ConvShape> found{stem(2, 30, 26, 3, 64, 7, 2, 3),  stem(1, 64, 64, 3, 64, 7, 2, 3),
                               stem(3, 16, 24, 3, 96, 4, 4, 0),  stem(2, 20, 18, 3, 192, 6, 2, 3),
                               stem(2, 17, 18, 1, 32, 3, 2, 1),  stem(1, 9, 10, 4, 128, 5, 2, 2),
                               stem(2, 8, 8, 2, 32, 8, 2, 0),    stem(1, 5, 6, 3, 32, 3, 2, 4),
                               stem(1, 40, 200, 3, 64, 7, 2, 3), stem(300, 8, 8, 3, 32, 3, 2, 1)};
  ConvShape uneven = stem(2, 12, 14, 3, 32, 3, 2, 1);
  uneven.r = 2, uneven.stride_h = 1, uneven.pad_h = 0, uneven.p = 11;
  found.push_back(uneven);
  return found;
}

std::string text_of(const ConvShape& s) {
  return join_text(s.n, "x", s.h, "x", s.w, "x", s.c, " by ", s.k, "x", s.r, "x", s.s);
}

TEST_F(CudaStem, ResultsAreRoundedOnce) {
  for (const ConvShape& s : shapes())
    for (const DType dtype : {DType::f16, DType::bf16})
      for (const bool finished : {false, true}) {
        SCOPED_TRACE(text_of(s));
        const Tensor x = numbers({s.n, s.h, s.w, s.c}, 1, dtype), w = numbers({s.k, s.r, s.s, s.c}, 2, dtype);
        const Tensor b = finished ? numbers({s.k}, 3, DType::f32) : Tensor();
        const Shape of_y{s.n, s.p, s.q, s.k};
        const Tensor expected = Tensor::empty(of_y, DType::f64, Device{}), y = Tensor::full(of_y, NAN, dtype, gpu);
        const ConvProblem problem{.shape = s, .activations = dtype, .weights = dtype};
        kernels::conv2d_im2col({.shape = s}, {x, w, Tensor(), expected});
        std::vector<double> values = expected.to_doubles();
        for (std::size_t i = 0; finished && i < values.size(); ++i)
          values[i] = std::max(0.0, values[i] + b.to_doubles()[i % static_cast<std::size_t>(s.k)]);
        const Tensor wide = Tensor::empty({s.n, s.h, s.w, 4}, dtype, gpu);
        kernels::copy_channels(stream(), x.to(dtype).to(gpu), wide);
        kernels::Conv2dEpilogue epilogue{finished ? Activation::relu : Activation::none};
        const Tensor bias = finished ? b.to(DType::f32).to(gpu) : Tensor();
        kernels::conv2d_stem(stream(), problem, {wide, w.to(dtype).to(gpu), bias, y, &epilogue});
        EXPECT_EQ(epilogue.activation, Activation::none);
        expect_rounded(y, Tensor::of<double>(of_y, values), s.r * s.s * s.c);
      }
}

TEST_F(CudaStem, GradientsAreRoundedOnce) {
  for (const ConvShape& s : shapes())
    for (const DType dtype : {DType::f16, DType::bf16})
      for (const DType weights : {dtype, DType::f32}) {
        SCOPED_TRACE(text_of(s));
        const Tensor x = numbers({s.n, s.h, s.w, s.c}, 1, dtype), dy = numbers({s.n, s.p, s.q, s.k}, 4, dtype);
        const Shape of_w{s.k, s.r, s.s, s.c};
        const Tensor expected = Tensor::empty(of_w, DType::f64, Device{}), dw = Tensor::full(of_w, NAN, weights, gpu);
        const ConvProblem problem{.shape = s, .pass = Pass::backward_weights, .activations = dtype, .weights = weights};
        kernels::conv2d_im2col({.shape = s, .pass = Pass::backward_weights}, {x, expected, Tensor(), dy});
        const Tensor wide = Tensor::empty({s.n, s.h, s.w, 4}, dtype, gpu);
        kernels::copy_channels(stream(), x.to(dtype).to(gpu), wide);
        kernels::conv2d_stem(stream(), problem, {wide, dw, Tensor(), dy.to(dtype).to(gpu)});
        expect_rounded(dw, expected, s.n * s.p * s.q);
      }
}

// The op: images that come with room for a fourth channel are read where they are, in a launch each way and one for the
// sums of strips.
TEST_F(CudaStem, IsTakenForFirstConvolutions) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    EXPECT_EQ(detail::pixel_capacity(dtype, 3, gpu), 4);
    const Tensor pixels = Tensor::full({2, 14, 14, 3}, 77, DType::u8, gpu);
    const Tensor values = numbers({3, 256}, 4, dtype).to(DType::f32).to(gpu);
    const Tensor w = requires_grad(numbers({32, 7, 7, 3}, 5, dtype).to(dtype).to(gpu));
    const Tensor dense = normalize_images(pixels, values, {.dtype = dtype});
    const Tensor padded = detail::normalize_images(pixels, values, {.dtype = dtype}, 4);
    std::vector<double> results[2];
    for (const Tensor& x : {dense, padded}) {
      const cuda::Counters start = cuda::counters();
      const Tensor y = conv2d(x, w, {.stride = 2, .padding = 3});
      EXPECT_EQ((cuda::counters() - start).launches, x.is_contiguous() ? 2 : 1);
      EXPECT_EQ(last_choice("conv2d"), "stem");
      const Tensor dy = Tensor::full(y.shape(), 0.5, y.dtype(), gpu);
      zero_grad(w);
      const cuda::Counters middle = cuda::counters();
      backward(y, dy);
      EXPECT_EQ((cuda::counters() - middle).launches, 2);
      EXPECT_EQ(last_choice("conv2d"), "stem");
      results[x.is_contiguous()] = y.to_doubles();
    }
    EXPECT_EQ(results[0], results[1]);
  }
}

TEST_F(CudaStem, NamesWhatItDoesNotTake) {
  const auto reason = [](ConvShape s, Pass pass = Pass::forward, DType dtype = DType::f16) {
    return kernels::stem_unsupported({.shape = s, .pass = pass, .activations = dtype, .weights = dtype}, 227 << 10);
  };
  const ConvShape taken = stem(2, 32, 32, 3, 64, 7, 2, 3);
  const auto contains = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_EQ(reason(taken), "");
  EXPECT_EQ(reason(stem(2, 800, 800, 3, 64, 7, 2, 3)), "");
  EXPECT_PRED2(contains, reason(taken, Pass::forward, DType::f32), "images are f32");
  EXPECT_PRED2(contains, reason(taken, Pass::backward_data), "first convolutions");
  EXPECT_PRED2(contains, reason(stem(2, 32, 32, 5, 64, 7, 2, 3)), "5 channels in 1 groups");
  EXPECT_PRED2(contains, reason(stem(2, 32, 32, 3, 48, 7, 2, 3)), "48 filters");
  EXPECT_PRED2(contains, reason(stem(2, 32, 32, 3, 64, 3, 1, 1)), "even");
  EXPECT_PRED2(contains, reason(stem(2, 32, 31, 3, 64, 7, 2, 3)), "even");
  EXPECT_PRED2(contains, reason(stem(2, 32, 32, 3, 64, 9, 2, 3)), "larger than 8x8");
  EXPECT_PRED2(contains, reason(stem(2, 32, 32, 3, 64, 8, 2, 3)), "larger than 8x8");
  EXPECT_EQ(reason(stem(2, 32, 1024, 3, 64, 7, 2, 3)), "");
  EXPECT_PRED2(contains, reason(stem(2, 32, 1024, 3, 64, 7, 2, 3), Pass::backward_weights), "shared memory");
  EXPECT_PRED2(contains, kernels::stem_unsupported({.shape = taken, .activations = DType::f16}, 99 << 10),
               "shared memory");
  ConvShape dilated = taken;
  dilated.dilation_h = dilated.dilation_w = 2;
  EXPECT_PRED2(contains, reason(dilated), "neighbours");
}

}  // namespace
}  // namespace hearth::stem_test
