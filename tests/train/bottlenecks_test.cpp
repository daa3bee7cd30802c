// SPDX-License-Identifier: Apache-2.0
// What records of slow runs name first, and the remedy; planted_losses_test.cpp has runs.
#include "train/report/bottlenecks.h"

#include <gtest/gtest.h>

#include "core/io/json_text.h"
#include "tests/support/error_message.h"

namespace hearth::train {
namespace {

using test::contains;

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

}  // namespace
}  // namespace hearth::train
