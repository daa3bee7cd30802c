// SPDX-License-Identifier: Apache-2.0
#include "ops/linear/linear.h"

#include <array>
#include <cmath>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "ops/dispatch/candidates.h"
#include "ops/linear/mlp.h"
#include "ops/ops.h"
#include "tests/support/devices.h"
#include "tests/support/op_test.h"

namespace hearth::test::linear_test {
namespace {

constexpr Activation all_activations[] = {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh,
                                          Activation::silu};

struct Case {
  Shape x;
  std::int64_t outputs;
};

std::vector<Case> cases() { return {{{1, 1}, 1}, {{5}, 3}, {{2, 3, 37}, 17}, {{65, 64}, 32}}; }

void check_all(Activation activation, Width width) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(testing::Message() << "x " << c.x << " outputs " << c.outputs << " " << name_of(activation));
    const Shape w{c.outputs, c.x.dim(-1)};
    // Scaled so that results are of order 1 for any number of inputs.
    const double scale = 1.0 / std::sqrt(static_cast<double>(c.x.dim(-1)));
    check(
        [&](Draw& draw) {
          const Tensor x = draw.normal(c.x), weight = draw.normal(w, scale, width);
          return linear(x, weight, draw.normal({c.outputs}, 1.0, width), activation);
        },
        {.tolerance_scale = 3.0});  // the gradient of the activation is rounded before it is multiplied
    check(
        [&](Draw& draw) {
          const Tensor x = draw.normal(c.x);
          return linear(x, draw.normal(w, scale, width), Tensor(), activation);
        },
        {.tolerance_scale = 3.0});
  }
}

// Far from ReLU's kink: positive sums, which the bias pushes below zero for every other output.
void check_relu(Width width) {
  const std::vector<double> bias{0, -1000, 0.5, -1000, 1};
  check([&](Draw& draw) {
    const Tensor x = draw.positive({3, 8}), w = draw.positive({5, 8}, width);
    return linear(x, w, draw.constant({5}, bias, width), Activation::relu);
  });
  check([&](Draw& draw) {
    const Tensor x = draw.positive({9, 8}), w = draw.positive({5, 8}, width);
    return linear(x, w, draw.positive({5}, width), Activation::relu);
  });
}

OP_TEST(Linear) {
  for (const Activation activation : all_activations)
    if (activation != Activation::relu) check_all(activation, Width::site);
}

OP_TEST(LinearWideWeights) {
  check_all(Activation::none, Width::wide);
  check_all(Activation::gelu, Width::wide);
}

OP_TEST(LinearPortable) {
  const char* const last = current_site().device.is_cuda() ? "portable" : "gemm";
  const ForceCandidate force("linear", last);
  for (const Width width : {Width::site, Width::wide}) {
    check_all(Activation::none, width);
    check_all(Activation::silu, width);
  }
  EXPECT_EQ(last_choice("linear"), last);
}

// More rows than one piece of work and more columns than one block of the bias gradient.
OP_TEST(LinearBlocks) {
  for (const Activation activation : {Activation::none, Activation::silu})
    check(
        [&](Draw& draw) {
          const Tensor x = draw.normal({130, 2}), w = draw.normal({300, 2});
          return linear(x, w, draw.normal({300}), activation);
        },
        {.tolerance_scale = 3.0});
}

// So long that a device cuts the sums into parts, for whole tiles and for odd rows.
OP_TEST(LinearLongSums) {
  for (const std::int64_t inputs : {1032, 1031})
    check(
        [&](Draw& draw) {
          const Tensor x = draw.normal({2, inputs}), w = draw.normal({3, inputs}, 0.03);
          return linear(x, w, draw.normal({3}), Activation::gelu);
        },
        {.tolerance_scale = 3.0});
}

OP_TEST(LinearRelu) {
  for (const Width width : {Width::site, Width::wide}) check_relu(width);
}

