// SPDX-License-Identifier: Apache-2.0
// `hearth tune` on real runs, the guard on a planted fault, and locks that are obeyed or refused.
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "core/io/json_text.h"
#include "dist/process_group.h"
#include "tests/train/cli_program.h"
#include "train/step/captured_step.h"
#include "train/tune/choices.h"
#include "train/tune/lock_file.h"
#include "train/tune/run_trials.h"

namespace hearth::train {
namespace {

class Tune : public Cli {
 protected:
  Tune() {
    write("run.json", R"({"name": "run", "seed": 3, "device": "cpu",
      "model": {"type": "mlp", "hidden": [64]}, "data": {"type": "digits", "workers": 0},
      "optimizer": {"type": "sgd", "lr": 0.02}, "train": {"batch_size": 4, "epochs": 4},
      "log": {"report": false, "tensorboard": false}})");
  }
  std::string config() const { return path("run.json"); }
  const TuneChoice& named(const std::vector<TuneChoice>& choices, const std::string& name) const {
    for (const TuneChoice& choice : choices)
      if (choice.name == name) return choice;
    throw UsageError("no such choice: " + name);
  }
  std::vector<TuneChoice> choices(const std::vector<std::string>& sets, int threads = 4) const {
    return tune_choices(Session(load_config(config(), sets)), {.max_batch = 64, .cores = 2, .threads = threads});
  }
  std::unique_ptr<RunTrials> trials(TrialOptions options) const {
    const Session session(load_trial(options));
    return std::make_unique<RunTrials>(std::move(options), session);
  }
};

TEST_F(Tune, ChoicesDifferFromTheConfigurationOrSayWhyThereAreNone) {
  const std::vector<TuneChoice> all = choices({});
  const TuneChoice& batch = named(all, "batch");
  ASSERT_EQ(batch.variants.size(), 4U) << "8, 16, 32, 64";
  EXPECT_EQ(batch.variants[1].overrides, (Overrides{{"train.batch_size", "16"}, {"optimizer.lr", "0.08"}}));
  EXPECT_EQ(named(all, "workers").variants.size(), 2U) << "1 and 2; there are none now";
  EXPECT_PRED2(contains, named(all, "graph").why_not, "only CUDA devices");
  EXPECT_PRED2(contains, named(choices({"train.epochs=null", "train.steps=9"}), "batch").why_not, "train.steps");
  EXPECT_PRED2(contains, named(choices({R"(schedule={"type": "cosine", "warmup_steps": 5})"}), "batch").why_not,
               "schedule.warmup_steps");
  const TuneChoice& threads = named(all, "threads");
  ASSERT_EQ(threads.variants.size(), 3U) << "3, 2, 1 of 4";
  EXPECT_EQ(threads.variants[0].overrides, (Overrides{{"train.threads", "3"}}));
  EXPECT_FALSE(threads.variants[0].changes_numbers);
  EXPECT_PRED2(contains, named(choices({}, 1), "threads").why_not, "one core");
  EXPECT_PRED2(contains, named(choices({}, 0), "threads").why_not, "HEARTH_THREADS");
  EXPECT_PRED2(
      contains,
      named(tune_choices(Session(load_config(config(), {})), {.threads = 4, .has_neighbours = true}), "threads")
          .why_not,
      "other programs");
  EXPECT_PRED2(contains, named(choices({"train.threads=2"}), "threads").why_not, "has train.threads");
  EXPECT_PRED2(contains, named(choices({"train.batch_size=64"}), "batch").why_not, "--max-batch");
  EXPECT_PRED2(contains, named(choices({"train.batch_size=32", "train.accumulate=4"}), "batch").why_not,
               "fewer than 8");
  EXPECT_PRED2(contains, named(all, "packing").why_not, "no stream of text");
  EXPECT_PRED2(contains, named(all, "ranks").why_not, "one process");
  const std::vector<TuneChoice> adam = choices({R"(optimizer={"type": "adam", "lr": 0.001})", "train.accumulate=4"});
  EXPECT_EQ(named(adam, "batch").variants[1].overrides.at("optimizer.lr"), "0.002") << "by the square root";
  EXPECT_EQ(named(adam, "accumulation").variants[0].overrides,
            (Overrides{{"train.accumulate", "1"}, {"train.batch_size", "16"}}));
}

TEST_F(Tune, PackingIsTriedWhereTheDataIsAStreamOfText) {
  write("a.txt", "one two three\n\nfour five six seven\n\neight nine ten\n");
  const std::string source = R"({"type": "text", "train": [")" + path("a.txt").string() +
                             R"("], "documents": "paragraphs", "length": 8, "packing": false})";
  const std::vector<std::string> text{R"(model={"type": "gpt", "layers": 1, "width": 8, "heads": 2})", "data=" + source,
                                      "train.batch_size=1"};
  const std::vector<TuneChoice> of_text = choices(text);
  ASSERT_EQ(named(of_text, "packing").variants.size(), 1U);
  EXPECT_EQ(named(of_text, "packing").variants[0].overrides, (Overrides{{"data.packing", "true"}}));
  EXPECT_TRUE(named(of_text, "packing").variants[0].changes_numbers) << "rows see less";
  std::vector<std::string> mixed = text;
  mixed[1] = R"(data={"type": "mixture", "weights": [0.5, 0.5], "sources": [)" + source + ", " + source + "]}";
  const Overrides both{{"data.sources[0].packing", "true"}, {"data.sources[1].packing", "true"}};
  EXPECT_EQ(named(choices(mixed), "packing").variants[0].overrides, both);
  std::vector<std::string> words = mixed;
  for (const std::string& word : to_words(both)) words.push_back(word);
  EXPECT_EQ(named(choices(words), "packing").variants[0].text, "false") << "as the run takes these";
  // Times are of ids, of which packed rows predict fewer.
  const auto of_packing = trials({.config = config(), .sets = text, .seconds = 0.1});
  const double ratio = of_packing->ratio({}, {{"data.packing", "true"}});
  EXPECT_GT(ratio, 0.1);
  EXPECT_LT(ratio, 10);
}

