// SPDX-License-Identifier: Apache-2.0
// A run that can be attached to: who may ask, what is answered, and that nobody keeps it.
#include "train/attach/live_run.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "core/io/file.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"
#include "train/attach/attach_client.h"
#include "train/attach/local_socket.h"

namespace hearth::train::live_run_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::contains;

class Live : public testing::Test {
 protected:
  Live() { std::ofstream(folder_ / "run.json") << R"({"status": "running"})"; }

  /// What the thread that trains does between steps: makes the trace that is asked for.
  void trace_when_asked(LiveRun& run, const std::string& events, const std::string& failure = {}) {
    while (run.trace_asked() == 0) std::this_thread::sleep_for(milliseconds(1));
    run.begin_trace();
    EXPECT_EQ(run.trace_asked(), 0);
    run.finish_trace({events}, failure);
  }
  /// The answer to bytes as they are; "" where the connection is closed without one.
  std::string answer_to(const std::string& bytes) {
    std::string why, answer;
    const int descriptor = connect_to(folder(), socket_file, why);
    EXPECT_GE(descriptor, 0) << why;
    EXPECT_EQ(send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    char buffer[4096];
    for (ssize_t count = 0; (count = recv(descriptor, buffer, sizeof buffer, 0)) > 0;)
      answer.append(buffer, static_cast<std::size_t>(count));
    close(descriptor);
    return answer;
  }
  std::string folder() const { return folder_.path(); }
  bool has(const char* name) const { return std::filesystem::exists(std::filesystem::symlink_status(folder_ / name)); }

  test::TempDir folder_;
};

TEST_F(Live, AnswersWithTheLastStepAndLines) {
  LiveRun run(folder(), {.name = "digits", .device = "cpu", .unit = "images/s", .ranks = 2, .total_steps = 50});
  std::string why;
  EXPECT_EQ(live_status(folder(), why).find("seconds_since_step"), nullptr) << "no step yet";
  const std::vector<StepTimes> ranks{{0.25, 0.125}, {0.25, 0.2}};
  run.publish({.step = 7, .epoch = 0.5, .steps = 2, .seconds = 0.5, .samples = 64, .ranks = ranks});
  run.publish(Json::object().set("split", "train").set("loss", 2.5));
  run.publish(Json::object().set("split", "valid").set("loss", 3.5));
  const LiveRun::Doing evaluating(&run, "evaluation");
  const Json status = live_status(folder(), why);
  EXPECT_EQ(status.at("name").as_string(), "digits");
  EXPECT_EQ(status.at("pid").as_integer(), getpid());
  EXPECT_EQ(status.at("step").as_integer(), 7);
  EXPECT_EQ(status.at("total_steps").as_integer(), 50);
  EXPECT_EQ(status.at("doing").as_string(), "evaluation");
  EXPECT_EQ(status.at("throughput").as_number(), 128);
  EXPECT_EQ(status.at("unit").as_string(), "images/s");
  EXPECT_EQ(status.at("step_seconds").as_number(), 0.25);
  EXPECT_GE(status.at("seconds_since_step").as_number(), 0);
  EXPECT_EQ(status.at("ranks").at(1).at("busy_seconds").as_number(), 0.2);
  EXPECT_EQ(status.at("training").at("loss").as_number(), 2.5);
  EXPECT_EQ(status.at("evaluation").at("loss").as_number(), 3.5);
}

TEST_F(Live, TheSocketIsTheUsersAloneAndGoesWithTheRun) {
  {
    LiveRun run(folder(), {});
    struct stat file {};
    ASSERT_EQ(lstat((folder_ / socket_file).c_str(), &file), 0);
    EXPECT_TRUE(S_ISSOCK(file.st_mode));
    EXPECT_EQ(file.st_mode & 0777, 0600U);
  }
  EXPECT_FALSE(has(socket_file));
  std::string why;
  EXPECT_TRUE(live_status(folder(), why).is_null());
  EXPECT_NE(why, "");
}

TEST_F(Live, ASocketThatWasLeftBehindIsReplacedAndAFileIsNot) {
  std::string why;
  const int left = listen_at(folder(), socket_file, why);
  ASSERT_GE(left, 0) << why;
  close(left);
  EXPECT_TRUE(live_status(folder(), why).is_null());
  {
    LiveRun run(folder(), {.name = "next"});
    EXPECT_EQ(live_status(folder(), why).at("name").as_string(), "next");
  }
  std::ofstream(folder_ / socket_file) << "a user's file";
  LiveRun run(folder(), {});
  EXPECT_NE(run.why_no_socket(), "");
  EXPECT_EQ(read_text(folder_ / socket_file), "a user's file");
}

TEST_F(Live, AFolderWithALongPathHasASocketToo) {
  const std::filesystem::path deep = folder_ / std::string(120, 'x') / "run";
  std::filesystem::create_directories(deep);
  LiveRun run(deep, {.name = "deep"});
  EXPECT_EQ(run.why_no_socket(), "");
  std::string why;
  EXPECT_EQ(live_status(deep, why).at("name").as_string(), "deep") << why;
}

TEST_F(Live, WritesATraceForAllWhoWait) {
  LiveRun run(folder(), {.name = "digits", .ranks = 1});
  const auto ask = [&] { return trace_run(folder(), 3, seconds(60)); };
  auto first = std::async(std::launch::async, ask);
  trace_when_asked(run, R"({"name": "a"})");
  EXPECT_EQ(first.get(), folder() + "/trace.json");
  const Json trace = read_json(folder() + "/trace.json");
  EXPECT_EQ(trace.at("otherData").at("world_size").as_integer(), 1);
  EXPECT_EQ(trace.at("traceEvents").at(0).at("name").as_string(), "a");
  auto failing = std::async(std::launch::async, [&] { return test::error_message<DataError>(ask); });
  trace_when_asked(run, "", "no memory was left");
  EXPECT_PRED2(contains, failing.get(), "no memory was left");
}

TEST_F(Live, ARunThatEndsTellsWhoWaits) {
  auto run = std::make_unique<LiveRun>(folder(), LiveFacts{});
  auto asked = std::async(std::launch::async,
                          [&] { return test::error_message<DataError>([&] { trace_run(folder(), 3, seconds(60)); }); });
  while (run->trace_asked() == 0) std::this_thread::sleep_for(milliseconds(1));
  run.reset();
  EXPECT_PRED2(contains, asked.get(), "the run has ended");
}

// As on a file system that has no sockets, or from another machine.
TEST_F(Live, TracesAreAskedForByFileWhereTheSocketDoesNotLead) {
  LiveRun run(folder(), {});
  std::filesystem::remove(folder_ / socket_file);
  auto asked = std::async(std::launch::async, [&] { return trace_run(folder(), 2, seconds(60)); });
  trace_when_asked(run, R"({"name": "by file"})");
  EXPECT_EQ(asked.get(), folder() + "/trace.json");
  EXPECT_FALSE(has(request_file));
  std::ofstream(folder_ / request_file) << "trace many x\n";
  while (!contains(read_text(folder_ / answer_file), "number of steps")) std::this_thread::sleep_for(milliseconds(10));
  // Neither a link nor a pipe is a request.
  std::ofstream(folder_ / "elsewhere") << "trace 5 a\n";
  std::filesystem::create_symlink("elsewhere", folder_ / request_file);
  std::this_thread::sleep_for(milliseconds(1200));
  EXPECT_EQ(run.trace_asked(), 0);
  EXPECT_TRUE(has(request_file));
}

TEST_F(Live, RubbishIsRefusedAndTheRunGoesOnAnswering) {
  LiveRun run(folder(), {.name = "digits"});
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\n"), std::string(1 << 16, 'x'), std::string("\n"),
                                   std::string("trace 0 a\n"), std::string(3, '\0') + "\n"})
    EXPECT_PRED2(contains, answer_to(bytes), "error");
  std::string why;
  // Clients that connect and say nothing, more of them than are served, do not keep others out for long.
  std::vector<int> silent;
  for (int i = 0; i < 24; ++i) silent.push_back(connect_to(folder(), socket_file, why));
  Json status;
  for (int i = 0; i < 20 && status.is_null(); ++i) status = live_status(folder(), why);
  EXPECT_EQ(status.at("name").as_string(), "digits");
  for (const int descriptor : silent) close(descriptor);
}

TEST_F(Live, AFolderWhereNothingTrainsIsNamed) {
  EXPECT_PRED2(contains, test::error_message<UsageError>([&] { trace_run(folder() + "/none", 1, seconds(1)); }),
               "has no run.json");
  std::ofstream(folder_ / "run.json") << R"({"status": "finished"})";
  EXPECT_PRED2(contains, test::error_message<UsageError>([&] { trace_run(folder(), 1, seconds(1)); }), "is finished");
  // The process was killed: its file still says that it runs.
  std::ofstream(folder_ / "run.json") << R"({"status": "running"})";
  EXPECT_PRED2(contains, test::error_message<UsageError>([&] { trace_run(folder(), 1, seconds(1)); }),
               "has not traced 1 steps within 1 s");
  EXPECT_FALSE(has(request_file));
}

}  // namespace
}  // namespace hearth::train::live_run_test
