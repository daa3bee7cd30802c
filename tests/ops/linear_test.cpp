// SPDX-License-Identifier: Apache-2.0
#include "ops/linear/linear.h"

#include <cmath>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "ops/candidates.h"
#include "tests/support/op_test.h"

namespace hearth::test {
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
}  // namespace hearth::test
