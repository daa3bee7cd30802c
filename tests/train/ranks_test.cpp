// SPDX-License-Identifier: Apache-2.0
// Data parallel runs: ranks end with the same bits as each other and, in deterministic mode, as any other number of
// ranks; without it, with the losses of one process.
#include "train/step/ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <ostream>

#include "core/creation.h"
#include "core/error.h"
#include "core/io/file.h"
#include "dist/process_group.h"
#include "models/nn/nn.h"
#include "models/registry.h"
#include "ops/ops.h"
#include "tests/support/error_message.h"
#include "tests/support/ranks.h"
#include "tests/support/temp_dir.h"
#include "train/checkpoint/checkpoint_set.h"
#include "train/model/metrics.h"
#include "train/step/step.h"
#include "train/step/visit_batches.h"
#include "train/trainer.h"

namespace hearth::train::ranks_test {
namespace {

struct Problem {
  const char *name, *model, *data, *rest;
};

constexpr const char* sgd = R"("optimizer": {"type": "sgd", "lr": 0.05, "momentum": 0.9},)";
constexpr const char* adamw = R"("optimizer": {"type": "adamw", "lr": 0.003},)";
constexpr const char* lamb = R"("optimizer": {"type": "lamb", "lr": 0.003},)";
constexpr const char* digits = R"({"type": "digits", "valid_fraction": 0.2, "augment": {"padded_crop": 1}})";
constexpr const char* text =
    R"({"type": "text", "train": ["TEXT"], "length": 12, "tokenizer": {"type": "characters"}})";
constexpr const char* pairs = R"({"type": "parallel_text", "train": ["PAIRS"], "tokenizer": {"type": "words"},
    "tokens_per_batch": 150, "multiple": 2})";
constexpr const char* resnet = R"({"type": "resnet", "blocks": [1], "stem": "small", "width": 8})";
constexpr const char* gpt = R"({"type": "gpt", "layers": 1, "heads": 2, "width": 16, "dropout": 0.1})";

const Problem problems[] = {
    {"resnet", resnet, digits, sgd},
    {"resnet_O2_f16_ema_clip", resnet, digits,
     R"("optimizer": {"type": "lars", "lr": 0.5}, "precision": {"level": "O2", "dtype": "f16"},)"},
    {"resnet_accumulate_class_weights", resnet, digits,
     R"("optimizer": {"type": "sgd", "lr": 0.05, "momentum": 0.9}, "loss": {"type": "cross_entropy", "ignore_index": 4,
        "class_weights": [9, 1, 0.1, 1, 5, 2, 0.3, 1, 7, 1]},)"},
    {"gpt_accumulate", gpt, text, adamw},
    {"bert_lamb", R"({"type": "bert", "layers": 1, "heads": 2, "width": 16})",
     R"({"type": "text", "train": ["TEXT"], "length": 12, "mask_probability": 0.2,
         "tokenizer": {"type": "characters"}})",
     lamb},
    {"translation",
     R"({"type": "transformer", "layers": 1, "decoder_layers": 1, "heads": 2, "width": 16, "dropout": 0.1})", pairs,
     adamw},
    {"swin", R"({"type": "swin", "depths": [2], "heads": [1], "width": 8, "patch": 2, "window": 2, "drop_path": 0.2})",
     digits, R"("optimizer": {"type": "adamw", "lr": 0.003}, "precision": {"level": "O1", "dtype": "bf16"},)"},
};
void PrintTo(const Problem& problem, std::ostream* out) { *out << problem.name; }

class RanksTest : public testing::TestWithParam<Problem> {
 protected:
  RanksTest() {
    std::ofstream lines(folder_ / "text.txt"), sentences(folder_ / "pairs.tsv");
    for (int i = 0; i < 120; ++i) {
      lines << "the hen of house " << i * i << " lays eggs.\n";
      for (int word = 0; word <= i % 9; ++word) sentences << (word ? " " : "") << "w" << (i + word) % 7;
      sentences << '\t';
      for (int word = 0; word <= i % 9; ++word) sentences << (word ? " " : "") << "v" << (i + 2 * word) % 7;
      sentences << '\n';
    }
  }

