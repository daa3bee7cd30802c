// SPDX-License-Identifier: Apache-2.0
#include "train/plan/step_ops.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temp_dir.h"

namespace hearth::train::step_ops_test {
namespace {

profiler::Span span(const char* name, const char* op, std::int64_t begin, std::int64_t end, std::int64_t own,
                    double flops, double bytes, const char* layer = "fc") {
  return {name, op, layer, false, begin, end, own, flops, bytes, profiler::this_thread()};
}

TEST(StepOps, GivesAnOpWhatItsImplementationsDid) {
  profiler::Span elsewhere = span("relu", "relu", 0, 9, 9, 0, 100);
  elsewhere.thread += 1;
  std::vector<profiler::Span> spans = {span("matmul:onednn", "conv2d", 1000, 3000, 2000, 5e6, 0),
                                       span("conv2d:matmul", "conv2d", 500, 3500, 1000, 0, 0),
                                       span("matmul:onednn", "conv2d", 4000, 5000, 1000, 2e6, 0),
                                       span("conv2d", "conv2d", 0, 6000, 2000, 0, 800),
                                       span("relu", "relu", 7000, 8000, 1000, 0, 400, nullptr),
                                       span("scope", nullptr, 0, 9000, 1000, 0, 0),
                                       span("inner", "inner", 10100, 10200, 100, 1e3, 7),
                                       span("outer", "outer", 10000, 11000, 900, 3e3, 9),
                                       elsewhere};
  spans[4].backward = true;
  const std::vector<StepOp> ops = ops_of_spans(spans);
  ASSERT_EQ(ops.size(), 4U);
  EXPECT_EQ(ops[0].name(), "conv2d");
  EXPECT_EQ(ops[0].layer, "fc");
  EXPECT_DOUBLE_EQ(ops[0].us, 6);
  EXPECT_DOUBLE_EQ(ops[0].bytes, 800);
  ASSERT_EQ(ops[0].parts.size(), 1U);
  EXPECT_EQ(ops[0].parts[0].implementation, "matmul:onednn");
  EXPECT_DOUBLE_EQ(ops[0].flops(), 7e6);
  EXPECT_EQ(ops[1].name(), "relu (backward)");
  EXPECT_EQ(ops[1].layer, "");
  // An op within another counts for itself.
  EXPECT_EQ(ops[2].op, "inner");
  EXPECT_DOUBLE_EQ(ops[3].us, 0.9);
  EXPECT_DOUBLE_EQ(ops[3].flops(), 3e3);
}

StepOps step(std::int64_t rows, double us, double bytes, double flops) {
  return {.rows = rows,
          .ops = {{.op = "linear",
                   .layer = "fc",
                   .bytes = bytes,
                   .us = us,
                   .parts = {{"a", flops / 4}, {"b", 3 * flops / 4}}}},
          .us = us + 1,
          .input_bytes = static_cast<double>(10 * rows),
          .launches = 3};
}

TEST(StepOps, ExtendsAnOffsetAndAPartInProportion) {
  const StepOps at = step_at(step(2, 5, 120, 8), step(4, 7, 140, 16), 10);
  EXPECT_EQ(at.rows, 10);
  EXPECT_DOUBLE_EQ(at.ops[0].us, 13);
  EXPECT_DOUBLE_EQ(at.ops[0].bytes, 200);
  EXPECT_DOUBLE_EQ(at.ops[0].parts[0].flops, 10);
  EXPECT_DOUBLE_EQ(at.ops[0].parts[1].flops, 30);
  EXPECT_DOUBLE_EQ(at.us, 14);
  EXPECT_DOUBLE_EQ(at.input_bytes, 100);
  EXPECT_DOUBLE_EQ(step_at(step(2, 5, 120, 8), step(4, 7, 140, 16), 1).ops[0].bytes, 110);
  EXPECT_DOUBLE_EQ(step_at(step(2, 9, 120, 8), step(4, 7, 140, 16), 10).ops[0].us, 7) << "never less with more rows";
}

TEST(StepOps, TakesOtherOpsInProportion) {
  StepOps small = step(2, 5, 120, 8);
  small.ops[0].op = "matmul";
  const StepOps at = step_at(small, step(4, 7, 140, 16), 10);
  EXPECT_DOUBLE_EQ(at.ops[0].us, 17.5);
  EXPECT_DOUBLE_EQ(at.ops[0].bytes, 350);
  EXPECT_DOUBLE_EQ(at.ops[0].flops(), 40);
  EXPECT_THROW((void)step_at(step(4, 7, 140, 16), step(4, 7, 140, 16), 10), UsageError);
}

/// A layer of 64 to 16 and one of 16 to 10.
std::unique_ptr<Session> small_session(const test::TempDir& folder) {
  std::ofstream(folder / "run.json") << R"({"device": "cpu", "model": {"type": "mlp", "hidden": [16]},
    "data": {"type": "digits"}, "optimizer": {"type": "sgd", "lr": 0.1}, "train": {"batch_size": 32, "steps": 3}})";
  return std::make_unique<Session>(load_config((folder / "run.json").string(), {}));
}

TEST(StepOps, RecordsAStepWhoseSizesAreThoseOfAnyBatch) {
  const test::TempDir folder;
  const auto session = small_session(folder);
  const StepOps small = record_step(*session, 4, DeviceType::cpu, 2),
                large = record_step(*session, 8, DeviceType::cpu, 2);
  // Forward, both gradients of the second layer and those of the first one's weights.
  const auto flops = [](double rows) { return 2 * rows * (64 * 16 + 16 * 10 + 2 * 16 * 10 + 64 * 16); };
  EXPECT_DOUBLE_EQ(small.flops(), flops(4));
  EXPECT_DOUBLE_EQ(large.flops(), flops(8));
  const StepOps predicted = step_at(small, large, 32), recorded = record_step(*session, 32, DeviceType::cpu, 1);
  EXPECT_DOUBLE_EQ(predicted.flops(), recorded.flops());
  EXPECT_DOUBLE_EQ(predicted.bytes(), recorded.bytes());
  ASSERT_EQ(predicted.ops.size(), recorded.ops.size());
  for (std::size_t i = 0; i < predicted.ops.size(); ++i) {
    EXPECT_EQ(predicted.ops[i].name(), recorded.ops[i].name());
    EXPECT_EQ(predicted.ops[i].layer, recorded.ops[i].layer);
    EXPECT_DOUBLE_EQ(predicted.ops[i].bytes, recorded.ops[i].bytes) << predicted.ops[i].name();
  }
  EXPECT_EQ(recorded.ops.back().op, "optimizer");
  EXPECT_EQ(recorded.launches, 0);
}

}  // namespace
}  // namespace hearth::train::step_ops_test