// Far from ReLU's kink, as above.
void check_mlp(Activation activation, const Shape& x_shape, std::int64_t hidden, bool biases, Width width) {
  const std::int64_t inputs = x_shape.dim(-1), outputs = 16;
  const double scale = 1.0 / std::sqrt(static_cast<double>(inputs));
  const auto run = [&](Draw& draw, auto&& f) {
    const bool kinked = activation == Activation::relu;
    const Tensor x = kinked ? draw.positive(x_shape) : draw.normal(x_shape);
    const Tensor w1 = kinked ? draw.positive({hidden, inputs}, width) : draw.normal({hidden, inputs}, scale, width);
    const Tensor b1 = biases ? (kinked ? draw.positive({hidden}, width) : draw.normal({hidden}, 1.0, width)) : Tensor();
    const Tensor w2 = draw.normal({outputs, hidden}, 0.2, width);
    const Tensor b2 = biases ? draw.normal({outputs}, 1.0, width) : Tensor();
    return f(x, w1, b1, w2, b2);
  };
  check([&](Draw& draw) { return run(draw, [&](const auto&... in) { return mlp(in..., activation); }); },
        [&](Draw& draw) {
          return run(draw,
                     [&](const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2, const Tensor& b2) {
                       return linear(linear(x, w1, b1, activation), w2, b2).to_doubles();
                     });
        },
        {.tolerance_scale = 8.0});
}

OP_TEST(Mlp) {
  for (const Activation activation : all_activations) {
    check_mlp(activation, {2, 3, 16}, 24, true, Width::site);
    check_mlp(activation, {3, 5}, 7, true, Width::site);
    check_mlp(activation, {4, 8}, 16, false, Width::wide);
  }
}

// Each parameter alone gets its gradient, and with others the same.
TEST(MlpOnDevices, GivesEachInputItsGradient) {
  for (const Device device : devices()) {
    const Shape shapes[] = {{6, 8}, {16, 8}, {16}, {8, 16}, {8}};
    const auto gradients = [&](auto&& wanted) {
      std::array<Tensor, 5> in;
      for (std::size_t i = 0; i < in.size(); ++i) {
        std::vector<double> values(static_cast<std::size_t>(shapes[i].size()));
        for (std::size_t k = 0; k < values.size(); ++k) values[k] = 0.1 * static_cast<double>((k * 7 + i) % 11) - 0.5;
        in[i] = Tensor::of<double>(shapes[i], values).to(DType::f32).to(device);
        if (wanted(i)) in[i] = requires_grad(in[i]);
      }
      backward(sum(mlp(in[0], in[1], in[2], in[3], in[4], Activation::gelu_tanh)));
      return in;
    };
    const auto all = gradients([](std::size_t) { return true; });
    for (std::size_t one = 0; one < all.size(); ++one) {
      const auto alone = gradients([&](std::size_t i) { return i == one; });
      const std::vector<double> found = grad_of(alone[one]).to_doubles(), expected = grad_of(all[one]).to_doubles();
      for (std::size_t k = 0; k < found.size(); ++k) EXPECT_NEAR(found[k], expected[k], 1e-5) << device << one;
    }
  }
}

TEST(LinearSizes, NoInputsGiveTheActivatedBias) {
  const Tensor b = Tensor::of<float>({3}, {1, -2, 3});
  const Tensor y = linear(Tensor::empty({2, 0}), Tensor::empty({3, 0}), b, Activation::relu);
  EXPECT_EQ(y.to_doubles(), (std::vector<double>{1, 0, 3, 1, 0, 3}));
}

TEST(LinearSizes, EmptyBatchGivesZeroGradients) {
  const Tensor w = requires_grad(Tensor::full({3, 2}, 1)), b = requires_grad(Tensor::full({3}, 1));
  for (const Activation activation : all_activations) {
    zero_grad(w);
    zero_grad(b);
    const Tensor y = linear(Tensor::empty({0, 2}), w, b, activation);
    EXPECT_EQ(y.shape(), (Shape{0, 3}));
    backward(y, Tensor::empty_like(y));
    EXPECT_EQ(grad_of(w).to_doubles(), std::vector<double>(6, 0.0));
    EXPECT_EQ(grad_of(b).to_doubles(), std::vector<double>(3, 0.0));
  }
}

