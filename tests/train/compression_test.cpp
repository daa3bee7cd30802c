// SPDX-License-Identifier: Apache-2.0
// Runs whose ranks compress their gradients: what does not go together is refused, checkpoints have all of it, and they
// learn.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <ostream>

#include "core/error.h"
#include "core/io/safetensors.h"
#include "dist/process_group.h"
#include "dist/strategy/dgc.h"
#include "dist/strategy/quantized.h"
#include "dist/strategy/registry.h"
#include "tests/support/error_message.h"
#include "tests/support/ranks.h"
#include "tests/support/temp_dir.h"
#include "train/memory/rank_memory.h"
#include "train/step/step.h"
#include "train/trainer.h"

namespace hearth::train::compression_test {
namespace {

using test::contains;
using test::error_message;

constexpr const char* digits = R"({"type": "digits", "valid_fraction": 0.2, "augment": {"padded_crop": 1}})";
constexpr const char* mlp = R"({"type": "mlp", "hidden": [64]})";
constexpr const char* sgd = R"(optimizer={"type": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.001})";

class Compression : public testing::Test {
 protected:
  LoadedConfig config(const std::vector<std::string>& overrides, const std::string& model = mlp) const {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    const std::string path = folder_ / "run.json";
    std::ofstream(path) << R"({"seed": 3, "device": "cpu", "model": )" << model << R"(, "data": )" << digits
                        << R"(, "optimizer": {"type": "sgd", "lr": 0.05, "momentum": 0.9},
        "train": {"batch_size": 32, "steps": 6}, "checkpoint": {"every_steps": 1, "keep": 100},
        "log": {"every_steps": 1, "tensorboard": false, "report": false}})";
    return load_config(path, overrides);
  }

  /// Trains with so many ranks, or for 0 in one process; the hash of the weights, the same on all ranks, or "" and
  /// rank 0's failure.
  std::string train(int ranks, const std::vector<std::string>& overrides, const std::string& out,
                    std::string* failure = nullptr, double* accuracy = nullptr, const std::string& model = mlp) const {
    std::string hash;
    std::mutex mutex;
    const auto run = [&](Collective* group) {
      Session session(config(overrides, model), group);
      const bool writes = group == nullptr || group->rank() == 0;
      RunFolder run_folder(folder_ / out, writes);
      std::ostream nowhere(nullptr);
      Progress progress(nowhere, false);
      Trainer trainer(session, run_folder, progress);
      if (!trainer.resume(run_folder.path())) run_folder.clear();
      const TrainResult done = trainer.run("test");
      const std::lock_guard lock(mutex);
      const std::string mine = done.metrics.at("weights_sha256").as_string();
      if (hash.empty()) hash = mine;
      EXPECT_EQ(mine, hash);
      if (accuracy != nullptr) *accuracy = evaluate(session, session.data.train).accuracy();
    };
    if (ranks == 0) {
      if (failure != nullptr)
        *failure = error_message<ConfigError>([&] { run(nullptr); });
      else
        run(nullptr);
      return hash;
    }
    const std::vector<std::string> failures =
        test::failures_of_ranks(dist::loopback_groups(ranks), [&](Collective& group) { run(&group); });
    if (failure != nullptr)
      *failure = failures[0];
    else
      for (const std::string& text : failures) EXPECT_EQ(text, "");
    return hash;
  }

  /// What a session of a rank is refused with.
  std::string refusal(const std::vector<std::string>& overrides) const {
    return test::failures_of_ranks(dist::loopback_groups(1),
                                   [&](Collective& group) { const Session session(config(overrides), &group); })[0];
  }

  test::TempDir folder_;
};

const std::vector<std::string> types = {R"({"type": "onebit"})", R"({"type": "int8"})",
                                        R"({"type": "dgc", "sparsity": 0.9, "warmup_epochs": 0.05})",
                                        R"({"type": "powersgd", "rank": 1})"};

