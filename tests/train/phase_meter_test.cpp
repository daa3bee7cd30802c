// SPDX-License-Identifier: Apache-2.0
// The phases of training steps: that they add up to the steps, on every device and for ranks.
#include "train/profile/phase_meter.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "core/profiler_spans.h"
#include "core/run_on.h"
#include "core/time_marks.h"
#include "dist/process_group.h"
#include "tests/support/error_message.h"
#include "tests/support/ranks.h"
#include "tests/support/temp_dir.h"
#include "train/report/report.h"
#include "train/trainer.h"

namespace hearth::train::phase_meter_test {
namespace {

using std::chrono::milliseconds;

TEST(PhaseMeter, CountsForThePhaseUnderWay) {
  PhaseMeter meter;
  meter.enter(Phase::forward);  // Outside of a step: not counted.
  std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(meter.seconds(), 0);
  {
    const PhaseMeter::StepScope step(meter);
    meter.enter(Phase::data);
    std::this_thread::sleep_for(milliseconds(20));
    meter.enter(Phase::backward);
    std::this_thread::sleep_for(milliseconds(5));
    EXPECT_TRUE(test::contains(test::error_message<UsageError>([&] { const PhaseMeter::StepScope again(meter); }),
                               "under way already"));
  }
  const PhaseSeconds phases = meter.read();
  EXPECT_GE(phases[Phase::data], 0.02);
  EXPECT_GE(phases[Phase::backward], 0.005);
  EXPECT_EQ(phases[Phase::forward], 0);
  EXPECT_DOUBLE_EQ(phases.total(), meter.seconds());
  meter.clear();
  EXPECT_EQ(meter.seconds(), 0);
}

TEST(PhaseMeter, StepsThatFailAreClosed) {
  PhaseMeter meter;
  try {
    const PhaseMeter::StepScope step(meter);
    meter.enter(Phase::update);
    throw DataError("a step that fails");
  } catch (const DataError&) {
  }
  profiler::start();
  { const PhaseMeter::StepScope step(meter); }
  profiler::stop();
  const std::vector<profiler::Span> spans = profiler::spans();
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_STREQ(spans[0].name, "other");
  EXPECT_EQ(spans[0].op, nullptr) << "phases are no ops";
}

TEST(TimeMarks, AddUpOnTheDevice) {
  if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  const Device device("cuda");
  const Tensor marks = Tensor::zeros({kernels::time_mark_words}, DType::i64, device);
  const auto mark = [&](int part) {
    with_stream(device, [&](auto& stream) { kernels::mark_time(stream, marks, part); });
    wait_for(device);
  };
  mark(2);
  std::this_thread::sleep_for(milliseconds(20));
  mark(5);
  mark(2);
  std::this_thread::sleep_for(milliseconds(20));
  mark(6);
  const Tensor read = marks.to(Device{});
  const auto* const nanoseconds = read.data<const std::int64_t>();
  EXPECT_GE(nanoseconds[2], 40'000'000);
  EXPECT_LT(nanoseconds[5], nanoseconds[2]);
  EXPECT_EQ(nanoseconds[0], 0);
}

class Phases : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::string(GetParam()) == "cuda" && device_count(DeviceType::cuda) == 0)
      GTEST_SKIP() << "there is no CUDA device";
  }

  /// The lines of training metrics of a run.
  std::vector<Json> train(Collective* group, const std::string& out) const {
    const std::string config = folder_ / (out + ".json");
    std::ofstream(config) << R"({"name": "run", "device": ")" << GetParam() << R"(", "seed": 3,
      "model": {"type": "mlp", "hidden": [16]}, "data": {"type": "digits", "workers": 0},
      "optimizer": {"type": "sgd", "lr": 0.1}, "train": {"batch_size": 16, "steps": 12},
      "log": {"every_steps": 6, "report": false, "tensorboard": false}})";
    Session session(load_config(config, {}), group);
    RunFolder folder(folder_ / out, group == nullptr || group->rank() == 0);
    std::ostringstream console;
    Progress progress(console, false);
    Trainer(session, folder, progress).run("test");
    std::vector<Json> lines;
    if (!folder.writes()) return lines;
    for (const Json& record : read_run(folder.path()).metrics)
      if (record.find("phase_seconds") != nullptr) lines.push_back(record);
    const Json seconds = read_json(folder.file("run.json")).at("profile").at("seconds");
    for (const char* key : {"data", "forward", "evaluation", "checkpoint"})
      EXPECT_GT(seconds.at(key).as_number(), 0) << key;
    return lines;
  }

  test::TempDir folder_;
};

TEST_P(Phases, AddUpToTheStepsOfEachLine) {
  const std::vector<Json> lines = train(nullptr, "alone");
  ASSERT_EQ(lines.size(), 2U);
  for (const Json& line : lines) {
    double sum = 0;
    for (const JsonMember& phase : line.at("phase_seconds").members()) sum += phase.value.as_number();
    const double steps = 6 * 16 / line.at("throughput").as_number();
    EXPECT_NEAR(sum, steps, 0.01 * steps);
    for (const char* phase : {"data", "forward", "backward", "update"})
      EXPECT_GT(line.at("phase_seconds").at(phase).as_number(), 0) << phase;
    EXPECT_EQ(line.at("phase_seconds").at("communication").as_number(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, Phases, testing::Values("cpu", "cuda"));

using RankPhases = Phases;
TEST_P(RankPhases, CommunicationIsAPhaseOfItsOwn) {
  for (const std::string& failure : test::failures_of_ranks(dist::loopback_groups(2), [&](Collective& group) {
         const std::vector<Json> lines = train(&group, join_text("rank", group.rank()));
         for (const Json& line : lines) EXPECT_GT(line.at("phase_seconds").at("communication").as_number(), 0);
         EXPECT_EQ(lines.size(), group.rank() == 0 ? 2U : 0U);
       }))
    EXPECT_EQ(failure, "");
}
INSTANTIATE_TEST_SUITE_P(Devices, RankPhases, testing::Values("cpu"));

}  // namespace
}  // namespace hearth::train::phase_meter_test
