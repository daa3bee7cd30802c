// SPDX-License-Identifier: Apache-2.0
// Convolutions of sizes and options at the edge of what there is, and beyond.
#include <cstdint>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "core/profiler.h"
#include "ops/conv/conv2d.h"
#include "tests/support/op_test.h"

namespace hearth::test::conv2d_arguments_test {
namespace {

TEST(Conv2dSizes, NoChannelsGiveTheBias) {
  const Tensor b = requires_grad(Tensor::of<float>({2}, {1, -2}));
  const Tensor w = requires_grad(Tensor::empty({2, 3, 3, 0}));
  const Tensor y = conv2d(Tensor::empty({1, 4, 3, 0}), w, b, {.activation = Activation::relu});
  EXPECT_EQ(y.to_doubles(), (std::vector<double>{1, 0, 1, 0}));
  backward(y, Tensor::full(y.shape(), 1));
  EXPECT_EQ(grad_of(b).to_doubles(), (std::vector<double>{2, 0}));
  EXPECT_EQ(conv2d(Tensor::empty({1, 3, 3, 0}), Tensor::empty({2, 3, 3, 0})).to_doubles(), std::vector<double>(2, 0.0));
}

TEST(Conv2dSizes, NoImagesGiveZeroGradients) {
  const Tensor w = requires_grad(Tensor::full({2, 3, 3, 4}, 1)), b = requires_grad(Tensor::full({2}, 1));
  const Tensor x = requires_grad(Tensor::empty({0, 5, 5, 4}));
  const Tensor y = conv2d(x, w, b);
  EXPECT_EQ(y.shape(), (Shape{0, 3, 3, 2}));
  backward(y, Tensor::empty_like(y));
  EXPECT_EQ(grad_of(w).to_doubles(), std::vector<double>(72, 0.0));
  EXPECT_EQ(grad_of(b).to_doubles(), std::vector<double>(2, 0.0));
  EXPECT_EQ(grad_of(x).shape(), x.shape());
}

// More than the library counts to: the output's middle alone meets the image.
TEST(Conv2dSizes, PaddingBeyondTheLibrary) {
  const std::int64_t far = std::int64_t{1} << 30;
  const Tensor x = requires_grad(Tensor::full({1, 1, 1, 2}, 3)), w = requires_grad(Tensor::full({1, 1, 1, 2}, 2));
  const Tensor y = conv2d(x, w, {.stride = {far, 1}, .padding = {far, 0}});
  EXPECT_EQ(y.to_doubles(), (std::vector<double>{0, 12, 0}));
  backward(y, Tensor::of<float>({1, 3, 1, 1}, {5, 7, 9}));
  EXPECT_EQ(grad_of(x).to_doubles(), std::vector<double>(2, 14.0));
  EXPECT_EQ(grad_of(w).to_doubles(), std::vector<double>(2, 21.0));
}

TEST(Conv2dSizes, CountsItsArithmetic) {
  const double before = profiler::total_flops();
  const Tensor x = requires_grad(Tensor::zeros({2, 6, 6, 8})), w = requires_grad(Tensor::zeros({12, 3, 3, 4}));
  const Tensor y = conv2d(x, w, {.groups = 2});
  const double forward = profiler::total_flops() - before;
  EXPECT_EQ(forward, 2.0 * 2 * 4 * 4 * 12 * 3 * 3 * 4);
  backward(y, Tensor::zeros(y.shape()));
  EXPECT_EQ(profiler::total_flops() - before, 3 * forward);
}

TEST(Conv2dSizes, AutocastNarrowsTheImageOnly) {
  const Tensor x = requires_grad(Tensor::full({1, 4, 4, 8}, 1)), w = requires_grad(Tensor::full({8, 3, 3, 8}, 1));
  Tensor y;
  {
    const AutocastScope narrow(DType::bf16);
    y = conv2d(x, w);
  }
  EXPECT_EQ(y.dtype(), DType::bf16);
  EXPECT_EQ(y.to_doubles()[0], 72.0);
  backward(y, Tensor::full(y.shape(), 1, DType::bf16));
  EXPECT_EQ(grad_of(w).dtype(), DType::f32);
  EXPECT_EQ(grad_of(w).to_doubles(), std::vector<double>(576, 4.0));
  EXPECT_EQ(grad_of(x).dtype(), DType::f32);
}

TEST(Conv2dArguments, OptionsOutOfRange) {
  const Tensor x = Tensor::zeros({2, 8, 8, 4}), w = Tensor::zeros({6, 3, 3, 4});
  const std::int64_t huge = std::int64_t{1} << 62;
  const std::vector<Conv2dOptions> bad{{.stride = 0},
                                       {.stride = -1},
                                       {.stride = {1, 0}},
                                       {.padding = -1},
                                       {.padding = {0, -1}},
                                       {.dilation = 0},
                                       {.dilation = -2},
                                       {.dilation = huge},
                                       {.padding = huge},
                                       {.dilation = 4},
                                       {.groups = 0},
                                       {.groups = -1},
                                       {.groups = 3},
                                       {.groups = huge},
                                       {.groups = 2},
                                       {.dilation = {1, 9}},
                                       {.stride = 2, .padding = huge / 2},
                                       {.padding = std::int64_t{1} << 31}};
  for (const Conv2dOptions& options : bad) refuses<ShapeError>("conv2d", [&] { return conv2d(x, w, options); });
  EXPECT_EQ(conv2d(x, w, {.stride = huge}).shape(), (Shape{2, 1, 1, 6}));
}

TEST(Conv2dArguments, Refused) {
  const Tensor x = Tensor::zeros({2, 8, 8, 4}), w = Tensor::zeros({6, 3, 3, 4}), b = Tensor::zeros({6});
  refuses<ShapeError>("conv2d", [&] { return conv2d(Tensor::zeros({8, 8, 4}), w, b); });
  refuses<ShapeError>("conv2d", [&] { return conv2d(x, Tensor::zeros({6, 3, 4}), b); });
  refuses<ShapeError>("conv2d", [&] { return conv2d(x, Tensor::zeros({6, 3, 3, 5}), b); });
  refuses<ShapeError>("conv2d", [&] { return conv2d(x, Tensor::zeros({6, 3, 3, 0}), b); });
  refuses<ShapeError>("conv2d", [&] { return conv2d(x, Tensor::zeros({0, 3, 3, 4}), Tensor()); });
  refuses<ShapeError>("conv2d", [&] { return conv2d(x, Tensor::zeros({6, 0, 3, 4}), b); });
  refuses<ShapeError>("conv2d", [&] { return conv2d(x, w, Tensor::zeros({5})); });
  refuses<ShapeError>("conv2d", [&] { return conv2d(x, w, Tensor::zeros({6, 1})); });
  refuses<ShapeError>("conv2d", [&] { return conv2d(Tensor::zeros({2, 2, 2, 4}), w, b); });
  refuses<ShapeError>("conv2d", [&] { return conv2d(Tensor::zeros({2, 8, 8, 0}), w, b); });
  refuses<DTypeError>("conv2d", [&] { return conv2d(x, w.to(DType::f64), b); });
  refuses<DTypeError>("conv2d", [&] { return conv2d(x, w, b.to(DType::f16)); });
  refuses<DTypeError>("conv2d", [&] { return conv2d(x.to(DType::u8), w, b); });
  refuses<UsageError>("conv2d", [&] { return conv2d(Tensor(), w, b); });
  refuses<UsageError>("conv2d", [&] { return conv2d(x, Tensor(), b); });
}

TEST(Conv2dArguments, ChangedInputIsRefusedByTheGradient) {
  const Tensor x = Tensor::zeros({1, 4, 4, 2}), w = requires_grad(Tensor::zeros({2, 3, 3, 2}));
  const Tensor y = conv2d(x, w);
  x.fill_(1);
  EXPECT_THROW(backward(y, Tensor::zeros(y.shape())), UsageError);
}

}  // namespace
}  // namespace hearth::test::conv2d_arguments_test
