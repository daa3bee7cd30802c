// SPDX-License-Identifier: Apache-2.0
// The moving average that an update blends in its own pass: the bits of one that is blended afterwards, on every
// device.
#include "optim/ema.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/grad_state.h"
#include "core/build.h"
#include "core/cuda/counters.h"
#include "core/random.h"
#include "optim/registry.h"
#include "tests/optim/toy_parameters.h"
#include "tests/support/error_message.h"

namespace hearth::ema_test {
namespace {

constexpr const char* optimizers[] = {R"({"type": "sgd"})", R"({"type": "sgd", "momentum": 0.9})",
                                      R"({"type": "adamw", "weight_decay": 0.1})", R"({"type": "lars", "trust": 0.1})",
                                      R"({"type": "lamb", "max_grad_norm": 1})"};

Tensor numbers(const Shape& shape, std::uint64_t stream, DType dtype, Device device) {
  Random random(5, stream);
  std::vector<double> values(static_cast<std::size_t>(shape.size()));
  for (double& value : values) value = random.normal();
  return Tensor::of<double>(shape, values).to(dtype).to(device);
}

/// Parameters of more than one piece, of no whole pack, and of one element; with a buffer and an average of all.
class Averaged {
 public:
  Averaged(const std::string& optimizer, DType dtype, Device device, std::optional<LowPrecisionCopy> low_precision)
      : tensors_{numbers({150, 131}, 1, dtype, device), numbers({131}, 2, dtype, device),
                 numbers({1}, 3, dtype, device)},
        buffer_(numbers({37}, 4, dtype, device)),
        flat_({{"first.weight", &tensors_[0]}, {"first.bias", &tensors_[1]}, {"scale", &tensors_[2]}}, low_precision),
        optimizer_(optim::optimizers().make(parse_json(optimizer, "test"), flat_)),
        ema_(flat_, {{"buffer", &buffer_}}, {.decay = 0.9}) {}

  void step(std::uint64_t number, bool fused) {
    for (std::size_t i = 0; i < flat_.entries().size(); ++i) {
      const Tensor& value = flat_.entries()[i].value;
      grad_of(value).copy_from(numbers(value.shape(), 10 * (number + 1) + i, flat_.grads().dtype(), {}));
    }
    buffer_.fill_(static_cast<double>(number));
    optimizer_->begin_step(0.05);
    ema_.begin_update();
    if (fused) {
      optimizer_->apply(&ema_);
      ema_.apply_to_buffers();
    } else {
      optimizer_->apply();
      ema_.apply();
    }
  }
  /// Values, average, average of the buffer.
  std::array<std::vector<double>, 3> result() {
    std::array<std::vector<double>, 3> all{flat_.values().to_doubles(), ema_.average().to_doubles(), {}};
    const optim::EmaScope scope(ema_);
    all[2] = buffer_.to_doubles();
    return all;
  }
  optim::Optimizer& optimizer() { return *optimizer_; }
  optim::Ema& ema() { return ema_; }

