// SPDX-License-Identifier: Apache-2.0
#include "ops/norm/batch_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "ops/pointwise/binary.h"
#include "tests/support/devices.h"
#include "tests/support/op_test.h"

namespace hearth::test::batch_norm_test {
namespace {

struct Case {
  Shape x;
  BatchNormOptions options;
  bool residual = false;
};

DType wide_of(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

Tensor run(Draw& draw, const Case& c) {
  const std::int64_t channels = c.x.dim(-1);
  const Tensor x = draw.normal(c.x);
  const Tensor gamma = draw.away_from_zero({channels}, Width::wide);
  const Tensor beta = draw.normal({channels}, 1.0, Width::wide);
  const Tensor residual = c.residual ? draw.normal(c.x) : Tensor{};
  const DType wide = wide_of(draw.dtype());
  const Tensor mean = Tensor::full({channels}, 0.25, wide, x.device());
  const Tensor variance = Tensor::full({channels}, 1.5, wide, x.device());
  return batch_norm(x, gamma, beta, c.options, mean, variance, residual);
}

// The definition, one channel after the other.
std::vector<double> naive(Draw& draw, const Case& c) {
  const std::int64_t channels = c.x.dim(-1), rows = c.x.size() / channels;
  const std::vector<double> x = draw.normal(c.x).to_doubles();
  const std::vector<double> gamma = draw.away_from_zero({channels}, Width::wide).to_doubles();
  const std::vector<double> beta = draw.normal({channels}, 1.0, Width::wide).to_doubles();
  const std::vector<double> residual = c.residual ? draw.normal(c.x).to_doubles() : std::vector<double>(x.size(), 0.0);
  std::vector<double> y(x.size());
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    const auto at = [&](std::int64_t row) { return static_cast<std::size_t>(row * channels + channel); };
    double mean = 0.25, variance = 1.5;
    if (c.options.training) {
      mean = variance = 0;
      for (std::int64_t row = 0; row < rows; ++row) mean += x[at(row)] / static_cast<double>(rows);
      for (std::int64_t row = 0; row < rows; ++row)
        variance += (x[at(row)] - mean) * (x[at(row)] - mean) / static_cast<double>(rows);
    }
    const auto k = static_cast<std::size_t>(channel);
    for (std::int64_t row = 0; row < rows; ++row) {
      const double value =
          (x[at(row)] - mean) / std::sqrt(variance + c.options.eps) * gamma[k] + beta[k] + residual[at(row)];
      y[at(row)] = c.options.activation == Activation::relu ? std::max(value, 0.0) : value;
    }
  }
  return y;
}

// A ReLU's kink and a variance over few values make single elements of a low-precision gradient differ more than one
// rounding.
CheckOptions tolerance(const Case& c) {
  return {.tolerance_scale = c.options.activation == Activation::relu || c.residual ? 4.0 : 2.0};
}

void check_case(const Case& c) {
  check([&](Draw& draw) { return run(draw, c); }, [&](Draw& draw) { return naive(draw, c); }, tolerance(c));
}

// Few channels are folded, 129 fill no vector, the last spans several chunks and blocks.
// On a device the last three are cut into several runs of rows, with and without whole bytes of the mask.
const Shape shapes[] = {{2, 1},        {5, 3},   {4, 3, 3, 8}, {2, 2, 37},     {3, 2, 129},
                        {2, 8, 8, 64}, {600, 5}, {999, 37},    {4, 16, 16, 64}};

OP_TEST(BatchNormTraining) {
  for (const Shape& shape : shapes) check_case({shape, {}});
  check_case({{6, 5}, {.eps = 0.1}});
}

OP_TEST(BatchNormEvaluation) {
  for (const Shape& shape : shapes) check_case({shape, {.training = false}});
  check_case({{1, 4}, {.training = false, .activation = Activation::relu}});
}

OP_TEST(BatchNormResidual) {
  for (const Shape& shape : shapes) check_case({shape, {}, true});
}

// The kink is where normalised values vanish, so central differences would cross it: values only. The gradient is
// compared with the one of the separate steps below.
OP_TEST(BatchNormReluValues) {
  for (const Shape& shape : shapes)
    for (const bool residual : {false, true}) {
      const Case c{shape, {.activation = Activation::relu}, residual};
      check([&](Draw& draw) { return run(draw, c); }, [&](Draw& draw) { return naive(draw, c); },
            {.tolerance_scale = 4.0, .no_gradient = true});
    }
}

// Behind another op nobody else holds dy, so the gradient is written over it.
OP_TEST(BatchNormInAChain) {
  for (const Shape& shape : shapes)
    for (const Activation activation : {Activation::none, Activation::relu})
      for (const bool residual : {false, true}) {
        // Over many rows a step of gamma carries some element across the kink.
        if (activation == Activation::relu && shape.size() > 1000) continue;
        const Case inner{shape, {.training = false, .activation = activation}, residual};
        check(
            [&](Draw& draw) {
              const Tensor y = run(draw, inner);
              const Tensor gamma = draw.away_from_zero({shape.dim(-1)}, Width::wide);
              const Tensor zero = Tensor::zeros({shape.dim(-1)}, gamma.dtype(), gamma.device());
              const Tensor one = Tensor::full({shape.dim(-1)}, 1.0, gamma.dtype(), gamma.device());
              return batch_norm(y, gamma, zero, {.training = false}, zero, one);
            },
            {.tolerance_scale = 4.0});
      }
}

struct Leaves {
  Tensor x, gamma, beta, residual;
};

Leaves make_leaves(const Shape& shape, DType dtype, Device device = {}) {
  std::vector<double> x, residual, gamma, beta;
  std::uint64_t state = 7;
  const auto next = [&] {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<double>(state >> 40) / static_cast<double>(1 << 23) - 1.0;
  };
  for (std::int64_t i = 0; i < shape.size(); ++i) x.push_back(next()), residual.push_back(next());
  for (std::int64_t i = 0; i < shape.dim(-1); ++i) gamma.push_back(next()), beta.push_back(next());
  const auto leaf = [&](const Shape& s, const std::vector<double>& v, DType d) {
    return requires_grad(Tensor::of(s, v).to(d).to(device));
  };
  const Shape channels{shape.dim(-1)};
  return {leaf(shape, x, dtype), leaf(channels, gamma, wide_of(dtype)), leaf(channels, beta, wide_of(dtype)),
          leaf(shape, residual, dtype)};
}

// With the ReLU fused, gradients must equal those of the plain op for a dy that is zero where y is.
OP_TEST(BatchNormReluGradient) {
  for (const Shape& shape : shapes)
    for (const bool training : {true, false})
      for (const bool with_residual : {false, true}) {
        const DType dtype = site_dtype();
        const Device device = current_site().device;
        const Leaves fused = make_leaves(shape, dtype, device), plain = make_leaves(shape, dtype, device);
        const Tensor mean = Tensor::full({shape.dim(-1)}, 0.1, wide_of(dtype), device);
        const Tensor variance = Tensor::full({shape.dim(-1)}, 0.5, wide_of(dtype), device);
        const auto apply = [&](const Leaves& leaves, Activation activation) {
          return batch_norm(leaves.x, leaves.gamma, leaves.beta,
                            {.training = training, .momentum = 0.0, .activation = activation}, mean, variance,
                            with_residual ? leaves.residual : Tensor{});
        };
        const Tensor y = apply(fused, Activation::relu), z = apply(plain, Activation::none);
        const std::vector<double> values = y.to_doubles();
        std::vector<double> seed(values.size()), gated(values.size());
        std::int64_t open = 0;
        for (std::size_t i = 0; i < seed.size(); ++i) {
          seed[i] = std::sin(static_cast<double>(i));
          gated[i] = values[i] > 0 ? seed[i] : 0.0;
          open += values[i] > 0;
        }
        if (shape.size() > 100) {
          EXPECT_TRUE(open > shape.size() / 5 && open < shape.size() * 4 / 5) << open;
        }
        backward(y, Tensor::of(shape, seed).to(dtype).to(device));
        backward(z, Tensor::of(shape, gated).to(dtype).to(device));
        expect_close(grad_of(fused.x), grad_of(plain.x), 1e-12);
        expect_close(grad_of(fused.gamma), grad_of(plain.gamma), 1e-12);
        expect_close(grad_of(fused.beta), grad_of(plain.beta), 1e-12);
        if (with_residual) expect_close(grad_of(fused.residual), grad_of(plain.residual), 0.0);
      }
}

// The statistics of a batch that a training step leaves behind, over rows of one run and of several.
OP_TEST(BatchNormRunningStatistics) {
  for (const Shape& shape : shapes) {
    const std::int64_t channels = shape.dim(-1), rows = shape.size() / channels;
    for (const bool of_variance : {false, true})
      check(
          [&](Draw& draw) {
            const Tensor x = draw.normal(shape);
            const DType wide = wide_of(draw.dtype());
            const auto constant = [&](double value) { return Tensor::full({channels}, value, wide, x.device()); };
            const Tensor mean = constant(0.5), variance = constant(2.0);
            (void)batch_norm(x, constant(1.0), constant(0.0), {.momentum = 0.75}, mean, variance);
            return of_variance ? variance : mean;
          },
          [&](Draw& draw) {
            const std::vector<double> x = draw.normal(shape).to_doubles();
            std::vector<double> result;
            for (std::int64_t c = 0; c < channels; ++c) {
              const auto at = [&](std::int64_t row) { return x[static_cast<std::size_t>(row * channels + c)]; };
              double mean = 0, squares = 0;
              for (std::int64_t row = 0; row < rows; ++row) mean += at(row) / static_cast<double>(rows);
              for (std::int64_t row = 0; row < rows; ++row) squares += (at(row) - mean) * (at(row) - mean);
              result.push_back(of_variance ? 0.25 * 2.0 + 0.75 * squares / static_cast<double>(rows - 1)
                                           : 0.25 * 0.5 + 0.75 * mean);
            }
            return result;
          },
          // The f32 statistics of a 16-bit batch are held to the tolerance of the batch's type.
          {.no_gradient = true});
  }
}

TEST(BatchNorm, RefusesStatisticsOnAnotherDevice) {
  if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "no CUDA device";
  const Device device{DeviceType::cuda, 0};
  const Tensor x = Tensor::zeros({4, 3}, DType::f32, device), one = Tensor::full({3}, 1.0, DType::f32, device);
  const Tensor here = Tensor::full({3}, 1.0);
  for (const bool training : {true, false}) {
    refuses<DeviceError>("batch_norm: running_mean is on cpu",
                         [&] { return batch_norm(x, one, one, {.training = training}, here, one); });
    refuses<DeviceError>("batch_norm: running_var is on cpu",
                         [&] { return batch_norm(x, one, one, {.training = training}, one, here); });
  }
  refuses<DeviceError>("batch_norm", [&] { return batch_norm(x, here, one, {}, {}, {}); });
}

// The gradient is written over x and dy where nobody else holds them; here somebody does.
TEST(BatchNorm, GradientSparesWhatOthersHold) {
  for (const Activation activation : {Activation::none, Activation::relu}) {
    const Leaves leaves = make_leaves({6, 40}, DType::f32);
    const Tensor x = mul(leaves.x, 2.0);
    const std::vector<double> before = x.to_doubles();
    const Tensor y = batch_norm(x, leaves.gamma, leaves.beta, {.activation = activation}, {}, {}, leaves.residual);
    backward(y, Tensor::full(y.shape(), 0.5));
    EXPECT_EQ(x.to_doubles(), before);
  }
}

TEST(BatchNormOnDevices, LargeMeanKeepsItsVariance) {
  for (const Device device : devices())
    for (const std::int64_t rows : {2, 100, 4096}) {
      std::vector<float> values;
      for (std::int64_t i = 0; i < rows * 3; ++i) values.push_back(1000000.0f + static_cast<float>(i / 3 % 2));
      const Tensor x = Tensor::of({rows, 3}, values).to(device);
      const Tensor one = Tensor::full({3}, 1.0, DType::f32, device), zero = Tensor::zeros({3}, DType::f32, device);
      const std::vector<double> result = batch_norm(x, one, zero, {.eps = 0.0}, {}, {}).to_doubles();
      for (std::size_t i = 0; i < result.size(); ++i)
        ASSERT_NEAR(result[i], i / 3 % 2 == 0 ? -1.0 : 1.0, 1e-3) << device << " " << i;
    }
}

// Where the mean is 1e4 deviations and more, an f32 mean alone is half a thousandth of a deviation off.
TEST(BatchNormOnDevices, AMeanOfManyDeviationsKeepsItsDigits) {
  const std::int64_t rows = 257, channels = 5;
  for (const double ratio : {1e4, 3e4, 1e5}) {
    std::vector<float> values, slopes;
    for (std::int64_t i = 0; i < rows * channels; ++i) {
      values.push_back(static_cast<float>(ratio * (1 + 0.1 * static_cast<double>(i % channels)) + std::sin(1.7 * i)));
      slopes.push_back(static_cast<float>(std::cos(0.9 * i) + 0.3));
    }
    const auto run = [&](DType dtype, Device device, Activation activation) {
      const Tensor x = requires_grad(Tensor::of({rows, channels}, values).to(dtype).to(device));
      const Tensor gamma = requires_grad(Tensor::full({channels}, 1.5, dtype, device));
      const Tensor y = batch_norm(x, gamma, Tensor::full({channels}, 0.25, dtype, device),
                                  {.eps = 0.0, .activation = activation}, {}, {});
      backward(y, Tensor::of({rows, channels}, slopes).to(dtype).to(device));
      return std::array{y.to_doubles(), grad_of(x).to_doubles(), grad_of(gamma).to_doubles()};
    };
    for (const Device device : devices())
      for (const Activation activation : {Activation::none, Activation::relu}) {
        const auto exact = run(DType::f64, Device{}, activation), found = run(DType::f32, device, activation);
        for (std::size_t part = 0; part < exact.size(); ++part)
          for (std::size_t i = 0; i < exact[part].size(); ++i) {
            const double tolerance = part == 2 ? 1e-4 * static_cast<double>(rows) / 16 : 1e-5;
            ASSERT_NEAR(found[part][i], exact[part][i], tolerance) << device << " " << ratio << " " << part << " " << i;
          }
      }
  }
}

// More rows than a block's threads sum at once.
TEST(BatchNormOnDevices, LongRunsOfRowsAreSummedInFull) {
  const std::int64_t rows = 41003, channels = 264;
  const auto x_at = [](std::int64_t r, std::int64_t c) { return static_cast<double>((r * 37 + c * 11) % 61) / 8 - 3; };
  const auto dy_at = [](std::int64_t r, std::int64_t c) { return static_cast<double>((r * 13 + c * 7) % 29) / 16; };
  std::vector<f16> values, slopes;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < channels; ++c) {
      values.emplace_back(static_cast<float>(x_at(r, c)));
      slopes.emplace_back(static_cast<float>(dy_at(r, c)));
    }
  for (const Device device : devices()) {
    const Tensor x = Tensor::of({rows, channels}, values).to(device),
                 dy = Tensor::of({rows, channels}, slopes).to(device);
    const Tensor gamma = requires_grad(Tensor::full({channels}, 1.0, DType::f32, device)),
                 beta = requires_grad(Tensor::zeros({channels}, DType::f32, device));
    const Tensor mean = Tensor::zeros({channels}, DType::f32, device), variance = mean.clone();
    backward(batch_norm(x, gamma, beta, {.momentum = 1.0, .eps = 0.0}, mean, variance), dy);
    const std::vector<double> means = mean.to_doubles(), variances = variance.to_doubles(),
                              d_gamma = grad_of(gamma).to_doubles(), d_beta = grad_of(beta).to_doubles();
    for (std::int64_t c = 0; c < channels; c += 37) {
      const auto at = static_cast<std::size_t>(c), n = static_cast<std::size_t>(rows);
      double sum = 0, squares = 0, slope = 0, product = 0;
      for (std::int64_t r = 0; r < rows; ++r) sum += x_at(r, c);
      sum /= static_cast<double>(n);
      for (std::int64_t r = 0; r < rows; ++r) {
        const double d = x_at(r, c) - sum;
        squares += d * d;
        slope += dy_at(r, c);
        product += dy_at(r, c) * d;
      }
      EXPECT_NEAR(means[at], sum, 1e-6) << device << " " << c;
      EXPECT_NEAR(variances[at], squares / static_cast<double>(n - 1), 1e-5) << device << " " << c;
      EXPECT_NEAR(d_beta[at], slope, 1e-6 * slope) << device << " " << c;
      EXPECT_NEAR(d_gamma[at], product / std::sqrt(squares / static_cast<double>(n)), 0.02) << device << " " << c;
    }
  }
}

TEST(BatchNorm, OneOutlierDoesNotSpoilTheRest) {
  // 1e4 in the first row, then +-1: a shift by the first row would lose the small values' squares.
  std::vector<double> values(4096 * 2, 0.0);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = i < 2 ? 1e4 : (i / 2 % 2 == 0 ? -1.0 : 1.0);
  const Tensor mean = Tensor::zeros({2}), variance = Tensor::zeros({2});
  (void)batch_norm(Tensor::of({4096, 2}, values).to(DType::f32), Tensor::full({2}, 1.0), Tensor::zeros({2}),
                   {.momentum = 1.0}, mean, variance);
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < values.size(); i += 2) sum += values[i] / 4096;
  for (std::size_t i = 0; i < values.size(); i += 2) squares += (values[i] - sum) * (values[i] - sum) / 4095;
  EXPECT_NEAR(mean.to_doubles()[0], sum, 1e-6 * sum);
  // 4e-5 of it are the small values' squares.
  EXPECT_NEAR(variance.to_doubles()[0], squares, 4e-6 * squares);
}

