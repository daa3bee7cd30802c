// SPDX-License-Identifier: Apache-2.0
// Planted slow runs: what is named first, and the remedy. Those of other machines by their counters, the others for
// real.
#include "train/report/bottlenecks.h"

#include <gtest/gtest.h>

#include "tests/train/cli_program.h"

namespace hearth::train {
namespace {

/// A run of two lines of metrics, 10 s of steps, most of them computing; with more in its second line, its run.json
/// and its configuration.
RunRecords run_with(const std::string& line, const std::string& info = "{}", const std::string& config = "{}",
                    const std::string& phases = R"({"forward": 2, "backward": 3})") {
  RunRecords run;
  run.info = parse_json(info, "info");
  run.config = parse_json(config, "config");
  for (const char* const more : {"{}", line.c_str()}) {
    Json record =
        Json::object().set("step", 5).set("split", "train").set("phase_seconds", parse_json(phases, "phases"));
    const Json extra = parse_json(more, "line");
    for (const JsonMember& member : extra.members()) record.set(member.key, member.value);
    run.metrics.push_back(std::move(record));
  }
  return run;
}

Bottleneck first_of(const RunRecords& run) {
  const std::vector<Bottleneck> all = bottlenecks(run);
  return all.empty() ? Bottleneck{.cause = "none", .text = ""} : all[0];
}

TEST(Bottlenecks, ARunThatComputesHasNone) {
  EXPECT_EQ(first_of(run_with("{}")).cause, "none");
  EXPECT_EQ(first_of(run_with(R"({"device_throttled": {}})")).cause, "none") << "nothing held it back";
}

TEST(Bottlenecks, SlowInputIsNamedWithItsStage) {
  const Bottleneck first =
      first_of(run_with(R"({"data_advice": "decode takes 91 % of 2 workers: add workers"})", "{}",
                        R"({"data": {"workers": 2}})", R"({"data": 4, "forward": 1, "backward": 1})"));
  EXPECT_EQ(first.cause, "input");
  EXPECT_EQ(first.seconds, 8);
  EXPECT_PRED2(contains, first.text, "waited 66.67 % of their time for batches; decode takes 91 %");
}

TEST(Bottlenecks, SmallBucketsAndAMissingOverlap) {
  const std::string phases = R"({"communication": 3, "forward": 1, "backward": 1})";
  EXPECT_PRED2(contains, first_of(run_with("{}", "{}", R"({"dist": {"bucket_mb": 0.05}})", phases)).text,
               "small buckets of 0.05 MB: set dist.bucket_mb to 10");
  EXPECT_PRED2(contains, first_of(run_with("{}", "{}", R"({"dist": {"overlap": false}})", phases)).text,
               "set dist.overlap to true");
}

TEST(Bottlenecks, MachinesAreNamedByTheirCounters) {
  Bottleneck first = first_of(run_with("{}", R"({"machine": {"threads": 8, "cores": 2}})"));
  EXPECT_EQ(first.cause, "threads");
  EXPECT_PRED2(contains, first.text, "8 threads compute on 2 cores and take turns; set HEARTH_THREADS to 2");
  first = first_of(run_with(R"({"process_major_faults": 5000})"));
  EXPECT_EQ(first.cause, "memory");
  EXPECT_PRED2(contains, first.text, "5000 pages came back from disk");
  EXPECT_FALSE(first.measured);
  first = first_of(run_with(R"({"machine_remote_pages": 20000})"));
  EXPECT_EQ(first.cause, "NUMA");
  EXPECT_PRED2(contains, first.text, "numactl");
  first = first_of(run_with(R"({"device_throttled": {"temperature": 0.25, "power limit": 1}})"));
  EXPECT_EQ(first.cause, "throttled device");
  EXPECT_PRED2(contains, first.text, "(power limit) in 50.00 % of the time");
}

TEST(Bottlenecks, LaunchesPortableKernelsAndSlowOpsComeFromTheProfile) {
  const std::string gaps =
      R"({"device_profile": {"milliseconds": 10, "gap_milliseconds": 6, "kernels": [], "ops": []}})";
  EXPECT_PRED2(contains, first_of(run_with("{}", gaps, R"({"train": {"graph": false}})")).text,
               "launch bound: record them (train.graph true)");
  EXPECT_PRED2(contains, first_of(run_with("{}", gaps)).text, "larger batches");
  const std::string rows = R"({"device_profile": {"milliseconds": 10, "gap_milliseconds": 0, "kernels":
    [{"name": "conv2d:portable", "us": 6000}], "ops": [{"name": "softmax", "us": 3000, "floor_us": 1000}]}})";
  const std::vector<Bottleneck> all = bottlenecks(run_with("{}", rows));
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].cause, "portable kernel");
  EXPECT_NEAR(all[0].seconds, 6, 1e-9);
  EXPECT_PRED2(contains, all[1].text, "softmax takes 3 ms of a step, 3 times what its bytes and arithmetic need");
}

