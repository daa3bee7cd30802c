// SPDX-License-Identifier: Apache-2.0
// Losses that compare element by element: values beside formulas in f64, gradients, weights, ignored targets.
#include "ops/loss/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "tests/support/op_test.h"

namespace hearth::test::elementwise_loss_test {
namespace {

const Shape shapes[] = {{}, {1}, {3, 37}, {2, 5, 129}, {2, 40000}};

double log_sigmoid(double x) { return -std::log1p(std::exp(-x)); }
double naive_bce(double x, double t) { return -(t * log_sigmoid(x) + (1 - t) * log_sigmoid(-x)); }
double naive_focal(double x, double t, double alpha, double gamma) {
  const double p = 1 / (1 + std::exp(-x)), right = p * t + (1 - p) * (1 - t);
  return (alpha * t + (1 - alpha) * (1 - t)) * std::pow(1 - right, gamma) * naive_bce(x, t);
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

using Loss = std::function<Tensor(const Tensor&, const Tensor&, const LossOptions&)>;
using Formula = std::function<double(double, double)>;

/// The mean, the sum and each element, of x = a draw and target = another one.
void check_differences(const Loss& loss, const Formula& formula) {
  // Multiples of 1/64 beside ones that are 1/128 off: no difference is near a kink.
  const auto draw_target = [](Draw& draw, const Shape& shape) {
    const std::vector<double> drawn = draw.integers(shape, 256).to_doubles();
    std::vector<double> values;
    for (const double value : drawn) values.push_back((value - 128) / 64 + 1.0 / 128);
    return draw.constant(shape, values);
  };
  for (const Shape& shape : shapes) {
    for (const Reduction reduction : {Reduction::mean, Reduction::none}) {
      const auto body = [&](Draw& draw) {
        const Tensor x = shape.size() > 400 ? draw.normal(shape) : draw.distinct(shape);
        return loss(x, draw_target(draw, shape), {.reduction = reduction});
      };
      if (shape.size() > 400 && reduction == Reduction::none) continue;
      // Differences of 16-bit values cancel; gradients of a long mean are subnormal in f16.
      check(body,
            [&](Draw& draw) {
              const Tensor x = shape.size() > 400 ? draw.normal(shape) : draw.distinct(shape);
              const std::vector<double> a = x.to_doubles(), b = draw_target(draw, shape).to_doubles();
              std::vector<double> values;
              for (std::size_t i = 0; i < a.size(); ++i) values.push_back(formula(a[i], b[i]));
              return reduction == Reduction::none ? values : std::vector<double>{mean_of(values)};
            },
            {.tolerance_scale = shape.size() > 400 ? 4.0 : 2.0});
    }
  }
}

OP_TEST(MeanSquaredError) {
  for (const Shape& shape : shapes)
    check(
        [&](Draw& draw) {
          const Tensor x = draw.normal(shape);
          return mse(x, draw.normal(shape));
        },
        [&](Draw& draw) {
          const std::vector<double> x = draw.normal(shape).to_doubles(), target = draw.normal(shape).to_doubles();
          double sum = 0;
          for (std::size_t i = 0; i < x.size(); ++i) sum += (x[i] - target[i]) * (x[i] - target[i]);
          return std::vector<double>{sum / static_cast<double>(x.size())};
        },
        {.tolerance_scale = 2.0});
}

OP_TEST(L1Loss) {
  check_differences([](const Tensor& x, const Tensor& t, const LossOptions& options) { return l1_loss(x, t, options); },
                    [](double x, double t) { return std::abs(x - t); });
}

OP_TEST(SmoothL1Loss) {
  check_differences(
      [](const Tensor& x, const Tensor& t, const LossOptions& options) { return smooth_l1_loss(x, t, 0.7, options); },
      [](double x, double t) {
        const double d = std::abs(x - t);
        return d < 0.7 ? 0.5 * d * d / 0.7 : d - 0.35;
      });
}

OP_TEST(HuberLoss) {
  check_differences(
      [](const Tensor& x, const Tensor& t, const LossOptions& options) { return huber_loss(x, t, 0.7, options); },
      [](double x, double t) {
        const double d = std::abs(x - t);
        return d < 0.7 ? 0.5 * d * d : 0.7 * (d - 0.35);
      });
}

OP_TEST(TargetsOfDifferencesGetGradients) {
  check([](Draw& draw) {
    const Tensor x = draw.normal({3, 7});
    return huber_loss(x, draw.uniform({3, 7}, 3, 4), 0.5, {.reduction = Reduction::sum});
  });
}

OP_TEST(BinaryCrossEntropy) {
  for (const Shape& shape : shapes)
    for (const Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
      if (shape.size() > 1000 && reduction != Reduction::mean) continue;
      check(
          [&](Draw& draw) {
            const Tensor x = draw.normal(shape, 2.0);
            return bce_with_logits(x, draw.integers(shape, 2, DType::u8), {.reduction = reduction});
          },
          [&](Draw& draw) {
            const std::vector<double> x = draw.normal(shape, 2.0).to_doubles();
            const std::vector<double> t = draw.integers(shape, 2, DType::u8).to_doubles();
            std::vector<double> values;
            for (std::size_t i = 0; i < x.size(); ++i) values.push_back(naive_bce(x[i], t[i]));
            if (reduction == Reduction::none) return values;
            const double mean = mean_of(values);
            return std::vector<double>{reduction == Reduction::mean ? mean : mean * static_cast<double>(values.size())};
          },
          {.tolerance_scale = 2.0});
    }
}

// Weights along the last axis, along the first one, of single elements; targets between 0 and 1, some ignored.
OP_TEST(BinaryCrossEntropyWithWeights) {
  const Shape shape{4, 6, 5};
  const auto fractions = [&](Draw& draw) {
    std::vector<double> values = draw.integers(shape, 5).to_doubles();
    for (double& value : values) value = value == 4 ? -100 : value / 4;
    return draw.constant(shape, values);
  };
  for (const Shape& weights : {Shape{5}, {4, 1, 1}, {4, 6, 5}, {1}, {6, 1}})
    check(
        [&](Draw& draw) {
          const Tensor x = draw.normal(shape), target = fractions(draw);
          const Tensor weight =
              draw.constant(weights, std::vector<double>(static_cast<std::size_t>(weights.size()), 1.5));
          const Tensor positive = draw.constant({5}, {0.5, 1, 2, 3, 0.25});
          return bce_with_logits(x, target, {.weight = weight, .ignore_target = -100}, positive);
        },
        [&](Draw& draw) {
          const std::vector<double> x = draw.normal(shape).to_doubles(), t = fractions(draw).to_doubles();
          const double positive[] = {0.5, 1, 2, 3, 0.25};
          std::vector<double> values;
          for (std::size_t i = 0; i < x.size(); ++i) {
            if (t[i] == -100) continue;
            values.push_back(-1.5 * (positive[i % 5] * t[i] * log_sigmoid(x[i]) + (1 - t[i]) * log_sigmoid(-x[i])));
          }
          return std::vector<double>{mean_of(values)};
        },
        {.tolerance_scale = 4.0});
}

OP_TEST(FocalLoss) {
  for (const Shape& shape : {Shape{1}, {3, 37}, {2, 5, 129}})
    for (const double gamma : {0.0, 0.5, 2.0})
      check(
          [&](Draw& draw) {
            const Tensor x = draw.normal(shape);
            return focal_loss(x, draw.integers(shape, 2), {.alpha = 0.3, .gamma = gamma});
          },
          [&](Draw& draw) {
            const std::vector<double> x = draw.normal(shape).to_doubles(), t = draw.integers(shape, 2).to_doubles();
            std::vector<double> values;
            for (std::size_t i = 0; i < x.size(); ++i) values.push_back(naive_focal(x[i], t[i], 0.3, gamma));
            return std::vector<double>{mean_of(values)};
          },
          {.tolerance_scale = 4.0});
}

OP_TEST(DiceLoss) {
  for (const Shape& shape : {Shape{1, 1, 1}, {2, 7, 3}, {3, 5, 6, 2}})
    check(
        [&](Draw& draw) {
          const Tensor p = draw.uniform(shape, 0.1, 0.9);
          return dice_loss(p, draw.uniform(shape, 0.1, 0.9));
        },
        [&](Draw& draw) {
          const std::vector<double> p = draw.uniform(shape, 0.1, 0.9).to_doubles();
          const std::vector<double> t = draw.uniform(shape, 0.1, 0.9).to_doubles();
          const auto classes = static_cast<std::size_t>(shape.dim(-1)),
                     samples = static_cast<std::size_t>(shape.dim(0));
          const std::size_t pixels = p.size() / classes / samples;
          std::vector<double> values;
          for (std::size_t n = 0; n < samples; ++n)
            for (std::size_t c = 0; c < classes; ++c) {
              double overlap = 0, total = 0;
              for (std::size_t i = 0; i < pixels; ++i) {
                const std::size_t at = (n * pixels + i) * classes + c;
                overlap += p[at] * t[at];
                total += p[at] + t[at];
              }
              values.push_back(1 - (2 * overlap + 1) / (total + 1));
            }
          return std::vector<double>{mean_of(values)};
        },
        {.tolerance_scale = 2.0});
}

// Values of torch.nn.functional: binary_cross_entropy_with_logits, smooth_l1_loss, huber_loss, in closed form.
TEST(ElementLoss, ClosedForms) {
  const Tensor x = Tensor::of<double>({4}, {0.0, 2.0, -3.0, 0.5}), t = Tensor::of<double>({4}, {1.0, 0.0, 0.0, 0.5});
  EXPECT_NEAR(bce_with_logits(x, t).item(),
              (std::log(2.0) + 2 + std::log1p(std::exp(-2.0)) + std::log1p(std::exp(-3.0)) + 0.5 * 0.5 +
               std::log1p(std::exp(-0.5))) /
                  4,
              1e-14);
  EXPECT_NEAR(smooth_l1_loss(x, t).item(), (0.5 + 1.5 + 2.5 + 0) / 4, 1e-14);
  EXPECT_NEAR(huber_loss(x, t, 2.0).item(), (0.5 + 2 + 4 + 0) / 4, 1e-14);
  EXPECT_NEAR(smooth_l1_loss(x, t, 0.0).item(), 6.0 / 4, 1e-14);
}

TEST(ElementLoss, ResultIsWide) {
  const Tensor x = Tensor::full({100000}, 3.0, DType::f16);
  const Tensor loss = mse(x, Tensor::zeros({100000}, DType::f16));
  EXPECT_EQ(loss.dtype(), DType::f32);
  EXPECT_EQ(loss.item(), 9.0);
  const AutocastScope scope(DType::bf16);
  EXPECT_EQ(mse(x.to(DType::bf16), Tensor::zeros({100000})).item(), 9.0);
  EXPECT_EQ(bce_with_logits(x.to(DType::bf16), Tensor::zeros({100000}, DType::boolean)).dtype(), DType::f32);
}

TEST(ElementLoss, LargeLogitsStayFinite) {
  const Tensor x = requires_grad(Tensor::of<float>({4}, {1e4f, -1e4f, 1e4f, -1e4f}));
  const Tensor t = Tensor::of<float>({4}, {1, 0, 0, 1});
  const Tensor each = bce_with_logits(x, t, {.reduction = Reduction::none});
  EXPECT_EQ(each.to_doubles(), (std::vector<double>{0, 0, 1e4, 1e4}));
  backward(focal_loss(x, t, {.alpha = -1, .gamma = 0.5}, {.reduction = Reduction::sum}));
  EXPECT_EQ(grad_of(x).to_doubles(), (std::vector<double>{0, 0, 1, -1}));
}

TEST(ElementLoss, AllIgnoredIsZero) {
  const Tensor x = requires_grad(Tensor::full({3}, NAN));
  const Tensor loss = bce_with_logits(x, Tensor::full({3}, 255, DType::u8), {.ignore_target = 255});
  EXPECT_EQ(loss.item(), 0.0);
  backward(loss);
  EXPECT_EQ(grad_of(x).to_doubles(), (std::vector<double>{0, 0, 0}));
}

TEST(ElementLoss, TheMeanDividesByTheCountNotByTheWeights) {
  const Tensor x = Tensor::of<float>({2, 2}, {1, 2, 3, 4}), weight = Tensor::of<float>({2}, {1, 3});
  EXPECT_EQ(l1_loss(x, Tensor::zeros({2, 2}), {.weight = weight}).item(), (1 + 6 + 3 + 12) / 4.0);
  EXPECT_EQ(l1_loss(x, Tensor::zeros({2, 2}), {.reduction = Reduction::sum}).item(), 10.0);
  EXPECT_EQ(l1_loss(Tensor::zeros({0}), Tensor::zeros({0}), {.reduction = Reduction::sum}).item(), 0.0);
}

TEST(ElementLossRefusal, EveryLoss) {
  const std::pair<const char*, std::function<Tensor(const Tensor&, const Tensor&, const LossOptions&)>> losses[] = {
      {"mse", [](const Tensor& x, const Tensor& t, const LossOptions& o) { return mse(x, t, o); }},
      {"l1_loss", [](const Tensor& x, const Tensor& t, const LossOptions& o) { return l1_loss(x, t, o); }},
      {"smooth_l1_loss",
       [](const Tensor& x, const Tensor& t, const LossOptions& o) { return smooth_l1_loss(x, t, 1, o); }},
      {"huber_loss", [](const Tensor& x, const Tensor& t, const LossOptions& o) { return huber_loss(x, t, 1, o); }},
      {"bce_with_logits",
       [](const Tensor& x, const Tensor& t, const LossOptions& o) { return bce_with_logits(x, t, o); }},
      {"focal_loss", [](const Tensor& x, const Tensor& t, const LossOptions& o) { return focal_loss(x, t, {}, o); }},
  };
  const Tensor x = Tensor::zeros({2, 3});
  for (const auto& [name, loss] : losses) {
    refuses<UsageError>(name, [&] { return loss({}, x, {}); });
    refuses<UsageError>(name, [&] { return loss(x, {}, {}); });
    refuses<ShapeError>(name, [&] { return loss(x, Tensor::zeros({3, 2}), {}); });
    refuses<ShapeError>(name, [&] { return loss(x, Tensor::zeros({3}), {}); });
    refuses<ShapeError>(name, [&] { return loss(Tensor::zeros({0}), Tensor::zeros({0}), {}); });
    refuses<ShapeError>(name, [&] { return loss(x, x, {.weight = Tensor::zeros({2})}); });
    refuses<ShapeError>(name, [&] { return loss(x, x, {.weight = Tensor::zeros({1, 2, 3})}); });
    refuses<DTypeError>(name, [&] { return loss(x, x, {.weight = Tensor::zeros({3}, DType::i64)}); });
    refuses<DTypeError>(name, [&] { return loss(x, x.to(DType::bf16), {}); });
    refuses<DTypeError>(name, [&] { return loss(x.to(DType::i32), x.to(DType::i32), {}); });
  }
  refuses<DTypeError>("mse", [&] { return mse(x, Tensor::zeros({2, 3}, DType::i64)); });
  refuses<UsageError>("huber_loss", [&] { return huber_loss(x, x, 0.0); });
  refuses<UsageError>("smooth_l1_loss", [&] { return smooth_l1_loss(x, x, -1.0); });
  refuses<UsageError>("focal_loss", [&] { return focal_loss(x, x, {.alpha = 1.5}); });
  refuses<UsageError>("focal_loss", [&] { return focal_loss(x, x, {.gamma = -1}); });
  refuses<ShapeError>("bce_with_logits", [&] { return bce_with_logits(x, x, {}, Tensor::zeros({2})); });
}

TEST(ElementLossRefusal, Dice) {
  const Tensor p = Tensor::full({2, 4, 3}, 0.5);
  refuses<UsageError>("dice_loss", [&] { return dice_loss({}, p); });
  refuses<UsageError>("dice_loss", [&] { return dice_loss(p, p, -1); });
  refuses<ShapeError>("dice_loss", [&] { return dice_loss(p, Tensor::zeros({2, 4})); });
  refuses<ShapeError>("dice_loss", [&] { return dice_loss(Tensor::zeros({2, 3}), Tensor::zeros({2, 3})); });
  refuses<ShapeError>("dice_loss", [&] { return dice_loss(Tensor::zeros({2, 0, 3}), Tensor::zeros({2, 0, 3})); });
  refuses<DTypeError>("dice_loss", [&] { return dice_loss(p, p.to(DType::i64)); });
  refuses<DTypeError>("dice_loss", [&] { return dice_loss(p, p.to(DType::f64)); });
}

}  // namespace
}  // namespace hearth::test::elementwise_loss_test
