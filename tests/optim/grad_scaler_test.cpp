// SPDX-License-Identifier: Apache-2.0
// Loss scaling on every device: a skipped update leaves no trace, scaling by powers of two changes no bit, and the
// scale moves as documented.
#include "optim/grad_scaler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "optim/clip.h"
#include "optim/registry.h"
#include "tests/optim/toy_parameters.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::grad_scaler_test {
namespace {

using optim::GradScaler;
using optim::GradScalerOptions;

constexpr double infinity = std::numeric_limits<double>::infinity();

const std::vector<std::string> every_optimizer{
    R"({"type": "sgd", "lr": 0.1})",
    R"({"type": "sgd", "lr": 0.1, "momentum": 0.9, "dampening": 0.5})",
    R"({"type": "adam", "lr": 0.1, "weight_decay": 0.1})",
    R"({"type": "adamw", "lr": 0.1, "weight_decay": 0.1})",
    R"({"type": "lars", "lr": 0.1, "trust": 0.1, "weight_decay": 0.1})",
    R"({"type": "lars", "lr": 0.1, "trust": 0.1, "clip_trust": true, "lr_in_momentum": true})",
    R"({"type": "lamb", "lr": 0.1})",
    R"({"type": "lamb", "lr": 0.1, "max_grad_norm": 1, "norm_min": 1, "norm_max": 2})",
};

/// Toy parameters with a low-precision copy, a buffer that every step changes, an average and a loss scale.
class Training {
 public:
  Training(const std::string& optimizer, Device device, const GradScalerOptions& options = {}, double max_norm = 0)
      : max_norm_(max_norm),
        buffer_(Tensor::full({5}, 1.0, DType::f32, device)),
        toy_(DType::f32, device, LowPrecisionCopy{DType::bf16, LowPrecisionCopy::Use::instead}),
        optimizer_(optim::optimizers().make(parse_json(optimizer, "test"), toy_.flat())),
        scale_(toy_.flat(), {{"buffer", &buffer_}}, options),
        ema_(toy_.flat(), {{"buffer", &buffer_}}, {.decay = 0.9}) {
    for (const NamedTensor& master : toy_.flat().masters()) state.add(master.name, master.tensor);
    state.add("buffer", &buffer_);
    optimizer_->register_state(state);
    ema_.register_state(state);
    scale_.register_state(state);
  }

  /// One step with the toy's gradients; where `planted`, one of them becomes that.
  void step(int number, std::optional<double> planted = {}) {
    optimizer_->begin_step(0.05);
    ema_.begin_update();
    scale_.begin_step(*optimizer_, &ema_, 4);
    const double factor = seed(1);
    toy_.set_gradients(number);
    const Tensor& grads = toy_.flat().grads();
    std::vector<double> scaled = grads.to_doubles();
    for (double& value : scaled) value *= factor;
    if (planted) scaled[17] = *planted;
    grads.copy_from(Tensor::of<double>(grads.shape(), scaled));
    // As running statistics do.
    const double before = buffer_.to_doubles()[0];
    buffer_.copy_from(Tensor::full({5}, 0.5 * before + planted.value_or(number), DType::f32));
    scale_.check_found_inf(*optimizer_, &ema_, max_norm_, norm_, {});
    scale_.settle_buffers(*optimizer_);
    if (average_apart) {
      optimizer_->apply();
      ema_.apply();
    } else {
      optimizer_->apply(&ema_);
      ema_.apply_to_buffers();
    }
  }
  double seed(double weight, const Tensor& further = {}) const {
    return scale_.seed(Tensor::zeros({}, DType::f32, buffer_.device()), weight, further).item();
  }
  double norm() const { return norm_.item(); }
  GradScaler::Reading read() { return scale_.read(*optimizer_, &ema_); }
  std::string hash() {
    (void)read();
    return state.hash();
  }
  void load(const std::string& path) {
    state.load(path);
    toy_.flat().refresh_low_precision();
    scale_.after_load();
  }
  FlatParameters& flat() { return toy_.flat(); }
  const Tensor& buffer() const { return buffer_; }
  const optim::Optimizer& optimizer() const { return *optimizer_; }
  const optim::Ema& ema() const { return ema_; }

  State state;
  bool average_apart = false;  ///< blended after the update, not within it

