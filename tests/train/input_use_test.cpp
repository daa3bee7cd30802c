// SPDX-License-Identifier: Apache-2.0
// Which stage of loading steps wait for: a slow one is named wherever it is.
#include "train/profile/input_use.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "data/sample_dataset.h"
#include "models/nn/linear.h"
#include "tests/support/error_message.h"
#include "tests/train/hook_run.h"
#include "train/report/input_section.h"
#include "train/report/report.h"

namespace hearth::train::input_use_test {
namespace {

using data::Stage;
using test::contains;

void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

/// Points of two classes, of which each takes 20 ms in one stage.
struct Slow : data::SampleDataset {
  explicit Slow(std::string slow) : stage(std::move(slow)) {}
  std::int64_t size() const override { return 24; }
  data::TensorSample read(std::int64_t i, Random&) const override {
    if (stage == "read") nap();
    if (stage == "decode" || stage == "augment") {
      const data::StageScope scope(stage == "decode" ? Stage::decode : Stage::augment);
      nap();
    }
    return {{"x", Tensor::full({2}, static_cast<double>(i))},
            {"labels", Tensor::full({}, i % 2 == 0 ? 0 : 1, DType::i64)}};
  }
  data::Batch collate(const std::vector<data::TensorSample>& samples) const override {
    if (stage == "assemble") nap();
    return SampleDataset::collate(samples);
  }
  const std::vector<std::string>& class_names() const override { return names; }
  std::string stage;
  std::vector<std::string> names{"even", "odd"};
};

/// Brings batches to a device that is slow to take them.
struct SlowCopy : Hook {
  void before_step(Session&, std::span<const data::Batch>) override {
    const data::StageScope scope(Stage::copy);
    nap();
  }
};

struct SlowOptions : data::DataOptions {
  std::string stage;
};
void describe(Fields<SlowOptions>& fields) {
  data::describe_common(fields);
  fields.text("stage", &SlowOptions::stage, {}, "The slow one.");
}

void add_own_once() {
  static const bool added = [] {
    data::add<SlowOptions>("slow_points", [](const SlowOptions& options) -> data::Splits {
      return {std::make_shared<Slow>(options.stage), nullptr, std::make_shared<Slow>("")};
    });
    models::add("slow_linear", [](const models::InputInfo& input) -> std::unique_ptr<nn::Module> {
      return std::make_unique<nn::Linear>(input.features(), input.classes);
    });
    return true;
  }();
  (void)added;
}

class InputUseRun : public ::testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(InputUseRun, NamesTheStageThatIsSlow) {
  const auto& [stage, workers] = GetParam();
  add_own_once();
  const test::HookRuns runs;
  const test::HookRun run = runs.run("run",
                                     {R"(data={"type": "slow_points", "prefetch": 2, "stage": ")" + stage +
                                          R"(", "workers": )" + std::to_string(workers) + "}",
                                      R"(model={"type": "slow_linear"})", R"(task={"type": "classification"})",
                                      "train.batch_size=1", "train.epochs=1", "log.every_steps=24", "log.report=true"},
                                     [&](Session& session) {
                                       if (stage == "copy") session.add_hook("slow_copy", std::make_unique<SlowCopy>());
                                     });
  const std::string named = "(" + stage + ")", blamed = stage == "copy" ? "copy to the device takes" : stage + " takes";
  EXPECT_PRED2(contains, run.console, named);
  EXPECT_PRED2(contains, run.console, blamed);
  EXPECT_PRED2(contains, read_text(runs.path("run/report.html")), blamed);
  for (const Json& record : runs.metrics("run")) {
    if (record.at("split").as_string() != "train") continue;
    EXPECT_PRED2(contains, record.at("data_advice").as_string(), blamed);
    if (stage == "copy") {
      EXPECT_GT(record.at("data_copy").as_number(), wait_worth_telling);
      continue;
    }
    EXPECT_GT(record.at("data_wait").as_number(), wait_worth_telling);
    const Json& stages = record.at("data_stages");
    for (const JsonMember& other : stages.members()) {
      if (other.key == stage || other.key == "room") continue;
      EXPECT_GT(stages.at(stage).as_number(), 2 * other.value.as_number()) << other.key;
    }
    EXPECT_EQ(record.find("queue_dry") != nullptr, workers > 0);
  }
}

INSTANTIATE_TEST_SUITE_P(AnyStage, InputUseRun,
                         ::testing::Combine(::testing::Values("read", "decode", "augment", "assemble", "copy"),
                                            ::testing::Values(0, 1, 2)),
                         [](const auto& one) {
                           return std::get<0>(one.param) + "_" + std::to_string(std::get<1>(one.param)) + "_workers";
                         });

TEST(InputUseOfRun, SaysNothingWhereStepsDoNotWait) {
  add_own_once();
  const test::HookRuns runs;
  const test::HookRun run = runs.run("run", {"data.workers=1", "log.report=true"});
  EXPECT_EQ(run.console.find("input:"), std::string::npos) << run.console;
  EXPECT_PRED2(contains, read_text(runs.path("run/report.html")), "The steps did not wait for their input.");
}

