// SPDX-License-Identifier: Apache-2.0
// The moving average of the weights as a configuration asks for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "autograd/grad_mode.h"
#include "core/io/file.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_set.h"
#include "train/step/step.h"
#include "train/step/visit_batches.h"

namespace hearth::train::average_test {
namespace {

std::unique_ptr<Session> session_with(const test::TempDir& folder, const std::string& ema) {
  const std::string path = folder / "run.json";
  std::ofstream(path) << R"({"device": "cpu", "model": {"type": "mlp", "hidden": [4]},
    "data": {"type": "digits", "workers": 0}, "optimizer": {"type": "sgd", "lr": 0.1},
    "train": {"batch_size": 8, "steps": 3, "ema": )"
                      << ema << "}}";
  return std::make_unique<Session>(load_config(path, {}));
}

/// How much of itself the average keeps in the first update.
double kept_at_first(Session& session) {
  const std::vector<double> before = session.ema->average().to_doubles();
  data::Loader loader = session.make_train_loader();
  const data::Batch batch = loader.next();
  training_step(session, {&batch, 1});
  const std::vector<double> after = session.ema->average().to_doubles(),
                            values = session.parameters->values().to_doubles();
  std::size_t most = 0;
  const auto change = [&](std::size_t i) { return std::abs(values[i] - before[i]); };
  for (std::size_t i = 0; i < before.size(); ++i)
    if (change(i) > change(most)) most = i;
  return 1 - (after[most] - before[most]) / (values[most] - before[most]);
}

TEST(Average, ANumberIsTheDecayFromTheFirstUpdateOn) {
  const test::TempDir folder;
  EXPECT_NEAR(kept_at_first(*session_with(folder, "0.9")), 0.9, 1e-3);
  EXPECT_NEAR(kept_at_first(*session_with(folder, R"({"decay": 0.9})")), 0.9, 1e-3);
  EXPECT_NEAR(kept_at_first(*session_with(folder, R"({"decay": 0.9, "warmup": true})")), 0.1, 1e-3);
  EXPECT_EQ(session_with(folder, "null")->ema, nullptr);
  EXPECT_TRUE(test::contains(test::error_message<ConfigError>([&] { session_with(folder, R"({"warmup": true})"); }),
                             "warmup needs a decay"));
}

TEST(Average, AnEvaluationUsesItAndGivesBackWhatWas) {
  const test::TempDir folder;
  const auto session = session_with(folder, "0.9");
  session->model->train(true);
  const auto expect_evaluating = [&](bool evaluating) {
    EXPECT_EQ(session->ema->in_use(), evaluating);
    EXPECT_EQ(session->model->is_training(), !evaluating);
    EXPECT_EQ(grad_enabled(), !evaluating);
  };
  {
    const EvaluationScope outer(*session);
    { const EvaluationScope inner(*session); }
    expect_evaluating(true);
  }
  expect_evaluating(false);
}

/// A checkpoint whose configuration has a number, as the version wrote it in which that meant a warm-up.
void save_as_before(Session& session, const std::string& checkpoints, const test::TempDir& folder) {
  const std::string now = folder / "now";
  save_session(session, now);
  const std::string set = now + "/" + checkpoint_name(session.position.step);
  CheckpointWriter writer(checkpoints, session.position.step);
  for (const std::string& name : list_directory(set)) {
    if (name == "manifest.json") continue;
    std::string text = read_text(set + "/" + name);
    if (name == "config.json") {
      Json config = parse_json(text, name);
      config.find("train")->set("ema", 0.9);
      text = to_text(config, 2);
    }
    write_file_synced(writer.file(name), text);
  }
  const Json notes = notes_of_checkpoint(set);
  for (const JsonMember& note : notes.members()) writer.note(note.key, note.value);
  writer.commit();
}

TEST(Average, IsNotThereWhereTheRunKeptNone) {
  const test::TempDir folder;
  const auto session = session_with(folder, "null");
  save_session(*session, folder / "run/checkpoints");
  const std::vector<std::string> average{"train.ema=0.9"};
  const auto refused = [](auto&& open) { return test::error_message<ConfigError>(open); };
  for (const std::string& message : {refused([&] { (void)open_for_evaluation(folder / "run", average); }),
                                     refused([&] { (void)open_trained(folder / "run/checkpoints/latest", average); })})
    EXPECT_EQ(message,
              "/train/ema: the run kept no average of its weights, so that there is none to compute with; "
              "leave it out");
  EXPECT_EQ(open_trained(folder / "run")->ema, nullptr);
}

TEST(Average, AnOlderCheckpointGoesOnWithTheWarmupItBeganWith) {
  const test::TempDir folder;
  const auto began = session_with(folder, R"({"decay": 0.9, "warmup": true})");
  kept_at_first(*began);
  save_as_before(*began, folder / "run/checkpoints", folder);
  EXPECT_TRUE(test::contains(
      test::error_message<ConfigError>([&] { restore_newest(*session_with(folder, "0.9"), folder / "run"); }),
      "/train/ema/warmup"));
  const auto resumed = session_with(folder, R"({"decay": 0.9, "warmup": true})");
  EXPECT_NE(restore_newest(*resumed, folder / "run").from, "");
  EXPECT_EQ(resumed->ema->average().to_doubles(), began->ema->average().to_doubles());
  EXPECT_TRUE(open_trained(folder / "run", {})->config().train.ema.warmup);
}

}  // namespace
}  // namespace hearth::train::average_test
