// SPDX-License-Identifier: Apache-2.0
#include "ops/norm/add_layer_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "ops/norm/layer_norm.h"
#include "ops/pointwise/drop_path.h"
#include "ops/pointwise/dropout.h"
#include "ops/pointwise/operators.h"
#include "tests/support/devices.h"
#include "tests/support/op_test.h"

namespace hearth::test::add_layer_norm_test {
namespace {

// As for layer_norm: lanes of a warp share short rows, several a warp; blocks hold longer ones in two sizes, and read
// the longest again. Strips of 64 draws begin anywhere within rows of 37 and 129.
const Shape shapes[] = {{5, 37},  {2, 3, 129}, {150, 8},  {2, 8, 96}, {2, 4099},
                        {3, 768}, {600, 72},   {2, 3072}, {2, 9216},  {3, 1024}};

struct Inputs {
  Tensor x, f, gamma, beta;
};

Inputs draw_inputs(Draw& draw, const Shape& shape, Width width_of_x) {
  return {draw.normal(shape, 1.0, width_of_x), draw.normal(shape), draw.away_from_zero({shape.dim(-1)}, Width::wide),
          draw.normal({shape.dim(-1)}, 1.0, Width::wide)};
}

// Both results, of which the sum is used twice more, before and after y.
Tensor mixed(const SumAndNorm& result) { return result.sum * 0.5 + result.y * result.sum; }

struct Rates {
  double dropout = 0, path = 0;
};

SumAndNorm fused(const Inputs& in, Rates rates) {
  return add_layer_norm(in.x, in.f, in.gamma, in.beta, {.dropout = rates.dropout, .eps = 0.1, .drop_path = rates.path});
}

SumAndNorm apart(const Inputs& in, Rates rates) {
  const Tensor f = dropout(in.f, rates.dropout, true);
  const Tensor sum = rates.path > 0 ? add_drop_path(in.x, f, rates.path, true) : in.x + f;
  return {sum, layer_norm(sum, in.gamma, in.beta, 0.1)};
}

void check_shape(const Shape& shape, Rates rates, Width width_of_x) {
  check(
      [&](Draw& draw) {
        const RandomScope random(3, 1);
        return mixed(fused(draw_inputs(draw, shape, width_of_x), rates));
      },
      [&](Draw& draw) {
        const RandomScope random(3, 1);
        return mixed(apart(draw_inputs(draw, shape, width_of_x), rates)).to_doubles();
      },
      {.tolerance_scale = 4.0});
}

OP_TEST(AddLayerNorm) {
  for (const Shape& shape : shapes) check_shape(shape, {.dropout = 0.25}, Width::site);
  for (const Shape& shape : {shapes[0], shapes[3], shapes[8]}) check_shape(shape, {}, Width::site);
}

// Samples of one row and of several, short rows and rows that are read again.
OP_TEST(AddLayerNormOfSamplesThatStay) {
  for (const Shape& shape : {Shape{6, 37}, {4, 3, 5, 8}, {3, 2, 96}, {4, 1, 3072}, {4, 2305}})
    for (const double p : {0.0, 0.25}) check_shape(shape, {.dropout = p, .path = 0.5}, Width::site);
  check_shape({4, 2, 96}, {.path = 0.5}, Width::wide);
}

// The residual in f32, as under autocast.
OP_TEST(AddLayerNormOfANarrowPart) {
  for (const Shape& shape : {shapes[0], shapes[3], shapes[4], shapes[8]})
    check_shape(shape, {.dropout = 0.25}, Width::wide);
  check_shape(shapes[3], {}, Width::wide);
}

// On a device the gradients of the parameters of such rows are summed over runs of 16 rows.
OP_TEST(AddLayerNormManyLongRows) {
  if (current_site().device.is_cuda()) check_shape({17, 8200}, {.dropout = 0.25}, Width::site);
}

TEST(AddLayerNormOnDevices, DrawsWhatDropoutDraws) {
  for (const Device device : devices())
    for (const std::int64_t cols : {1, 13, 64, 768, 2049, 9216}) {
      const Shape shape{3, cols};
      const Tensor zero = Tensor::zeros(shape, DType::f32, device), ones = Tensor::full(shape, 1.0, DType::f32, device);
      const Tensor gamma = Tensor::full({cols}, 1.0, DType::f32, device);
      // A part of a batch, so that its first element is not the first of a strip of draws.
      const RandomPart part{5, 3};
      Tensor expected;
      {
        const RandomScope random(7, 3, part);
        expected = dropout(ones, 0.4, true);
      }
      const RandomScope random(7, 3, part);
      const Tensor sum = add_layer_norm(zero, ones, gamma, gamma, {.dropout = 0.4}).sum;
      EXPECT_EQ(sum.to_doubles(), expected.to_doubles()) << device << cols;
    }
}

// Sums and norms and, where they alone give gradients, these: to the bit what the parts on their own give;
// low-precision types where nothing is rounded in between.
TEST(AddLayerNormOnDevices, HasTheBitsOfItsParts) {
  const auto results = [](Device device, DType dtype, Rates rates, auto run) {
    const Shape shape{8, 3, 96};
    const auto leaf = [&](double step, const Shape& of, DType type) {
      std::vector<double> numbers(static_cast<std::size_t>(of.size()));
      for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = std::sin(static_cast<double>(i) * step) + step;
      return requires_grad(Tensor::of<double>(of, numbers).to(type).to(device));
    };
    const DType wide = dtype == DType::f64 ? dtype : DType::f32;
    const Inputs in{leaf(1.3, shape, dtype), leaf(0.7, shape, dtype), leaf(0.3, {96}, wide), leaf(0.9, {96}, wide)};
    std::vector<std::vector<double>> all;
    for (const bool of_sum : {true, false}) {
      for (const Tensor& input : {in.x, in.f, in.gamma, in.beta}) (void)grad_of(input), zero_grad(input);
      // A part of a batch, so that its first sample is not the first that was drawn.
      const RandomScope random(7, 3, RandomPart{5, 8});
      const SumAndNorm result = run(in, rates);
      const Tensor& used = of_sum ? result.sum : result.y;
      backward(used, leaf(2.1, shape, dtype).detach());
      all.push_back(used.to_doubles());
      for (const Tensor& input : {in.x, in.f, in.gamma, in.beta}) all.push_back(grad_of(input).to_doubles());
    }
    return all;
  };
  for (const Device device : devices())
    for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
      for (const Rates rates :
           {Rates{}, Rates{.path = 0.4}, Rates{.dropout = 0.3}, Rates{.dropout = 0.3, .path = 0.4}}) {
        if (rates.dropout > 0 && size_of(dtype) == 2) continue;
        EXPECT_EQ(results(device, dtype, rates, fused), results(device, dtype, rates, apart))
            << device << " " << dtype << ", dropout " << rates.dropout << ", path " << rates.path;
      }
}

// What is left out may be anything.
TEST(AddLayerNormOnDevices, LeavesASampleAsItWas) {
  for (const Device device : devices()) {
    const Tensor x = Tensor::full({64, 2, 32}, 1.5, DType::f32, device),
                 one = Tensor::full({32}, 1.0, DType::f32, device);
    const Tensor f = requires_grad(Tensor::full({64, 2, 32}, std::nan(""), DType::f32, device));
    const RandomScope random(1, 1);
    const SumAndNorm result = add_layer_norm(x, f, one, one, {.drop_path = 0.5});
    const std::vector<double> sum = result.sum.to_doubles();
    backward(result.sum * result.y, Tensor::full({64, 2, 32}, 1.0, DType::f32, device));
    const std::vector<double> gradient = grad_of(f).to_doubles();
    int left_out = 0;
    for (std::size_t n = 0; n < 64; ++n) {
      const bool out = sum[n * 64] == 1.5;
      left_out += out ? 1 : 0;
      for (std::size_t i = n * 64; i < (n + 1) * 64; ++i) {
        ASSERT_EQ(sum[i] == 1.5, out) << device << i;
        ASSERT_EQ(gradient[i] == 0, out) << device << i;
      }
    }
    EXPECT_TRUE(left_out > 16 && left_out < 48) << left_out;
  }
}

// The gradients of x, f, gamma and beta for a result made of both outputs.
template <class Body>
std::vector<std::vector<double>> gradients(Device device, bool x_wants, bool f_wants, const Body& body) {
  const Shape shape{6, 37};
  const auto values = [&](int salt) {
    std::vector<double> numbers(6 * 37);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = std::sin(static_cast<double>(i) * (1.3 + salt)) * (1 + salt);
    return Tensor::of<double>(shape, numbers).to(device);
  };
  const Tensor x = x_wants ? requires_grad(values(0)) : values(0), f = f_wants ? requires_grad(values(1)) : values(1);
  const Tensor gamma = requires_grad(Tensor::full({37}, 1.5, DType::f64, device));
  const Tensor beta = requires_grad(Tensor::full({37}, 0.5, DType::f64, device));
  const RandomScope random(1, 2);
  const Tensor result = body(x, f, gamma, beta);
  backward(result, values(2));
  std::vector<std::vector<double>> all;
  for (const Tensor& leaf : {x, f, gamma, beta})
    all.push_back(needs_grad(leaf) ? grad_of(leaf).to_doubles() : std::vector<double>{});
  return all;
}

void expect_near(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].size(), b[i].size());
    for (std::size_t k = 0; k < a[i].size(); ++k) ASSERT_NEAR(a[i][k], b[i][k], 1e-12) << i << " " << k;
  }
}