TEST(BatchNorm, RunningStatisticsFollowPyTorch) {
  // Channel 0 holds 1, 2, 3, 4: mean 2.5, unbiased variance 5/3.
  const Tensor x = Tensor::of<float>({4, 2}, {1, 0, 2, 0, 3, 0, 4, 6});
  const Tensor mean = Tensor::full({2}, 1.0), variance = Tensor::full({2}, 2.0);
  const std::uint64_t version = mean.storage()->version();
  (void)batch_norm(x, Tensor::full({2}, 1.0), Tensor::zeros({2}), {.momentum = 0.25}, mean, variance);
  EXPECT_NEAR(mean.to_doubles()[0], 0.75 * 1 + 0.25 * 2.5, 1e-6);
  EXPECT_NEAR(variance.to_doubles()[0], 0.75 * 2 + 0.25 * 5.0 / 3.0, 1e-6);
  EXPECT_NEAR(mean.to_doubles()[1], 0.75 * 1 + 0.25 * 1.5, 1e-6);
  EXPECT_NEAR(variance.to_doubles()[1], 0.75 * 2 + 0.25 * 9.0, 1e-6);
  EXPECT_GT(mean.storage()->version(), version);
  const std::vector<double> before = mean.to_doubles();
  (void)batch_norm(x, Tensor::full({2}, 1.0), Tensor::zeros({2}), {.training = false}, mean, variance);
  EXPECT_EQ(mean.to_doubles(), before);
}