TEST(Bottlenecks, EvaluationsAndCheckpointsCountAsWell) {
  const std::vector<Bottleneck> all =
      bottlenecks(run_with("{}", R"({"profile": {"seconds": {"evaluation": 30, "checkpoint": 20}}})"));
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].cause, "evaluation");
  EXPECT_PRED2(contains, all[1].text, "checkpoints took 33.33 % of the run");
}

TEST(Bottlenecks, AreTenAtMostAndMangledRecordsAreNoReasonToFail) {
  std::string rows;
  for (int i = 1; i <= 20; ++i)
    rows += join_text(i > 1 ? ", " : "", R"({"name": "op)", i, R"(", "us": 2000, "floor_us": 1})");
  EXPECT_EQ(bottlenecks(run_with("{}", R"({"device_profile": {"milliseconds": 10, "gap_milliseconds": 0, "ops": [)" +
                                           rows + "]}}"))
                .size(),
            10U);
  const RunRecords odd =
      run_with(R"({"phase_seconds": 3, "device_throttled": 7, "data_advice": []})",
               R"({"profile": 3, "machine": "m", "device_profile": []})", R"({"dist": 3, "data": []})");
  EXPECT_NO_THROW((void)bottlenecks(odd));
}

class SlowRun : public Cli {
 protected:
  /// The report's first paragraph on lost time, of a run on digits.
  std::string lost_time(const std::vector<std::string>& sets, const std::map<std::string, std::string>& environment) {
    write("run.json", R"({"name": "run", "seed": 3, "device": "cpu",
      "model": {"type": "resnet", "blocks": [1], "stem": "small", "width": 16},
      "data": {"type": "digits", "workers": 1}, "optimizer": {"type": "sgd", "lr": 0.01},
      "train": {"batch_size": 32, "epochs": 4}, "eval": {"every_epochs": 9}, "checkpoint": {"every_epochs": 9},
      "log": {"every_steps": 10, "tensorboard": false}})");
    std::vector<std::string> words{test::hearth_program(), "train", "run.json", "--out", "slow", "--resume", "never"};
    for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    const ProgramResult result = test::run_program(words, path(".").string());
    for (const auto& variable : environment) unsetenv(variable.first.c_str());
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const std::string page = read_text(path("slow/report.html"));
    const std::size_t section = page.find("<h2>Where time was lost</h2>");
    if (section == page.npos) return "no such section";
    const std::size_t begin = page.find("<p", section);
    return page.substr(begin, page.find("</p>", begin) - begin);
  }
};

TEST_F(SlowRun, APortableKernelIsNamed) {
  EXPECT_PRED2(contains, lost_time({}, {{"HEARTH_PICK", "conv2d:im2col"}, {"HEARTH_THREADS", "1"}}),
               "portable kernel: the portable kernel conv2d:im2col took");
}

TEST_F(SlowRun, TooManyThreadsAreNamed) {
  EXPECT_PRED2(contains, lost_time({}, {{"HEARTH_THREADS", "8"}}), "8 threads compute on");
}

}  // namespace
}  // namespace hearth::train
