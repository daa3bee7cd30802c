// SPDX-License-Identifier: Apache-2.0
#include "ops/loss/cross_entropy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/cpu/amx.h"
#include "core/memory/memory.h"
#include "core/random.h"
#include "ops/dispatch/candidates.h"
#include "ops/linear/linear.h"
#include "ops/loss/cross_entropy_bf16.h"
#include "ops/norm/layer_norm.h"
#include "tests/support/devices.h"
#include "tests/support/error_message.h"
#include "tests/support/op_test.h"

namespace hearth::test::cross_entropy_test {
namespace {

struct Case {
  Shape logits;
  CrossEntropyOptions options;
  DType labels = DType::i64;  // i32, i64, or f32 for targets of every class
  bool weighted = false;      // by class_weight() of each class
};

// Exact in every type.
double class_weight(std::int64_t c) { return 0.25 * static_cast<double>(1 + c % 5); }

Shape rows_of(const Case& c) {
  return Shape(std::span(c.logits.begin(), static_cast<std::size_t>(c.logits.rank() - 1)));
}

// Every fourth row is ignored where the option names a class.
std::vector<double> class_labels(const Case& c) {
  std::vector<double> labels;
  for (std::int64_t i = 0; i < rows_of(c).size(); ++i)
    labels.push_back(i % 4 == 3 ? static_cast<double>(c.options.ignore_index)
                                : static_cast<double>(i * 7 % c.logits.dim(-1)));
  return labels;
}

// Of about 1 a row, and exact in every type.
std::vector<double> targets_of(const Case& c) {
  std::vector<double> targets;
  const double row_weight = std::exp2(-std::floor(std::log2(static_cast<double>(c.logits.dim(-1))))) / 4.0;
  for (std::int64_t i = 0; i < c.logits.size(); ++i) targets.push_back(static_cast<double>(i * 5 % 8) * row_weight);
  return targets;
}

Tensor run(Draw& draw, const Case& c) {
  const Tensor logits = draw.normal(c.logits, 2.0);
  const Tensor labels = c.labels == DType::f32 ? draw.constant(c.logits, targets_of(c))
                                               : draw.indices(rows_of(c), class_labels(c), c.labels);
  CrossEntropyOptions options = c.options;
  if (c.weighted) {
    std::vector<double> weights;
    for (std::int64_t k = 0; k < c.logits.dim(-1); ++k) weights.push_back(class_weight(k));
    options.class_weights =
        draw.constant({c.logits.dim(-1)}, weights).to(site_dtype() == DType::f64 ? DType::f64 : DType::f32);
  }
  return cross_entropy(logits, labels, options);
}

std::vector<double> naive(Draw& draw, const Case& c) {
  const std::vector<double> x = draw.normal(c.logits, 2.0).to_doubles();
  const auto cols = static_cast<std::size_t>(c.logits.dim(-1)), rows = x.size() / cols;
  const std::vector<double> labels = class_labels(c), targets = targets_of(c);
  std::vector<double> losses(rows, 0.0);
  double total = 0, count = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    const bool ignored = c.labels != DType::f32 && labels[r] == static_cast<double>(c.options.ignore_index);
    if (ignored) continue;
    double sum = 0;
    for (std::size_t k = 0; k < cols; ++k) sum += std::exp(x[r * cols + k]);
    for (std::size_t k = 0; k < cols; ++k) {
      double target =
          c.labels == DType::f32 ? targets[r * cols + k] : static_cast<double>(labels[r]) == static_cast<double>(k);
      target = (1 - c.options.label_smoothing) * target + c.options.label_smoothing / static_cast<double>(cols);
      const double weight = c.weighted ? class_weight(static_cast<std::int64_t>(k)) : 1;
      losses[r] -= target * weight * (x[r * cols + k] - std::log(sum));
    }
    total += losses[r];
    count += c.weighted && c.labels != DType::f32 ? class_weight(static_cast<std::int64_t>(labels[r])) : 1;
  }
  if (c.options.reduction == Reduction::none) return losses;
  if (c.options.reduction == Reduction::sum) return {total};
  return {total / count};
}

OP_TEST(CrossEntropy) {
  for (const Shape& shape :
       {Shape{1, 1}, {3, 10}, {7, 37}, {2, 5, 129}, {2, 3, 4, 19}, {2, 1000}, {2, 1536}, {2, 20011}})
    for (const double smoothing : {0.0, 0.1})
      for (const DType labels : {DType::i32, DType::i64, DType::f32}) {
        const Case c{shape, {.label_smoothing = smoothing}, labels};
        check([&](Draw& draw) { return run(draw, c); }, [&](Draw& draw) { return naive(draw, c); },
              {.tolerance_scale = 4.0});
      }
}

OP_TEST(CrossEntropyReductions) {
  for (const Reduction reduction : {Reduction::sum, Reduction::none})
    for (const DType labels : {DType::i64, DType::f32})
      for (const std::int64_t ignore : {-100, 0}) {
        const Case c{{2, 5, 11}, {.label_smoothing = 0.2, .ignore_index = ignore, .reduction = reduction}, labels};
        check([&](Draw& draw) { return run(draw, c); }, [&](Draw& draw) { return naive(draw, c); },
              {.tolerance_scale = 4.0});
      }
}

OP_TEST(CrossEntropyClassWeights) {
  for (const Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none})
    for (const DType labels : {DType::i32, DType::i64, DType::f32})
      for (const double smoothing : {0.0, 0.2})
        for (const std::int64_t ignore : {-100, 0}) {
          const Case c{
              {2, 5, 11}, {.label_smoothing = smoothing, .ignore_index = ignore, .reduction = reduction}, labels, true};
          check([&](Draw& draw) { return run(draw, c); }, [&](Draw& draw) { return naive(draw, c); },
                {.tolerance_scale = 4.0});
        }
}