// In vectors, and in the channels behind the last of them. The gradient of NaN, of -1 and of -0 is 0.
TEST(BatchNorm, ReluLetsNotANumberThrough) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
    for (const std::int64_t channels : {1, 64, 133}) {
      const Shape shape{4, channels};
      const DType wide = wide_of(dtype);
      const double rows[] = {std::nan(""), 1, -1, -0.0};
      const Tensor x = Tensor::empty(shape, dtype), residual = requires_grad(Tensor::zeros(shape, dtype));
      for (int row = 0; row < 4; ++row) x.slice(0, row, row + 1).fill_(rows[row]);
      const Tensor y = batch_norm(x, Tensor::full({channels}, 1.0, wide), Tensor::zeros({channels}, wide),
                                  {.training = false, .activation = Activation::relu}, Tensor::zeros({channels}, wide),
                                  Tensor::full({channels}, 1.0, wide), residual);
      backward(y, Tensor::full(shape, 3.0, dtype));
      const std::vector<double> values = y.to_doubles(), gradient = grad_of(residual).to_doubles();
      for (std::int64_t i = 0; i < 4 * channels; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const std::int64_t row = i / channels;
        ASSERT_EQ(std::isnan(values[at]), row == 0) << shape << dtype << i;
        ASSERT_TRUE(row < 2 || values[at] == 0) << shape << dtype << i;
        ASSERT_EQ(gradient[at], row == 1 ? 3.0 : 0.0) << shape << dtype << i;
      }
    }
}

