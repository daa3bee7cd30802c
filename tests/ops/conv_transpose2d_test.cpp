// SPDX-License-Identifier: Apache-2.0
#include "ops/conv/conv_transpose2d.h"

#include <cmath>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "core/profiler.h"
#include "ops/conv/conv2d.h"
#include "ops/dispatch/candidates.h"
#include "ops/onednn/onednn.h"
#include "tests/support/op_test.h"

namespace hearth::test::conv_transpose2d_test {
namespace {

struct Case {
  const char* what;
  Shape x, w;
  ConvTranspose2dOptions options = {};
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"one number", {1, 1, 1, 1}, {1, 1, 1, 1}},
      {"odd", {2, 5, 3, 5}, {5, 3, 2, 3}},
      {"1x1", {2, 5, 5, 24}, {24, 1, 1, 16}},
      {"1x1 with stride", {2, 3, 3, 16}, {16, 1, 1, 8}, {.stride = 2}},
      {"1x1 with stride and more at the end", {2, 3, 3, 16}, {16, 1, 1, 8}, {.stride = 2, .output_padding = 1}},
      {"twice as large", {2, 4, 4, 16}, {16, 2, 2, 8}, {.stride = 2}},
      {"up in a generator", {2, 4, 4, 32}, {32, 4, 4, 16}, {.stride = 2, .padding = 1}},
      {"twice as large by 3x3", {2, 5, 4, 16}, {16, 3, 3, 8}, {.stride = 2, .padding = 1, .output_padding = 1}},
      {"to three channels", {1, 7, 6, 16}, {16, 5, 5, 3}, {.stride = 2, .padding = 2}},
      {"unequal options",
       {1, 4, 5, 6},
       {6, 3, 2, 4},
       {.stride = {1, 3}, .padding = {2, 0}, .output_padding = {1, 2}, .dilation = {2, 3}}},
      {"more at the end than the stride", {1, 3, 4, 4}, {4, 2, 3, 2}, {.output_padding = {2, 1}, .dilation = {3, 2}}},
      {"1x1 with dilation and more at the end",
       {2, 3, 4, 16},
       {16, 1, 1, 8},
       {.output_padding = {1, 2}, .dilation = {2, 3}}},
      {"1x1 with one more row", {2, 4, 4, 8}, {8, 1, 1, 8}, {.output_padding = {1, 0}, .dilation = {2, 1}}},
      {"3x3 with dilation and more at the end",
       {2, 4, 4, 16},
       {16, 3, 3, 8},
       {.padding = 2, .output_padding = 1, .dilation = 2}},
      {"stride past the filter", {1, 3, 3, 3}, {3, 2, 2, 2}, {.stride = 4, .output_padding = 3}},
      {"groups", {2, 4, 4, 12}, {12, 3, 3, 4}, {.padding = 1, .groups = 2}},
      {"depthwise", {2, 4, 5, 8}, {8, 3, 3, 1}, {.stride = 2, .padding = 1, .groups = 8}},
  };
  return all;
}

struct Inputs {
  Tensor x, w, b;
};

Inputs draw_inputs(Draw& draw, const Case& c, Width width) {
  // Results of order 1 for any size of filter.
  const double scale = 1.0 / std::sqrt(static_cast<double>(c.w.size() / c.w[3]));
  Inputs in;
  in.x = draw.normal(c.x);
  in.w = draw.normal(c.w, scale, width);
  in.b = draw.normal({c.w[3] * c.options.groups}, 1.0, width);
  return in;
}

