// SPDX-License-Identifier: Apache-2.0
// A run that is saved and loaded at any step goes on bit for bit as if it had not stopped.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/io/safetensors.h"
#include "optim/ema.h"
#include "optim/registry.h"
#include "tests/optim/toy_parameters.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::state_test {
namespace {

/// Everything of a small run that the next step depends on.
struct Training {
  explicit Training(const std::string& optimizer_text) {
    optimizer = optim::optimizers().make(parse_json(optimizer_text, "test"), toy.flat());
    values = toy.flat().values();
    state.add("values", &values);
    optimizer->register_state(state);
    ema.register_state(state);
  }
  void steps(int begin, int end) {
    for (int step = begin; step < end; ++step) {
      toy.set_gradients(step);
      optimizer->step(0.05);
      ema.update();
    }
  }

  test::ToyParameters toy{DType::f32};
  std::unique_ptr<optim::Optimizer> optimizer;
  optim::Ema ema{toy.flat(), {}, {}};
  Tensor values;
  State state;
};

class OptimStateRoundTrip : public testing::TestWithParam<const char*> {};

TEST_P(OptimStateRoundTrip, ResumingAtEveryStepChangesNothing) {
  const test::TempDir folder;
  const std::string path = folder / "state.safetensors";
  constexpr int total = 8;
  Training whole(GetParam());
  whole.steps(0, total);
  for (int stop = 0; stop < total; ++stop) {
    Training first(GetParam());
    first.steps(0, stop);
    first.state.save(path);
    Training second(GetParam());
    second.steps(0, 3);  // a state that has to go
    second.state.load(path);
    EXPECT_EQ(second.state.hash(), first.state.hash());
    EXPECT_EQ(second.optimizer->steps(), stop);
    second.steps(stop, total);
    EXPECT_EQ(second.state.hash(), whole.state.hash()) << "stopped after " << stop;
    EXPECT_EQ(second.ema.average().to_doubles(), whole.ema.average().to_doubles()) << "stopped after " << stop;
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, OptimStateRoundTrip,
                         testing::Values(R"({"type": "sgd"})",
                                         R"({"type": "sgd", "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1})",
                                         R"({"type": "adam"})", R"({"type": "lars"})", R"({"type": "lamb"})",
                                         R"({"type": "lars", "clip_trust": true, "lr_in_momentum": true})",
                                         R"({"type": "lamb", "max_grad_norm": 1, "norm_max": 2})",
                                         R"({"type": "adamw", "weight_decay": 0.1})"),
                         [](const auto& tried) { return "case" + std::to_string(tried.index); });

/// One weight and an optimizer whose moments have moved.
struct Layer {
  Layer(const std::string& name, const Shape& shape)
      : weight(Tensor::full(shape, 1)), flat({{"bias", &bias}, {name, &weight}}) {
    for (const FlatParameters::Entry& entry : flat.entries()) grad_of(entry.value).fill_(1);
    optimizer.step();
  }

  Tensor bias = Tensor::full({4}, 1), weight;
  FlatParameters flat;
  optim::Adam optimizer{flat, {}};
};

TEST(OptimStateFile, IsOfTheParametersThatItWasSavedWith) {
  const test::TempDir folder;
  const std::string path = folder / "optimizer.safetensors";
  Layer saved("weight", {16, 32});
  optim::save(saved.optimizer, path);
  Layer same("weight", {16, 32}), turned("weight", {32, 16}), renamed("kernel", {16, 32});
  same.optimizer.step();
  optim::load(same.optimizer, path);
  EXPECT_EQ(same.optimizer.steps(), 1);
  turned.optimizer.step();
  const auto message = [&](Layer& layer) {
    return test::error_message<FileError>([&] { optim::load(layer.optimizer, path); });
  };
  const std::string of_turned = message(turned);
  EXPECT_PRED2(test::contains, of_turned, path);
  EXPECT_PRED2(test::contains, of_turned, "parameter 1 is weight [16, 32] there and weight [32, 16] here");
  EXPECT_EQ(turned.optimizer.steps(), 2) << "nothing is changed";
  EXPECT_PRED2(test::contains, message(renamed), "parameter 1 is weight [16, 32] there and kernel [16, 32] here");
}

TEST(OptimStateFile, FewerParametersAreNamed) {
  const test::TempDir folder;
  const std::string path = folder / "optimizer.safetensors";
  Tensor a = Tensor::full({16}, 1), b = Tensor::full({16}, 1), c = Tensor::full({32}, 1);
  FlatParameters two({{"a", &a}, {"b", &b}}), one({{"a", &c}});
  optim::Sgd of_two(two, {.momentum = 0.9}), of_one(one, {.momentum = 0.9});
  optim::save(of_two, path);
  EXPECT_PRED2(test::contains, test::error_message<FileError>([&] { optim::load(of_one, path); }),
               "parameter 0 is a [16] there and a [32] here");
  Tensor d = Tensor::full({16}, 1);
  FlatParameters first({{"a", &d}});
  optim::Sgd of_first(first, {.momentum = 0.9});
  EXPECT_PRED2(test::contains, test::error_message<FileError>([&] { optim::load(of_first, path); }),
               "parameter 1 is b [16] there and none here");
}

TEST(OptimStateFile, OfAnOlderVersionLoads) {
  const test::TempDir folder;
  const std::string path = folder / "optimizer.safetensors";
  Layer saved("weight", {16, 32}), loaded("weight", {16, 32});
  State state;
  saved.optimizer.register_state(state);
  state.save(path);  // as optim::save() did, without the names of the parameters
  EXPECT_TRUE(SafetensorsFile(path).metadata().empty());
  loaded.optimizer.step();
  optim::load(loaded.optimizer, path);
  EXPECT_EQ(loaded.optimizer.steps(), 1);
}

TEST(Optimizer, AScheduleCountsSkippedStepsHoweverOftenTheyAreRead) {
  test::ToyParameters toy;
  const optim::CosineSchedule schedule({}, {.total_steps = 10});
  optim::Sgd sgd(toy.flat(), {.lr = 1, .momentum = 0, .weight_decay = 0});
  sgd.attach(schedule);
  for (int step = 0; step < 4; ++step) sgd.begin_step(sgd.lr());
  const double before = sgd.lr();
  sgd.forget_steps(2);
  EXPECT_EQ(sgd.steps(), 2);
  EXPECT_EQ(sgd.lr(), before);
  const test::TempDir folder;
  optim::save(sgd, folder / "sgd.safetensors");
  optim::Sgd again(toy.flat(), {.lr = 1, .momentum = 0, .weight_decay = 0});
  again.attach(schedule);
  optim::load(again, folder / "sgd.safetensors");
  EXPECT_EQ(again.lr(), before);
}

}  // namespace
}  // namespace hearth::state_test
