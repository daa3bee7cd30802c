// SPDX-License-Identifier: Apache-2.0
#include "train/report/metrics_log.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::train::metrics_log_test {
namespace {

Json record(int step) { return Json::object().set("step", step).set("loss", 1.0 / step); }

TEST(MetricsLog, every_line_is_there_at_once) {
  const test::TempDir folder;
  const std::string path = folder / "metrics.jsonl";
  MetricsLog log(path, 0);
  for (int step = 1; step <= 3; ++step) {
    log.add(record(step));
    EXPECT_EQ(read_metrics(path).size(), static_cast<std::size_t>(step));
    EXPECT_EQ(static_cast<std::uint64_t>(log.bytes()), size_of_file(path));
  }
  EXPECT_EQ(read_metrics(path)[2], record(3));
  EXPECT_EQ(read_text(path).find("{\"step\":1,\"loss\":1"), 0u);
}

TEST(MetricsLog, a_resumed_run_rewrites_what_came_after_its_checkpoint) {
  const test::TempDir folder;
  const std::string path = folder / "metrics.jsonl";
  std::int64_t kept = 0;
  {
    MetricsLog log(path, 0);
    log.add(record(1));
    kept = log.bytes();
    log.add(record(2));
  }
  MetricsLog log(path, kept);
  EXPECT_EQ(log.bytes(), kept);
  log.add(record(7));
  const auto records = read_metrics(path);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0], record(1));
  EXPECT_EQ(records[1], record(7));
}

TEST(MetricsLog, a_fresh_run_empties_the_file) {
  const test::TempDir folder;
  const std::string path = folder / "metrics.jsonl";
  MetricsLog(path, 0).add(record(1));
  MetricsLog log(path, 0);
  EXPECT_EQ(size_of_file(path), 0u);
}

TEST(MetricsLog, keeps_the_whole_lines_of_a_file_that_lost_some) {
  const test::TempDir folder;
  const std::string path = folder / "metrics.jsonl";
  EXPECT_EQ(MetricsLog(path, 10).bytes(), 0) << "it was removed";
  write_file_synced(path, "{\"step\":1}\n{\"step\":2}\n{\"st");
  MetricsLog log(path, 1000);
  log.add(record(3));
  const auto records = read_metrics(path);
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[1].at("step").as_integer(), 2);
  EXPECT_EQ(records[2], record(3));
}

TEST(MetricsLog, is_cut_before_a_damaged_line) {
  const test::TempDir folder;
  const std::string path = folder / "metrics.jsonl";
  const std::string whole = "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n";
  for (const char* damaged : {"{\"step\"\x01 2}\n", "{\"step\":2} ", "12345678901\n", "{\"step\":2}\xff"}) {
    std::string text = whole;
    write_file_synced(path, text.replace(11, std::string(damaged).size(), damaged));
    MetricsLog log(path, static_cast<std::int64_t>(whole.size()));
    EXPECT_PRED2(test::contains, log.lost(), "metrics.jsonl lost 22 bytes");
    EXPECT_PRED2(test::contains, log.lost(), "line 2 is no");
    log.add(record(9));
    EXPECT_EQ(read_metrics(path).size(), 2u);
  }
  write_file_synced(path, whole + "{\"st");
  EXPECT_EQ(MetricsLog(path, static_cast<std::int64_t>(whole.size())).lost(), "") << "what came after the checkpoint";
}

TEST(MetricsLog, long_files_are_thinned_as_they_are_read) {
  const test::TempDir folder;
  const std::string path = folder / "metrics.jsonl";
  const auto of = [](const char* split, int step) {
    return Json::object().set("step", step).set("split", split).set("loss", 1.5);
  };
  const auto write = [&](int steps) {
    std::string text;
    for (int step = 1; step <= steps; ++step) {
      text += to_text(of("train", step)) + "\n";
      if (step % 10 == 0) text += to_text(of("valid", step)) + "\n";
    }
    write_file_synced(path, text);
  };
  write(1500);
  EXPECT_EQ(read_metrics(path).size(), 1650U);
  // As many steps again cost no more memory.
  for (const int steps : {100'000, 200'000}) {
    write(steps);
    const std::vector<Json> records = read_metrics(path, 50'010);
    EXPECT_GE(records.size(), 1500U);
    EXPECT_LE(records.size(), 3010U);
    EXPECT_EQ(records.front(), of("train", 1));
    EXPECT_EQ(records.back(), of("valid", steps));
    EXPECT_EQ(records[records.size() - 2], of("train", steps));
    EXPECT_EQ(std::count(records.begin(), records.end(), of("valid", 50'010)), 1);
    EXPECT_TRUE(std::ranges::is_sorted(records, {}, [](const Json& each) { return each.at("step").as_integer(); }));
  }
}

TEST(MetricsLog, a_last_line_that_a_crash_cut_is_left_out) {
  const test::TempDir folder;
  const std::string path = folder / "metrics.jsonl";
  write_file_synced(path, "{\"step\":1}\n{\"step\":2}\n{\"st");
  EXPECT_EQ(read_metrics(path).size(), 2u);
}

TEST(MetricsLog, any_other_bad_line_is_named) {
  const test::TempDir folder;
  const std::string path = folder / "metrics.jsonl";
  write_file_synced(path, "{\"step\":1}\n{\"st\n{\"step\":3}\n");
  const std::string message = test::error_message<DataError>([&] { read_metrics(path); });
  EXPECT_PRED2(test::contains, message, "line 2");
}

}  // namespace
}  // namespace hearth::train::metrics_log_test