/// Every pixel of x adds its multiple of the filter.
std::vector<double> naive_conv_transpose2d(const Case& c, const Inputs& in) {
  const std::vector<double> x = in.x.to_doubles(), w = in.w.to_doubles(), b = in.b.to_doubles();
  const ConvTranspose2dOptions& o = c.options;
  const std::int64_t h = c.x[1], v = c.x[2], share = c.w[3], channels = share * o.groups;
  const std::int64_t p_end =
      (h - 1) * o.stride.h - 2 * o.padding.h + o.dilation.h * (c.w[1] - 1) + o.output_padding.h + 1;
  const std::int64_t q_end =
      (v - 1) * o.stride.w - 2 * o.padding.w + o.dilation.w * (c.w[2] - 1) + o.output_padding.w + 1;
  std::vector<double> y;
  for (std::int64_t i = 0; i < c.x[0] * p_end * q_end; ++i) y.insert(y.end(), b.begin(), b.end());
  for (std::int64_t at = 0; at < c.x.size(); ++at) {
    const std::int64_t in_channel = at % c.x[3], pixel = at / c.x[3];
    const std::int64_t column = pixel % v, row = pixel / v % h, n = pixel / v / h;
    for (std::int64_t r = 0; r < c.w[1]; ++r)
      for (std::int64_t s = 0; s < c.w[2]; ++s) {
        const std::int64_t p = row * o.stride.h - o.padding.h + r * o.dilation.h;
        const std::int64_t q = column * o.stride.w - o.padding.w + s * o.dilation.w;
        if (p < 0 || p >= p_end || q < 0 || q >= q_end) continue;
        for (std::int64_t k = 0; k < share; ++k) {
          const std::int64_t group = in_channel / (c.x[3] / o.groups);
          y[static_cast<std::size_t>(((n * p_end + p) * q_end + q) * channels + group * share + k)] +=
              x[static_cast<std::size_t>(at)] *
              w[static_cast<std::size_t>(((in_channel * c.w[1] + r) * c.w[2] + s) * share + k)];
        }
      }
  }
  return y;
}

void check_all(const std::vector<Case>& tried, Width width, const CheckOptions& options = {}) {
  for (const Case& c : tried) {
    SCOPED_TRACE(c.what);
    check(
        [&](Draw& draw) {
          const Inputs in = draw_inputs(draw, c, width);
          return conv_transpose2d(in.x, in.w, in.b, c.options);
        },
        [&](Draw& draw) { return naive_conv_transpose2d(c, draw_inputs(draw, c, width)); }, options);
  }
}

bool site_is_narrow() { return size_of(site_dtype()) == 2; }

OP_TEST(ConvTranspose2d) {
  check_all(cases(), Width::site);
  check([](Draw& draw) {
    const Tensor x = draw.normal({2, 3, 3, 4});
    return conv_transpose2d(x, draw.normal({4, 3, 3, 3}, 0.2), {.stride = 2, .padding = 1});
  });
}

OP_TEST(ConvTranspose2dWideWeights) {
  if (site_is_narrow()) check_all(cases(), Width::wide);
}

/// The site's own code for everything.
OP_TEST(ConvTranspose2dPortable) {
  const ForceCandidate force("conv2d", current_site().device.is_cuda() ? "portable" : "im2col");
  check_all(cases(), Width::site);
}

OP_TEST(ConvTranspose2dTensorCores) {
  if (!current_site().device.is_cuda() || !site_is_narrow()) return;
  const ForceCandidate force("conv2d", "mma");
  for (const Width width : {Width::site, Width::wide})
    check_all({{"twice as large", {2, 4, 4, 16}, {16, 2, 2, 8}, {.stride = 2}},
               {"to three channels", {1, 5, 6, 16}, {16, 3, 3, 3}, {.stride = 2, .padding = 1, .output_padding = 1}},
               {"groups", {2, 4, 4, 16}, {16, 3, 3, 8}, {.padding = 1, .groups = 2}}},
              width, {.tolerance_scale = width == Width::wide ? 2.0 : 1.0});
}

/// The candidates of the forward pass, the data gradient and the filter gradient of conv2d that made y, dx and dw.
std::vector<std::string> choices(DType dtype, Device device, const Shape& x_shape, const Shape& w_shape,
                                 const ConvTranspose2dOptions& options) {
  std::vector<std::string> chosen;
  for (const int wanted : {0, 1, 2}) {
    Tensor x = Tensor::zeros(x_shape, dtype, device), w = Tensor::zeros(w_shape, dtype, device);
    if (wanted == 1) x = requires_grad(x);
    if (wanted == 2) w = requires_grad(w);
    const Tensor y = conv_transpose2d(x, w, options);
    if (wanted > 0) {
      // Another choice in between, so that what is read is that of the gradient.
      conv2d(Tensor::zeros({1, 1, 1, 1}, DType::f64), Tensor::zeros({1, 1, 1, 1}, DType::f64));
      backward(y, Tensor::zeros(y.shape(), dtype, device));
    }
    chosen.push_back(last_choice("conv2d"));
  }
  return chosen;
}
using Names = std::vector<std::string>;