// Results of 16 MiB and more are written past the caches.
TEST(BatchNorm, LargeResultsAreThoseOfTheirParts) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    constexpr std::int64_t channels = 96;
    const std::int64_t rows = (std::int64_t{17} << 20) / channels / static_cast<std::int64_t>(size_of(dtype));
    std::minstd_rand random;
    const auto draw = [&](std::int64_t count, DType type) {
      std::vector<float> values(static_cast<std::size_t>(count * channels));
      for (float& value : values) value = std::uniform_real_distribution<float>(-1, 1)(random);
      return Tensor::of({count, channels}, values).to(type);
    };
    const Tensor x = draw(rows, dtype), residual = draw(rows, dtype), dy = draw(rows, dtype);
    const Tensor table = draw(4, DType::f32), sums = draw(2, DType::f32);
    struct Results {
      Tensor y, mask, dx, d_residual;
    };
    const auto run = [&](std::int64_t begin, std::int64_t end) {
      cpu::Stream stream;
      const auto part = [&](const Tensor& t) { return t.slice(0, begin, end); };
      const Shape shape{end - begin, channels};
      const Results r{Tensor::empty(shape, dtype), Tensor::zeros({end - begin, channels / 8}, DType::u8),
                      Tensor::empty(shape, dtype), Tensor::empty(shape, dtype)};
      kernels::batch_norm(stream, part(x), table, part(residual), true, r.y, r.mask);
      const Tensor seen = part(x);
      kernels::batch_norm_grad(stream, {seen, table, kernels::ReluGate::from_mask, r.mask}, part(dy), sums, r.dx,
                               r.d_residual);
      return r;
    };
    const std::int64_t half = rows / 2;
    const Results all = run(0, rows), first = run(0, half), second = run(half, rows);
    const auto same = [&](Tensor Results::*which) {
      const Tensor& whole = all.*which;
      const std::byte* const bytes = whole.bytes();
      const std::size_t size = (first.*which).byte_size();
      return std::memcmp(bytes, (first.*which).bytes(), size) == 0 &&
             std::memcmp(bytes + size, (second.*which).bytes(), (second.*which).byte_size()) == 0;
    };
    EXPECT_TRUE(same(&Results::y)) << dtype;
    EXPECT_TRUE(same(&Results::mask)) << dtype;
    EXPECT_TRUE(same(&Results::dx)) << dtype;
    EXPECT_TRUE(same(&Results::d_residual)) << dtype;
  }
}