TEST_F(Tune, RanksTryHowTheyShareTheWork) {
  for (const std::string& more : {std::string("model.hidden=[64]"), std::string("model.hidden=[2048, 1024]")}) {
    std::vector<std::unique_ptr<Collective>> groups = dist::loopback_groups(2);
    std::vector<std::vector<TuneChoice>> of_ranks(2);
    {
      std::vector<std::jthread> threads;
      for (std::size_t rank = 0; rank < 2; ++rank)
        threads.emplace_back([&, rank] {
          const Session session(load_config(config(), {more}), groups[rank].get());
          of_ranks[rank] = tune_choices(session, {});
        });
    }
    EXPECT_EQ(named(of_ranks[0], "zero").variants[0].overrides, (Overrides{{"dist.zero", "1"}}));
    EXPECT_EQ(named(of_ranks[1], "overlap").variants[0].overrides, (Overrides{{"dist.overlap", "false"}}));
    const TuneChoice& buckets = named(of_ranks[0], "buckets");
    if (more == "model.hidden=[64]") {
      EXPECT_PRED2(contains, buckets.why_not, "all gradients are one");
    } else {
      ASSERT_EQ(buckets.variants.size(), 2U) << "1 and 4; 25 and 100 cut 8.6 MiB as 10 does";
      EXPECT_EQ(buckets.variants[1].overrides, (Overrides{{"dist.bucket_mb", "4"}}));
    }
  }
}

// A fault that trains, and wrongly: the learning rate of the weights is lost.
TEST_F(Tune, TheGuardRefusesAFaultThatTheTimesWelcome) {
  const auto made = trials({.config = config(), .sets = {"optimizer.lr=0.1"}, .guard_steps = 256});
  RunTrials& trials = *made;
  EXPECT_EQ(trials.refusal({}), "");
  EXPECT_PRED2(contains, trials.refusal({{"optimizer.lr", "1e-9"}}), "leaves the band");
  EXPECT_PRED2(contains, trials.refusal({{"optimizer.lr", "1e9"}}), "inf leaves the band");
  ASSERT_EQ(trials.receipt().size(), 3U);
  EXPECT_TRUE(trials.receipt().at(0).at("accepted").as_boolean());
  EXPECT_FALSE(trials.receipt().at(1).at("accepted").as_boolean());
  EXPECT_EQ(trials.receipt().at(1).at("shadow_losses").size(), 3U);
  EXPECT_EQ(trials.receipt().at(2).at("loss").as_string(), "diverged");
}

TEST_F(Tune, ACandidateThatCannotRunIsSaidSo) {
  const auto made = trials({.config = config(), .seconds = 0.1});
  RunTrials& trials = *made;
  EXPECT_PRED2(contains, test::error_message<ConfigError>([&] {
                 (void)trials.ratio({}, {{"train.batch_size", "0"}});
               }),
               "batch_size");
  EXPECT_GT(trials.ratio({}, {{"data.workers", "1"}}), 0);
}

