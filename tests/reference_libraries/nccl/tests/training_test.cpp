// SPDX-License-Identifier: Apache-2.0
// Data parallel runs whose ranks have an emulated GPU each: gradients summed by NCCL while the backward pass goes on,
// in eager steps and in replayed ones.
#include <fstream>
#include <mutex>
#include <ostream>
#include <sstream>

#include "core/cuda/counters.h"
#include "core/error.h"
#include "core/io/json_text.h"
#include "dist/nccl_log/kept_log.h"
#include "tests/reference_libraries/nccl/tests/reference.h"
#include "tests/support/error_message.h"
#include "tests/support/ranks.h"
#include "tests/support/temp_dir.h"
#include "train/step/captured_step.h"
#include "train/trainer.h"

namespace hearth::test {
namespace {

struct Problem {
  const char *name, *model, *data, *rest;
};
void PrintTo(const Problem& problem, std::ostream* out) { *out << problem.name; }

constexpr const char* digits = R"({"type": "digits", "valid_fraction": 0.05, "augment": {"padded_crop": 1}})";
constexpr const char* resnet = R"({"type": "resnet", "blocks": [1], "stem": "small", "width": 8})";

const Problem problems[] = {
    {"resnet", resnet, digits, R"("optimizer": {"type": "sgd", "lr": 0.05, "momentum": 0.9},)"},
    // The scale doubles until gradients overflow, so that updates are skipped.
    {"resnet_O2_f16_ema_clip", resnet, digits,
     R"("optimizer": {"type": "lars", "lr": 0.5}, "precision": {"level": "O2", "dtype": "f16", "growth_steps": 1},)"},
    {"resnet_bf16_on_the_wire", resnet, digits,
     R"("optimizer": {"type": "adamw", "lr": 0.003}, "dist": {"wire": "bf16", "bucket_mb": 0.01},)"},
    {"resnet_zero", resnet, digits, R"("optimizer": {"type": "lamb", "lr": 0.003}, "dist": {"zero": 1},)"},
    {"gpt_accumulate", R"({"type": "gpt", "layers": 1, "heads": 2, "width": 16, "dropout": 0.1})",
     R"({"type": "text", "train": ["TEXT"], "length": 12, "tokenizer": {"type": "characters"}})",
     R"("optimizer": {"type": "adamw", "lr": 0.003},)"},
    // How many labels count differs from step to step and from rank to rank.
    {"bert_lamb", R"({"type": "bert", "layers": 1, "heads": 2, "width": 16})",
     R"({"type": "text", "train": ["TEXT"], "length": 12, "mask_probability": 0.2,
         "tokenizer": {"type": "characters"}})",
     R"("optimizer": {"type": "lamb", "lr": 0.003},)"},
    // Batches have few shapes, which come at other steps on each rank.
    {"translation",
     R"({"type": "transformer", "layers": 1, "decoder_layers": 1, "heads": 2, "width": 16, "dropout": 0.1})",
     R"({"type": "parallel_text", "train": ["PAIRS"], "tokenizer": {"type": "words"}, "tokens_per_batch": 100,
         "multiple": 8})",
     R"("optimizer": {"type": "adamw", "lr": 0.003},)"},
};

class CudaNcclTraining : public testing::TestWithParam<Problem> {
 protected:
  CudaNcclTraining() {
    std::ofstream lines(folder_ / "text.txt"), sentences(folder_ / "pairs.tsv");
    for (int i = 0; i < 120; ++i) {
      lines << "the hen of house " << i * i << " lays eggs.\n";
      for (int word = 0; word <= i % 9; ++word) sentences << (word ? " " : "") << "w" << (i + word) % 7;
      sentences << '\t';
      for (int word = 0; word <= i % 9; ++word) sentences << (word ? " " : "") << "v" << (i + 2 * word) % 7;
      sentences << '\n';
    }
  }

