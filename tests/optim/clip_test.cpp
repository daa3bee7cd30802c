// SPDX-License-Identifier: Apache-2.0
// Global-norm clipping, moving averages and schedules' edges.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/cpu/parallel.h"
#include "optim/clip.h"
#include "optim/ema.h"
#include "optim/schedule.h"
#include "optim/sgd.h"
#include "tests/optim/toy_parameters.h"
#include "tests/support/devices.h"

namespace hearth::clip_test {
namespace {

using test::ToyParameters;

constexpr double infinity = std::numeric_limits<double>::infinity();

TEST(Clip, NormOfKnownGradients) {
  ToyParameters toy(DType::f32);
  toy.fill_gradients(2.0);
  EXPECT_NEAR(optim::grad_norm(toy.flat()), 2.0 * std::sqrt(21.0), 1e-12);
  toy.fill_gradients(0.0);
  EXPECT_EQ(optim::grad_norm(toy.flat()), 0.0);
}

TEST(ClipOnDevices, GradientsOf1e30AreClippedRight) {
  for (const Device device : test::devices())
    // By the host, and where the gradients are.
    for (const bool on_device : {false, true}) {
      if (on_device && device.is_cpu()) continue;
      ToyParameters toy(DType::f32, device);
      optim::Sgd sgd(toy.flat(), {});
      const std::vector<double> before = toy.values();
      toy.fill_gradients(1e30);
      double norm = 0;
      if (on_device) {
        const Tensor found = Tensor::zeros({1}, DType::f64, device);
        sgd.begin_step(1.0);
        optim::clip_on_device(toy.flat(), sgd, 1.0, found);
        sgd.apply();
        norm = found.item();
      } else {
        norm = optim::grad_norm(toy.flat());
        sgd.step(1.0, optim::clip_scale(norm, 1.0));
      }
      EXPECT_NEAR(norm / (1e30 * std::sqrt(21.0)), 1.0, 1e-6) << device;
      const std::vector<double> after = toy.values();
      double moved = 0;
      for (std::size_t i = 0; i < after.size(); ++i) moved += (after[i] - before[i]) * (after[i] - before[i]);
      EXPECT_NEAR(std::sqrt(moved), 1.0, 1e-6) << device;
    }
}

TEST(Clip, DoublesBeyondTheRangeOfTheirSquares) {
  for (const double size : {1e200, 1e-200, 3e307, 1e-300, 4.9e-324}) {
    ToyParameters toy(DType::f64);
    toy.fill_gradients(size);
    EXPECT_NEAR(optim::grad_norm(toy.flat()) / size / std::sqrt(21.0), 1.0, size < 1e-310 ? 0.2 : 1e-12) << size;
  }
}

TEST(Clip, NonFiniteNormsAreReported) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const double bad : {infinity, -infinity, std::nan("")}) {
      ToyParameters toy(dtype);
      toy.fill_gradients(1.0);
      grad_of(toy.flat().entries()[1].value).fill_(bad);
      const double norm = optim::grad_norm(toy.flat());
      EXPECT_FALSE(std::isfinite(norm));
      EXPECT_THROW(optim::clip_scale(norm, 1.0), DivergedError);
    }
  }
}

TEST(Clip, SmallGradientsAreLeftAlone) {
  EXPECT_EQ(optim::clip_scale(0.5, 1.0), 1.0);
  EXPECT_EQ(optim::clip_scale(0.0, 1.0), 1.0);
  EXPECT_NEAR(optim::clip_scale(4.0, 1.0), 0.25, 1e-6);
  EXPECT_THROW(optim::clip_scale(1.0, 0.0), ConfigError);
  EXPECT_THROW(optim::clip_scale(1.0, std::nan("")), ConfigError);
}

TEST(Clip, TheNormDoesNotDependOnTheThreadCount) {
  const int threads = cpu::threads();
  Tensor x = Tensor::empty({300'000});
  for (std::int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] = 1.0f / static_cast<float>(i % 977 + 1);
  double expected = 0;
  for (const int count : {1, 2, 5}) {
    cpu::set_threads(count);
    const double sum = kernels::sum_of_squares(cpu::stream_of({}), x, 1.0);
    if (count == 1) expected = sum;
    EXPECT_EQ(sum, expected);
  }
  cpu::set_threads(threads);
  double plain = 0;
  for (std::int64_t i = 0; i < x.size(); ++i) plain += std::pow(static_cast<double>(x.data<float>()[i]), 2);
  EXPECT_NEAR(expected / plain, 1.0, 1e-12);
}

TEST(EmaWeights, FollowsTheFormula) {
  ToyParameters toy;
  Tensor statistic = Tensor::full({2}, 1.0, DType::f64);
  optim::Ema ema(toy.flat(), {{"running_mean", &statistic}}, {.decay = 0.75, .warmup = false});
  std::vector<double> average = toy.values();
  double statistic_average = 1.0;
  for (int step = 0; step < 4; ++step) {
    toy.flat().values().fill_(step);
    statistic.fill_(step + 2.0);
    ema.update();
    for (double& value : average) value = 0.75 * value + 0.25 * step;
    statistic_average = 0.75 * statistic_average + 0.25 * (step + 2.0);
  }
  ema.swap();
  const std::vector<double> values = toy.values();
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], average[i], 1e-14);
  EXPECT_NEAR(statistic.to_doubles()[1], statistic_average, 1e-14);
  EXPECT_THROW(ema.update(), UsageError);
  ema.swap();
  for (const double value : toy.values()) EXPECT_EQ(value, 3.0);
  EXPECT_EQ(statistic.to_doubles()[1], 5.0);
}

