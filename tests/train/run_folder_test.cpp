// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint/run_folder.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"
#include "train/report/metrics_log.h"

namespace hearth::train::run_folder_test {
namespace {

Json record(int step) {
  return Json::object()
      .set("step", step)
      .set("epoch", 0.5)
      .set("split", "train")
      .set("loss", 1.5)
      .set("unit", "images/s");
}

std::vector<std::string> event_files(const RunFolder& folder) {
  std::vector<std::string> result;
  for (const std::string& name : list_directory(folder.path()))
    if (name.starts_with("events.out.tfevents.")) result.push_back(name);
  return result;
}

TEST(RunFolder, holds_config_metrics_and_events) {
  const test::TempDir parent;
  RunFolder folder((parent / "deep/run").string());
  const Json config = Json::object().set("name", "x");
  folder.open(config, 0, true);
  folder.add(record(1));
  EXPECT_EQ(read_json(folder.file("config.json")), config);
  EXPECT_EQ(read_metrics(folder.file("metrics.jsonl")).at(0), record(1));
  EXPECT_EQ(static_cast<std::uint64_t>(folder.metrics_bytes()), size_of_file(folder.file("metrics.jsonl")));
  ASSERT_EQ(event_files(folder).size(), 1u);
  const std::string events = read_text(folder.file(event_files(folder)[0]));
  EXPECT_NE(events.find("train/loss"), std::string::npos);
  for (const char* absent : {"train/step", "train/epoch", "train/split", "train/unit"})
    EXPECT_EQ(events.find(absent), std::string::npos) << absent;
}

TEST(RunFolder, writes_no_events_unless_asked) {
  const test::TempDir parent;
  RunFolder folder((parent / "run").string());
  folder.open(Json::object(), 0, false);
  folder.add(record(1));
  EXPECT_TRUE(event_files(folder).empty());
}

TEST(RunFolder, refuses_records_before_it_is_open) {
  const test::TempDir parent;
  RunFolder folder((parent / "run").string());
  EXPECT_THROW(folder.add(record(1)), UsageError);
  EXPECT_EQ(folder.metrics_bytes(), 0);
}

TEST(RunFolder, clear_deletes_what_a_run_wrote_and_nothing_else) {
  const test::TempDir parent;
  RunFolder folder((parent / "run").string());
  folder.open(Json::object(), 0, true);
  folder.add(record(1));
  std::ofstream(folder.file("run.json")) << R"({"status": "stopped"})";
  std::ofstream(folder.file("report.html")) << "x";
  std::ofstream(folder.file("notes.txt")) << "mine";
  std::filesystem::create_directories(folder.checkpoints() + "/step-00000001/deep");
  std::filesystem::create_directories(folder.checkpoints() + "/.tmp-step-00000002");
  std::filesystem::create_directories(folder.checkpoints() + "/mine");
  std::filesystem::create_symlink("step-00000001", folder.checkpoints() + "/latest");
  folder.clear();
  EXPECT_EQ(list_directory(folder.path()), (std::vector<std::string>{".lock", "checkpoints", "notes.txt"}));
  EXPECT_EQ(list_directory(folder.checkpoints()), std::vector<std::string>{"mine"});
}

TEST(RunFolder, clear_leaves_files_that_are_no_runs) {
  for (const char* name :
       {"config.json", "metrics.jsonl", "report.html", "run.json", "step_trace.json", "events.out.tfevents.1"}) {
    const test::TempDir parent;
    RunFolder folder((parent / "run").string());
    folder.clear();
    std::ofstream(folder.file(name)) << R"({"mine": 1})";
    const std::string message = test::error_message<FileError>([&] { folder.clear(); });
    EXPECT_PRED2(test::contains, message, folder.file(name));
    EXPECT_PRED2(test::contains, message, "--out");
    EXPECT_EQ(read_text(folder.file(name)), R"({"mine": 1})");
    // A checkpoint shows that they are a run's.
    std::filesystem::create_directories(folder.checkpoints() + "/step-00000001");
    std::ofstream(folder.checkpoints() + "/step-00000001/manifest.json") << "{}";
    folder.clear();
    EXPECT_FALSE(file_exists(folder.file(name)));
  }
}

TEST(RunFolder, is_one_process_own) {
  const test::TempDir parent;
  const std::string path = parent / "run";
  {
    const RunFolder folder(path);
    const std::string message = test::error_message<FileError>([&] { RunFolder again(path); });
    EXPECT_PRED2(test::contains, message, path);
    EXPECT_PRED2(test::contains, message, "another process");
    const RunFolder other((parent / "other").string());
  }
  EXPECT_NO_THROW(RunFolder{path});
}

TEST(RunFolder, refuses_an_empty_path) { EXPECT_THROW(RunFolder(""), UsageError); }

TEST(RunFolder, refuses_a_path_that_is_a_file) {
  const test::TempDir parent;
  std::ofstream(parent / "file") << "x";
  EXPECT_THROW(RunFolder((parent / "file").string()), FileError);
}

}  // namespace
}  // namespace hearth::train::run_folder_test