  train::LoadedConfig config(const std::vector<std::string>& overrides) const {
    std::string data = GetParam().data;
    for (const auto& [word, file] : {std::pair<std::string, const char*>{"TEXT", "text.txt"}, {"PAIRS", "pairs.tsv"}})
      if (const std::size_t at = data.find(word); at != data.npos) data.replace(at, word.size(), folder_ / file);
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    const std::string path = folder_ / "run.json";
    std::ofstream(path) << R"({"seed": 3, "device": "cuda", )" << GetParam().rest << R"( "model": )" << GetParam().model
                        << R"(, "data": )" << data << R"(, "train": {"batch_size": 16, "steps": )" << steps() << R"(},
        "log": {"every_steps": 1, "tensorboard": false, "report": false}})";
    return train::load_config(path, overrides);
  }

  struct Result {
    std::string weights;  // hash
    std::vector<double> losses;
    std::int64_t replays = 0;
    std::vector<double> bytes, efficiency;  // of the lines
    bool operator==(const Result& other) const { return weights == other.weights && losses == other.losses; }
  };
  Result train(std::vector<std::unique_ptr<Collective>> groups, std::vector<std::string> overrides) {
    const std::string name = GetParam().name;
    if (name.find("ema") != name.npos) overrides.insert(overrides.end(), {"train.ema=0.9", "train.clip_norm=0.5"});
    if (name.find("accumulate") != name.npos) overrides.push_back("train.accumulate=2");
    const std::string out = join_text("run", ++runs_);
    Result result;
    std::mutex mutex;
    const std::int64_t before = cuda::counters().graph_launches;
    for (const std::string& failure : failures_of_ranks(std::move(groups), [&](Collective& group) {
           train::LoadedConfig loaded = config(overrides);
           loaded.config.device = name_of(gpu(group.rank()));
           train::Session session(std::move(loaded), &group);
           train::RunFolder run_folder(folder_ / out, group.rank() == 0);
           std::ostream nowhere(nullptr);
           train::Progress progress(nowhere, false);
           train::Trainer trainer(session, run_folder, progress);
           const train::TrainResult done = trainer.run("test");
           const std::lock_guard lock(mutex);
           const std::string hash = done.metrics.at("weights_sha256").as_string();
           if (result.weights.empty()) result.weights = hash;
           EXPECT_EQ(hash, result.weights) << "rank " << group.rank();
         }))
      EXPECT_EQ(failure, "");
    std::ifstream metrics(folder_ / (out + "/metrics.jsonl"));
    for (std::string line; std::getline(metrics, line);) {
      const Json record = parse_json(line, "metrics.jsonl");
      if (record.at("split").as_string() == "train" && record.find("loss"))
        result.losses.push_back(record.at("loss").as_number());
      if (record.at("split").as_string() != "train" || !record.find("communication_bytes")) continue;
      result.bytes.push_back(record.at("communication_bytes").as_number());
      result.efficiency.push_back(record.at("scaling_efficiency").as_number());
    }
    result.replays = cuda::counters().graph_launches - before;
    return result;
  }

  static int steps() { return GetParam().name == std::string("translation") ? 16 : 6; }
  static bool rounds() { return std::string(GetParam().name).find("wire") != std::string::npos; }
  /// On an emulated GPU.
  static bool takes_long() {
    const std::string name = GetParam().name;
    return name.find("f16") != name.npos || name == "translation";
  }

  TempDir folder_;
  int runs_ = 0;
};

TEST_P(CudaNcclTraining, HasTheBitsOfAnyNumberOfRanksInDeterministicMode) {
  if (rounds()) GTEST_SKIP() << "gradients that are rounded on the wire are refused in deterministic mode";
  const std::vector<std::string> overrides{"train.deterministic=true", "dist.shards=4"};
  const Result one = train(dist::loopback_groups(1), overrides);
  ASSERT_FALSE(one.losses.empty());
  for (const int ranks : takes_long() ? std::vector{4} : std::vector{2, 4})
    EXPECT_EQ(train(nccl_groups(ranks), overrides).weights, one.weights) << ranks << " ranks";
}

TEST_P(CudaNcclTraining, ReplayedStepsGiveTheBitsOfEagerOnes) {
  for (const char* mode : {"train.deterministic=true", "train.deterministic=false"}) {
    const bool ordered = std::string(mode).find("true") != std::string::npos;
    if (rounds() ? ordered : !ordered && takes_long()) continue;
    const std::vector<std::string> overrides{mode, "dist.shards=4"};
    std::vector<std::string> one_by_one = overrides;
    one_by_one.push_back("train.graph=false");
    const Result eager = train(nccl_groups(2, {.ordered = ordered}), one_by_one);
    const Result replayed = train(nccl_groups(2, {.ordered = ordered}), overrides);
    EXPECT_EQ(replayed.weights, eager.weights) << mode;
    EXPECT_EQ(replayed.losses, eager.losses) << mode;
    EXPECT_EQ(eager.replays, 0);
    // Replays tell of their communication too.
    ASSERT_EQ(replayed.bytes.size(), eager.bytes.size());
    ASSERT_FALSE(eager.bytes.empty());
    for (std::size_t i = 0; i < eager.bytes.size(); ++i) {
      EXPECT_GT(replayed.bytes[i], 1000);
      EXPECT_GT(replayed.efficiency[i], 0);
      EXPECT_LE(replayed.efficiency[i], 1);
    }
    const std::string name = GetParam().name;
    // Two ranks, and all steps but the first two; none where each updates a part (dist.zero).
    const std::int64_t most = name == "resnet_zero" ? 0 : 2 * (steps() - 2);
    if (name == "translation") {
      EXPECT_GT(replayed.replays, 0) << mode;
      EXPECT_LE(replayed.replays, most) << mode;
    } else {
      EXPECT_EQ(replayed.replays, most) << mode;
    }
  }
}