TEST(EmaWeights, WarmUpForgetsTheStart) {
  ToyParameters toy;
  optim::Ema ema(toy.flat(), {}, {.decay = 0.9999, .warmup = true});
  toy.flat().values().fill_(1.0);
  ema.update();
  const std::vector<double> values = ema.average().to_doubles();
  // Element 0 began at -0.5; the first decay is 1 / 10.
  EXPECT_NEAR(values[0], -0.05 + 0.9, 1e-14);
}

TEST(EmaWeights, BadDecayIsRefused) {
  ToyParameters toy;
  EXPECT_THROW(optim::Ema(toy.flat(), {}, {.decay = 1.0}), ConfigError);
  EXPECT_THROW(optim::Ema(toy.flat(), {}, {.decay = std::nan("")}), ConfigError);
}

TEST(ScheduleEdges, EndsAndBeyond) {
  const optim::ScheduleInfo info{.total_steps = 100, .steps_per_epoch = 10};
  optim::CosineOptions cosine_options;
  cosine_options.final_factor = 0.25;
  const optim::CosineSchedule cosine(cosine_options, info);
  EXPECT_EQ(cosine.factor(0), 1.0);
  EXPECT_EQ(cosine.factor(100), 0.25);
  EXPECT_EQ(cosine.factor(1'000'000'000'000), 0.25);
  EXPECT_THROW(cosine.factor(-1), UsageError);

  optim::PolynomialOptions linear_options;
  linear_options.warmup_steps = 200;
  const optim::PolynomialSchedule longer_warmup(linear_options, info);
  EXPECT_EQ(longer_warmup.factor(99), 0.5);
  EXPECT_EQ(longer_warmup.factor(200), 0.0);
}

TEST(ScheduleEdges, WarmUpStartsWhereItSays) {
  optim::ConstantOptions options;
  options.warmup_epochs = 0.5;
  options.warmup_start = 0.2;
  const optim::ConstantSchedule schedule(options, {.total_steps = 100, .steps_per_epoch = 10});
  EXPECT_EQ(schedule.warmup_steps(), 5);
  EXPECT_DOUBLE_EQ(schedule.factor(0), 0.2 + 0.8 / 5);
  EXPECT_DOUBLE_EQ(schedule.factor(4), 1.0);
  EXPECT_DOUBLE_EQ(schedule.factor(5), 1.0);
}

TEST(ScheduleEdges, EpochsMayEndWithinAStep) {
  // Of 22 batches by 32 a step.
  EXPECT_EQ(optim::steps_of_epochs(1, 22.0 / 32), 1);
  EXPECT_EQ(optim::steps_of_epochs(12, 22.0 / 32), 9);
  EXPECT_EQ(optim::steps_of_epochs(0.3, 10), 3) << "but for rounding";
  for (std::int64_t batches = 1; batches < 40; ++batches)
    for (std::int64_t each = 1; each < 40; ++each) {
      const double steps_per_epoch = static_cast<double>(batches) / static_cast<double>(each);
      for (const std::int64_t epochs : {1, 2, 3, 7, 90, 1000}) {
        const std::int64_t steps = optim::steps_of_epochs(static_cast<double>(epochs), steps_per_epoch);
        ASSERT_EQ(steps, (epochs * batches + each - 1) / each) << batches << " by " << each;
        ASSERT_EQ(optim::epochs_over(steps, steps_per_epoch), steps * each / batches);
        ASSERT_LT(optim::epochs_over(steps - 1, steps_per_epoch), epochs);
      }
    }
  EXPECT_THROW(optim::steps_of_epochs(1e18, 22), ConfigError);
  optim::ConstantOptions options;
  options.warmup_epochs = 3;
  EXPECT_EQ(optim::ConstantSchedule(options, {.total_steps = 9, .steps_per_epoch = 22.0 / 32}).warmup_steps(), 3);
}

TEST(ScheduleEdges, BadOptionsAreRefused) {
  const optim::ScheduleInfo info{.total_steps = 100, .steps_per_epoch = 10};
  optim::StepOptions step;
  step.milestones = {3, 2};
  EXPECT_THROW(optim::StepSchedule(step, info), ConfigError);
  step.milestones = {3};
  EXPECT_THROW(optim::StepSchedule(step, {.total_steps = 100}), ConfigError) << "epochs of unknown length";
  step.unit = optim::ScheduleUnit::steps;
  EXPECT_NO_THROW(optim::StepSchedule(step, {.total_steps = 100}));
  step.gamma = 0;
  EXPECT_THROW(optim::StepSchedule(step, info), ConfigError);
  optim::CosineOptions cosine;
  cosine.warmup_start = 2;
  EXPECT_THROW(optim::CosineSchedule(cosine, info), ConfigError);
  optim::PolynomialOptions polynomial;
  polynomial.power = 0;
  EXPECT_THROW(optim::PolynomialSchedule(polynomial, info), ConfigError);
}

}  // namespace
}  // namespace hearth::clip_test
