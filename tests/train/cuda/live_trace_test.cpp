// SPDX-License-Identifier: Apache-2.0
// `hearth trace` of a training on an emulated GPU: its kernels are on the clock of the steps, by op and layer, in
// replays too, and it ends with the bits of one left alone. Compiled into the tests with the reference CUPTI as well;
// elsewhere the trace says why there are no kernels.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <set>
#include <sstream>
#include <thread>

#include "core/io/file.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"
#include "tests/support/variable_scope.h"
#include "train/attach/attach_client.h"
#include "train/attach/live_trace.h"
#include "train/hook.h"
#include "train/profile/trace/device_trace.h"
#include "train/trainer.h"

namespace hearth::train::live_trace_test {
namespace {

using std::chrono::milliseconds;
using test::contains;

/// Asks for a trace while the run goes on, and slows it until that is there.
class Asks final : public Hook {
 public:
  explicit Asks(std::string folder) : folder_(std::move(folder)) {}
  bool allows_replay() const override { return true; }
  void before_step(Session& session, std::span<const data::Batch>) override {
    if (session.position.step == 10) {
      path_ = std::async(std::launch::async, [this] { return trace_run(folder_, 8, std::chrono::seconds(60)); });
      std::this_thread::sleep_for(milliseconds(200));
    }
    if (path_.valid()) (void)path_.wait_for(milliseconds(10));
  }
  std::string path() { return path_.get(); }

 private:
  std::string folder_;
  std::future<std::string> path_;
};

class CudaLiveTrace : public testing::Test {
 protected:
  struct Result {
    std::string state, log;
    Json events;
  };
  Result train(const std::string& name, const std::vector<std::string>& settings, bool traced) {
    // The last batch of an epoch is smaller, and an evaluation lies between the epochs.
    write_file_synced(folder_ / "run.json", R"({"seed": 1, "device": "cuda", "model": {"type": "mlp", "hidden": [16]},
      "data": {"type": "digits", "workers": 0}, "optimizer": {"type": "adamw", "lr": 0.01},
      "train": {"batch_size": 100, "epochs": 4}})");
    Session session(load_config((folder_ / "run.json").string(), settings));
    auto asks = std::make_unique<Asks>(folder_ / name);
    Asks* const asking = asks.get();
    if (traced) session.add_hook("asks", std::move(asks));
    RunFolder into(folder_ / name);
    std::ostringstream log;
    Progress progress(log, false);
    (void)Trainer(session, into, progress).run("test");
    Result result{session.model_state.hash(), log.str(), {}};
    if (traced) result.events = read_json(asking->path()).at("traceEvents");
    return result;
  }
  static std::string text_of(const Json& event, const char* key) {
    const Json* const args = event.find("args");
    const Json* const value = args != nullptr ? args->find(key) : nullptr;
    return value != nullptr ? value->as_string() : "";
  }
  /// The label of the process; "" without one.
  static std::string label(const Json& events) {
    for (const Json& event : events.items())
      if (event.at("name").as_string() == "process_labels") return text_of(event, "labels");
    return "";
  }

  const test::VariableScope computes_{"HEARTH_REFERENCE_IDLE"};
  test::TempDir folder_;
};

TEST_F(CudaLiveTrace, HasTheKernelsOfEachStepByOpAndLayer) {
  const std::string absent = cuda::why_no_device_trace();
  for (const char* graph : {"train.graph=true", "train.graph=false"}) {
    const std::string alone = train(join_text("alone ", graph), {graph}, false).state;
    const Result run = train(graph, {graph}, true);
    EXPECT_EQ(run.state, alone) << graph;
    EXPECT_EQ(contains(run.log, "not replayed"), false) << run.log;
    if (!absent.empty()) {
      EXPECT_EQ(label(run.events), "no kernels of cuda:0: " + absent);
      continue;
    }
    EXPECT_EQ(label(run.events), "") << graph;
    std::map<std::string, int> kernels;  // by op and layer
    std::set<std::string> phases;
    double begin = 1e300, end = 0;  // of the steps on the host
    for (const Json& event : run.events.items()) {
      if (event.at("ph").as_string() != "X" || event.at("tid").as_integer() != 0) continue;
      begin = std::min(begin, event.at("ts").as_number());
      end = std::max(end, event.at("ts").as_number() + event.at("dur").as_number());
    }
    for (const Json& event : run.events.items()) {
      if (text_of(event, "kernel").empty()) continue;
      EXPECT_NE(text_of(event, "op"), "unknown") << to_text(event);
      ++kernels[text_of(event, "op") + " of " + text_of(event, "layer")];
      phases.insert(text_of(event, "phase"));
      EXPECT_GE(event.at("ts").as_number(), begin) << to_text(event);
      EXPECT_LE(event.at("ts").as_number(), end) << to_text(event);
    }
    // Eight steps, and what an evaluation has.
    for (const char* name : {"linear (backward) of layers.0", "linear (backward) of layers.1"})
      EXPECT_GE(kernels[name], 8) << graph << ": " << name;
    EXPECT_GE(kernels["optimizer of "], 8) << graph;
    EXPECT_TRUE(phases.contains("forward") && phases.contains("backward") && phases.contains("update")) << graph;
  }
}

TEST(CudaLiveTraceEvents, SayWhereKernelsAreNotMatched) {
  RankTrace trace{.process = "rank 0", .device = "cuda:0"};
  trace.activity.spans = {{.name = "_ZN6hearth4reluEv", .begin_ns = 1000, .end_ns = 2000, .stream = 7}};
  const auto events = [&] { return "[" + trace_events(trace) + "]"; };
  EXPECT_PRED2(contains, events(), "kernels of cuda:0 without op and layer");
  EXPECT_PRED2(contains, events(), R"("op":"unknown")");
  EXPECT_PRED2(contains, events(), "cuda:0 stream 7");
  trace.activity.asked = {{"relu", {"relu", "body", false}, 4000, 0, true}};
  EXPECT_EQ(contains(events(), "process_labels"), false) << events();
  EXPECT_PRED2(contains, events(), R"("op":"relu","layer":"body")");
  EXPECT_EQ(parse_json(events(), "events").items().back().at("ts").as_number(), 1);
}

}  // namespace
}  // namespace hearth::train::live_trace_test