// Rank 0 has recorded its steps when rank 1 still meets new shapes: a step is replayed by both or by none.
TEST(CudaNcclReplays, AreThoseOfAllRanks) {
  const TempDir folder;
  const std::string path = folder / "run.json";
  std::ofstream(path) << R"({"device": "cuda", "model": )" << resnet << R"(, "data": )" << digits << R"(,
      "optimizer": {"type": "sgd", "lr": 0.05}, "train": {"batch_size": 16, "steps": 20}})";
  const auto weights_of = [&](bool replays) {
    std::string hash;
    run_ranks(2, [&](Collective& group) {
      train::LoadedConfig loaded = train::load_config(path, {});
      loaded.config.device = name_of(gpu(group.rank()));
      train::Session session(std::move(loaded), &group);
      const auto captured = train::make_captured_step(session);
      const data::Batch blank = train::blank_batch(session, 8, DeviceType::cuda);
      for (std::int64_t step = 0; step < 8; ++step) {
        const std::int64_t side = group.rank() == 0 ? 6 : 8 + 2 * (step % 2);
        const data::Batch batch = blank.map([&](const data::Batch::Named& one) {
          if (one.name != "images") return one.tensor;
          return Tensor::full({8, side, side, 1}, static_cast<double>(3 * step + group.rank()), one.tensor.dtype());
        });
        session.ranks->begin_step(std::span(&batch, 1), session.loss, {});
        (void)(replays ? captured->run(std::span(&batch, 1)) : train::training_step(session, std::span(&batch, 1)));
        ++session.position.step;
      }
      EXPECT_EQ(captured->unsupported_reason(), "");
      EXPECT_EQ(captured->nodes() > 0, replays);
      if (group.rank() == 0) hash = session.model_state.hash();
    });
    return hash;
  };
  EXPECT_EQ(weights_of(true), weights_of(false));
}

TEST(CudaNcclChoice, IsInRunJsonAndWarnedOfWhereItIsWrong) {
  const auto forget = [] {
    for (const char* const name : {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"}) unsetenv(name);
  };
  forget();
  const TempDir folder;
  const std::string path = folder / "run.json";
  std::ofstream(path) << R"({"device": "cuda", "model": )" << resnet << R"(, "data": )" << digits << R"(,
      "optimizer": {"type": "sgd", "lr": 0.05}, "train": {"batch_size": 16, "steps": 2},
      "log": {"tensorboard": false, "report": false}})";
  const auto topology_and_console = [&](const std::string& name) {
    std::ostringstream console;
    run_ranks(2, [&](Collective& group) {
      train::LoadedConfig loaded = train::load_config(path, {});
      loaded.config.device = name_of(gpu(group.rank()));
      train::Session session(std::move(loaded), &group);
      train::RunFolder run_folder(folder / name, group.rank() == 0);
      std::ostream nowhere(nullptr);
      train::Progress progress(group.rank() == 0 ? console : nowhere, false);
      (void)train::Trainer(session, run_folder, progress).run("test");
    });
    return std::pair(read_json(folder / (name + "/run.json")).at("topology"), console.str());
  };
  EXPECT_PRED2(contains, topology_and_console("unknown").first.at("nccl").at("why_unknown").as_string(), "NCCL");
  dist::keep_nccl_log({.files = {}});
  controls().connection = "SHM/direct/direct";
  const auto [topology, console] = topology_and_console("known");
  controls().connection = "P2P/IPC";
  forget();
  EXPECT_EQ(topology.at("backend").as_string(), "nccl");
  EXPECT_EQ(topology.at("ranks").size(), 2U);
  EXPECT_EQ(topology.at("ranks").at(1).at("device").as_string(), "cuda:1");
  const Json& nccl = topology.at("nccl");
  EXPECT_EQ(nccl.at("ranks").as_integer(), 2);
  EXPECT_EQ(nccl.at("between_hosts").as_string(), "Socket");
  ASSERT_EQ(nccl.at("connections").size(), 1U);
  EXPECT_EQ(nccl.at("connections").at(0).at("by").as_string(), "SHM");
  EXPECT_EQ(nccl.at("connections").at(0).at("pairs").as_integer(), 2);
  const std::string warning = "warning: NCCL: GPU to GPU: rank ";
  ASSERT_PRED2(contains, console, warning);
  EXPECT_PRED2(contains, console, "and the GPUs of this host have NVLinks; give each rank all GPUs");
  EXPECT_EQ(console.find(warning), console.rfind(warning)) << "once";
}

INSTANTIATE_TEST_SUITE_P(All, CudaNcclTraining, testing::ValuesIn(problems),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace hearth::test