 private:
  std::array<Tensor, 3> tensors_;
  Tensor buffer_;
  FlatParameters flat_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::Ema ema_;
};

class FusedAverage : public testing::TestWithParam<std::tuple<const char*, Device>> {
 protected:
  void SetUp() override {
    if (device_count(device().type) == 0) GTEST_SKIP() << "there is no device " << device();
  }
  static const char* optimizer() { return std::get<0>(GetParam()); }
  static Device device() { return std::get<1>(GetParam()); }
};

TEST_P(FusedAverage, HasTheBitsOfASeparateOne) {
  const auto check = [](DType dtype, std::optional<LowPrecisionCopy> low_precision) {
    Averaged fused(optimizer(), dtype, device(), low_precision), separate(optimizer(), dtype, device(), low_precision);
    const auto before = fused.result();
    for (std::uint64_t number = 0; number < 3; ++number) {
      fused.step(number, true);
      separate.step(number, false);
    }
    EXPECT_EQ(fused.result(), separate.result());
    for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NE(fused.result()[i], before[i]);
  };
  check(DType::f32, {});
  check(DType::f64, {});
  check(DType::f32, LowPrecisionCopy{DType::f16, LowPrecisionCopy::Use::instead});
  check(DType::f32, LowPrecisionCopy{DType::bf16});
}

INSTANTIATE_TEST_SUITE_P(Optimizers, FusedAverage,
                         testing::Combine(testing::ValuesIn(optimizers),
                                          testing::Values(Device{}, Device{DeviceType::cuda, 0})),
                         [](const auto& tried) {
                           const bool on_cpu = std::get<1>(tried.param).is_cpu();
                           return "case" + std::to_string(tried.index) + (on_cpu ? "" : "_cuda");
                         });

#if HEARTH_HAS_CUDA
TEST(FusedAverageOnDevice, TakesNoLaunchOfItsOwn) {
  const Device gpu{DeviceType::cuda, 0};
  if (device_count(gpu.type) == 0) GTEST_SKIP() << "there is no CUDA device";
  for (const char* optimizer : optimizers) {
    Averaged run(optimizer, DType::f32, gpu, {});
    run.step(0, true);
    const auto launches = [&](optim::Ema* average) {
      run.optimizer().begin_step(0.05);
      run.ema().begin_update();
      const cuda::Counters before = cuda::counters();
      run.optimizer().apply(average);
      return (cuda::counters() - before).launches;
    };
    EXPECT_EQ(launches(&run.ema()), launches(nullptr)) << optimizer;
  }
}
#endif

TEST(FusedAverageMisuse, AnAverageOfOtherParametersIsRefused) {
  test::ToyParameters toy, other;
  optim::Sgd sgd(toy.flat(), {});
  optim::Ema ema(other.flat(), {}, {});
  toy.fill_gradients(1);
  sgd.begin_step(0.1);
  ema.begin_update();
  EXPECT_PRED2(test::contains, test::error_message<UsageError>([&] { sgd.apply(&ema); }), "of other parameters");
}

TEST(FusedAverageMisuse, AnAverageThatWasNotBegunIsRefused) {
  test::ToyParameters toy;
  optim::Sgd sgd(toy.flat(), {});
  optim::Ema ema(toy.flat(), {}, {});
  const auto message = [&] { return test::error_message<UsageError>([&] { sgd.apply(&ema); }); };
  toy.fill_gradients(1);
  sgd.begin_step(0.1);
  EXPECT_PRED2(test::contains, message(), "call begin_update()");
  for (int step = 0; step < 2; ++step) {
    if (step > 0) sgd.begin_step(0.1);
    ema.begin_update();
    sgd.apply(&ema);
    EXPECT_NO_THROW(sgd.apply(&ema)) << "the same update, as after a recording that failed";
  }
  sgd.begin_step(0.1);
  EXPECT_PRED2(test::contains, message(), "call begin_update()");
  ema.begin_update();
  ema.forget_updates(1);
  {
    const optim::EmaScope averaged(ema);
    EXPECT_PRED2(test::contains, message(), "in use");
  }
  EXPECT_NO_THROW(sgd.apply(&ema));
}

TEST(EmaUse, AnUpdateOfTheAveragesIsRefused) {
  test::ToyParameters toy, other;
  optim::Sgd sgd(toy.flat(), {}), of_other(other.flat(), {});
  optim::Ema ema(toy.flat(), {}, {});
  toy.fill_gradients(1);
  other.fill_gradients(1);
  const std::vector<double> before = toy.values();
  {
    const optim::EmaScope averaged(ema);
    const std::string message = test::error_message<UsageError>([&] { sgd.step(0.1); });
    EXPECT_PRED2(test::contains, message, "averages of an Ema are in use");
    EXPECT_EQ(sgd.steps(), 0);
    of_other.step(0.1);
  }
  EXPECT_EQ(toy.values(), before);
  sgd.step(0.1);
  EXPECT_NE(toy.values(), before);
}

TEST(EmaUse, AStateIsNotReadWhileAveragesAreInUse) {
  test::ToyParameters toy;
  optim::Ema ema(toy.flat(), {}, {}), other(toy.flat(), {}, {});
  State state;
  ema.register_state(state);
  const std::string before = state.hash();
  {
    const optim::EmaScope averaged(ema);
    EXPECT_PRED2(test::contains, test::error_message<UsageError>([&] { (void)state.hash(); }), "end the EmaScope");
    EXPECT_PRED2(test::contains, test::error_message<UsageError>([&] { const optim::EmaScope two(other); }),
                 "another Ema");
  }
  EXPECT_EQ(state.hash(), before);
}

TEST(EmaUse, EndsWithTheEma) {
  test::ToyParameters toy;
  optim::Sgd sgd(toy.flat(), {});
  {
    optim::Ema ema(toy.flat(), {}, {});
    ema.swap();
  }
  toy.fill_gradients(1);
  EXPECT_NO_THROW(sgd.step(0.1));
}

TEST(EmaUse, OutlivesItsParametersOnlyToSaySo) {
  auto toy = std::make_unique<test::ToyParameters>();
  optim::Ema ema(toy->flat(), {}, {});
  auto scope = std::make_unique<optim::EmaScope>(ema);
  toy.reset();
  EXPECT_NO_THROW(scope.reset());
  State state;
  const std::function<void()> uses[] = {
      [&] { ema.update(); },
      [&] { ema.begin_update(); },
      [&] { ema.apply(); },
      [&] { ema.restart(); },
      [&] { ema.swap(); },
      [&] { ema.register_state(state); },
      [&] { const optim::EmaScope again(ema); },
  };
  for (const auto& use : uses) EXPECT_PRED2(test::contains, test::error_message<UsageError>(use), "ema: ");
}

TEST(EmaUse, OfParametersThatWereMovedIsRefused) {
  Tensor w = requires_grad(Tensor::zeros({2}));
  FlatParameters here({{"w", &w}});
  optim::Ema ema(here, {}, {});
  const FlatParameters there = std::move(here);
  EXPECT_PRED2(test::contains, test::error_message<UsageError>([&] { ema.update(); }), "moved to another object");
}

TEST(EmaUse, AScopeWithinAScopeIsRefused) {
  test::ToyParameters toy;
  optim::Ema ema(toy.flat(), {}, {.decay = 0.5});
  toy.flat().values().fill_(3);
  const std::vector<double> live = toy.values();
  {
    const optim::EmaScope averaged(ema);
    const std::vector<double> averages = toy.values();
    EXPECT_NE(averages, live);
    const std::string message = test::error_message<UsageError>([&] { const optim::EmaScope again(ema); });
    EXPECT_PRED2(test::contains, message, "in use already");
    EXPECT_EQ(toy.values(), averages);
  }
  EXPECT_EQ(toy.values(), live);
}

TEST(EmaBuffers, OfNarrowTypesAreRefusedAndIntegersAreNotAveraged) {
  test::ToyParameters toy;
  Tensor low_precision = Tensor::zeros({2}, DType::bf16), wide = Tensor::full({2}, 1, DType::f64),
         count = Tensor::full({1}, 3, DType::i64);
  const auto message = test::error_message<DTypeError>([&] { optim::Ema(toy.flat(), {{"mean", &low_precision}}, {}); });
  EXPECT_PRED2(test::contains, message, "buffer \"mean\" is bf16");
  Tensor absent;
  for (Tensor* const none : {static_cast<Tensor*>(nullptr), &absent})
    EXPECT_PRED2(test::contains, test::error_message<UsageError>([&] {
                   optim::Ema(toy.flat(), {{"mean", none}}, {});
                 }),
                 "buffer \"mean\" has no tensor");
  optim::Ema ema(toy.flat(), {{"mean", &wide}, {"count", &count}}, {.decay = 0.5, .warmup = false});
  wide.fill_(3);
  count.fill_(5);
  ema.update();
  const optim::EmaScope averaged(ema);
  EXPECT_EQ(wide.to_doubles(), std::vector<double>(2, 2.0));
  EXPECT_EQ(count.to_doubles(), std::vector<double>{5});
}

}  // namespace
}  // namespace hearth::ema_test