// Whatever of the results is used, and whoever needs a gradient.
TEST(AddLayerNormOnDevices, PassesOnWhatItsResultsGetInAnyOrder) {
  using Mix = Tensor (*)(const SumAndNorm&);
  const Mix mixes[] = {
      [](const SumAndNorm& r) { return r.sum * 2.0; },
      [](const SumAndNorm& r) { return r.y * 2.0; },
      [](const SumAndNorm& r) { return r.sum + r.y; },
      [](const SumAndNorm& r) { return r.y * r.sum + r.sum; },
      [](const SumAndNorm& r) {
        return add_layer_norm(r.sum, r.y * 3.0, Tensor::full({37}, 1.0, DType::f64, r.y.device()),
                              Tensor::zeros({37}, DType::f64, r.y.device()), {.dropout = 0.5})
            .sum;
      },
  };
  for (const Device device : devices())
    for (const Mix mix : mixes)
      for (const auto& [p, path] : {std::pair{0.0, 0.0}, {0.25, 0.0}, {0.0, 0.5}, {0.25, 0.5}})
        for (const auto& [x_wants, f_wants] : {std::pair{true, true}, {true, false}, {false, true}, {false, false}}) {
          // Nothing leads from the sum alone to gamma.
          if (mix == mixes[0] && !x_wants && !f_wants) continue;
          const auto fused = gradients(device, x_wants, f_wants, [&](auto& x, auto& f, auto& gamma, auto& beta) {
            return mix(add_layer_norm(x, f, gamma, beta, {.dropout = p, .drop_path = path}));
          });
          expect_near(fused, gradients(device, x_wants, f_wants, [&](auto& x, auto& f, auto& gamma, auto& beta) {
                        const Tensor sum = add_drop_path(x, dropout(f, p, true), path, true);
                        return mix({sum, layer_norm(sum, gamma, beta)});
                      }));
        }
}