TEST(CrossEntropyEdges, RowsOfClassesThatWeighNothingGiveZero) {
  for (const double smoothing : {0.0, 0.1}) {
    const Tensor x = requires_grad(Tensor::of<float>({2, 2}, {1, 2, 3, 4}));
    const Tensor loss = cross_entropy(x, Tensor::of<std::int64_t>({2}, {0, 0}),
                                      {.label_smoothing = smoothing, .class_weights = Tensor::of<float>({2}, {0, 1})});
    EXPECT_EQ(loss.item(), 0.0);
    backward(loss);
    EXPECT_EQ(grad_of(x).to_doubles(), (std::vector<double>{0, 0, 0, 0}));
  }
}

// Nobody else holds these logits, so their memory becomes the gradient's.
OP_TEST(CrossEntropyOfTemporaryLogits) {
  for (const DType labels : {DType::i64, DType::f32}) {
    const Case c{{6, 37}, {.label_smoothing = 0.1}, labels};
    check(
        [&](Draw& draw) {
          const Tensor x = draw.normal(c.logits), gamma = draw.positive({37}, Width::wide);
          const Tensor targets = labels == DType::f32 ? draw.constant(c.logits, targets_of(c))
                                                      : draw.indices(rows_of(c), class_labels(c), labels);
          return cross_entropy(layer_norm(x, gamma, draw.normal({37}, 1.0, Width::wide), 0.1), targets, c.options);
        },
        {.tolerance_scale = 4.0});
  }
}

TEST(CrossEntropyEdges, ResultIsWide) {
  const Tensor labels = Tensor::of<std::int64_t>({2}, {0, 1});
  EXPECT_EQ(cross_entropy(Tensor::zeros({2, 4}, DType::bf16), labels).dtype(), DType::f32);
  EXPECT_EQ(cross_entropy(Tensor::zeros({2, 4}, DType::f64), labels).dtype(), DType::f64);
  EXPECT_NEAR(cross_entropy(Tensor::zeros({2, 4}), labels).item(), std::log(4.0), 1e-6);
}