 private:
  double max_norm_;
  Tensor buffer_, norm_ = Tensor::zeros({1}, DType::f64, buffer_.device());
  test::ToyParameters toy_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  GradScaler scale_;
  optim::Ema ema_;
};

class LossScaling : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() != "cuda") return;
    if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
    device_ = {DeviceType::cuda, 0};
  }
  Device device_;
};

INSTANTIATE_TEST_SUITE_P(Devices, LossScaling, testing::Values("cpu", "cuda"),
                         [](const auto& tried) { return tried.param; });

TEST_P(LossScaling, ASkippedUpdateLeavesNoTrace) {
  for (const std::string& optimizer : every_optimizer)
    for (const double planted : {infinity, -infinity, std::numeric_limits<double>::quiet_NaN()}) {
      // Fixed, so that the scale itself does not tell the two apart.
      const GradScalerOptions fixed{.dynamic = false, .start = 1024, .floor = 1024, .ceiling = 1024};
      Training with(optimizer, device_, fixed), without(optimizer, device_, fixed);
      for (const int number : {0, 1, 2, 3, 4, 5}) {
        // The last one too: what it left in running statistics is not written over by another step.
        const bool poisoned = number == 0 || number == 3 || number == 5;
        with.step(number, poisoned ? std::optional(planted) : std::nullopt);
        if (!poisoned) without.step(number);
      }
      const GradScaler::Reading reading = with.read();
      EXPECT_EQ(reading.skipped, 3);
      EXPECT_EQ(reading.uncounted, 12);
      EXPECT_EQ(with.read().uncounted, 0) << "counted once";
      (void)without.read();
      EXPECT_EQ(with.flat().values().to_doubles(), without.flat().values().to_doubles()) << optimizer;
      EXPECT_EQ(with.flat().low_precision().to_doubles(), without.flat().low_precision().to_doubles()) << optimizer;
      EXPECT_EQ(with.ema().average().to_doubles(), without.ema().average().to_doubles()) << optimizer;
      EXPECT_EQ(with.buffer().to_doubles(), without.buffer().to_doubles()) << optimizer;
      EXPECT_EQ(with.optimizer().steps(), without.optimizer().steps());
      EXPECT_EQ(with.ema().updates(), without.ema().updates());
    }
}

TEST_P(LossScaling, ASkippedUpdateRestoresBuffersOfEveryType) {
  test::ToyParameters toy(DType::f32, device_);
  std::vector<Tensor> buffers;
  for (const DType dtype : {DType::f64, DType::u8, DType::bf16, DType::i64, DType::f16, DType::f32, DType::i32})
    buffers.push_back(Tensor::full({17}, 3, dtype, device_));
  std::vector<NamedTensor> named;
  for (Tensor& buffer : buffers) named.push_back({"buffer", &buffer});
  optim::Sgd sgd(toy.flat(), {});
  GradScaler scale(toy.flat(), named, {});
  for (const bool overflows : {true, false}) {
    sgd.begin_step(0.1);
    scale.begin_step(sgd, nullptr, 1);
    toy.fill_gradients(overflows ? infinity : 1.0);
    for (const Tensor& buffer : buffers) buffer.fill_(5);
    scale.check_found_inf(sgd, nullptr, 0, {}, {});
    scale.settle_buffers(sgd);
    for (const Tensor& buffer : buffers)
      EXPECT_EQ(buffer.to_doubles(), std::vector<double>(17, overflows ? 3 : 5)) << buffer.dtype();
  }
}

TEST_P(LossScaling, AnAverageWithinTheUpdateSkipsWithIt) {
  for (const std::string& optimizer : every_optimizer) {
    Training within(optimizer, device_), apart(optimizer, device_);
    apart.average_apart = true;
    for (const int number : {0, 1, 2, 3, 4}) {
      const std::vector<double> before = within.ema().average().to_doubles();
      const auto planted = number % 3 == 0 ? std::optional(infinity) : std::nullopt;
      within.step(number, planted);
      apart.step(number, planted);
      EXPECT_EQ(within.ema().average().to_doubles(), apart.ema().average().to_doubles()) << optimizer << number;
      EXPECT_EQ(within.ema().average().to_doubles() == before, planted.has_value()) << optimizer << number;
    }
    EXPECT_EQ(within.hash(), apart.hash()) << optimizer;
  }
}

