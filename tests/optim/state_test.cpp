// SPDX-License-Identifier: Apache-2.0
// A run that is saved and loaded at any step goes on bit for bit as if it had not stopped.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "optim/ema.h"
#include "optim/registry.h"
#include "tests/optim/toy_parameters.h"
#include "tests/support/temp_dir.h"

namespace hearth {
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

}  // namespace
}  // namespace hearth