// Rows of bf16 by the processor's own instructions: whole vectors, and what is left of one.
TEST(CrossEntropy, RowsOfBf16) {
  if (!cpu::amx::has_bf16_vectors()) GTEST_SKIP() << "no bf16 vectors";
  for (const std::int64_t count : {1, 31, 32, 33, 64, 95, 200}) {
    Random random(1, static_cast<std::uint64_t>(count));
    std::vector<bf16> x, dx(static_cast<std::size_t>(count) + 1, bf16(7.0f));
    for (std::int64_t i = 0; i < count; ++i) x.emplace_back(static_cast<float>(20 * random.normal()));
    double most = -std::numeric_limits<double>::infinity(), sum = 0;
    for (const bf16 value : x) most = std::max(most, static_cast<double>(static_cast<float>(value)));
    for (const bf16 value : x) sum += std::exp(static_cast<double>(static_cast<float>(value)) - most);
    float found_most = 0, found_sum = 0;
    kernels::sum_exponentials_bf16(x.data(), count, found_most, found_sum);
    EXPECT_EQ(found_most, most) << count;
    EXPECT_NEAR(found_sum, sum, 1e-6 * sum) << count;
    const auto log_sum = static_cast<float>(std::log(sum));
    kernels::exponential_slopes_bf16(x.data(), count, found_most, log_sum, 0.125f, 3.0f, dx.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double p = std::exp(static_cast<double>(static_cast<float>(x[i])) - most - log_sum);
      EXPECT_NEAR(static_cast<float>(dx[i]), 3 * (p - 0.125), 0.004 * std::abs(3 * (p - 0.125)) + 1e-5) << count;
    }
    EXPECT_EQ(static_cast<float>(dx.back()), 7.0f) << count;
    // One that is no number makes the sum none, and does not become the largest.
    x[x.size() / 2] = bf16(std::numeric_limits<float>::quiet_NaN());
    kernels::sum_exponentials_bf16(x.data(), count, found_most, found_sum);
    EXPECT_TRUE(std::isnan(found_sum)) << count;
    EXPECT_FALSE(std::isnan(found_most)) << count;
  }
}

// On a processor with AVX512-BF16 bf16 goes to its vectors otherwise.
OP_TEST(CrossEntropyByThePortableKernel) {
  if (!current_site().device.is_cpu() || site_dtype() != DType::bf16) return;
  const ForceCandidate force("cross_entropy", "portable");
  for (const DType labels : {DType::i64, DType::f32}) {
    const Case c{{6, 101}, {.label_smoothing = 0.1}, labels};
    check([&](Draw& draw) { return run(draw, c); }, [&](Draw& draw) { return naive(draw, c); },
          {.tolerance_scale = 4.0});
  }
}

/// What ran the losses of x, and what their gradient.
struct Choices {
  std::string forward, gradient;
  Tensor x, losses{};
};

Choices choices_of(DType dtype, bool mixed) {
  Random random(1, 2);
  std::vector<double> logits(64 * 5);  // few, so that sums are small and their last bits remain
  for (double& x : logits) x = random.normal();
  const Tensor x = requires_grad(Tensor::of<double>({64, 5}, logits).to(dtype));
  const Tensor labels =
      mixed ? Tensor::full({64, 5}, 0.2, dtype == DType::f64 ? dtype : DType::f32) : Tensor::zeros({64}, DType::i64);
  const Tensor losses = cross_entropy(x, labels, {.reduction = Reduction::none});
  const std::string forward = last_choice("cross_entropy");
  backward(losses, Tensor::full({64}, 1, losses.dtype()));
  return {forward, last_choice("cross_entropy"), x, losses};
}

/// The losses of label 0 by the processor's vectors.
std::vector<double> losses_by_vectors(const Tensor& x) {
  std::vector<double> losses;
  for (std::int64_t row = 0; row < x.dim(0); ++row) {
    const bf16* const logits = x.data<bf16>() + row * x.dim(1);
    float most = 0, sum = 0;
    kernels::sum_exponentials_bf16(logits, x.dim(1), most, sum);
    losses.push_back(static_cast<float>(std::log(static_cast<double>(sum))) - (static_cast<float>(logits[0]) - most));
  }
  return losses;
}

TEST(CrossEntropyCandidates, AreChosenByTypeAndLabels) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    const bool vectors = dtype == DType::bf16 && cpu::amx::has_bf16_vectors();
    for (const bool mixed : {false, true}) {
      const Choices chosen = choices_of(dtype, mixed);
      EXPECT_EQ(chosen.forward, vectors ? "avx512_bf16" : "portable") << dtype;
      EXPECT_EQ(chosen.gradient, vectors && !mixed ? "avx512_bf16" : "portable") << dtype;
    }
  }
}

TEST(CrossEntropyCandidates, RunWhereTheyAreForced) {
  const ForceCandidate force("cross_entropy", "portable");
  const Choices portable = choices_of(DType::bf16, false);
  EXPECT_EQ(portable.forward, "portable");
  EXPECT_EQ(portable.gradient, "portable");
  if (!cpu::amx::has_bf16_vectors()) GTEST_SKIP() << "no bf16 vectors";
  const ForceCandidate vectors("cross_entropy", "avx512_bf16");
  const std::vector<double> losses = losses_by_vectors(portable.x);
  EXPECT_EQ(choices_of(DType::bf16, false).losses.to_doubles(), losses);
  EXPECT_NE(portable.losses.to_doubles(), losses) << "sums of another order";
}