  LoadedConfig config(const Problem& problem, const std::vector<std::string>& overrides) const {
    const auto with_paths = [&](std::string json) {
      for (const auto& [word, file] : {std::pair{"TEXT", "text.txt"}, {"PAIRS", "pairs.tsv"}})
        if (const std::size_t at = json.find(word); at != json.npos)
          json.replace(at, 4 + (*word == 'P'), folder_ / file);
      return json;
    };
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    const std::string path = folder_ / "run.json";
    std::ofstream(path) << R"({"seed": 3, "device": "cpu", )" << problem.rest << R"( "model": )" << problem.model
                        << R"(, "data": )" << with_paths(problem.data) << R"(, "train": {"batch_size": 16, "steps": 4},
        "checkpoint": {"every_steps": 1}, "log": {"every_steps": 1, "tensorboard": false, "report": false}})";
    return load_config(path, overrides);
  }

  struct Result {
    std::string weights;  // hash
    std::vector<double> losses;
  };
  /// Trains with so many ranks, or, for 0, in one process; checks that the ranks end alike. They compare the bits of
  /// their weights after each step, at its checkpoint.
  Result train(int ranks, const std::vector<std::string>& overrides, const std::string& out) const {
    return train(GetParam(), ranks, overrides, out);
  }
  Result train(const Problem& problem, int ranks, const std::vector<std::string>& overrides,
               const std::string& out) const {
    Result result;
    std::mutex mutex;
    const auto run = [&](Collective* group) {
      Session session(config(problem, overrides), group);
      const bool writes = group == nullptr || group->rank() == 0;
      RunFolder run_folder(folder_ / out, writes);
      std::ostream nowhere(nullptr);
      Progress progress(nowhere, false);
      Trainer trainer(session, run_folder, progress);
      if (!trainer.resume(run_folder.path())) run_folder.clear();
      const TrainResult done = trainer.run("test");
      const std::lock_guard lock(mutex);
      const std::string hash = done.metrics.at("weights_sha256").as_string();
      if (result.weights.empty()) result.weights = hash;
      EXPECT_EQ(hash, result.weights);
    };
    if (ranks == 0)
      run(nullptr);
    else
      for (const std::string& failure :
           test::failures_of_ranks(dist::loopback_groups(ranks), [&](Collective& group) { run(&group); }))
        EXPECT_EQ(failure, "");
    std::ifstream metrics(folder_ / (out + "/metrics.jsonl"));
    for (std::string line; std::getline(metrics, line);) {
      const Json record = parse_json(line, "metrics.jsonl");
      if (record.at("split").as_string() == "train" && record.find("loss") != nullptr)
        result.losses.push_back(record.at("loss").as_number());
    }
    return result;
  }

  std::vector<std::string> with(std::vector<std::string> more) const {
    const std::string name = GetParam().name;
    if (name.find("ema") != name.npos) more.push_back("train.ema=0.9");
    if (name.find("clip") != name.npos) more.push_back("train.clip_norm=0.5");
    if (name.find("accumulate") != name.npos) more.push_back("train.accumulate=2");
    return more;
  }

  test::TempDir folder_;
};

TEST_P(RanksTest, EndWithTheSameBitsForAnyNumberInDeterministicMode) {
  const std::vector<std::string> overrides = with({"train.deterministic=true", "dist.shards=4"});
  const Result one = train(1, overrides, "one");
  ASSERT_EQ(one.losses.size(), 4U);
  for (const int ranks : {2, 4}) {
    const Result many = train(ranks, overrides, join_text("ranks", ranks));
    EXPECT_EQ(many.weights, one.weights) << ranks << " ranks";
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(many.losses[i], one.losses[i], 1e-12 * std::abs(one.losses[i]));
  }
}

