// SPDX-License-Identifier: Apache-2.0
// What ranks may disagree in, and the words by which every other rank names the one that differs.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <future>
#include <mutex>
#include <numeric>
#include <set>

#include "core/cpu/isa.h"
#include "core/error.h"
#include "data/images/memory_images.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/run_program.h"
#include "tests/train/disagreement_rows.h"
#include "train/step/agreement.h"
#include "train/step/ranks.h"
#include "train/trainer.h"

namespace hearth::train::disagreement_test {
namespace {

using test::is_odd;
using test::others_fail;
using test::Words;

/// Calls what a hook of one rank may do.
struct OddHook : Hook {
  std::function<double(std::int64_t, double)> rate;
  std::function<void(Session&)> after;
  double lr(const Session&, std::int64_t step, double lr) const override { return rate ? rate(step, lr) : lr; }
  void after_step(Session& session, const StepResult&) override {
    if (after) after(session);
  }
};

/// How a rank of a run on the digits differs.
struct RankRun {
  std::vector<std::string> overrides{};
  std::function<void(Session&)> change{};  ///< before it begins
  std::string resume = "absent";           ///< a folder; "" to begin without a look
};

class Disagreements : public testing::Test {
 protected:
  Disagreements() {
    std::ofstream(folder_ / "run.json") << R"({"seed": 3, "device": "cpu", "model": {"type": "mlp", "hidden": [16]},
      "data": {"type": "digits", "workers": 0, "valid_fraction": 0.1}, "optimizer": {"type": "sgd", "lr": 0.1},
      "train": {"batch_size": 48, "steps": 4}, "checkpoint": {"every_steps": 2},
      "log": {"every_steps": 1, "report": false, "tensorboard": false}})";
    std::ofstream text(folder_ / "text.txt"), other(folder_ / "other.txt");
    for (int i = 0; i < 100; ++i) text << "one hen and two\n", other << "two hen and one\n";
  }

  void train(Collective* group, const RankRun& run, const std::string& out) const {
    static std::mutex mutex;
    std::unique_lock lock(mutex);
    LoadedConfig config = load_config(folder_ / "run.json", run.overrides);
    lock.unlock();
    Session session(std::move(config), group);
    RunFolder folder(folder_ / out, group == nullptr || group->rank() == 0);
    std::ostream nowhere(nullptr);
    Progress progress(nowhere, false);
    Trainer trainer(session, folder, progress);
    if (!run.resume.empty()) (void)trainer.resume(folder_ / run.resume);
    if (run.change) run.change(session);
    (void)trainer.run("a test");
  }
  /// What the others of three ranks fail with where the odd one runs `run`.
  Words runs(const RankRun& run, const RankRun& usual = {}) const {
    return others_fail([&](Collective& group) { train(&group, is_odd(group) ? run : usual, "out"); });
  }
  Words overrides(const std::string& assignment) const { return runs({.overrides = {assignment}}); }
  Words changes(const std::function<void(Session&)>& change) const { return runs({.change = change}); }
  Words hook(const OddHook& hook) const {
    return changes([&](Session& session) { session.add_hook("odd", std::make_unique<OddHook>(hook)); });
  }

  /// A run on text in place of the digits.
  std::vector<std::string> text_run(const std::string& file) const {
    return {R"(model={"type": "gpt", "layers": 1, "heads": 2, "width": 16})",
            join_text(R"(data={"type": "text", "length": 12, "tokenizer": {"type": "characters"}, "train": [")",
                      (folder_ / file).string(), "\"]}")};
  }

  test::TempDir folder_;
};