TEST_F(Compression, UnknownTypesAndOptionsAreNamed) {
  const auto fault = [&](const std::string& compress) {
    return error_message<ConfigError>([&] { (void)config({"dist.compress=" + compress}); });
  };
  EXPECT_PRED2(contains, fault(R"({"type": "power"})"), "powersgd");
  EXPECT_PRED2(contains, fault(R"({"type": "powersgd", "ranks": 4})"), "/dist/compress/ranks");
  EXPECT_PRED2(contains, fault(R"({"type": "powersgd", "rank": 65})"), "/dist/compress/rank");
  EXPECT_PRED2(contains, fault(R"({"type": "onebit", "error_feedback": false})"), "/dist/compress/error_feedback");
  EXPECT_PRED2(contains, fault(R"({"type": "int8", "block": 100})"), "block is a multiple of 64");
  EXPECT_PRED2(contains, fault(R"({"type": "dgc", "sparsity": 1})"), "/dist/compress/sparsity");
}

TEST_F(Compression, WhatDoesNotGoTogetherIsRefusedByName) {
  for (const std::string& type : types) {
    const std::string compress = "dist.compress=" + type;
    for (const auto& [other, words] :
         {std::pair{"dist.wire=bf16", "leave wire out"}, {"dist.zero=1", "leave zero out"}})
      EXPECT_PRED2(contains, error_message<ConfigError>([&] { (void)config({compress, other}); }), words);
    EXPECT_PRED2(contains, refusal({compress, "train.deterministic=true"}), "/train/deterministic is on");
  }
  const std::string onebit = "dist.compress=" + types[0], dgc = "dist.compress=" + types[2];
  for (const char* optimizer : {"adam", "adamw", "lamb", "lars"}) {
    const std::string set = join_text(R"(optimizer={"type": ")", optimizer, R"(", "lr": 0.01})");
    EXPECT_PRED2(contains, refusal({onebit, set}), join_text("onebit does not go with ", optimizer));
    EXPECT_PRED2(contains, refusal({dgc, set}), join_text("the optimizer is ", optimizer));
    for (const std::size_t other : {1U, 3U}) EXPECT_EQ(refusal({"dist.compress=" + types[other], set}), "");
  }
  EXPECT_PRED2(contains, refusal({dgc, "optimizer.momentum=0"}), "the optimizer is sgd without momentum");
  EXPECT_PRED2(contains, refusal({dgc, "optimizer.dampening=0.1"}), "the optimizer is sgd with dampening");
  EXPECT_PRED2(contains, refusal({dgc, "train.clip_norm=1"}), "give dist.compress.clip_norm");
  for (const std::size_t other : {0U, 1U, 3U})
    EXPECT_EQ(refusal({"dist.compress=" + types[other], "train.clip_norm=1", "train.accumulate=2", "train.ema=0.9"}),
              "");
}

TEST_F(Compression, GoesWithTheRestOfAStep) {
  const std::string resnet = R"({"type": "resnet", "blocks": [1], "stem": "small", "width": 8})";
  for (const std::string& type : types)
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{R"(precision={"level": "O1", "dtype": "bf16"})", "train.accumulate=2"},
          {R"(precision={"level": "O2", "dtype": "bf16"})", "train.ema=0.9"},
          {R"(precision={"level": "O2", "dtype": "f16"})", "train.freeze=[\"layer1\"]"},
          {"dist.sync_batch_norm=true", "optimizer.nesterov=true", "optimizer.weight_decay=0.01"}}) {
      std::vector<std::string> overrides = more;
      overrides.insert(overrides.end(), {"dist.compress=" + type, "train.steps=2", "dist.bucket_mb=0.01"});
      EXPECT_NE(train(2, overrides, "together", nullptr, nullptr, resnet), "") << type << ' ' << more[0];
      std::filesystem::remove_all(folder_ / "together");
    }
}

TEST_F(Compression, APlanForSeveralRanksIsRefused) {
  Session session(config({"dist.compress=" + types[0]}));
  EXPECT_PRED2(contains, error_message<ConfigError>([&] { (void)memory_of_ranks(session, DeviceType::cpu, 2); }),
               "set dist.compress to null");
}

