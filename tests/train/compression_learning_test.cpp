// SPDX-License-Identifier: Apache-2.0
// Runs with compressed gradients learn what runs with whole ones learn, and would not without error feedback.
#include <gtest/gtest.h>

#include <fstream>
#include <mutex>
#include <ostream>

#include "dist/process_group.h"
#include "dist/strategy/dgc.h"
#include "dist/strategy/quantized.h"
#include "dist/strategy/registry.h"
#include "tests/support/ranks.h"
#include "tests/support/temp_dir.h"
#include "train/step/step.h"
#include "train/trainer.h"

namespace hearth::train::compression_learning_test {
namespace {

/// The same without error feedback, which no user can ask for.
void add_forgetful_types() {
  static const bool added = [] {
    dist::compressions().add<NoOptions>("onebit_without_feedback", "Of a test.",
                                        [](const NoOptions&, const dist::CompressionInfo&) -> dist::StrategyFactory {
                                          return [](const dist::StrategyContext& context) {
                                            return std::make_unique<dist::Quantized>(context, dist::sign_codec(),
                                                                                     dist::QuantizedOptions{});
                                          };
                                        });
    dist::compressions().add<NoOptions>(
        "dgc_without_rest", "Of a test.",
        [](const NoOptions&, const dist::CompressionInfo& info) -> dist::StrategyFactory {
          const dist::DgcOptions options{.warmup_steps = 4 * info.steps_per_epoch,
                                         .momentum = info.momentum,
                                         .nesterov = info.nesterov,
                                         .keeps_rest = false};
          return [=](const dist::StrategyContext& context) { return std::make_unique<dist::Dgc>(context, options); };
        });
    return true;
  }();
  (void)added;
}

/// The part of all digits, those of the training too, that a run on two ranks recognises.
double learned(const std::string& compress, const std::vector<std::string>& overrides = {}) {
  add_forgetful_types();
  const test::TempDir folder;
  const std::string path = folder / "run.json";
  std::ofstream(path) << R"({"seed": 2, "device": "cpu", "model": {"type": "mlp", "hidden": [128]},
      "data": {"type": "digits", "valid_fraction": 0.1},
      "optimizer": {"type": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.0001},
      "schedule": {"type": "cosine"}, "train": {"batch_size": 32, "epochs": 40},
      "checkpoint": {"every_epochs": 40}, "eval": {"every_epochs": 40},
      "dist": {"compress": )"
                      << compress << R"(}, "log": {"tensorboard": false, "report": false}})";
  double correct = 0, samples = 0;
  const auto failures = test::failures_of_ranks(dist::loopback_groups(2), [&](Collective& group) {
    Session session(load_config(path, overrides), &group);
    RunFolder run_folder(folder / "out", group.rank() == 0);
    std::ostream nowhere(nullptr);
    Progress progress(nowhere, false);
    Trainer trainer(session, run_folder, progress);
    (void)trainer.run("test");
    for (const auto& part : {session.data.train, session.data.valid, session.data.test}) {
      if (part == nullptr) continue;
      const Meter meter = evaluate(session, part);
      if (group.rank() != 0) continue;
      correct += static_cast<double>(meter.correct);
      samples += static_cast<double>(meter.samples);
    }
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
  return correct / samples;
}

TEST(CompressionLearning, ReachesWhatWholeGradientsReach) {
  const double whole = learned("null");
  EXPECT_GT(whole, 0.985);
  for (const char* compress : {R"({"type": "onebit"})", R"({"type": "int8"})", R"({"type": "dgc", "sparsity": 0.999})",
                               R"({"type": "powersgd", "rank": 1})"})
    EXPECT_GE(learned(compress), whole - 0.003) << compress;
  EXPECT_LT(learned(R"({"type": "dgc_without_rest"})"), whole - 0.02);
}

// Momentum alone makes up for much of what signs leave out.
TEST(CompressionLearning, SignsNeedTheirFeedback) {
  const std::vector<std::string> plain{"optimizer.momentum=0", "train.epochs=20"};
  const double whole = learned("null", plain);
  EXPECT_GE(learned(R"({"type": "onebit"})", plain), whole - 0.003);
  EXPECT_LT(learned(R"({"type": "onebit_without_feedback"})", plain), whole - 0.01);
}

}  // namespace
}  // namespace hearth::train::compression_learning_test
