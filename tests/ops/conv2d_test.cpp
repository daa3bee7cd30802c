// SPDX-License-Identifier: Apache-2.0
#include "ops/conv/conv2d.h"

#include <cmath>
#include <optional>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "core/cpu/amx.h"
#include "core/cpu/parallel.h"
#include "core/random.h"
#include "ops/conv/cpu/conv2d_cpu.h"
#include "ops/dispatch/candidates.h"
#include "ops/image/padded_images.h"
#include "ops/onednn/onednn.h"
#include "tests/ops/conv_case.h"
#include "tests/ops/emulate_tiles.h"
#include "tests/support/op_test.h"

namespace hearth::test::conv2d_test {
namespace {

using Case = ConvCase;

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"one number", {1, 1, 1, 1}, {1, 1, 1, 1}},
      {"odd", {2, 7, 5, 3}, {5, 3, 2, 3}},
      {"bottleneck 1x1", {2, 5, 5, 16}, {24, 1, 1, 16}},
      {"1x1 with stride", {2, 6, 6, 8}, {16, 1, 1, 8}, {.stride = 2}},
      {"1x1 with padding", {1, 3, 3, 4}, {4, 1, 1, 4}, {.padding = 1}},
      {"block of a residual network", {2, 8, 8, 16}, {16, 3, 3, 16}, {.padding = 1}},
      {"downsampling", {2, 9, 9, 16}, {32, 3, 3, 16}, {.stride = 2, .padding = 1}},
      {"stem", {1, 21, 19, 3}, {16, 7, 7, 3}, {.stride = 2, .padding = 3}},
      {"patches", {2, 8, 8, 3}, {12, 4, 4, 3}, {.stride = 4}},
      {"unequal options", {1, 9, 12, 4}, {6, 3, 2, 4}, {.stride = {1, 3}, .padding = {2, 0}, .dilation = {2, 3}}},
      {"stride past the filter", {1, 11, 11, 2}, {3, 2, 2, 2}, {.stride = 4}},
      {"groups", {2, 6, 6, 8}, {12, 3, 3, 4}, {.padding = 1, .groups = 2}},
      {"depthwise", {2, 6, 7, 8}, {8, 3, 3, 1}, {.padding = 1, .groups = 8}},
      {"padding beyond the filter", {1, 2, 2, 2}, {2, 3, 3, 2}, {.padding = 4}},
  };
  return all;
}

struct Sizes {
  std::int64_t p, q;
};

Sizes output_of(const Case& c) {
  const Conv2dOptions& o = c.options;
  return {(c.x[1] + 2 * o.padding.h - o.dilation.h * (c.w[1] - 1) - 1) / o.stride.h + 1,
          (c.x[2] + 2 * o.padding.w - o.dilation.w * (c.w[2] - 1) - 1) / o.stride.w + 1};
}

std::vector<double> naive_conv2d(const Case& c, const Tensor& x, const Tensor& w, const Tensor& b) {
  const std::vector<double> xv = x.to_doubles(), wv = w.to_doubles(), bv = b.to_doubles();
  const auto [p_end, q_end] = output_of(c);
  const std::int64_t channels = c.w[3], filters = c.w[0] / c.options.groups;
  std::vector<double> y;
  for (std::int64_t n = 0; n < c.x[0]; ++n)
    for (std::int64_t p = 0; p < p_end; ++p)
      for (std::int64_t q = 0; q < q_end; ++q)
        for (std::int64_t k = 0; k < c.w[0]; ++k) {
          double sum = bv[static_cast<std::size_t>(k)];
          for (std::int64_t r = 0; r < c.w[1]; ++r)
            for (std::int64_t s = 0; s < c.w[2]; ++s) {
              const std::int64_t h = p * c.options.stride.h - c.options.padding.h + r * c.options.dilation.h;
              const std::int64_t v = q * c.options.stride.w - c.options.padding.w + s * c.options.dilation.w;
              if (h < 0 || h >= c.x[1] || v < 0 || v >= c.x[2]) continue;
              for (std::int64_t i = 0; i < channels; ++i) {
                const std::int64_t at_x = ((n * c.x[1] + h) * c.x[2] + v) * c.x[3] + k / filters * channels + i;
                const std::int64_t at_w = ((k * c.w[1] + r) * c.w[2] + s) * channels + i;
                sum += xv[static_cast<std::size_t>(at_x)] * wv[static_cast<std::size_t>(at_w)];
              }
            }
          y.push_back(sum);
        }
  return y;
}

