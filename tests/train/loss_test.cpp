// SPDX-License-Identifier: Apache-2.0
#include "train/model/loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/io/json_text.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"

namespace hearth::train::loss_test {
namespace {

using Scalar = std::function<Tensor(const Tensor&)>;

Tensor doubles(const Shape& shape, const std::vector<double>& values) { return Tensor::of(shape, values); }

/// Compares the gradient with central differences in f64.
void expect_gradient(const Scalar& f, const Shape& shape, const std::vector<double>& at) {
  const Tensor x = requires_grad(doubles(shape, at));
  backward(f(x));
  const std::vector<double> gradient = grad_of(x).to_doubles();
  constexpr double step = 1e-6;
  for (std::size_t i = 0; i < at.size(); ++i) {
    std::vector<double> above = at, below = at;
    above[i] += step;
    below[i] -= step;
    const double slope = (f(doubles(shape, above)).item() - f(doubles(shape, below)).item()) / (2 * step);
    EXPECT_NEAR(gradient[i], slope, 1e-7) << "element " << i;
  }
}

Loss loss_of(const std::string& type, const std::string& more = "") {
  return losses().make(parse_json(R"({"type": ")" + type + "\"" + more + "}", "loss_test"));
}

TEST(Loss, L1AndHuberOfHandComputedValues) {
  const Tensor x = doubles({2, 2}, {0, 1, 3, -2}), t = doubles({2, 2}, {0.5, 1, 0, -4});
  EXPECT_DOUBLE_EQ(loss_of("l1")(x, t).item(), (0.5 + 0 + 3 + 2) / 4);
  EXPECT_DOUBLE_EQ(loss_of("huber", R"(, "delta": 2)")(x, t).item(), (0.125 + 0 + 2 * (3 - 1) + 2) / 4);
  const std::vector<double> at{0.2, 1.3, 3, -2};
  for (const Loss& loss : {loss_of("l1"), loss_of("huber", R"(, "delta": 2.5)")})
    expect_gradient([&](const Tensor& y) { return loss(y, t); }, {2, 2}, at);
}

TEST(Loss, BinaryCrossEntropyIsThatOfTheSigmoid) {
  const std::vector<double> z{0.3, -1.2, 2, -0.7}, target{1, 0, 0.25, 1};
  const auto value = [&](double weight) {
    double sum = 0;
    for (std::size_t i = 0; i < z.size(); ++i) {
      const double p = 1 / (1 + std::exp(-z[i]));
      sum -= weight * target[i] * std::log(p) + (1 - target[i]) * std::log(1 - p);
    }
    return sum / 4;
  };
  const Tensor x = doubles({2, 2}, z), t = doubles({2, 2}, target);
  EXPECT_NEAR(loss_of("bce_with_logits")(x, t).item(), value(1), 1e-12);
  const Loss loss = loss_of("bce_with_logits", R"(, "positive_weight": 3)");
  EXPECT_NEAR(loss(x, t).item(), value(3), 1e-12);
  expect_gradient([&](const Tensor& y) { return loss(y, t); }, {2, 2}, z);
  // Neither end overflows.
  EXPECT_DOUBLE_EQ(loss_of("bce_with_logits")(doubles({2}, {1000, -1000}), doubles({2}, {1, 0})).item(), 0);
  EXPECT_DOUBLE_EQ(loss_of("bce_with_logits")(doubles({2}, {1000, -1000}), doubles({2}, {0, 1})).item(), 1000);
}

double minus_log_softmax(const std::vector<double>& row, std::size_t label) {
  double sum = 0;
  for (const double value : row) sum += std::exp(value);
  return std::log(sum) - row[label];
}

TEST(Loss, ClassWeightsAverageByTheirSum) {
  const std::vector<double> a{0.5, -1, 2}, b{1, 0, -0.5};
  const Tensor logits = doubles({3, 3}, {0.5, -1, 2, 1, 0, -0.5, 7, 8, 9});
  const Tensor labels = Tensor::of<std::int64_t>({3}, {2, 0, -100});
  const double expected = (3 * minus_log_softmax(a, 2) + 0.5 * minus_log_softmax(b, 0)) / 3.5;
  const Loss loss = loss_of("cross_entropy", R"(, "class_weights": [0.5, 1, 3])");
  EXPECT_NEAR(loss(logits, labels).item(), expected, 1e-12);
  expect_gradient([&](const Tensor& x) { return loss(x, labels); }, {3, 3}, {0.5, -1, 2, 1, 0, -0.5, 7, 8, 9});
  // Distributions, as mixup makes them: the weights are those of their classes, and the mean is over the rows.
  const Tensor mixed = doubles({1, 3}, {0.25, 0, 0.75});
  const double row = 0.5 * 0.25 * minus_log_softmax(a, 0) + 3 * 0.75 * minus_log_softmax(a, 2);
  EXPECT_NEAR(loss(doubles({1, 3}, a), mixed).item(), row, 1e-12);
  EXPECT_EQ(loss(doubles({1, 3}, a), Tensor::of<std::int64_t>({1}, {-100})).item(), 0);
}

// golden/make_losses.py.
TEST(Loss, ClassWeightsAndLabelSmoothingAreThoseOfPyTorch) {
  const Json golden = read_json(test::source_dir() + "/tests/golden/losses.json");
  const auto values = [](const Json& list) {
    std::vector<double> all;
    for (const Json& row : list.items())
      for (const Json& value : row.items()) all.push_back(value.as_number());
    return all;
  };
  std::vector<std::int64_t> classes;
  for (const Json& label : golden.at("classes").items())
    classes.push_back(static_cast<std::int64_t>(label.as_number()));
  const Tensor hard = Tensor::of({4}, classes), soft = doubles({4, 3}, values(golden.at("distributions")));
  for (const Json& one : golden.at("cases").items()) {
    const Loss loss = loss_of("cross_entropy", join_text(R"(, "class_weights": [0.3, 1, 2.7], "label_smoothing": )",
                                                         one.at("label_smoothing").as_number()));
    const bool is_soft = one.at("soft").as_boolean();
    const Tensor x = requires_grad(doubles({4, 3}, values(golden.at("logits"))));
    const Tensor result = loss(x, is_soft ? soft : hard);
    backward(result);
    EXPECT_NEAR(result.item(), one.at("loss").as_number(), 1e-12) << to_text(one);
    const std::vector<double> gradient = grad_of(x).to_doubles();
    for (std::size_t i = 0; i < gradient.size(); ++i)
      EXPECT_NEAR(gradient[i], one.at("gradient").items()[i].as_number(), 1e-12) << to_text(one) << " element " << i;
  }
}

TEST(Loss, FocalCountsWhatIsWrong) {
  const std::vector<double> a{0.5, -1, 2}, b{1, 0, -0.5};
  const Tensor logits = doubles({2, 3}, {0.5, -1, 2, 1, 0, -0.5});
  const Tensor labels = Tensor::of<std::int64_t>({2}, {2, 1});
  const auto term = [](double loss, double gamma) { return std::pow(1 - std::exp(-loss), gamma) * loss; };
  const double expected = (term(minus_log_softmax(a, 2), 1.5) + term(minus_log_softmax(b, 1), 1.5)) / 2;
  EXPECT_NEAR(loss_of("focal", R"(, "gamma": 1.5)")(logits, labels).item(), expected, 1e-12);
  const Loss weighted = loss_of("focal", R"(, "class_weights": [1, 2, 4])");
  EXPECT_NEAR(weighted(logits, labels).item(),
              (4 * term(minus_log_softmax(a, 2), 2) + 2 * term(minus_log_softmax(b, 1), 2)) / 6, 1e-12);
  expect_gradient([&](const Tensor& x) { return weighted(x, labels); }, {2, 3}, {0.5, -1, 2, 1, 0, -0.5});
  // A row that is right to the last bit has loss and gradient 0.
  const Tensor sure = requires_grad(doubles({1, 2}, {800, 0}));
  const Tensor loss = loss_of("focal")(sure, Tensor::of<std::int64_t>({1}, {0}));
  backward(loss);
  EXPECT_EQ(loss.item(), 0);
  EXPECT_EQ(grad_of(sure).to_doubles(), (std::vector<double>{0, 0}));
}

TEST(Loss, OfTargetsTakesClassesAsOneHotRows) {
  const Tensor x = Tensor::of<float>({2, 2}, {0, 1, 0.5F, 0}), classes = Tensor::of<std::int64_t>({2}, {1, 0});
  EXPECT_DOUBLE_EQ(loss_of("mse")(x, classes).item(), 0.25 / 4);
  EXPECT_DOUBLE_EQ(loss_of("l1")(x, classes).item(), 0.5 / 4);
  EXPECT_THROW((void)loss_of("l1")(x, Tensor::of<std::int64_t>({2}, {1, 2})), IndexError);
}

TEST(Loss, RefusesWhatDoesNotFit) {
  const Tensor x = Tensor::zeros({2, 3});
  for (const char* type : {"mse", "l1", "huber", "bce_with_logits"})
    EXPECT_THROW((void)loss_of(type)(x, Tensor::zeros({2, 2})), ShapeError) << type;
  EXPECT_PRED2(test::contains, test::error_message<ShapeError>([&] {
                 (void)loss_of("focal", R"(, "class_weights": [1, 2])")(x, Tensor::zeros({2}, DType::i64));
               }),
               "class weights [2] for 3 classes");
  for (const char* bad : {R"(, "class_weights": [0, 1])", R"(, "label_smoothing": 1)"})
    EXPECT_THROW((void)loss_of("cross_entropy", bad), ConfigError) << bad;
  EXPECT_THROW((void)loss_of("focal", R"(, "gamma": 0)"), ConfigError);
  EXPECT_THROW((void)loss_of("huber", R"(, "delta": 0)"), ConfigError);
  EXPECT_THROW((void)loss_of("bce_with_logits", R"(, "positive_weight": -1)"), ConfigError);
}

}  // namespace
}  // namespace hearth::train::loss_test