TEST(CrossEntropyCandidates, SayWhyTheyRefuse) {
  const ForceCandidate force("cross_entropy", "avx512_bf16");
  const auto message = [](DType dtype, bool mixed) {
    return error_message<UsageError>([&] { (void)choices_of(dtype, mixed); });
  };
  EXPECT_PRED2(contains, message(DType::f32, false), "forced to avx512_bf16");
  EXPECT_PRED2(contains, message(DType::f32, false), "logits are f32, not bf16");
  EXPECT_PRED2(contains, message(DType::bf16, true), cpu::amx::has_bf16_vectors() ? "floating labels" : "no AVX-512");
}

TEST(CrossEntropyOnDevices, AllIgnoredIsZeroWithZeroGradient) {
  for (const Device device : devices()) {
    const Tensor x = requires_grad(Tensor::of<float>({2, 2}, {1, 2, 3, 4}).to(device));
    const Tensor loss = cross_entropy(x, Tensor::full({2}, -100, DType::i64, device));
    EXPECT_EQ(loss.item(), 0.0) << device;
    backward(loss);
    EXPECT_EQ(grad_of(x).to_doubles(), (std::vector<double>{0, 0, 0, 0})) << device;
    const Tensor none = Tensor::zeros({0, 3}, DType::f32, device);
    EXPECT_EQ(cross_entropy(none, Tensor::zeros({0}, DType::i64, device)).item(), 0.0) << device;
  }
}

// What nobody else holds is written over: the gradient of logits wants no memory of its own.
TEST(CrossEntropyOnDevices, TheGradientOfTemporaryLogitsTakesTheirMemory) {
  constexpr std::int64_t rows = 256, classes = 1024, logits = rows * classes * 4, slack = 64 * 1024;
  for (const Device device : devices()) {
    const Tensor x = requires_grad(Tensor::full({rows, 1}, 0.5, DType::f32, device)),
                 w = requires_grad(Tensor::full({classes, 1}, 0.5, DType::f32, device));
    const Tensor labels = Tensor::zeros({rows}, DType::i64, device);
    const auto growth = [&](bool held) {
      Tensor y = linear(x, w, {});
      const Tensor loss = cross_entropy(y, labels);
      if (!held) y = {};
      const std::int64_t before = memory_of(device).statistics().in_use;
      memory_of(device).reset_peak();
      backward(loss);
      return memory_of(device).statistics().peak - before;
    };
    (void)growth(false);  // what is made at first use
    EXPECT_LT(growth(false), slack) << device;
    EXPECT_GE(growth(true), logits) << device << ": held by the caller too, they are spared";
  }
}

TEST(CrossEntropyEdges, LargeLogitsKeepTheirGradient) {
  const Tensor x = requires_grad(Tensor::of<float>({1, 2}, {100000.0f, 100001.0f}));
  const Tensor loss = cross_entropy(x, Tensor::of<std::int64_t>({1}, {0}));
  EXPECT_NEAR(loss.item(), std::log1p(std::exp(1.0)), 1e-6);
  backward(loss);
  EXPECT_NEAR(grad_of(x).to_doubles()[1], 1 / (1 + std::exp(-1.0)), 1e-6);
}

TEST(CrossEntropyEdges, MaskedClassesCountNothing) {
  const float none = -std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::of<float>({1, 3}, {0.0f, none, 0.0f});
  EXPECT_NEAR(cross_entropy(x, Tensor::of<std::int64_t>({1}, {0})).item(), std::log(2.0), 1e-6);
  EXPECT_NEAR(cross_entropy(x, Tensor::of<float>({1, 3}, {0.5f, 0.0f, 0.5f})).item(), std::log(2.0), 1e-6);
}