TEST_P(RanksTest, HaveTheLossesOfOneProcess) {
  const Result one = train(0, with({}), "alone");
  ASSERT_EQ(one.losses.size(), 4U);
  const std::string name = GetParam().name;
  // Statistics of batch normalisation are those of a rank's rows; sequences of several lengths draw otherwise.
  const bool differs = name.find("resnet") != name.npos || name == "translation";
  const bool rounds = name.find("O1") != name.npos || name == "swin";
  for (const int ranks : {2, 4}) {
    const Result many = train(ranks, with({}), join_text("ranks", ranks));
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(many.losses[i], one.losses[i], differs ? 0.5 : rounds ? 0.02 : 1e-4) << ranks << " ranks, step " << i;
  }
}

TEST_P(RanksTest, GoOnWithAnotherNumberOfRanks) {
  const std::vector<std::string> whole = with({"train.deterministic=true", "dist.shards=4"});
  std::vector<std::string> half = whole;
  half.push_back("train.steps=2");
  const Result straight = train(4, whole, "straight");
  // The schedule is constant, so that the length of a run changes nothing.
  (void)train(2, half, "resumed");
  const Result resumed = train(4, whole, "resumed");
  EXPECT_EQ(resumed.weights, straight.weights);
  // Parts of a loss that are no whole numbers of labels are summed in another order.
  const bool whole_labels = std::string(GetParam().name).find("class_weights") == std::string::npos;
  ASSERT_EQ(resumed.losses.size(), straight.losses.size());
  for (std::size_t i = 0; i < straight.losses.size(); ++i)
    EXPECT_NEAR(resumed.losses[i], straight.losses[i], whole_labels ? 0 : 1e-12) << "step " << i;
}

INSTANTIATE_TEST_SUITE_P(All, RanksTest, testing::ValuesIn(problems),
                         [](const auto& one) { return std::string(one.param.name); });

class RanksOfDigits : public RanksTest {
 protected:
  /// What each of three ranks fails with whose own overrides are these.
  std::vector<std::string> failures(int ranks, const std::function<std::vector<std::string>(int)>& overrides) const {
    return test::failures_of_ranks(dist::loopback_groups(ranks), [&](Collective& group) {
      const Session session(config(problems[0], overrides(group.rank())), &group);
    });
  }
};

// Of 360 samples: with 3 ranks the last batch is one rank's alone, with batches of 200 one of them has none.
TEST_P(RanksTest, EvaluateAsOneProcess) {
  for (const char* batch_size : {"eval.batch_size=7", "eval.batch_size=200"}) {
    std::vector<std::string> overrides = with({batch_size});
    if (std::string(GetParam().name).starts_with("resnet"))
      overrides.emplace_back(R"(task={"type": "classification", "by_class": true, "top_k": 2})");
    const auto evaluated = [&](Session& session) {
      const Meter meter = evaluate(session, session.data.valid ? session.data.valid : session.data.train);
      Json record = Json::object();
      record.set("loss", meter.loss_sum).set("correct", meter.correct).set("samples", meter.samples);
      if (meter.metrics) meter.metrics->report(record);
      return to_text(record);
    };
    Session alone(config(GetParam(), overrides));
    const std::string expected = evaluated(alone);
    EXPECT_EQ(expected.find("f1_by_class") != expected.npos, overrides.back().starts_with("task="));
    for (const int ranks : {1, 2, 3, 4})
      for (const std::string& failure : test::failures_of_ranks(dist::loopback_groups(ranks), [&](Collective& group) {
             Session session(config(GetParam(), overrides), &group);
             EXPECT_EQ(evaluated(session), expected) << ranks << " ranks, " << batch_size;
           }))
        EXPECT_EQ(failure, "");
  }
}

/// Its outputs have noise, in evaluations too.
struct Noisy : nn::Module {
  nn::Linear out{64, 10};
  Noisy() { register_module("out", out); }
  Tensor forward(const Tensor& x) override {
    const Tensor y = out(flatten(x, 1));
    return add(y, randn(y.shape()));
  }
};