struct Inputs {
  Tensor x, w, b;
};

Inputs draw_inputs(Draw& draw, const Case& c, Width width) {
  // Results of order 1 for any size of filter.
  const double scale = 1.0 / std::sqrt(static_cast<double>(c.w.size() / c.w[0]));
  Inputs in;
  in.x = draw.normal(c.x);
  in.w = draw.normal(c.w, scale, width);
  in.b = draw.normal({c.w[0]}, 1.0, width);
  return in;
}

void check_all(Width width) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.what);
    check(
        [&](Draw& draw) {
          const Inputs in = draw_inputs(draw, c, width);
          return conv2d(in.x, in.w, in.b, c.options);
        },
        [&](Draw& draw) {
          const Inputs in = draw_inputs(draw, c, width);
          return naive_conv2d(c, in.x, in.w, in.b);
        });
  }
}

OP_TEST(Conv2d) {
  check_all(Width::site);
  check([](Draw& draw) {
    const Tensor x = draw.normal({2, 5, 5, 4});
    return conv2d(x, draw.normal({3, 3, 3, 4}, 0.2), {.padding = 1});
  });
}

/// Whether weights of f32 are others than those of the site.
bool site_is_narrow() { return size_of(site_dtype()) == 2; }

OP_TEST(Conv2dWideWeights) {
  if (site_is_narrow()) check_all(Width::wide);
}

/// The site's own code for everything.
const char* portable_candidate() { return current_site().device.is_cuda() ? "portable" : "im2col"; }

OP_TEST(Conv2dPortable) {
  const ForceCandidate force("conv2d", portable_candidate());
  check_all(Width::site);
  if (site_is_narrow()) check_all(Width::wide);
  if (current_site().device.is_cpu()) {
    EXPECT_EQ(last_choice("conv2d"), "im2col");
  }
}

// More pixels than one tile, more images than one piece, and filters that are cut in pieces.
OP_TEST(Conv2dTiles) {
  const ForceCandidate force("conv2d", portable_candidate());
  for (const Case& c : {Case{"wide image", {1, 30, 41, 2}, {3, 3, 3, 2}, {.padding = 1}},
                        Case{"small images", {70, 4, 4, 2}, {4, 2, 2, 2}},
                        Case{"many filters", {1, 6, 6, 3}, {70, 1, 1, 3}, {.stride = 1, .padding = 1}}})
    check([&](Draw& draw) {
      const Inputs in = draw_inputs(draw, c, Width::site);
      return conv2d(in.x, in.w, in.b, c.options);
    });
}

// Whole and ragged tiles of the tensor-core kernel, with every option, and filter gradients summed over many pixels.
OP_TEST(Conv2dTensorCores) {
  if (current_site().device.is_cuda() && size_of(site_dtype()) != 2) return;
  const ForceCandidate force("conv2d", "mma");
  for (const Width width : {Width::site, Width::wide})
    for (const Case& c :
         {Case{"block", {2, 8, 8, 16}, {24, 3, 3, 16}, {.padding = 1}}, Case{"1x1", {3, 7, 7, 24}, {136, 1, 1, 24}},
          Case{"stride", {2, 9, 9, 8}, {16, 3, 3, 8}, {.stride = 2, .padding = 1}},
          Case{"unequal options",
               {1, 9, 12, 8},
               {16, 3, 2, 8},
               {.stride = {1, 3}, .padding = {2, 0}, .dilation = {2, 3}}},
          Case{"groups", {2, 6, 6, 16}, {32, 3, 3, 8}, {.padding = 1, .groups = 2}},
          Case{"many pixels", {2, 24, 25, 8}, {8, 1, 1, 8}}}) {
      SCOPED_TRACE(c.what);
      check(
          [&](Draw& draw) {
            const Inputs in = draw_inputs(draw, c, width);
            return conv2d(in.x, in.w, in.b, c.options);
          },
          // f32 filters beside 16-bit images are rounded to their type.
          {.tolerance_scale = width == Width::wide ? 2.0 : 1.0});
    }
}