TEST(CrossEntropyEdges, RefusesBadArguments) {
  const Tensor x = Tensor::zeros({2, 3}), labels = Tensor::of<std::int64_t>({2}, {0, 2});
  const char* op = "cross_entropy";
  refuses<UsageError>(op, [&] { return cross_entropy({}, labels); });
  refuses<UsageError>(op, [&] { return cross_entropy(x, {}); });
  refuses<ShapeError>(op, [&] { return cross_entropy(Tensor::zeros({}), labels); });
  refuses<ShapeError>(op, [&] { return cross_entropy(Tensor::zeros({2, 0}), labels); });
  refuses<ShapeError>(op, [&] { return cross_entropy(x, Tensor::zeros({3}, DType::i64)); });
  refuses<ShapeError>(op, [&] { return cross_entropy(x, Tensor::zeros({2, 1}, DType::i64)); });
  refuses<ShapeError>(op, [&] { return cross_entropy(x, Tensor::zeros({2, 4})); });
  refuses<DTypeError>(op, [&] { return cross_entropy(x.to(DType::i32), labels); });
  refuses<DTypeError>(op, [&] { return cross_entropy(x, labels.to(DType::u8)); });
  refuses<IndexError>(op, [&] { return cross_entropy(x, Tensor::of<std::int64_t>({2}, {0, 3})); });
  refuses<IndexError>(op, [&] { return cross_entropy(x, Tensor::of<std::int32_t>({2}, {-1, 0})); });
  refuses<IndexError>(op, [&] { return cross_entropy(x, Tensor::of<std::int64_t>({2}, {0, 1ll << 40})); });
  refuses<UsageError>(op, [&] { return cross_entropy(x, labels, {.label_smoothing = 1.5}); });
  refuses<UsageError>(op, [&] { return cross_entropy(x, labels, {.label_smoothing = std::nan("")}); });
  refuses<ShapeError>(op, [&] { return cross_entropy(x, labels, {.class_weights = Tensor::zeros({2})}); });
  refuses<ShapeError>(op, [&] { return cross_entropy(x, labels, {.class_weights = Tensor::zeros({1, 3})}); });
  refuses<ShapeError>(op, [&] { return cross_entropy(x, labels, {.class_weights = Tensor::zeros({})}); });
  refuses<DTypeError>(op, [&] { return cross_entropy(x, labels, {.class_weights = Tensor::zeros({3}, DType::i64)}); });
  refuses<IndexError>(op, [&] {
    return cross_entropy(x, Tensor::of<std::int64_t>({2}, {0, 3}), {.class_weights = Tensor::zeros({3})});
  });
  try {
    (void)cross_entropy(x, Tensor::of<std::int64_t>({2}, {0, 7}));
    FAIL() << "label 7 of 3 classes was taken";
  } catch (const IndexError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("label 7 at position 1"), std::string::npos) << text;
    EXPECT_NE(text.find("[0, 3)"), std::string::npos) << text;
  }
}

TEST(CountCorrect, CountsTheLargestAndBreaksTiesByOrder) {
  const Tensor x = Tensor::of<float>({4, 3}, {1, 2, 3, 3, 2, 1, 5, 5, 0, 0, 0, 0});
  EXPECT_EQ(count_correct(x, Tensor::of<std::int64_t>({4}, {2, 0, 0, 0})).item(), 4);
  EXPECT_EQ(count_correct(x, Tensor::of<std::int64_t>({4}, {2, 1, 1, 1})).item(), 1);
  EXPECT_EQ(count_correct(x, Tensor::of<std::int64_t>({4}, {1, 1, 1, 1}), 2).item(), 4);
  EXPECT_EQ(count_correct(x, Tensor::of<std::int32_t>({4}, {0, 2, 2, 2}), 2).item(), 0);
  EXPECT_EQ(count_correct(x, Tensor::of<std::int64_t>({4}, {0, 2, 2, 2}), 3).item(), 4);
  EXPECT_EQ(count_correct(x.to(DType::bf16), Tensor::of<std::int64_t>({4}, {2, -100, 0, -100})).item(), 2);
}

OP_TEST(CountCorrectOfTheBestThree) {
  // So many rows that some label is the fourth.
  for (const Shape& shape : {Shape{7, 3}, {700, 37}, {3, 1100}})
    check(
        [&](Draw& draw) {
          const Tensor x = draw.distinct(shape);
          return count_correct(x, draw.integers({shape[0]}, shape[1]), 3);
        },
        [&](Draw& draw) {
          const std::vector<double> x = draw.distinct(shape).to_doubles();
          const std::vector<double> labels = draw.integers({shape[0]}, shape[1]).to_doubles();
          double correct = 0;
          for (std::int64_t row = 0; row < shape[0]; ++row) {
            const auto from = x.begin() + row * shape[1];
            const double value = from[static_cast<std::ptrdiff_t>(labels[static_cast<std::size_t>(row)])];
            correct += std::count_if(from, from + shape[1], [&](double other) { return other > value; }) < 3 ? 1 : 0;
          }
          return std::vector<double>{correct};
        },
        {.no_gradient = true});
}