TEST_F(RanksOfDigits, DrawInEvaluationsAsOneProcess) {
  models::add("test_noisy_ranks", [](const models::InputInfo&) { return std::make_unique<Noisy>(); });
  const Problem noisy = {"noisy", R"({"type": "test_noisy_ranks"})", digits, sgd};
  const auto evaluated = [](Session& session) { return evaluate(session, session.data.valid).loss_sum; };
  Session alone(config(noisy, {"eval.batch_size=7"}));
  const double expected = evaluated(alone);
  EXPECT_EQ(evaluated(alone), expected);
  for (const int ranks : {1, 2, 3})
    for (const std::string& failure : test::failures_of_ranks(dist::loopback_groups(ranks), [&](Collective& group) {
           Session session(config(noisy, {"eval.batch_size=7"}), &group);
           EXPECT_EQ(evaluated(session), expected) << ranks << " ranks";
         }))
      EXPECT_EQ(failure, "");
  // Each batch draws numbers of its own, and each step others.
  std::vector<double> drawn;
  for (alone.position.step = 0; alone.position.step < 2; ++alone.position.step)
    visit_batches(alone, alone.data.valid, 100, [&](const data::Batch&) { drawn.push_back(randn({1}).item()); });
  {
    const EvaluationScope scope(alone);
    drawn.push_back(randn({1}).item());
  }
  std::ranges::sort(drawn);
  EXPECT_EQ(std::ranges::adjacent_find(drawn), drawn.end());
}

TEST_F(RanksOfDigits, HaveTheLossesOfOneProcessWithSyncBatchNorm) {
  const Problem resnet_alone = {"resnet", resnet, digits, sgd};
  std::vector<double> one;
  for (const int ranks : {0, 1, 2, 3, 4}) {
    const Result found = train(resnet_alone, ranks, {"dist.sync_batch_norm=true"}, join_text("synced", ranks));
    ASSERT_EQ(found.losses.size(), 4U);
    if (ranks == 0) one = found.losses;
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(found.losses[i], one[i], 2e-4) << ranks << " ranks, step " << i;
  }
}

TEST_F(RanksOfDigits, StopEarlyAndKeepTheBestAlike) {
  // No accuracy is better by 0.9 than the first one.
  const std::vector<std::string> overrides = {
      "train.deterministic=true",
      "dist.shards=4",
      "train.batch_size=96",
      "train.steps=100",
      R"(train.early_stopping={"patience": 2, "min_delta": 0.9})",
      R"(train.reduce_lr_on_plateau={"patience": 0, "factor": 0.5, "threshold": 0.9})",
  };
  const Result one = train(problems[0], 1, overrides, "one");
  EXPECT_LT(one.losses.size(), 100U);
  EXPECT_GT(one.losses.size(), 30U);
  for (const int ranks : {2, 4}) {
    const std::string out = join_text("ranks", ranks);
    const Result many = train(problems[0], ranks, overrides, out);
    EXPECT_EQ(many.losses, one.losses);
    EXPECT_EQ(many.weights, one.weights);
    for (const char* kept : {"best", "latest"}) {
      const auto file = [&](const std::string& run) {
        return read_file(folder_ / (run + "/checkpoints/" + kept + "/model.safetensors"));
      };
      EXPECT_TRUE(file(out) == file("one")) << kept;
    }
  }
}