// Images and filters are padded to 8 channels, gradients cut back.
OP_TEST(Conv2dFewChannels) {
  if (current_site().device.is_cuda() && size_of(site_dtype()) != 2) return;
  const ForceCandidate force("conv2d", "mma");
  for (const Width width : {Width::site, Width::wide})
    for (const Case& c : {Case{"stem", {1, 21, 19, 3}, {16, 7, 7, 3}, {.stride = 2, .padding = 3}},
                          Case{"grey", {2, 8, 8, 1}, {8, 3, 3, 1}, {.padding = 1}},
                          Case{"seven", {3, 5, 6, 7}, {24, 3, 2, 7}}, Case{"four", {2, 6, 5, 4}, {8, 1, 1, 4}}}) {
      SCOPED_TRACE(c.what);
      check(
          [&](Draw& draw) {
            const Inputs in = draw_inputs(draw, c, width);
            return conv2d(in.x, in.w, in.b, c.options);
          },
          {.tolerance_scale = width == Width::wide ? 2.0 : 1.0});
    }
}

// Images that lie in padded pixels, as a run's input does, are read there by every candidate.
OP_TEST(Conv2dPaddedImages) {
  const bool tensor_cores = !current_site().device.is_cuda() || size_of(site_dtype()) == 2;
  std::vector<double> values;
  for (int i = 0; i < 3 * 256; ++i) values.push_back((i % 256 - 128) / 64.0);
  for (const char* candidate : {"mma", "portable"}) {
    if (candidate == std::string("mma") && !tensor_cores) continue;
    const ForceCandidate force("conv2d", candidate);
    for (const std::int64_t room : {3, 4, 5, 8, 11})
      for (const Width width : {Width::site, Width::wide}) {
        SCOPED_TRACE(testing::Message() << candidate << ", room for " << room);
        check(
            [&](Draw& draw) {
              const Tensor pixels = draw.integers({3, 9, 8, 3}, 256, DType::u8);
              const Tensor x = detail::normalize_images(pixels, draw.constant({3, 256}, values).to(DType::f32),
                                                        {.dtype = draw.dtype()}, room);
              const Tensor w = draw.normal({16, 3, 3, 3}, 0.2, width);
              return conv2d(x, w, draw.normal({16}, 1.0, width), {.stride = 2, .padding = 1});
            },
            {.tolerance_scale = width == Width::wide ? 2.0 : 1.0});
      }
  }
}

OP_TEST(Conv2dManyPixels) {
  const ForceCandidate force("conv2d", portable_candidate());
  const Case c{"many pixels", {2, 24, 25, 3}, {5, 2, 2, 3}};
  check([&](Draw& draw) {
    const Inputs in = draw_inputs(draw, c, Width::site);
    return conv2d(in.x, in.w, in.b, c.options);
  });
}

OP_TEST(Conv2dActivation) {
  for (const Activation activation : {Activation::gelu, Activation::gelu_tanh, Activation::silu})
    check(
        [&](Draw& draw) {
          const Tensor x = draw.normal({2, 5, 5, 4}), w = draw.normal({6, 3, 3, 4}, 0.2);
          return conv2d(x, w, draw.normal({6}), {.padding = 1, .activation = activation});
        },
        {.tolerance_scale = 3.0});  // the gradient is rounded once more, before the convolution
  // Far from ReLU's kink: positive sums, pushed below zero by the bias of every other filter.
  check([&](Draw& draw) {
    const Tensor x = draw.positive({2, 5, 5, 4}), w = draw.positive({4, 3, 3, 4});
    return conv2d(x, w, draw.constant({4}, {0, -1000, 1, -1000}), {.activation = Activation::relu});
  });
}