/// Ten seconds of steps that wait for half of the time.
InputUse waiting(Stage slow, int workers) {
  InputUse use{.seconds = 10, .cores = 8, .images = true};
  use.loader.workers = workers;
  use.loader.wait_seconds = use.loader.dry_seconds = slow == Stage::copy ? 0 : 5;
  if (slow == Stage::copy)
    use.copy_seconds = 5;
  else
    use.loader.times[slow] = 9.0 * std::max(workers, 1);
  return use;
}

TEST(InputAdvice, TellsWhatToChange) {
  const auto advice = [](Stage slow, int workers, double cpu_seconds, bool images = true) {
    InputUse use = waiting(slow, workers);
    use.cpu_seconds = cpu_seconds;
    use.images = images;
    return advice_on_input(use).text;
  };
  EXPECT_EQ(
      advice(Stage::decode, 2, 30),
      "input: the step waited 50 % of the time; decode takes 90 % of 2 workers: add workers (data.workers 4: cores "
      "are free), or pack them smaller (hearth data pack --resize 256)");
  EXPECT_EQ(advice(Stage::decode, 2, 79),
            "input: the step waited 50 % of the time; decode takes 90 % of 2 workers: all 8 cores are busy: pack them "
            "smaller (hearth data pack --resize 256)");
  EXPECT_EQ(
      advice(Stage::decode, 0, 10),
      "input: the step waited 50 % of the time; decode takes 90 % of the time: set data.workers to 1 or more, so that "
      "batches are made beside the steps");
  EXPECT_PRED2(contains, advice(Stage::read, 1, 79),
               "read takes 90 % of 1 worker: add workers (data.workers 2: more reads");
  EXPECT_PRED2(contains, advice(Stage::read, 1, 79), "hearth data pack");
  EXPECT_PRED2(contains, advice(Stage::augment, 4, 79), "data.augment");
  EXPECT_PRED2(contains, advice(Stage::assemble, 4, 10, false), "data.workers 8: cores are free");
  EXPECT_PRED2(contains, advice(Stage::copy, 4, 10), "copy to the device takes 50 % of the time: send fewer bytes");
  EXPECT_EQ(advice(Stage::decode, 2, 30, false).find("--resize"), std::string::npos) << "that is for images";
}

TEST(InputAdvice, DoesNotBlameAStageThatTakesLittle) {
  InputUse use = waiting(Stage::augment, 2);
  use.loader.times[Stage::augment] = 1;
  use.loader.times[Stage::room] = 19;
  EXPECT_EQ(
      advice_on_input(use).blame,
      "batches come late although making them takes 5 % of 2 workers: raise data.prefetch, take larger batches, or "
      "set data.workers to 0");
  use.loader.workers = 0;
  EXPECT_EQ(advice_on_input(use).stage, Stage::augment);
}

TEST(InputAdvice, IsSilentBelowWhatIsWorthTelling) {
  InputUse use = waiting(Stage::decode, 2);
  use.loader.dry_seconds = 0.9;
  EXPECT_EQ(advice_on_input(use).stage, Stage::room);
  use.loader.dry_seconds = 1.1;
  EXPECT_EQ(advice_on_input(use).stage, Stage::decode);
  // The warm-up does not count.
  use.loader.dry_seconds = 0;
  EXPECT_EQ(advice_on_input(use).text, "");
  EXPECT_EQ(advice_on_input({}).text, "");
}

TEST(InputUse, CountsWhatStepsDoNotNeedAsRoom) {
  InputUse use{.seconds = 4};
  use.loader.workers = 2;
  use.loader.times[Stage::decode] = 2;
  use.loader.times[Stage::room] = 20;  // an evaluation went on, too
  EXPECT_DOUBLE_EQ(use.share(Stage::decode), 0.25);
  EXPECT_DOUBLE_EQ(use.share(Stage::room), 0.75);
  Json record = Json::object();
  write_input(record, use);
  EXPECT_EQ(record.find("data_advice"), nullptr);
  EXPECT_EQ(record.find("data_copy"), nullptr);
  EXPECT_DOUBLE_EQ(record.at("data_stages").at("room").as_number(), 0.75);
}

TEST(LoaderUse, AddsUp) {
  data::LoaderUse use{
      .seconds = 1, .workers = 2, .batches = 3, .wait_seconds = 0.5, .dry = 1, .depth = 4, .min_depth = 2};
  use += {.seconds = 1, .workers = 2, .batches = 1, .dry_seconds = 0.25, .dry = 2, .depth = 0, .min_depth = 0};
  use += {.seconds = 1, .workers = 2};
  EXPECT_EQ(use.seconds, 3);
  EXPECT_EQ(use.batches, 4);
  EXPECT_EQ(use.dry, 3);
  EXPECT_DOUBLE_EQ(use.depth, 3);
  EXPECT_EQ(use.min_depth, 0);
  EXPECT_DOUBLE_EQ(use.wait_seconds + use.dry_seconds, 0.75);
}

TEST(InputSection, IsEmptyForRecordsWithoutStages) {
  EXPECT_EQ(input_section({Json::object().set("split", "train").set("data_wait", 0.5)}), "");
}

}  // namespace
}  // namespace hearth::train::input_use_test