TEST(ConvTranspose2dChoice, IsMadeAmongTheCandidatesOfConv2d) {
  const Device cpu{};
  const bool library = cpu::dnn::available();
  const Names own(3, "im2col"), general(3, library ? "onednn" : "im2col"), product(3, "matmul");
  EXPECT_EQ(choices(DType::f64, cpu, {2, 4, 4, 8}, {8, 3, 3, 4}, {.stride = 2}), own);
  EXPECT_EQ(choices(DType::f32, cpu, {2, 4, 4, 8}, {8, 1, 1, 4}, {}), product);
  EXPECT_EQ(choices(DType::f32, cpu, {2, 4, 4, 8}, {8, 3, 3, 4}, {.padding = 1, .groups = 2}), general);
}

TEST(ConvTranspose2dChoice, TakesTensorCoresOnADevice) {
  const Device gpu{DeviceType::cuda, 0};
  if (device_count(gpu.type) == 0) GTEST_SKIP() << "there is no CUDA device";
  const ConvTranspose2dOptions twice{.stride = 2};
  for (const std::string& name : choices(DType::bf16, gpu, {2, 4, 4, 16}, {16, 2, 2, 8}, twice))
    EXPECT_TRUE(name == "mma" || name == "cudnn") << name;
  const ForceCandidate force("conv2d", "mma");
  EXPECT_EQ(choices(DType::bf16, gpu, {2, 4, 4, 16}, {16, 2, 2, 8}, twice), Names(3, "mma"));
}

TEST(ConvTranspose2dSizes, IsTheGradientOfConv2d) {
  std::vector<float> values(2 * 5 * 6 * 4), weights(4 * 3 * 3 * 3);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = std::cos(static_cast<float>(3 * i));
  const Tensor x = Tensor::of({2, 5, 6, 4}, values), w = Tensor::of({4, 3, 3, 3}, weights);
  const Tensor image = requires_grad(Tensor::zeros({2, 10, 11, 3}));
  backward(conv2d(image, w, {.stride = 2, .padding = 1}), x);
  const Tensor y = conv_transpose2d(x, w, {.stride = 2, .padding = 1, .output_padding = {1, 0}});
  EXPECT_EQ(y.to_doubles(), grad_of(image).to_doubles());
}

TEST(ConvTranspose2dSizes, NoChannelsGiveTheBias) {
  const Tensor b = requires_grad(Tensor::of<float>({2}, {1, -2})), w = requires_grad(Tensor::empty({0, 2, 1, 2}));
  const Tensor x = requires_grad(Tensor::empty({1, 1, 2, 0}));
  const Tensor y = conv_transpose2d(x, w, b);
  EXPECT_EQ(y.shape(), (Shape{1, 2, 2, 2}));
  EXPECT_EQ(y.to_doubles(), (std::vector<double>{1, -2, 1, -2, 1, -2, 1, -2}));
  backward(y, Tensor::full(y.shape(), 1));
  EXPECT_EQ(grad_of(b).to_doubles(), (std::vector<double>{4, 4}));
  EXPECT_EQ(grad_of(w).shape(), w.shape());
  EXPECT_EQ(grad_of(x).shape(), x.shape());
}

TEST(ConvTranspose2dSizes, NoImagesGiveZeroGradients) {
  const Tensor w = requires_grad(Tensor::full({4, 3, 3, 2}, 1)), b = requires_grad(Tensor::full({2}, 1));
  const Tensor x = requires_grad(Tensor::empty({0, 5, 5, 4}));
  const Tensor y = conv_transpose2d(x, w, b);
  EXPECT_EQ(y.shape(), (Shape{0, 7, 7, 2}));
  backward(y, Tensor::empty_like(y));
  EXPECT_EQ(grad_of(w).to_doubles(), std::vector<double>(72, 0.0));
  EXPECT_EQ(grad_of(b).to_doubles(), std::vector<double>(2, 0.0));
  EXPECT_EQ(grad_of(x).shape(), x.shape());
}