// Within the kernel that stores the result, and where parts of long sums are added.
OP_TEST(Conv2dRelu) {
  for (const char* const candidate : {"portable", "mma"}) {
    const bool on_device = current_site().device.is_cuda();
    if (std::string(candidate) == "mma" && (!on_device || size_of(site_dtype()) != 2)) continue;
    const ForceCandidate force("conv2d", candidate);
    for (const std::int64_t channels : {8, 128})
      check([&](Draw& draw) {
        const Tensor x = draw.positive({1, 4, 4, channels}), w = draw.positive({8, 3, 3, channels});
        const std::vector<double> b{0, -1e4, 1, -1e4, 2, -1e4, 3, -1e4};
        return conv2d(x, w, draw.constant({8}, b), {.activation = Activation::relu});
      });
  }
}

TEST(Conv2dChoice, LibraryWhereItIsPresent) {
  (void)conv2d(Tensor::zeros({2, 8, 8, 16}), Tensor::zeros({16, 3, 3, 16}), {.padding = 1});
  EXPECT_EQ(last_choice("conv2d"), cpu::dnn::available() ? "onednn" : "im2col");
  (void)conv2d(Tensor::zeros({2, 8, 8, 16}, DType::f64), Tensor::zeros({16, 3, 3, 16}, DType::f64), {.padding = 1});
  EXPECT_EQ(last_choice("conv2d"), "im2col");
}

/// y = conv2d(x, w, b), the gradients of x, and those of w and b; each step alone with the forced candidate, if there
/// is one.
struct Steps {
  std::vector<Tensor> y, dx, dw_db;
  bool forward = true, backward_data = true, backward_weights = true;  ///< whether the forced candidate supports it
};

Steps run_steps(const Case& c, const Inputs& in, const Tensor& dy, const char* candidate) {
  Steps steps;
  // f() with the forced candidate; false where the candidate does not support the problem.
  const auto forced = [&](auto&& f) {
    if (candidate == nullptr) return f(), true;
    const ForceCandidate force("conv2d", candidate);
    try {
      f();
    } catch (const UsageError&) {
      return false;
    }
    EXPECT_EQ(last_choice("conv2d"), candidate);
    return true;
  };
  steps.forward = forced([&] { steps.y = {conv2d(in.x, in.w, in.b, c.options)}; });
  const Tensor x = requires_grad(in.x), w = requires_grad(in.w), b = requires_grad(in.b);
  const Tensor of_x = conv2d(x, in.w, in.b, c.options), of_w = conv2d(in.x, w, b, c.options);
  steps.backward_data = forced([&] {
    backward(of_x, dy);
    steps.dx = {grad_of(x)};
  });
  steps.backward_weights = forced([&] {
    backward(of_w, dy);
    steps.dw_db = {grad_of(w), grad_of(b)};
  });
  return steps;
}

struct Supported {
  int forward = 0, backward_data = 0, backward_weights = 0;
};

/// How many of the cases each step of the candidate takes; their results are those of f64.
Supported check_forced(const char* candidate, DType dtype, DType wide) {
  std::vector<Case> all = cases();
  all.push_back({"tiles of both bf16 kernels", {8, 4, 4, 32}, {32, 3, 3, 32}, {.padding = 1}});
  all.push_back({"an odd image", {3, 5, 4, 64}, {32, 3, 2, 64}, {.stride = 2, .padding = 1}});
  all.push_back({"few pixels, many filters", {2, 3, 3, 128}, {128, 3, 3, 128}, {.padding = 1}});
  Supported supported;
  const double tolerance = dtype == DType::f32 ? 2e-5 : dtype == DType::f16 ? 2e-3 : 1.6e-2;
  for (const Case& c : all) {
    SCOPED_TRACE(testing::Message() << c.what << ", " << candidate << " in " << dtype << " and " << wide);
    Random random(11, 0);
    const auto numbers = [&](const Shape& shape, double scale, DType type) {
      std::vector<double> values(static_cast<std::size_t>(shape.size()));
      for (double& value : values) value = scale * random.normal();
      return Tensor::of<double>(shape, values).to(type);
    };
    const double scale = 1.0 / std::sqrt(static_cast<double>(c.w.size() / c.w[0]));
    const Inputs in{numbers(c.x, 1.0, dtype), numbers(c.w, scale, wide), numbers({c.w[0]}, 1.0, wide)};
    const auto [p, q] = output_of(c);
    const Tensor dy = numbers({c.x[0], p, q, c.w[0]}, 1.0, dtype);
    const auto exact = [](const Tensor& t) { return t.to(DType::f64); };
    const Steps expected = run_steps(c, {exact(in.x), exact(in.w), exact(in.b)}, exact(dy), nullptr);
    const Steps found = run_steps(c, in, dy, candidate);
    const auto compare = [&](bool ran, const std::vector<Tensor>& results, const std::vector<Tensor>& oracle,
                             int& count) {
      if (!ran) return;
      ++count;
      for (std::size_t i = 0; i < results.size(); ++i) expect_close(exact(results[i]), oracle[i], tolerance);
    };
    compare(found.forward, found.y, expected.y, supported.forward);
    compare(found.backward_data, found.dx, expected.dx, supported.backward_data);
    compare(found.backward_weights, found.dw_db, expected.dw_db, supported.backward_weights);
  }
  return supported;
}