TEST_F(Tune, SpeedsUpABatchOfFourAndItsLockIsObeyed) {
  const ProgramResult tuned = hearth({"tune", "run.json", "--seconds", "0.5", "--max-batch", "64", "--json"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  const Json lock = read_json(path("run.lock.json"));
  EXPECT_EQ(to_text(lock), to_text(parse_json(tuned.out, "stdout")));
  EXPECT_GE(lock.at("set").at("train.batch_size").as_integer(), 8) << tuned.err;
  EXPECT_GE(lock.at("receipt").at("guard").size(), 1U);
  for (const char* part : {"batch", "taken: ", "left alone: only CUDA devices"})
    EXPECT_PRED2(contains, tuned.err, part);
  ASSERT_EQ(hearth({"train", "run.json", "--lock", "run.lock.json", "--out", "locked"}).exit_code, 0);
  const Json resolved = read_json(path("locked/config.json"));
  EXPECT_EQ(resolved.at("train").at("batch_size").as_integer(), lock.at("set").at("train.batch_size").as_integer());
}

TEST_F(Tune, RanksFindALockThatAsManyRanksObey) {
  const ProgramResult tuned = hearth({"launch", "-n", "2", "--", "tune", "run.json", "--seconds", "0.3", "--max-batch",
                                      "16", "--set", "model.hidden=[512, 512]"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  for (const char* part : {"zero ", "overlap ", "buckets ", "left alone: the launcher has shared out the cores"})
    EXPECT_PRED2(contains, tuned.err, part);
  EXPECT_FALSE(contains(tuned.err, "[rank 1]")) << "rank 0 tells: " << tuned.err;
  EXPECT_FALSE(contains(tuned.err, "does not run")) << tuned.err;
  Json lock = read_json(path("run.lock.json"));
  EXPECT_EQ(lock.at("found").at("ranks").as_integer(), 2);
  // Times may find anything.
  lock.set("set", Json::object().set("dist.zero", 1).set("train.batch_size", 8));
  write("run.lock.json", to_text(lock));
  const std::vector<std::string> train{"train",  "run.json",      "--set", "model.hidden=[512, 512]",
                                       "--lock", "run.lock.json", "--out", "locked"};
  expect_failure(hearth(train), 2, "config", {"ranks was 2 and is 1"});
  std::vector<std::string> launched{"launch", "-n", "2", "--"};
  launched.insert(launched.end(), train.begin(), train.end());
  ASSERT_EQ(hearth(launched).exit_code, 0);
  const Json resolved = read_json(path("locked/config.json"));
  EXPECT_EQ(resolved.at("train").at("batch_size").as_integer(), 8);
  EXPECT_EQ(resolved.at("dist").at("zero").as_integer(), 1);
  expect_failure(hearth({"launch", "-n", "2", "--", "tune", "batch", "run.json"}), 2, "usage", {"tune batch"});
}

TEST_F(Tune, LocksOfAnotherMachineVersionOrRunAreRefusedByName) {
  const LoadedConfig loaded = load_config(config(), {});
  const TuneResult found{.overrides = {{"train.batch_size", "8"}}, .speed = 2, .decisions = {}};
  const Json lock = make_lock(loaded, {"cpu"}, found, Json::array());
  EXPECT_EQ(words_of_lock(lock, loaded, {"cpu"}), (std::vector<std::string>{"train.batch_size=8"}));
  const auto message = [&](const Json& changed, const LoadedConfig& of) {
    return test::error_message<ConfigError>([&] { (void)words_of_lock(changed, of, {"cpu"}); });
  };
  Json other = lock;
  Json surroundings = other.at("found");
  Json machine = surroundings.at("machine");
  other.set("found", surroundings.set("machine", machine.set("processor", "another one")));
  EXPECT_PRED2(contains, message(other, loaded), "machine.processor was \"another one\" and is ");
  other = lock;
  surroundings = other.at("found");
  Json versions = surroundings.at("versions");
  other.set("found", surroundings.set("versions", versions.set("hearth", "0.0.9")));
  EXPECT_PRED2(contains, message(other, loaded), "versions.hearth was \"0.0.9\"");
  const std::string elsewhere = test::error_message<ConfigError>([&] {
    (void)words_of_lock(lock, loaded, {"NVIDIA H200", 4});
  });
  EXPECT_PRED2(contains, elsewhere, "device was \"cpu\" and is \"NVIDIA H200\"");
  EXPECT_PRED2(contains, elsewhere, "ranks was 1 and is 4");
  EXPECT_PRED2(contains, message(lock, load_config(config(), {"model.hidden=[32]"})), "the configuration differs at");
  EXPECT_PRED2(contains, message(Json::object().set("format", "hearth tune 1"), loaded), "it has no \"found\"");
  EXPECT_PRED2(contains, message(Json::object(), loaded), "no file of this version");
  write("other.json", to_text(other));
  expect_failure(hearth({"train", "run.json", "--lock", "other.json"}), 2, "config", {"hearth was \"0.0.9\""});
}

}  // namespace
}  // namespace hearth::train