TEST(ConvTranspose2dSizes, CountsItsArithmetic) {
  const double before = profiler::total_flops();
  const Tensor x = requires_grad(Tensor::zeros({2, 6, 6, 8})), w = requires_grad(Tensor::zeros({8, 3, 3, 4}));
  const Tensor y = conv_transpose2d(x, w, {.groups = 2});
  const double forward = profiler::total_flops() - before;
  EXPECT_EQ(forward, 2.0 * 2 * 6 * 6 * 8 * 3 * 3 * 4);
  backward(y, Tensor::zeros(y.shape()));
  EXPECT_EQ(profiler::total_flops() - before, 3 * forward);
}

TEST(ConvTranspose2dSizes, AutocastNarrowsTheImageOnly) {
  const Tensor x = requires_grad(Tensor::full({1, 4, 4, 8}, 1)), w = requires_grad(Tensor::full({8, 1, 1, 8}, 1));
  Tensor y;
  {
    const AutocastScope narrow(DType::bf16);
    y = conv_transpose2d(x, w);
  }
  EXPECT_EQ(y.dtype(), DType::bf16);
  EXPECT_EQ(y.to_doubles()[0], 8.0);
  backward(y, Tensor::full(y.shape(), 1, DType::bf16));
  EXPECT_EQ(grad_of(w).dtype(), DType::f32);
  EXPECT_EQ(grad_of(w).to_doubles(), std::vector<double>(64, 16.0));
  EXPECT_EQ(grad_of(x).dtype(), DType::f32);
}

TEST(ConvTranspose2dArguments, OptionsOutOfRange) {
  const Tensor x = Tensor::zeros({2, 4, 4, 4}), w = Tensor::zeros({4, 3, 3, 6});
  const std::int64_t huge = std::int64_t{1} << 62;
  for (const ConvTranspose2dOptions& options :
       std::vector<ConvTranspose2dOptions>{{.stride = 0},
                                           {.stride = {1, 0}},
                                           {.stride = huge},
                                           {.padding = -1},
                                           {.padding = {0, 3}},
                                           {.padding = huge},
                                           {.output_padding = 1},
                                           {.stride = 2, .output_padding = -1},
                                           {.stride = 2, .output_padding = {0, 2}},
                                           {.dilation = 0},
                                           {.dilation = huge},
                                           {.groups = 0},
                                           {.groups = -1},
                                           {.groups = 3},
                                           {.groups = huge}})
    refuses<ShapeError>("conv_transpose2d", [&] { return conv_transpose2d(x, w, options); });
}

TEST(ConvTranspose2dArguments, Refused) {
  const char* const op = "conv_transpose2d";
  const Tensor x = Tensor::zeros({2, 4, 4, 4}), w = Tensor::zeros({4, 3, 3, 6}), b = Tensor::zeros({6});
  refuses<ShapeError>(op, [&] { return conv_transpose2d(Tensor::zeros({4, 4, 4}), w, b); });
  refuses<ShapeError>(op, [&] { return conv_transpose2d(x, Tensor::zeros({4, 3, 6}), b); });
  // PyTorch's layout.
  refuses<ShapeError>(op, [&] { return conv_transpose2d(x, Tensor::zeros({6, 3, 3, 4}), b); });
  refuses<ShapeError>(op, [&] { return conv_transpose2d(x, Tensor::zeros({4, 0, 3, 6}), b); });
  refuses<ShapeError>(op, [&] { return conv_transpose2d(x, Tensor::zeros({4, 3, 3, 0}), Tensor()); });
  refuses<ShapeError>(op, [&] { return conv_transpose2d(Tensor::zeros({2, 0, 4, 4}), w, b); });
  refuses<ShapeError>(op, [&] { return conv_transpose2d(x, w, Tensor::zeros({4})); });
  refuses<ShapeError>(op, [&] { return conv_transpose2d(x, w, Tensor::zeros({6, 1})); });
  refuses<DTypeError>(op, [&] { return conv_transpose2d(x, w.to(DType::f64), b); });
  refuses<DTypeError>(op, [&] { return conv_transpose2d(x, w, b.to(DType::f16)); });
  refuses<DTypeError>(op, [&] { return conv_transpose2d(x.to(DType::u8), w, b); });
  refuses<UsageError>(op, [&] { return conv_transpose2d(Tensor(), w, b); });
  refuses<UsageError>(op, [&] { return conv_transpose2d(x, Tensor(), b); });
}

}  // namespace
}  // namespace hearth::test::conv_transpose2d_test