TEST(AddLayerNorm, EmptyIsLegal) {
  const Tensor gamma = requires_grad(Tensor::full({4}, 1.0)), x = Tensor::zeros({0, 4});
  const SumAndNorm result = add_layer_norm(x, x, gamma, Tensor::zeros({4}), {.dropout = 0.5});
  EXPECT_EQ(result.sum.shape(), (Shape{0, 4}));
  backward(result.y, x);
  EXPECT_EQ(grad_of(gamma).to_doubles(), (std::vector<double>{0, 0, 0, 0}));
  const Tensor none = Tensor::zeros({0});
  EXPECT_EQ(add_layer_norm(Tensor::zeros({3, 0}), Tensor::zeros({3, 0}), none, none).y.shape(), (Shape{3, 0}));
}

TEST(AddLayerNorm, DrawsNothingWithoutDropout) {
  const Tensor x = Tensor::zeros({2, 3}), one = Tensor::full({3}, 1.0);
  const RandomScope random(1, 1);
  (void)add_layer_norm(x, x, one, one);
  EXPECT_EQ(random_position().op, 0u);
  (void)add_layer_norm(x, x, one, one, {.dropout = 0.5});
  EXPECT_EQ(random_position().op, 1u);
  (void)add_layer_norm(x, x, one, one, {.drop_path = 0.5});
  EXPECT_EQ(random_position().op, 2u);
}

TEST(AddLayerNorm, RefusesBadArguments) {
  const Tensor x = Tensor::zeros({2, 3}), one = Tensor::full({3}, 1.0);
  const char* op = "add_layer_norm";
  refuses<UsageError>(op, [&] { return add_layer_norm({}, x, one, one); });
  refuses<UsageError>(op, [&] { return add_layer_norm(x, {}, one, one); });
  refuses<UsageError>(op, [&] { return add_layer_norm(x, x, {}, one); });
  refuses<UsageError>(op, [&] { return add_layer_norm(x, x, one, {}); });
  refuses<ShapeError>(op, [&] { return add_layer_norm(Tensor::zeros({}), Tensor::zeros({}), one, one); });
  refuses<ShapeError>(op, [&] { return add_layer_norm(x, Tensor::zeros({3}), one, one); });
  refuses<ShapeError>(op, [&] { return add_layer_norm(x, x, Tensor::zeros({4}), one); });
  refuses<DTypeError>(op, [&] { return add_layer_norm(x.to(DType::i64), x, one, one); });
  refuses<DTypeError>(op, [&] { return add_layer_norm(x, x.to(DType::f64), one, one); });
  refuses<DTypeError>(op, [&] { return add_layer_norm(x.to(DType::bf16), x, one, one); });
  refuses<DTypeError>(op, [&] { return add_layer_norm(x, x, one.to(DType::f64), one); });
  refuses<UsageError>(op, [&] { return add_layer_norm(x, x, one, one, {.eps = -1e-5}); });
  refuses<UsageError>(op, [&] { return add_layer_norm(x, x, one, one, {.dropout = 1}); });
  refuses<UsageError>(op, [&] { return add_layer_norm(x, x, one, one, {.dropout = std::nan("")}); });
  for (const double p : {-0.1, 1.0, std::nan("")})
    refuses<UsageError>(op, [&] { return add_layer_norm(x, x, one, one, {.drop_path = p}); });
  refuses<ShapeError>(op, [&] { return add_layer_norm(one, one, one, one, {.drop_path = 0.5}); });
}

}  // namespace
}  // namespace hearth::test::add_layer_norm_test