TEST(LinearSums, BiasGradientOfManyRowsIsExact) {
  // Twenty million ones: plain f32 summation would stop at 2^24.
  const std::int64_t rows = 20'000'000;
  const Tensor b = requires_grad(Tensor::zeros({1}));
  const Tensor y = linear(Tensor::empty({rows, 0}), Tensor::empty({1, 0}), b);
  backward(y, Tensor::full({rows, 1}, 1));
  EXPECT_EQ(grad_of(b).item(), static_cast<double>(rows));
}

TEST(LinearTypes, WideWeightsGetWideGradients) {
  const Tensor x = requires_grad(Tensor::full({2, 3}, 1, DType::bf16));
  const Tensor w = requires_grad(Tensor::full({4, 3}, 1)), b = requires_grad(Tensor::full({4}, 1));
  const Tensor y = linear(x, w, b);
  EXPECT_EQ(y.dtype(), DType::bf16);
  backward(y, Tensor::full({2, 4}, 1, DType::bf16));
  EXPECT_EQ(grad_of(x).dtype(), DType::bf16);
  EXPECT_EQ(grad_of(w).dtype(), DType::f32);
  EXPECT_EQ(grad_of(b).to_doubles(), std::vector<double>(4, 2.0));
}

// A narrow leaf may collect its gradient in f32; sums are not rounded on their way there then.
TEST(LinearTypes, GradientsAreMadeInTheTypeThatTheLeafCollectsIn) {
  const Tensor x = Tensor::of<double>({2, 2}, {1, 1, 1.0 / 512, 1}).to(DType::bf16);
  const Tensor w = requires_grad(Tensor::full({1, 2}, 1, DType::bf16)),
               b = requires_grad(Tensor::full({1}, 1, DType::bf16));
  for (const Tensor* leaf : {&w, &b}) {
    leaf->grad_state()->grad = Tensor::zeros(leaf->shape(), DType::f32, leaf->device());
    leaf->grad_state()->dtype = DType::f32;
  }
  for (int times = 1; times <= 2; ++times) {
    backward(linear(x, w, b), Tensor::of<double>({2, 1}, {1, 1.0 / 1024}).to(DType::bf16));
    EXPECT_EQ(grad_of(b).to_doubles(), (std::vector<double>{times * (1 + 1.0 / 1024)}));
    EXPECT_EQ(grad_of(w).to_doubles(), (std::vector<double>{times * (1 + 1.0 / 524288), times * (1 + 1.0 / 1024)}));
  }
}

TEST(LinearArguments, Refused) {
  const Tensor x = Tensor::zeros({2, 3}), w = Tensor::zeros({4, 3}), b = Tensor::zeros({4});
  refuses<ShapeError>("linear", [&] { return linear(x, Tensor::zeros({4, 5}), b); });
  refuses<ShapeError>("linear", [&] { return linear(x, Tensor::zeros({3}), b); });
  refuses<ShapeError>("linear", [&] { return linear(Tensor::zeros({}), w, b); });
  refuses<ShapeError>("linear", [&] { return linear(x, w, Tensor::zeros({5})); });
  refuses<ShapeError>("linear", [&] { return linear(x, w, Tensor::zeros({0})); });
  refuses<ShapeError>("linear", [&] { return linear(x, w, Tensor::zeros({4, 1})); });
  refuses<DTypeError>("linear", [&] { return linear(x, w.to(DType::f64), b); });
  refuses<DTypeError>("linear", [&] { return linear(x, w, b.to(DType::bf16)); });
  refuses<DTypeError>("linear", [&] { return linear(x, w.to(DType::bf16), b); });
  refuses<DTypeError>("linear", [&] { return linear(x.to(DType::i64), w.to(DType::i64), b); });
  refuses<UsageError>("linear", [&] { return linear(Tensor(), w, b); });
  refuses<UsageError>("linear", [&] { return linear(x, Tensor(), b); });
  const std::int64_t many = std::int64_t{1} << 40;
  refuses<ShapeError>("linear", [&] { return linear(Tensor::empty({many, 0}), Tensor::empty({many, 0}), Tensor()); });
}

}  // namespace
}  // namespace hearth::test::linear_test