TEST_F(Compression, AResumedRunHasTheBitsOfOneThatNeverStopped) {
  for (std::size_t i = 0; i < types.size(); ++i) {
    const std::vector<std::string> whole{"dist.compress=" + types[i], sgd, "train.accumulate=3"};
    std::vector<std::string> half = whole;
    half.emplace_back("train.steps=3");
    const std::string straight = train(2, whole, join_text("straight", i));
    (void)train(2, half, join_text("resumed", i));
    EXPECT_EQ(train(2, whole, join_text("resumed", i)), straight) << types[i];
    EXPECT_NE(train(2, {sgd, "train.accumulate=3"}, join_text("whole", i)), straight) << "it changes the gradients";
  }
}

TEST_F(Compression, ResidualsOfOtherRanksAreRefused) {
  for (const std::size_t i : {0U, 2U, 3U}) {
    const std::vector<std::string> more{"dist.compress=" + types[i]};
    std::vector<std::string> some = more;
    some.emplace_back("train.steps=2");
    const std::string out = join_text("ranks", i);
    (void)train(2, some, out);
    std::string failure;
    (void)train(3, more, out, &failure);
    EXPECT_PRED2(contains, failure, " of 2 ranks, what each has not sent yet, and this run has 3; resume with 2 ranks");
    (void)train(0, more, out, &failure);
    EXPECT_PRED2(contains, failure, "and this run has 1 process alone; resume with 2 ranks");
  }
  // Nothing is left over by rounding at random.
  const std::vector<std::string> more{"dist.compress=" + types[1]}, some{more[0], "train.steps=2"};
  (void)train(2, some, "int8");
  EXPECT_NE(train(3, more, "int8"), "");
}

TEST_F(Compression, OneProcessCompressesNothingAndRanksGoOn) {
  for (const std::string& type : types) {
    const std::vector<std::string> more{"dist.compress=" + type, sgd};
    const std::string out = "alone" + config(more).config.dist.compress.type();
    EXPECT_EQ(train(0, more, out), train(0, {sgd}, "plain"));
    std::vector<std::string> longer = more;
    longer.emplace_back("train.steps=8");
    EXPECT_NE(train(2, longer, out), "");
  }
}

/// "compress." of the state of the checkpoint after `step`.
std::vector<std::pair<std::string, std::vector<std::byte>>> compress_state(const std::string& folder, int step) {
  const SafetensorsFile file(join_text(folder, "/checkpoints/step-0000000", step, "/state.safetensors"));
  std::vector<std::pair<std::string, std::vector<std::byte>>> entries;
  for (const TensorRecord& record : file.records())
    if (record.name.starts_with("compress.")) {
      const auto bytes = file.read(record);
      entries.emplace_back(record.name, std::vector<std::byte>(bytes.begin(), bytes.end()));
    }
  return entries;
}

// By loss scaling, whose scale grows after each update until gradients overflow.
TEST_F(Compression, SkippedUpdatesLeaveTheState) {
  for (std::size_t i = 0; i < types.size(); ++i) {
    const std::string out = join_text("skipped", i);
    (void)train(2,
                {"dist.compress=" + types[i], sgd, "train.steps=9",
                 R"(precision={"level": "O1", "dtype": "f16", "growth_steps": 1, "growth_factor": 16})"},
                out);
    int skipped = 0, made = 0;
    for (int step = 2; step <= 9; ++step) {
      const auto counted = [&](int at) {
        const SafetensorsFile file(
            join_text(std::string(folder_ / out), "/checkpoints/step-0000000", at, "/state.safetensors"));
        const auto bytes = file.read(*file.find("loss_scale.counters"));
        std::int64_t counters[2];
        std::copy_n(bytes.begin(), sizeof(counters), reinterpret_cast<std::byte*>(counters));
        return counters[1];
      };
      const bool skips = counted(step) > counted(step - 1);
      (skips ? skipped : made) += 1;
      EXPECT_EQ(compress_state(folder_ / out, step) == compress_state(folder_ / out, step - 1), skips)
          << types[i] << ", step " << step;
    }
    EXPECT_GT(made, 0);
    EXPECT_GT(skipped, 0);
  }
}

}  // namespace
}  // namespace hearth::train::compression_test