TEST(BatchNorm, EmptyTensorsAreLegalWhereDefined) {
  const Tensor no_channels = batch_norm(Tensor::zeros({3, 0}), Tensor::zeros({0}), Tensor::zeros({0}), {}, {}, {});
  EXPECT_EQ(no_channels.shape(), (Shape{3, 0}));
  const Tensor x = requires_grad(Tensor::zeros({0, 2, 3})), gamma = requires_grad(Tensor::full({3}, 1.0));
  const Tensor y = batch_norm(x, gamma, Tensor::zeros({3}), {.training = false, .activation = Activation::relu},
                              Tensor::zeros({3}), Tensor::full({3}, 1.0), Tensor::zeros({0, 2, 3}));
  EXPECT_EQ(y.shape(), (Shape{0, 2, 3}));
  backward(y, Tensor::zeros({0, 2, 3}));
  EXPECT_EQ(grad_of(gamma).to_doubles(), (std::vector<double>{0, 0, 0}));
}

TEST(BatchNorm, AutocastMatchesTheResidual) {
  const Tensor x = Tensor::of<float>({2, 1}, {-1, 1}).to(DType::bf16), residual = Tensor::full({2, 1}, 0.5);
  const AutocastScope scope(DType::bf16);
  const Tensor y = batch_norm(x, Tensor::full({1}, 1.0), Tensor::zeros({1}), {.eps = 0.0}, {}, {}, residual);
  EXPECT_EQ(y.dtype(), DType::bf16);
  EXPECT_EQ(y.to_doubles(), (std::vector<double>{-0.5, 1.5}));
}