TEST_P(LossScaling, TheGradientOfTheLossIsTheScaleByItsShare) {
  Training run(every_optimizer[0], device_, {}, 0);
  const double scale = run.read().scale;
  EXPECT_EQ(scale, 65536);
  EXPECT_EQ(run.seed(1), scale);
  EXPECT_EQ(run.seed(0.25), 0.25 * scale);
  EXPECT_EQ(run.seed(0.25, Tensor::full({1}, 0.5, DType::f64, device_)), 0.125 * scale);
}

TEST_P(LossScaling, PowersOfTwoChangeNoBit) {
  for (const std::string& optimizer : every_optimizer)
    for (const double max_norm : {0.0, 0.5}) {
      Training scaled(optimizer, device_, {}, max_norm);
      test::ToyParameters plain(DType::f32, device_);
      const auto update = optim::optimizers().make(parse_json(optimizer, "test"), plain.flat());
      for (int number = 0; number < 4; ++number) {
        scaled.step(number);
        // The toy's gradients follow from its values, which the scaled run has rounded to bf16.
        for (std::size_t i = 0; i < plain.flat().entries().size(); ++i)
          grad_of(plain.flat().entries()[i].value).copy_from(grad_of(scaled.flat().entries()[i].value));
        const Tensor& grads = plain.flat().grads();
        std::vector<double> values = grads.to_doubles();
        for (double& value : values) value /= 65536;
        grads.copy_from(Tensor::of<double>(grads.shape(), values));
        update->step(0.05, max_norm > 0 ? optim::clip_scale(optim::grad_norm(plain.flat()), max_norm) : 1.0);
      }
      EXPECT_EQ(scaled.flat().values().to_doubles(), plain.flat().values().to_doubles()) << optimizer << max_norm;
    }
}

TEST_P(LossScaling, ASkippedUpdateHasNoNorm) {
  Training run(every_optimizer[0], device_);
  run.step(0);
  double squares = 0;
  for (const double value : run.flat().grads().to_doubles()) squares += value * value;
  EXPECT_NEAR(run.norm() / (std::sqrt(squares) / 65536), 1.0, 1e-12);
  run.step(1, infinity);
  EXPECT_EQ(run.norm(), -1.0) << "and not that of the step before";
}

TEST_P(LossScaling, UpdatesWriteTheNarrowCopy) {
  for (const std::string& optimizer : every_optimizer) {
    Training run(optimizer, device_);
    for (int number = 0; number < 3; ++number) run.step(number);
    EXPECT_EQ(run.flat().low_precision().to_doubles(), run.flat().values().to(DType::bf16).to_doubles()) << optimizer;
  }
}

TEST_P(LossScaling, MovesBetweenFloorAndCeiling) {
  Training run(every_optimizer[0], device_, {.start = 8, .growth_steps = 2, .floor = 2, .ceiling = 16});
  const auto after = [&](std::optional<double> planted) {
    run.step(0, planted);
    const GradScaler::Reading reading = run.read();
    return std::pair(reading.scale, reading.stuck);
  };
  using Pair = std::pair<double, std::int64_t>;
  EXPECT_EQ(after({}), Pair(8, 0));
  EXPECT_EQ(after({}), Pair(16, 0));
  EXPECT_EQ(after({}), Pair(16, 0));
  EXPECT_EQ(after({}), Pair(16, 0)) << "the ceiling";
  EXPECT_EQ(after(infinity), Pair(8, 0));
  EXPECT_EQ(after({}), Pair(8, 0));
  EXPECT_EQ(after(infinity), Pair(4, 0)) << "the count of clean updates begins anew";
  EXPECT_EQ(after({}), Pair(4, 0));
  EXPECT_EQ(after(infinity), Pair(2, 0));
  EXPECT_EQ(after(infinity), Pair(2, 1)) << "the floor";
  EXPECT_EQ(after(infinity), Pair(2, 2));
  EXPECT_EQ(after({}), Pair(2, 0));
  EXPECT_EQ(run.read().skipped, 5);
}