TEST(CrossEntropy, NotesABadLabelOnADevice) {
  if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "no CUDA device";
  const Device device{DeviceType::cuda, 0};
  const Tensor x = Tensor::zeros({2, 3}, DType::f32, device);
  const Tensor labels = Tensor::zeros({2}, DType::i64, device);
  labels.copy_from(Tensor::of<std::int64_t>({2}, {0, 7}));
  const Tensor loss = cross_entropy(x, labels);
  EXPECT_THROW((void)loss.item(), IndexError);
  EXPECT_DOUBLE_EQ(loss.item(), static_cast<double>(static_cast<float>(std::log(3.0) / 2)));
}

TEST(CrossEntropy, RefusesLabelsOnAnotherDevice) {
  if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "no CUDA device";
  const Tensor x = Tensor::zeros({2, 3}, DType::f32, {DeviceType::cuda, 0}), labels = Tensor::zeros({2}, DType::i64);
  refuses<DeviceError>("cross_entropy", [&] { return cross_entropy(x, labels); });
  refuses<DeviceError>("count_correct", [&] { return count_correct(x, labels); });
  refuses<DeviceError>("cross_entropy",
                       [&] { return cross_entropy(x, labels.to(x.device()), {.class_weights = Tensor::zeros({3})}); });
  const Tensor loss = cross_entropy(requires_grad(x), labels.to(x.device()));
  refuses<DeviceError>("backward: dy is on cpu", [&] { return backward(loss, Tensor::full({}, 1.0)), 0; });
}

TEST(RowWeights, AreThoseOfTheClassesThatCount) {
  const Tensor labels = Tensor::of<std::int32_t>({2, 2}, {2, 0, 1, 2}), weights = Tensor::of<float>({3}, {0.5F, 1, 3});
  const Tensor all = row_weights(labels, weights, DType::f64, 0);
  EXPECT_EQ(all.shape(), labels.shape());
  EXPECT_EQ(all.dtype(), DType::f64);
  EXPECT_EQ(all.to_doubles(), (std::vector<double>{3, 0, 1, 3}));
  EXPECT_EQ(row_weights(labels, {}, DType::f32, 2).to_doubles(), (std::vector<double>{0, 1, 1, 0}));
}

TEST(RowWeights, RefusesBadArguments) {
  const Tensor labels = Tensor::zeros({2}, DType::i64), weights = Tensor::zeros({3});
  const char* op = "row_weights";
  refuses<UsageError>(op, [&] { return row_weights({}, weights, DType::f32); });
  refuses<DTypeError>(op, [&] { return row_weights(weights, weights, DType::f32); });
  refuses<DTypeError>(op, [&] { return row_weights(labels, weights, DType::i64); });
  refuses<DTypeError>(op, [&] { return row_weights(labels, labels, DType::f32); });
  refuses<ShapeError>(op, [&] { return row_weights(labels, Tensor::zeros({1, 3}), DType::f32); });
  refuses<IndexError>("", [&] { return row_weights(Tensor::full({1}, 3, DType::i64), weights, DType::f32); });
}

TEST(CountCorrect, NotANumberIsNeverRight) {
  const Tensor x = Tensor::full({2, 3}, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(count_correct(x, Tensor::zeros({2}, DType::i64), 3).item(), 0);
}

TEST(CountCorrect, RefusesBadArguments) {
  const Tensor x = Tensor::zeros({2, 3}), labels = Tensor::of<std::int64_t>({2}, {0, 2});
  const char* op = "count_correct";
  refuses<UsageError>(op, [&] { return count_correct({}, labels); });
  refuses<UsageError>(op, [&] { return count_correct(x, labels, 0); });
  refuses<UsageError>(op, [&] { return count_correct(x, labels, 4); });
  refuses<ShapeError>(op, [&] { return count_correct(x, Tensor::zeros({3}, DType::i64)); });
  refuses<DTypeError>(op, [&] { return count_correct(x, Tensor::zeros({2})); });
  refuses<IndexError>(op, [&] { return count_correct(x, Tensor::of<std::int64_t>({2}, {0, 3})); });
}

}  // namespace
}  // namespace hearth::test::cross_entropy_test
