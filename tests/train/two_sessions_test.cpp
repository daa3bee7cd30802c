// SPDX-License-Identifier: Apache-2.0
// Two trainings in one process: neither changes what the other computes.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/train/hook_run.h"

namespace hearth::train::two_sessions_test {
namespace {

class TwoSessions : public testing::Test, protected test::HookRuns {
 protected:
  /// The hashes of a run whose model counts the calls that see other switches than the run's.
  std::string trained(const std::string& name, bool deterministic, std::atomic<int>& wrong) {
    const std::vector<std::string> overrides{R"(model={"type": "resnet", "blocks": [1], "stem": "small", "width": 4})",
                                             "train.steps=6",
                                             "train.epochs=null",
                                             join_text("train.deterministic=", deterministic ? "true" : "false"),
                                             join_text("train.repeatable=", deterministic ? "true" : "false"),
                                             "log.profile=true"};
    return run(name, overrides,
               [&](Session& session) {
                 session.model->on_forward([&wrong, deterministic](const nn::Module&, const Tensor&) {
                   const Switches now = switches();
                   if (now.deterministic != deterministic || now.repeatable != deterministic) ++wrong;
                 });
               })
        .metric("weights_sha256");
  }
};

TEST_F(TwoSessions, HaveTheSwitchesOfTheirOwn) {
  std::atomic<int> wrong{0};
  const std::string strict = trained("strict", true, wrong), loose = trained("loose", false, wrong);
  std::string other_strict, other_loose;
  std::thread first([&] { other_strict = trained("strict2", true, wrong); });
  std::thread second([&] { other_loose = trained("loose2", false, wrong); });
  first.join();
  second.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(other_strict, strict);
  EXPECT_EQ(other_loose, loose);
  EXPECT_FALSE(strict.empty());
}

}  // namespace
}  // namespace hearth::train::two_sessions_test
