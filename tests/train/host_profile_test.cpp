// SPDX-License-Identifier: Apache-2.0
#include "train/profile/host_profile.h"

#include <gtest/gtest.h>

#include <set>

#include "core/io/file.h"
#include "core/profiler.h"
#include "tests/support/error_message.h"
#include "tests/support/named_row.h"
#include "tests/support/temp_dir.h"
#include "train/bench/step_bench.h"

namespace hearth::train::host_profile_test {
namespace {

profiler::Span span(const char* name, const char* op, bool backward, std::int64_t whole, std::int64_t own, double flops,
                    double bytes) {
  return {name, op, nullptr, backward, 0, whole, own, flops, bytes, profiler::this_thread()};
}

TEST(HostProfile, AddsUpOpsImplementationsAndPhases) {
  profiler::Span elsewhere = span("data.next", "data.next", false, 9000, 9000, 0, 0);
  elsewhere.thread += 1;
  const std::vector<profiler::Span> spans = {
      span("linear:fast", "linear", false, 3000, 3000, 4e6, 0), span("linear", "linear", false, 4000, 1000, 0, 500),
      span("linear:fast", "linear", true, 6000, 6000, 8e6, 0),  span("linear", "linear", true, 6000, 0, 0, 0),
      span("relu", "relu", false, 2000, 2000, 0, 4000),         span("optimizer", "optimizer", false, 1000, 1000, 0, 0),
      span("scope", nullptr, false, 5000, 5000, 0, 0),          elsewhere};
  const Json found = host_profile(spans, 0.04, 2, {.copy_gbs = 2, .tflops = 2, .source = "a test"});
  EXPECT_DOUBLE_EQ(found.at("milliseconds").as_number(), 0.020);
  EXPECT_DOUBLE_EQ(found.at("busy_milliseconds").as_number(), 0.0065);
  EXPECT_DOUBLE_EQ(found.at("gap_milliseconds").as_number(), 0.0135);
  const Json &ops = found.at("ops"), &kernels = found.at("kernels"), &phases = found.at("phases");
  EXPECT_DOUBLE_EQ(test::named_row(ops, "linear").at("us").as_number(), 2);
  EXPECT_DOUBLE_EQ(test::named_row(ops, "linear").at("bytes").as_number(), 250);
  // 2e6 operations at 2 TFLOP/s; 2000 bytes at 2 GB/s.
  EXPECT_DOUBLE_EQ(test::named_row(ops, "linear").at("floor_us").as_number(), 1);
  EXPECT_DOUBLE_EQ(test::named_row(ops, "linear").at("percent_of_limit").as_number(), 50);
  EXPECT_DOUBLE_EQ(test::named_row(ops, "relu").at("floor_us").as_number(), 1);
  EXPECT_DOUBLE_EQ(test::named_row(ops, "linear (backward)").at("us").as_number(), 3);
  EXPECT_DOUBLE_EQ(test::named_row(kernels, "linear:fast").at("us").as_number(), 4.5);
  EXPECT_EQ(test::named_row(kernels, "linear:fast").at("count").as_integer(), 1);
  EXPECT_DOUBLE_EQ(test::named_row(kernels, "linear").at("bytes").as_number(), 0) << "its implementation moves them";
  EXPECT_DOUBLE_EQ(test::named_row(kernels, "relu").at("bytes").as_number(), 2000);
  EXPECT_DOUBLE_EQ(test::named_row(phases, "forward").at("us").as_number(), 3);
  EXPECT_DOUBLE_EQ(test::named_row(phases, "backward").at("us").as_number(), 3);
  EXPECT_DOUBLE_EQ(test::named_row(phases, "update").at("us").as_number(), 0.5);
  EXPECT_DOUBLE_EQ(found.at("floor_milliseconds").as_number(), 0.004);
  EXPECT_PRED2(test::contains, profile_tables(found), "a step 0.020 ms: in operations 0.007 ms, in none 0.013 ms");
}

TEST(HostProfile, OfAStepHasAllItsOperations) {
  const char* const text = R"({"seed": 1, "model": {"type": "mlp", "hidden": [32]},
      "data": {"type": "synthetic", "classes": 4, "height": 8, "width": 8, "channels": 1, "train_size": 64,
               "test_size": 1},
      "train": {"batch_size": 16, "steps": 9}, "optimizer": {"type": "adamw", "lr": 0.001}})";
  const test::TempDir folder;
  write_file_synced(folder / "run.json", text);
  StepBench bench(load_config((folder / "run.json").string(), {}));
  (void)bench.step_ms();
  profiler::start();
  const double milliseconds = bench.step_ms();
  profiler::stop();
  const Json found = host_profile(profiler::spans(), milliseconds, 1, {10, 0.1, "a test"});
  std::set<std::string> ops;
  for (const Json& row : found.at("ops").items()) {
    ops.insert(row.at("name").as_string());
    EXPECT_GT(row.at("us").as_number(), 0) << to_text(row);
  }
  for (const char* const op : {"linear", "linear (backward)", "cross_entropy", "cross_entropy (backward)", "optimizer"})
    EXPECT_EQ(ops.count(op), 1u) << op << ": " << to_text(found.at("ops"));
  // f32: values and two moments read and written, gradients read; [64, 32] and [32, 4] with biases, and gaps between.
  const double bytes = test::named_row(found.at("ops"), "optimizer").at("bytes").as_number();
  EXPECT_GE(bytes, 7.0 * 4 * (64 * 32 + 32 + 32 * 4 + 4));
  EXPECT_LT(bytes, 7.0 * 4 * (64 * 32 + 32 + 32 * 4 + 4 + 100));
  // x, w, b and the result of both layers.
  EXPECT_EQ(test::named_row(found.at("ops"), "linear").at("bytes").as_number(),
            4.0 * (16 * 64 + 64 * 32 + 32 + 16 * 32) + 4.0 * (16 * 32 + 32 * 4 + 4 + 16 * 4));
  EXPECT_LE(found.at("busy_milliseconds").as_number(), milliseconds);
  EXPECT_GT(found.at("busy_milliseconds").as_number(), 0);
}

}  // namespace
}  // namespace hearth::train::host_profile_test