TEST(BatchNorm, RefusesBadArguments) {
  const Tensor x = Tensor::zeros({4, 3}), one = Tensor::full({3}, 1.0), zero = Tensor::zeros({3});
  const char* op = "batch_norm";
  refuses<UsageError>(op, [&] { return batch_norm({}, one, zero, {}, {}, {}); });
  refuses<UsageError>(op, [&] { return batch_norm(x, {}, zero, {}, {}, {}); });
  refuses<ShapeError>(op, [&] { return batch_norm(Tensor::zeros({3}), one, zero, {}, {}, {}); });
  refuses<ShapeError>(op, [&] { return batch_norm(x, Tensor::zeros({2}), zero, {}, {}, {}); });
  refuses<ShapeError>(op, [&] { return batch_norm(x, one, Tensor::zeros({1}), {}, {}, {}); });
  refuses<ShapeError>(op, [&] { return batch_norm(x, one, Tensor::zeros({1, 3}), {}, {}, {}); });
  refuses<ShapeError>(op, [&] { return batch_norm(x, one, zero, {}, Tensor::zeros({1}), one); });
  refuses<ShapeError>(op, [&] { return batch_norm(x, one, zero, {.training = false}, zero, Tensor::zeros({0})); });
  refuses<UsageError>(op, [&] { return batch_norm(x, one, zero, {.training = false}, {}, {}); });
  refuses<UsageError>(op, [&] { return batch_norm(x, one, zero, {}, zero, {}); });
  refuses<ShapeError>(op, [&] { return batch_norm(Tensor::zeros({1, 3}), one, zero, {}, {}, {}); });
  refuses<ShapeError>(op, [&] { return batch_norm(Tensor::zeros({0, 3}), one, zero, {}, {}, {}); });
  refuses<DTypeError>(op, [&] { return batch_norm(Tensor::zeros({4, 3}, DType::i32), one, zero, {}, {}, {}); });
  refuses<DTypeError>(op, [&] { return batch_norm(x, one.to(DType::f16), zero, {}, {}, {}); });
  refuses<DTypeError>(op, [&] { return batch_norm(x.to(DType::f64), one, zero, {}, {}, {}); });
  refuses<ShapeError>(op, [&] { return batch_norm(x, one, zero, {}, {}, {}, Tensor::zeros({3, 4})); });
  refuses<DTypeError>(op, [&] { return batch_norm(x, one, zero, {}, {}, {}, x.to(DType::bf16)); });
  refuses<UsageError>(op, [&] { return batch_norm(x, one, zero, {.eps = -1.0}, {}, {}); });
  refuses<UsageError>(op, [&] { return batch_norm(x, one, zero, {.eps = std::nan("")}, {}, {}); });
  refuses<UsageError>(op, [&] { return batch_norm(x, one, zero, {.momentum = 1.5}, {}, {}); });
  refuses<UsageError>(op, [&] { return batch_norm(x, one, zero, {.activation = Activation::gelu}, {}, {}); });
}

}  // namespace
}  // namespace hearth::test::batch_norm_test
