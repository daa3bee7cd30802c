// SPDX-License-Identifier: Apache-2.0
// `hearth report`, and the report that a training leaves.
#include <gtest/gtest.h>

#include "core/io/file.h"
#include "core/io/json_text.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/run_program.h"

namespace hearth::train::report_command_test {
namespace {

using test::contains;
using test::ProgramResult;

class ReportCommand : public testing::Test {
 protected:
  static ProgramResult hearth(std::vector<std::string> words) {
    words.insert(words.begin(), test::hearth_program());
    return test::run_program(std::move(words), folder().path());
  }
  static test::TempDir& folder() {
    static test::TempDir one;
    return one;
  }
  static std::string text(const std::string& name) { return read_text(folder() / name); }

  static void SetUpTestSuite() {
    std::string letters;
    for (int i = 0; i < 400; ++i) letters += "ab<c>";
    write_file_synced(folder() / "a.txt", letters);
    write_file_synced(
        folder() / "gpt.json",
        R"({"name": "gpt", "device": "cpu", "model": {"type": "gpt", "layers": 1, "heads": 2, "width": 16},
      "data": {"type": "text", "train": ["a.txt"], "length": 16, "valid_fraction": 0.1},
      "optimizer": {"type": "adamw", "lr": 0.02}, "train": {"batch_size": 8, "epochs": 3, "ema": 0.9}})");
    write_file_synced(folder() / "digits.json",
                      R"({"name": "digits", "device": "cpu", "model": {"type": "mlp", "hidden": [16]},
      "data": {"type": "digits", "workers": 1}, "optimizer": {"type": "sgd", "lr": 0.1},
      "train": {"batch_size": 64, "epochs": 1}})");
    for (const char* config : {"gpt.json", "digits.json"}) {
      const ProgramResult trained = hearth({"train", config});
      ASSERT_EQ(trained.exit_code, 0) << trained.err;
    }
  }
  static void expect_failure(const std::vector<std::string>& words, int exit_code, const std::string& part) {
    const ProgramResult result = hearth(words);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_PRED2(contains, result.last_error_line(), part);
  }
};

TEST_F(ReportCommand, ATrainingLeavesWhatTheModelPredicts) {
  const std::string page = text("runs/digits/report.html");
  for (const char* part :
       {"<h2>Confusion matrix</h2>", "<h2>Calibration</h2>", "expected calibration error", "<h2>Worst mistakes</h2>",
        "<h2>What the model is shown</h2>", "<h2>Classes of the training split</h2>", "data:image/png;base64,",
        "<h2>Layers</h2>", "<h2>Time</h2>", "<h2>Memory</h2>", "<td>forward</td>", "<td>linear</td>",
        "samples of the test split"})
    EXPECT_PRED2(contains, page, part);
  for (const char* part : {"<script", "http:", "https:", "@import", "url("})
    EXPECT_EQ(page.find(part), std::string::npos) << part;
  const std::string metrics = text("runs/digits/metrics.jsonl");
  std::size_t lines = 0;
  for (std::size_t at = 0; (at = metrics.find("\"split\":\"train\"", at)) != std::string::npos; ++at) ++lines;
  EXPECT_GE(lines, 20U) << "a short run has curves";
  EXPECT_LT(page.size(), 200'000U);
  const Json info = parse_json(text("runs/digits/run.json"), "run.json");
  EXPECT_GT(info.at("profile").at("seconds").at("forward").as_number(), 0);
  EXPECT_GT(info.at("profile").at("bytes").at("peak in use").as_number(),
            info.at("profile").at("bytes").at("parameters").as_number());
}

TEST_F(ReportCommand, ALanguageModelLeavesSamplesOfEachEvaluation) {
  const std::string page = text("runs/gpt/report.html"), metrics = text("runs/gpt/metrics.jsonl");
  std::size_t evaluations = 0;
  for (std::size_t at = 0; (at = metrics.find("\"figures\"", at)) != std::string::npos; ++at) ++evaluations;
  EXPECT_EQ(evaluations, 3U);
  EXPECT_PRED2(contains, page, "<h2>Samples over time</h2>");
  EXPECT_PRED2(contains, page, "after the prompt &quot;");
  ASSERT_EQ(hearth({"train", "gpt.json", "--set", "log.report=false", "--out", "runs/silent"}).exit_code, 0);
  EXPECT_EQ(text("runs/silent/metrics.jsonl").find("figures"), std::string::npos);
  EXPECT_EQ(text("runs/silent/checkpoints/latest/model.safetensors"),
            text("runs/gpt/checkpoints/latest/model.safetensors"))
      << "samples change no weight";
  const ProgramResult made = hearth({"report", "runs/silent"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_PRED2(contains, text("runs/silent/report.html"), "<h2>Samples</h2>");
}

TEST_F(ReportCommand, WritesThePageOfTheBestCheckpoint) {
  const ProgramResult made =
      hearth({"report", "runs/digits", "--out", "page.html", "--split", "train", "--samples", "50"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(made.out, "");
  EXPECT_PRED2(contains, made.err, "page.html");
  EXPECT_PRED2(contains, text("page.html"), "on the first 50 of ");
}

TEST_F(ReportCommand, ComparesRunsOfAnyTask) {
  const ProgramResult made = hearth({"report", "runs/digits", "runs/gpt"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const std::string page = text("report.html");
  for (const char* part : {"<title>2 runs</title>", "losses do not compare", "<td>model.type</td><td>mlp</td>",
                           ">perplexity, evaluations</text>"})
    EXPECT_PRED2(contains, page, part);
}

TEST_F(ReportCommand, HasTheRestWhereTheDataIsGone) {
  std::filesystem::copy(folder() / "runs/gpt", folder() / "runs/moved", std::filesystem::copy_options::recursive);
  std::filesystem::rename(folder() / "a.txt", folder() / "b.txt");
  const ProgramResult made = hearth({"report", "runs/moved"});
  std::filesystem::rename(folder() / "b.txt", folder() / "a.txt");
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_PRED2(contains, made.err, "warning: ");
  EXPECT_PRED2(contains, made.err, "the report does not show the model");
  EXPECT_PRED2(contains, text("runs/moved/report.html"), "<h2>Samples over time</h2>");
}

TEST_F(ReportCommand, RefusesWhatIsNoRun) {
  make_directories(folder() / "empty");
  expect_failure({"report"}, 2, "report");
  expect_failure({"report", "empty"}, 3, "holds no run");
  expect_failure({"report", "absent"}, 3, "holds no run");
  expect_failure({"report", "runs/digits", "empty"}, 3, "empty: holds no run");
  expect_failure({"report", "runs/digits", "runs/gpt", "--split", "test"}, 2, "--split");
  expect_failure({"report", "runs/digits", "--split", "valid"}, 3, "no valid split");
  expect_failure({"report", "runs/digits", "--split", "other"}, 2, "other");
  expect_failure({"report", "runs/digits", "--samples", "0"}, 2, "--samples");
  expect_failure({"report", "runs/digits", "--out", ""}, 2, "--out");
  expect_failure({"report", "runs/digits", "--data", "absent"}, 3, "absent");
}

}  // namespace
}  // namespace hearth::train::report_command_test