TEST_P(LossScaling, MovesByItsFactorsAndToleratesOverflows) {
  Training run(every_optimizer[0], device_,
               {.start = 64, .growth_steps = 2, .growth = 4, .backoff = 0.25, .hysteresis = 3, .ceiling = 512});
  const auto after = [&](std::optional<double> planted) {
    run.step(0, planted);
    return run.read().scale;
  };
  EXPECT_EQ(after(infinity), 64) << "the first overflow skips its update alone";
  EXPECT_EQ(after({}), 64);
  EXPECT_EQ(after(infinity), 64) << "clean updates do not take it back";
  EXPECT_EQ(after(infinity), 16);
  EXPECT_EQ(after(infinity), 4) << "from the third on each lowers it";
  EXPECT_EQ(after({}), 4);
  EXPECT_EQ(after({}), 16) << "growth";
  EXPECT_EQ(after(infinity), 16) << "and the count begins anew";
  EXPECT_EQ(run.read().skipped, 5);
}

TEST_P(LossScaling, OverflowsAreKeptInTheState) {
  const test::TempDir folder;
  const std::string path = folder / "state.safetensors";
  const GradScalerOptions options{.start = 64, .hysteresis = 2};
  Training first(every_optimizer[0], device_, options), second(every_optimizer[0], device_, options);
  first.step(0, infinity);
  (void)first.read();
  first.state.save(path);
  second.load(path);
  second.step(1, infinity);
  EXPECT_EQ(second.read().scale, 32);
}

// However late the host looks: what came in between does not hide it.
TEST_P(LossScaling, GivesUpForGood) {
  for (const bool dynamic : {true, false}) {
    Training run(every_optimizer[0], device_,
                 {.dynamic = dynamic, .start = 2, .floor = 2, .ceiling = dynamic ? 16.0 : 2.0, .give_up_after = 3});
    for (const int number : {0, 1}) run.step(number, infinity);
    run.step(2);
    EXPECT_EQ(run.read().stuck, 0) << "not as many in a row";
    for (const int number : {3, 4, 5}) run.step(number, infinity);
    const std::vector<double> values = run.flat().values().to_doubles(), buffer = run.buffer().to_doubles();
    for (const int number : {6, 7, 8, 9}) run.step(number, number == 7 ? std::optional(infinity) : std::nullopt);
    const GradScaler::Reading reading = run.read();
    EXPECT_EQ(reading.stuck, 3);
    EXPECT_EQ(reading.skipped, 9);
    EXPECT_EQ(reading.scale, 2);
    EXPECT_EQ(run.flat().values().to_doubles(), values);
    EXPECT_EQ(run.buffer().to_doubles(), buffer);
  }
}

// Of four steps in a row one overflows.
void steps(Training& run, int begin, int end) {
  for (int number = begin; number < end; ++number)
    run.step(number, number % 4 == 2 ? std::optional(infinity) : std::nullopt);
}

TEST_P(LossScaling, ResumesBitForBit) {
  const test::TempDir folder;
  const std::string path = folder / "state.safetensors";
  const GradScalerOptions options{.start = 64, .growth_steps = 3};
  for (const std::string& optimizer : every_optimizer) {
    Training whole(optimizer, device_, options);
    steps(whole, 0, 9);
    for (const int stop : {1, 3, 5}) {
      Training first(optimizer, device_, options), second(optimizer, device_, options);
      steps(first, 0, stop);
      (void)first.read();
      first.state.save(path);
      steps(second, 0, 3);
      second.load(path);
      steps(second, stop, 9);
      EXPECT_EQ(second.hash(), whole.hash()) << optimizer << " stopped after " << stop;
      EXPECT_EQ(second.flat().low_precision().to_doubles(), whole.flat().low_precision().to_doubles());
    }
  }
}

// Of a loop that never asks for a reading: the counts that it would bring up to date are right in what is saved.
TEST_P(LossScaling, SavingIsRightWithoutAReading) {
  const test::TempDir folder;
  const std::string path = folder / "state.safetensors";
  const GradScalerOptions options{.start = 64, .growth_steps = 3};
  for (const std::string& optimizer : every_optimizer) {
    Training whole(optimizer, device_, options), first(optimizer, device_, options),
        second(optimizer, device_, options);
    steps(whole, 0, 9);
    steps(first, 0, 4);
    first.state.save(path);
    second.load(path);
    EXPECT_EQ(second.optimizer().steps(), 3) << "of four updates one was skipped";
    EXPECT_EQ(second.ema().updates(), 3);
    EXPECT_EQ(first.read().uncounted, 4) << "what was saved is counted all the same";
    steps(second, 4, 9);
    EXPECT_EQ(second.flat().values().to_doubles(), whole.flat().values().to_doubles()) << optimizer;
    EXPECT_EQ(second.state.hash(), whole.hash()) << optimizer;
  }
}