// Parts of a loss by class weights are no short numbers, so that their sum depends on the order.
TEST_F(RanksOfDigits, LogTheSameLossesHoweverOftenTheyAreSaved) {
  const auto train_with = [&](const char* checkpoints, const std::string& out) {
    return train(problems[2], 4,
                 {"train.accumulate=2", "train.steps=24", "log.every_steps=12", "checkpoint.keep=24", checkpoints},
                 out);
  };
  const Result rarely = train_with("checkpoint.every_steps=24", "rarely");
  const Result often = train_with("checkpoint.every_steps=1", "often");
  ASSERT_EQ(rarely.losses.size(), 2U);
  EXPECT_EQ(often.losses, rarely.losses);
  EXPECT_EQ(often.weights, rarely.weights);
  // As if it had been killed after these steps.
  for (const int killed : {22, 18, 5}) {
    for (int step = killed + 1; step <= 24; ++step)
      std::filesystem::remove_all(std::filesystem::path(folder_ / "often/checkpoints") / checkpoint_name(step));
    const Result resumed = train_with("checkpoint.every_steps=1", "often");
    EXPECT_EQ(resumed.losses, rarely.losses) << "from step " << killed;
    EXPECT_EQ(resumed.weights, rarely.weights);
  }
}

TEST_F(RanksOfDigits, SyncBatchNormNeedsOnePieceOfEachBatchForEachRank) {
  for (const char* other : {"train.accumulate=2", "dist.shards=4"})
    for (const std::string& failure : failures(2, [&](int) {
           return std::vector<std::string>{"dist.sync_batch_norm=true", other};
         }))
      EXPECT_PRED2(test::contains, failure, "every batch is one piece for each of the 2 ranks");
  for (const std::string& failure : failures(2, [](int) {
         return std::vector<std::string>{"dist.sync_batch_norm=true", "train.batch_size=1"};
       }))
    EXPECT_PRED2(test::contains, failure, "a batch of 1 rows");
}

TEST_F(RanksOfDigits, PiecesThatDoNotGoRoundAreRefused) {
  for (const std::string& failure : failures(3, [](int) { return std::vector<std::string>{"dist.shards=4"}; }))
    EXPECT_EQ(failure, "/dist/shards: 1 batches of 4 pieces a step do not go round 3 ranks; give a multiple");
  for (const std::string& failure : failures(2, [](int) {
         return std::vector<std::string>{"dist.shards=6", "train.deterministic=true"};
       }))
    EXPECT_PRED2(test::contains, failure, "in deterministic mode that is a power of 2");
}

TEST_F(RanksOfDigits, AWireOf16BitsIsRefusedInDeterministicMode) {
  for (const int ranks : {1, 2})
    for (const char* wire : {"bf16", "f16"}) {
      const std::string set = join_text("dist.wire=", wire);
      for (const std::string& failure : failures(ranks, [&](int) {
             return std::vector<std::string>{set, "train.deterministic=true"};
           })) {
        EXPECT_PRED2(test::contains, failure, join_text("/dist/wire: ", wire, " rounds"));
        EXPECT_PRED2(test::contains, failure, "/train/deterministic is on");
      }
      for (const std::string& failure : failures(ranks, [&](int) { return std::vector<std::string>{set}; }))
        EXPECT_EQ(failure, "");
    }
}

TEST_F(RanksOfDigits, ALossThatIsNoNumberIsNamedWithItsRank) {
  const auto failures_with = [&](const std::function<bool(int)>& is_wrong) {
    return test::failures_of_ranks(dist::loopback_groups(3), [&](Collective& group) {
      Session session(config(problems[0], {}), &group);
      session.sums.loss.fill_(is_wrong(group.rank()) ? std::numeric_limits<double>::quiet_NaN() : 1.5);
      session.read_interval();
    });
  };
  for (const std::string& failure : failures_with([](int rank) { return rank == 1; }))
    EXPECT_PRED2(test::contains, failure, "the loss became nan at or before step 0, on rank 1");
  for (const std::string& failure : failures_with([](int) { return true; }))
    EXPECT_PRED2(test::contains, failure, "the loss became nan at or before step 0; ");
}

TEST_F(RanksOfDigits, AnotherConfigurationIsNamed) {
  for (const std::string& failure :
       failures(3, [](int rank) { return std::vector<std::string>{rank == 2 ? "seed=4" : "seed=3"}; }))
    EXPECT_PRED2(test::contains, failure, "configuration: rank 2 has seed 4, rank 0 has 3; ");
}

}  // namespace
}  // namespace hearth::train::ranks_test
