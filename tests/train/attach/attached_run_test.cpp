// SPDX-License-Identifier: Apache-2.0
// `hearth status` and `hearth trace` beside a run of two processes: it ends with the bits of a run left alone.
#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <map>
#include <set>
#include <thread>

#include "core/io/json_text.h"
#include "tests/train/cli_program.h"
#include "train/attach/attach_client.h"

namespace hearth::train {
namespace {

class AttachedRun : public Cli {
 protected:
  AttachedRun() {
    write("run.json", R"({"name": "run", "seed": 3, "device": "cpu",
      "model": {"type": "resnet", "blocks": [1], "stem": "small", "width": 8},
      "data": {"type": "digits", "valid_fraction": 0.1, "workers": 1}, "optimizer": {"type": "adamw", "lr": 0.003},
      "train": {"batch_size": 16, "epochs": 24, "deterministic": true}, "eval": {"every_epochs": 8},
      "log": {"every_steps": 20, "report": false, "tensorboard": false}})");
  }
  ProgramResult launch(const std::string& out) {
    return hearth({"launch", "-n", "2", "--", "train", "run.json", "--out", out});
  }
  std::string state(const std::string& out) {
    const Json info = read_json(path(out) / "run.json");
    EXPECT_EQ(info.at("status").as_string(), "finished");
    return info.at("metrics").at("weights_sha256").as_string() + info.at("metrics").at("state_sha256").as_string();
  }
};

TEST_F(AttachedRun, TracedAHundredTimesEndsWithTheSameBits) {
  ASSERT_EQ(launch("alone").exit_code, 0);
  auto watched = std::async(std::launch::async, [&] { return launch("watched"); });
  const auto is_over = [&] { return watched.wait_for(std::chrono::seconds(0)) == std::future_status::ready; };
  const std::string run = path("watched");
  while (!is_over() && !std::filesystem::exists(run + "/live.sock"))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(hearth({"status", "watched"}).exit_code, 0);
  EXPECT_EQ(hearth({"trace", "watched", "--steps", "2", "--out", "copy.json"}).exit_code, 0);
  int traced = 0;
  std::string why;
  for (; !is_over() && traced < 100; ++traced) {
    EXPECT_EQ(live_status(run, why).at("ranks").size(), 2U);
    try {
      trace_run(run, 1, std::chrono::seconds(60));
    } catch (const Error& error) {
      ADD_FAILURE() << traced << ": " << error.what();
      break;
    }
  }
  const ProgramResult ended = watched.get();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(traced, 100) << "the run was over too soon";
  const Json trace = read_json(path("copy.json"));
  EXPECT_EQ(state("watched"), state("alone"));
  std::map<std::int64_t, std::set<std::string>> names;  // by rank
  for (const Json& event : trace.at("traceEvents").items())
    if (event.at("ph").as_string() == "X") names[event.at("pid").as_integer()].insert(event.at("name").as_string());
  ASSERT_EQ(names.size(), 2U) << "both ranks";
  for (const auto& [rank, seen] : names)
    for (const char* name : {"conv2d of conv1", "conv2d (backward) of layer1.0.conv1", "forward", "backward",
                             "communication", "update", "all_reduce", "optimizer"})
      EXPECT_TRUE(seen.contains(name)) << "rank " << rank << ": " << name;
}

TEST_F(AttachedRun, StatusOfARunThatIsOverComesFromItsFiles) {
  ASSERT_EQ(hearth({"train", "run.json", "--epochs", "1", "--out", "done"}).exit_code, 0);
  const ProgramResult text = hearth({"status", "done"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  for (const char* part : {"finished", "training", "forward", "test", "loss"}) EXPECT_PRED2(contains, text.out, part);
  const Json status = parse_json(hearth({"status", "done", "--json"}).out, "status");
  EXPECT_EQ(status.at("status").as_string(), "finished");
  EXPECT_GT(status.at("training").at("phase_seconds").at("forward").as_number(), 0);
  expect_failure(hearth({"trace", "done"}), 2, "usage", {"no run trains in done", "it is finished"});
  expect_failure(hearth({"status", "nothing"}), 3, "file", {"nothing"});
  expect_failure(hearth({"trace", "done", "--steps", "1001"}), 2, "usage", {"more than 1000"});
}

}  // namespace
}  // namespace hearth::train