// In any build and on any processor; what is forced runs wherever it is able to, faster or not.
TEST(Conv2dChoice, EachCandidateIsForcedThroughTheOp) {
  std::optional<test::EmulateTiles> emulate;
  if (!cpu::amx::unsupported().empty()) emulate.emplace();
  struct Types {
    DType images, weights;
  };
  const int all = static_cast<int>(cases().size()) + 3;
  for (const auto& [images, weights] : {Types{DType::f32, DType::f32},
                                        {DType::f16, DType::f16},
                                        {DType::f16, DType::f32},
                                        {DType::bf16, DType::bf16},
                                        {DType::bf16, DType::f32}}) {
    const auto expect = [&](const char* candidate, int forward, int backward_data, int backward_weights) {
      const Supported found = check_forced(candidate, images, weights);
      EXPECT_EQ(found.forward, forward) << candidate << " in " << images;
      EXPECT_EQ(found.backward_data, backward_data) << candidate << " in " << images;
      EXPECT_EQ(found.backward_weights, backward_weights) << candidate << " in " << images;
    };
    const bool bf16_kernels = images == DType::bf16 && cpu::amx::has_bf16_vectors();
    expect("matmul", 3, 3, 3);
    expect("winograd", 4, 4, 4);
    expect("unfolded", all - 2, all - 2, all - 2);
    expect("im2col", all, all, all);
    const bool tiles = images == DType::bf16;
    expect("amx", tiles ? 14 : 0, tiles ? 4 : 0, tiles ? 14 : 0);
    expect("direct_bf16", bf16_kernels ? 4 : 0, bf16_kernels ? 3 : 0, 0);
    expect("paired_bf16", 0, 0, bf16_kernels ? 3 : 0);
    expect("stem_bf16", bf16_kernels ? 6 : 0, 0, bf16_kernels ? 6 : 0);
    const bool library = cpu::dnn::available() && (images != DType::bf16 || cpu::dnn::has_hardware_bf16());
    const int of_library = library ? all : 0;
    expect("onednn", of_library, of_library, of_library);
  }
}

TEST(Conv2dChoice, DeterministicBitsForAnyThreadCount) {
  const int before = cpu::threads();
  cpu::set_deterministic(true);
  std::vector<std::vector<double>> results;
  for (const int threads : {1, 2, 3}) {
    cpu::set_threads(threads);
    std::vector<float> values(8 * 14 * 14 * 16), weights(32 * 9 * 16);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = std::cos(static_cast<float>(3 * i));
    const Tensor x = requires_grad(Tensor::of({8, 14, 14, 16}, values)),
                 w = requires_grad(Tensor::of({32, 3, 3, 16}, weights));
    const Tensor y = conv2d(x, w, {.stride = 2, .padding = 1});
    backward(y, y.detach());
    std::vector<double> all = y.to_doubles();
    for (const Tensor& g : {grad_of(x), grad_of(w)})
      for (const double value : g.to_doubles()) all.push_back(value);
    results.push_back(std::move(all));
  }
  cpu::set_threads(before);
  cpu::set_deterministic(false);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

}  // namespace
}  // namespace hearth::test::conv2d_test
