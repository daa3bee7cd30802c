// SPDX-License-Identifier: Apache-2.0
// Which types the ops of a run compute in, as they are told, for images and sequences, on the CPU and on a CUDA device,
// real or emulated.
#include "train/report/precision_report.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/run_program.h"
#include "tests/train/precision_session.h"

namespace hearth::train::precision_report_test {
namespace {

using test::PrecisionRun;

/// What a row says, in a line.
std::vector<std::string> lines_of(const std::vector<OpPrecision>& rows) {
  std::vector<std::string> lines;
  for (const OpPrecision& row : rows) {
    std::string line = row.op + " " + row.policy + " in " + row.runs_in + " gives " + row.gives + " of";
    for (const std::string& type : row.reads) line += " " + (type.empty() ? "-" : type);
    lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> lines_of_run(const PrecisionRun& run, const std::vector<std::string>& overrides = {}) {
  const test::TempDir folder;
  const auto session = run.session(folder, overrides);
  return lines_of(precision_of_ops(*session));
}

std::int64_t count(const std::vector<std::string>& lines, const std::string& line) {
  return std::count(lines.begin(), lines.end(), line);
}

std::int64_t count_of_op(const std::vector<std::string>& lines, const std::string& op) {
  return std::count_if(lines.begin(), lines.end(), [&](const std::string& line) { return line.starts_with(op + " "); });
}

TEST(PrecisionReport, O1NarrowsProductsAndLeavesTheRestAsItComes) {
  const auto lines = lines_of_run({.level = "O1", .dtype = "bf16"});
  // The weights are read as their low-precision copies.
  EXPECT_EQ(count(lines, "conv2d low_precision in bf16 gives bf16 of bf16 bf16 -"), 6);
  EXPECT_EQ(count_of_op(lines, "conv2d"), 6);
  EXPECT_EQ(count(lines, "batch_norm as_is in f32 gives bf16 of bf16 f32 f32 -"), 4);
  EXPECT_EQ(count(lines, "cross_entropy as_is in f32 gives f32 of bf16 i64"), 1);
  EXPECT_EQ(count(lines, "cast as_is in f32 gives bf16 of f32"), 1) << "the images, which a CPU's loader gives as f32";
}

/// A GPT on letters.
std::vector<std::string> lines_of_a_text(const std::vector<std::string>& overrides = {}) {
  const test::TempDir folder;
  const std::string text = folder / "text.txt";
  std::ofstream file(text);
  for (int i = 0; i < 40; ++i) file << "the hen of house " << i * i << " lays eggs.\n";
  file.close();
  return lines_of_run(
      {.level = "O2",
       .dtype = "bf16",
       .model = R"({"type": "gpt", "layers": 2, "heads": 2, "width": 16, "dropout": 0.1})",
       .data = R"({"type": "text", "train": [")" + text + R"("], "length": 6, "tokenizer": {"type": "characters"}})"},
      overrides);
}

TEST(PrecisionReport, OfATextKnowsItsOps) {
  const auto lines = lines_of_a_text();
  EXPECT_EQ(count(lines, "embedding follow in bf16 gives bf16 of bf16 i32"), 1);
  EXPECT_EQ(count_of_op(lines, "linear"), 9) << "four a block, and the head";
  for (const std::string& line : lines)
    if (line.starts_with("linear ")) {
      EXPECT_PRED2(test::contains, line, "low_precision in bf16 gives bf16 of bf16 bf16");
    }
  EXPECT_EQ(count(lines, "cross_entropy as_is in f32 gives f32 of bf16 i64"), 1);
}

TEST(PrecisionReport, BlocksThatAreComputedAgainHaveTheRowsOfTheirOps) {
  EXPECT_EQ(lines_of_a_text({"model.recompute=true"}), lines_of_a_text());
}

class PrecisionReportOnADevice : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  }
};

TEST_F(PrecisionReportOnADevice, ImagesComeAsPixels) {
  const auto lines = lines_of_run({.device = "cuda", .model = test::tiny_resnet});
  EXPECT_EQ(count(lines, "normalize_images as_is in f32 gives f16 of u8 f32"), 1);
  EXPECT_EQ(count_of_op(lines, "cast"), 0);
}

TEST_F(PrecisionReportOnADevice, ProductsMayBeOfTf32There) {
  PrecisionRun run{.level = "O1", .dtype = "tf32", .device = "cuda", .model = test::tiny_resnet};
  const auto lines = lines_of_run(run);
  EXPECT_EQ(count(lines, "conv2d low_precision in tf32 gives f32 of f32 f32 -"), 3);
  EXPECT_EQ(count(lines, "batch_norm as_is in f32 gives f32 of f32 f32 f32 -"), 2);
  run.device = "cpu";
  EXPECT_EQ(count(lines_of_run(run), "conv2d low_precision in f32 gives f32 of f32 f32 -"), 3);
  // By operation.
  run = {.level = "O0", .dtype = "f32", .device = "cuda", .model = test::tiny_resnet};
  run.precision = R"(, "tf32": {"conv": "on"})";
  const auto by_conv = lines_of_run(run);
  EXPECT_EQ(count(by_conv, "conv2d low_precision in tf32 gives f32 of f32 f32 -"), 3);
  EXPECT_EQ(count(by_conv, "linear low_precision in f32 gives f32 of f32 f32 f32"), 1);
  run.precision = R"(, "tf32": {"matmul": "on"})";
  const auto by_matmul = lines_of_run(run);
  EXPECT_EQ(count(by_matmul, "conv2d low_precision in f32 gives f32 of f32 f32 -"), 3);
  EXPECT_EQ(count(by_matmul, "linear low_precision in tf32 gives f32 of f32 f32 f32"), 1);
  run.precision = "";
  run.device = "cpu";
  // A switch of the process.
  run.level = "O0";
  run.dtype = "f32";
  EXPECT_EQ(count(lines_of_run(run), "conv2d low_precision in f32 gives f32 of f32 f32 -"), 3);
}

TEST(PrecisionReport, SaysWhereTheConfigsDeviceIsNot) {
  const test::TempDir folder;
  std::ofstream(folder / "run.json") << R"({"device": "cuda", "model": {"type": "mlp", "hidden": [8]},
    "data": {"type": "digits"}, "optimizer": {"type": "sgd", "lr": 0.1}, "train": {"steps": 1}})";
  const auto summary = [&](std::vector<std::string> more) {
    // An emulated device needs a driver that is new enough, a real one has to be visible.
    std::vector<std::string> words{
        "/usr/bin/env", "HEARTH_EMULATE_DRIVER=1", "CUDA_VISIBLE_DEVICES=", test::hearth_program(), "plan", "run.json",
        "--precision"};
    words.insert(words.end(), more.begin(), more.end());
    const test::ProgramResult result = test::run_program(words, folder.path());
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  const Json told = parse_json(summary({"--json"}), "stdout");
  EXPECT_EQ(told.at("device").as_string(), "cpu");
  EXPECT_EQ(told.at("wanted_device").as_string(), "cuda:0");
  EXPECT_PRED2(test::contains, summary({}), "cuda:0 is not here; these are the ops and types of cpu");
  EXPECT_FALSE(test::contains(summary({"--set", "device=\"cpu\""}), "not here"));
}

}  // namespace
}  // namespace hearth::train::precision_report_test