/// The digits' training split with other labels, classes, or samples.
void set_train(Session& session, int labels_from, const std::vector<std::int64_t>& samples,
               const std::string& first_class) {
  const data::ImageDataset& images = *session.data.train->images();
  std::vector<std::uint8_t> pixels;
  std::vector<std::int32_t> labels;
  for (const std::int64_t i : samples) {
    data::Image image;
    (void)images.read(i, image);
    pixels.insert(pixels.end(), image.pixels.begin(), image.pixels.end());
    labels.push_back(static_cast<std::int32_t>((images.label(i) + labels_from) % images.classes()));
  }
  std::vector<std::string> classes = images.class_names();
  if (!first_class.empty()) classes[0] = first_class;
  session.data.train = std::make_shared<data::MemoryImages>("a test", images.image_shape(), std::move(pixels),
                                                            std::move(labels), classes);
}
std::vector<std::int64_t> all_samples(const Session& session) {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(session.data.train->size()));
  std::iota(samples.begin(), samples.end(), 0);
  return samples;
}

/// What two processes of the program say, of which the second has `variable` too.
Words processes(const test::TempDir& folder, const std::string& variable) {
  const auto start = [&](const std::string& rank) {
    std::vector<std::string> words{"/usr/bin/env", "RANK=" + rank, "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                                   "MASTER_PORT=29631"};
    if (rank == "1") words.push_back(variable);
    words.insert(words.end(), {test::hearth_program(), "train", "run.json", "--set", "train.deterministic=true"});
    return std::async(std::launch::async, [=, &folder] { return test::run_program(words, folder.path(), 60); });
  };
  auto first = start("0"), second = start("1");
  return {first.get().err, second.get().err};
}

TEST_F(Disagreements, OfEveryKindIsNamedWithTheRankAndBothValues) {
  const std::string odd_rank = test::odd_rank();
  train(nullptr, {.overrides = {"train.steps=2"}}, "done");

  std::vector<test::Disagreement> rows{
      {"seed",
       [&] { return overrides("seed=4"); },
       {"configuration: " + odd_rank + " has seed 4, rank 0 (pid ", ") has 3"}},
      {"model",
       [&] { return overrides("model.hidden=[17]"); },
       {odd_rank + " has model.hidden.0 17, rank 0 (pid ", ") has 16"}},
      {"length of a list",
       [&] { return overrides("model.hidden=[16,8]"); },
       {odd_rank + " has model.hidden.1 8, rank 0 (pid ", ") has nothing"}},
      {"optimizer",
       [&] { return overrides(R"(optimizer={"type": "adamw", "lr": 0.1})"); },
       {odd_rank + " has optimizer.type \"adamw\", rank 0 (pid ", ") has \"sgd\""}},
      {"precision",
       [&] { return overrides(R"(precision={"level": "O1", "dtype": "bf16"})"); },
       {odd_rank + " has precision.level \"O1\", rank 0 (pid ", ") has \"O0\""}},
      {"schedule",
       [&] { return overrides(R"(schedule={"type": "cosine"})"); },
       {odd_rank + " has schedule", "rank 0 (pid "}},
      {"batch",
       [&] { return overrides("train.batch_size=24"); },
       {odd_rank + " has train.batch_size 24, rank 0 (pid ", ") has 48"}},
      {"length of the run",
       [&] { return overrides("train.steps=5"); },
       {odd_rank + " has train.steps 5, rank 0 (pid ", ") has 4"}},
      {"limit of silence",
       [&] { return overrides("dist.timeout=7"); },
       {odd_rank + " has dist.timeout 7, rank 0 (pid ", ") has 60;"}},
      {"kind of device",
       [&] {
         return others_fail([&](Collective& group) {
           require_same_run(group, {}, Json::object(), is_odd(group) ? Device{DeviceType::cuda, 0} : Device{});
         });
       },
       {"program: " + odd_rank + " has device cuda, rank 0 (pid ", ") has cpu"}},
      {"number of samples",
       [&] {
         return changes([](Session& session) {
           std::vector<std::int64_t> samples = all_samples(session);
           samples.pop_back();
           set_train(session, 0, samples, "");
         });
       },
       {"data: " + odd_rank + " has train.samples 1292, rank 0 (pid ", ") has 1293"}},
      {"contents of as many samples",
       [&] {
         return changes([](Session& session) {
           std::vector<std::int64_t> samples = all_samples(session);
           samples[0] = samples[1];
           set_train(session, 0, samples, "");
         });
       },
       {"data: " + odd_rank + " has train.", "rank 0 (pid "}},
      {"labels",
       [&] { return changes([](Session& session) { set_train(session, 1, all_samples(session), ""); }); },
       {"data: " + odd_rank + " has train.classes.0 ", "rank 0 (pid "}},
      {"first sequences of as many",
       [&] {
         const std::vector<std::string> text = text_run("text.txt");
         const RankRun other{.overrides = text, .change = [&](Session& session) {
                               const LoadedConfig with_other = load_config(folder_ / "run.json", text_run("other.txt"));
                               session.data.train = data::make_data(with_other.config.data).train;
                             }};
         return runs(other, {.overrides = text});
       },
       {"data: " + odd_rank + " has train.first ", "checksum ", "rank 0 (pid "}},
      {"names of classes",
       [&] { return changes([](Session& session) { set_train(session, 0, all_samples(session), "nil"); }); },
       {"data: " + odd_rank, "nil, rank 0 (pid ", ") has 0"}},
      {"splits",
       [&] { return changes([](Session& session) { session.data.valid = nullptr; }); },
       {"data: " + odd_rank + " has valid.samples nothing, rank 0 (pid "}},
      {"checkpoint to go on from",
       [&] { return runs({.resume = "absent"}, {.resume = "done"}); },
       {"checkpoint to go on from: " + odd_rank + " has checkpoint nothing, rank 0 (pid ", "done/checkpoints/"}},
      {"going on or not",
       [&] { return runs({.resume = ""}, {.resume = "done"}); },
       {odd_rank + " compares its data, rank 0 (pid ", "its checkpoint to go on from"}},
      {"weights to begin with",
       [&] { return changes([](Session& session) { session.parameters->values().fill_(0.5); }); },
       {"weights to begin with: " + odd_rank + " has ", "f32 [", "], checksum ", "rank 0 (pid "}},
      {"position to begin with",
       [&] { return changes([](Session& session) { session.position.step = 1; }); },
       {"state to begin with: " + odd_rank + " has position.step i64 [], checksum"}},
      {"learning rate of a step",
       [&] {
         OddHook hook;
         hook.rate = [](std::int64_t step, double lr) { return step == 2 ? lr / 2 : lr; };
         return this->hook(hook);
       },
       {"step 3: " + odd_rank + " has the learning rate 0.05, rank 0 (pid ", ") has 0.1"}},
      {"end of the run",
       [&] {
         OddHook hook;
         hook.after = [](Session& session) { session.request_stop("enough"); };
         return this->hook(hook);
       },
       {"the ranks disagree: ", odd_rank + " calls ", " at step "}},
      {"weights at a checkpoint",
       [&] {
         OddHook hook;
         hook.after = [](Session& session) { session.parameters->values().fill_(0.5); };
         return this->hook(hook);
       },
       {"weights at the checkpoint of step 2: " + odd_rank + " has layers.0.weight checksum ", "rank 0 (pid "}},
      {"instruction set",
       [&] {
         if (cpu::isa() == cpu::Isa::baseline) return Words{};
         return processes(folder_, "HEARTH_ISA=baseline");
       },
       {"program: rank 1 (pid ", "has instruction set baseline, rank 0 (pid ", cpu::name_of(cpu::isa())}},
  };
  for (const auto& more :
       {test::disagreements_at_the_start(), test::disagreements_in_collectives(), test::disagreements_in_models()})
    rows.insert(rows.end(), more.begin(), more.end());

  EXPECT_GE(rows.size(), 40U);
  std::set<std::string> kinds;
  for (const test::Disagreement& row : rows) {
    EXPECT_TRUE(kinds.insert(row.kind).second) << row.kind;
    const auto begin = std::chrono::steady_clock::now();
    for (const std::string& message : row.messages())
      for (const std::string& words : row.words) EXPECT_PRED2(test::contains, message, words) << row.kind;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    EXPECT_LT(seconds, 10) << row.kind;
  }
}

}  // namespace
}  // namespace hearth::train::disagreement_test