TEST_P(LossScaling, ALoadedScaleStaysWithinItsBounds) {
  const test::TempDir folder;
  const std::string path = folder / "state.safetensors";
  Training moving(every_optimizer[0], device_, {.start = 32768});
  moving.state.save(path);
  Training fixed(every_optimizer[0], device_, {.dynamic = false, .start = 1024, .floor = 1024, .ceiling = 1024});
  fixed.load(path);
  EXPECT_EQ(fixed.read().scale, 1024);
  EXPECT_EQ(fixed.seed(1), 1024);
  Training small(every_optimizer[0], device_, {.start = 8, .ceiling = 4096}), like(every_optimizer[0], device_);
  small.load(path);
  EXPECT_EQ(small.read().scale, 4096);
  like.load(path);
  EXPECT_EQ(like.read().scale, 32768);
}

TEST(GradScalerOptionsTest, BadOnesAreRefused) {
  test::ToyParameters toy(DType::f32), wide(DType::f64);
  const auto message = [&](const GradScalerOptions& options) {
    return test::error_message<ConfigError>([&] { GradScaler(toy.flat(), {}, options); });
  };
  EXPECT_PRED2(test::contains, message({.start = 0.5}), "0.5 between floor 1");
  EXPECT_PRED2(test::contains, message({.start = 1e9}), "ceiling");
  EXPECT_PRED2(test::contains, message({.floor = 0}), "above 0");
  EXPECT_PRED2(test::contains, message({.ceiling = infinity}), "finite");
  EXPECT_PRED2(test::contains, message({.growth_steps = 0}), "grows after 0 updates");
  EXPECT_PRED2(test::contains, message({.growth = 1}), "growth is above 1");
  EXPECT_PRED2(test::contains, message({.backoff = 1}), "backoff between 0 and 1");
  EXPECT_PRED2(test::contains, message({.hysteresis = 0}), "hysteresis 0");
  EXPECT_THROW(GradScaler(wide.flat(), {}, {}), DTypeError);
}

/// As one of a program's own, which has not heard of skipped updates.
struct Plain : optim::Optimizer {
  explicit Plain(FlatParameters& parameters) : Optimizer(parameters, 0.1, {}) {}
  optim::UpdateCells cells() override { return {}; }

 protected:
  void prepare(double, double) override {}
  void update(const optim::UpdateBuffers&) override {}
};

TEST(GradScalerMisuse, IsNamed) {
  test::ToyParameters toy(DType::f32);
  Tensor buffer = Tensor::zeros({3}), absent;
  for (Tensor* const none : {static_cast<Tensor*>(nullptr), &absent})
    EXPECT_PRED2(test::contains, test::error_message<UsageError>([&] {
                   GradScaler(toy.flat(), {{"mean", none}}, {});
                 }),
                 "buffer \"mean\" has no tensor");
  GradScaler scale(toy.flat(), {{"mean", &buffer}}, {});
  Plain plain(toy.flat());
  EXPECT_PRED2(test::contains, test::error_message<UsageError>([&] { scale.settle_buffers(plain); }), "cannot skip");
  optim::Sgd sgd(toy.flat(), {});
  toy.fill_gradients(1);
  for (const Tensor& norm : {Tensor::zeros({0}, DType::f64), Tensor::zeros({2}, DType::f64), Tensor::zeros({1})})
    EXPECT_PRED2(test::contains,
                 test::error_message<UsageError>([&] { scale.check_found_inf(sgd, nullptr, 0, norm, {}); }),
                 "the norm is " + describe(norm));
  const Tensor loss = Tensor::zeros({});
  EXPECT_PRED2(test::contains,
               test::error_message<UsageError>([&] { (void)scale.seed(loss, 1, Tensor::zeros({0}, DType::f64)); }),
               "the factor is f64 [0]");
  EXPECT_THROW((void)scale.seed(Tensor::zeros({3}), 1), UsageError);
  EXPECT_THROW((void)scale.seed(Tensor(), 1), UsageError);
  EXPECT_THROW((void)scale.seed(Tensor::zeros({}, DType::i64), 1), DTypeError);
  EXPECT_EQ(scale.seed(loss, 1, Tensor::full({1}, 2, DType::f64)).item(), 131072);
}

}  // namespace
}  // namespace hearth::grad_scaler_test
