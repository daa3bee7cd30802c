// SPDX-License-Identifier: Apache-2.0
// The device's own times of a step, by the tests' CUPTI.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>

#include "core/cuda/counters.h"
#include "core/io/file.h"
#include "tests/emulated_gpu/runtime.h"
#include "tests/reference_libraries/tests/model_run.h"
#include "tests/support/error_message.h"
#include "tests/support/named_row.h"
#include "train/bench/traced_step.h"
#include "train/trainer.h"

namespace hearth::train {
namespace {

using cuda::DeviceSpan;
using Kind = DeviceSpan::Kind;

DeviceSpan span(const char* name, std::uint64_t begin, std::uint64_t end, Kind kind = Kind::kernel) {
  return {.kind = kind, .name = name, .begin_ns = begin, .end_ns = end};
}

/// Two kernels of Hearth with what two libraries and a copy did between them.
const std::vector<DeviceSpan> spans = {span("copy from the host", 0, 1000, Kind::copy),
                                       span("_ZN6hearth5firstEv", 2000, 4000),
                                       span("sm90_gemm", 5000, 6000),
                                       span("copy", 6000, 6500, Kind::copy),
                                       span("splitk_sum", 6500, 7000),
                                       span("sm90_gemm", 7000, 9000),
                                       span("other_sum", 9000, 9500),
                                       span("_ZN6hearth6secondEv", 10000, 20000)};
const std::vector<AskedWork> asked = {{"first", {"relu", nullptr, false}, 4000, 0, true},
                                      {"cuBLASLt", {"linear", nullptr, false}, 1000, 2e6, false},
                                      {"copy", {"linear", nullptr, false}, 600, 0, false},
                                      {"cuBLASLt", {"linear", nullptr, true}, 2000, 4e6, false},
                                      {"second", {"optimizer", nullptr, false}, 10000, 0, true}};

TEST(CudaStepProfile, MatchesSpansWithWhatWasAsked) {
  EXPECT_EQ(match_spans(spans, asked), (std::vector<int>{-1, 0, 1, 2, 1, 3, 3, 4}));
  // With a kernel too many nothing can be said.
  EXPECT_EQ(match_spans(spans, std::span(asked).first(4)), std::vector<int>(spans.size(), -1));
}

TEST(CudaStepProfile, AddsUpTimesBytesAndGaps) {
  const Json found = device_profile(spans, asked, {.copy_gbs = 2, .tflops = 1, .source = "a test"});
  EXPECT_DOUBLE_EQ(found.at("milliseconds").as_number(), 0.020);
  EXPECT_DOUBLE_EQ(found.at("gap_milliseconds").as_number(), 0.0025);
  EXPECT_DOUBLE_EQ(found.at("longest_gaps").at(0).at("us").as_number(), 1);
  EXPECT_TRUE(found.at("matched").as_boolean());
  const Json &phases = found.at("phases"), &kernels = found.at("kernels");
  EXPECT_DOUBLE_EQ(test::named_row(phases, "data").at("us").as_number(), 1);
  EXPECT_DOUBLE_EQ(test::named_row(phases, "forward").at("us").as_number(), 4);
  EXPECT_DOUBLE_EQ(test::named_row(phases, "backward").at("us").as_number(), 2.5);
  EXPECT_DOUBLE_EQ(test::named_row(phases, "update").at("us").as_number(), 10);
  EXPECT_DOUBLE_EQ(test::named_row(kernels, "first").at("bytes").as_number(), 4000);
  EXPECT_DOUBLE_EQ(test::named_row(kernels, "first").at("percent_of_limit").as_number(), 100);
  EXPECT_EQ(test::named_row(kernels, "cuBLASLt: sm90_gemm").at("count").as_integer(), 2);
  EXPECT_DOUBLE_EQ(test::named_row(kernels, "cuBLASLt: sm90_gemm").at("floor_us").as_number(), 6);
  EXPECT_DOUBLE_EQ(test::named_row(found.at("ops"), "linear (backward)").at("flops").as_number(), 4e6);
}

/// Replayed steps of a small GPT-2 on a device that does nothing, with libraries whose work is seen.
class CudaIdleSteps : public testing::Test {
 protected:
  CudaIdleSteps() {
    cuda::emulate::Settings idle = before_;
    idle.idle = true;
    cuda::emulate::apply(idle);
    ::unsetenv("HEARTH_REFERENCE_IDLE");
    write_file_synced(folder_ / "run.json", test::config_of({"gpt2", "O2"}, folder_));
  }
  ~CudaIdleSteps() override {
    ::setenv("HEARTH_REFERENCE_IDLE", "1", 1);
    cuda::emulate::apply(before_);
  }
  LoadedConfig config() {
    return load_config((folder_ / "run.json").string(), {"train.graph=true", "model.width=128", "model.heads=2"});
  }

  const cuda::emulate::Settings before_ = cuda::emulate::settings();
  test::TempDir folder_;
};

TEST_F(CudaIdleSteps, OfAGroupAreWaitedForOnce) {
  StepBench bench(config());
  for (int i = 0; i < 4; ++i) (void)bench.step_ms();
  ASSERT_TRUE(bench.replays());
  EXPECT_GT(bench.work().bytes, 1e7);
  EXPECT_GT(bench.work().flops, 1e9);
  const auto spent = [&](std::int64_t steps) {
    const cuda::Counters before = cuda::counters();
    (void)bench.step_ms(steps);
    return cuda::counters() - before;
  };
  const cuda::Counters one = spent(1), five = spent(5);
  EXPECT_EQ(five.graph_launches, 5);
  EXPECT_EQ(five.waits, one.waits);
}

TEST_F(CudaIdleSteps, AreSeenKernelByKernel) {
  if (const std::string reason = cuda::why_no_device_trace(); !reason.empty()) GTEST_SKIP() << reason;
  StepBench bench(config());
  const DeviceActivity step = traced_step(bench);
  EXPECT_TRUE(bench.replays());
  const std::vector<int> found = match_spans(step.spans, step.asked);
  std::set<int> matched;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] >= 0)
      matched.insert(found[i]);
    else
      EXPECT_NE(step.spans[i].kind, Kind::kernel) << step.spans[i].name;
  }
  EXPECT_EQ(matched.size(), step.asked.size());
  const Json profile = device_profile(step.spans, step.asked, {3000, 600, "a test"});
  for (const char* phase : {"forward", "backward", "update"})
    EXPECT_GT(test::named_row(profile.at("phases"), phase).at("floor_us").as_number(), 0) << phase;
  EXPECT_EQ(test::named_row(profile.at("kernels"), "cuDNN: reference cudnnBackendExecute").at("count").as_integer(), 4);
  EXPECT_EQ(parse_json(chrome_trace(step.spans, step.asked), "trace").size(), step.spans.size());
}

/// A training that computes, as the tests' cuBLASLt does when it is told.
class CudaProfiledTraining : public testing::Test {
 protected:
  CudaProfiledTraining() { ::unsetenv("HEARTH_REFERENCE_IDLE"); }
  ~CudaProfiledTraining() override { ::setenv("HEARTH_REFERENCE_IDLE", "1", 1); }

  /// The state that it ends in.
  std::string trained(const std::string& name, const std::vector<std::string>& settings) {
    write_file_synced(folder_ / "run.json", R"({"seed": 1, "device": "cuda", "model": {"type": "mlp", "hidden": [16]},
      "data": {"type": "digits", "workers": 0}, "optimizer": {"type": "sgd", "lr": 0.1},
      "train": {"batch_size": 16, "steps": 8}})");
    Session session(load_config((folder_ / "run.json").string(), settings));
    RunFolder into(folder_ / name);
    std::ostringstream log;
    Progress progress(log, false);
    (void)Trainer(session, into, progress).run("test");
    return session.model_state.hash() + session.training_state.hash();
  }

  test::TempDir folder_;
};

TEST_F(CudaProfiledTraining, HasItsKernelsInTheReport) {
  if (const std::string reason = cuda::why_no_device_trace(); !reason.empty()) GTEST_SKIP() << reason;
  const std::string plain = trained("plain", {});
  EXPECT_FALSE(std::filesystem::exists(folder_ / "plain/device_profile.json"));
  for (const char* graph : {"train.graph=true", "train.graph=false"}) {
    EXPECT_EQ(trained(graph, {graph, "log.profile=true"}), plain) << "watched, it computes the same";
    const Json profile = parse_json(read_text(folder_ / graph / "device_profile.json"), "profile");
    EXPECT_TRUE(profile.at("matched").as_boolean());
    for (const char* phase : {"forward", "backward", "update"})
      EXPECT_GT(test::named_row(profile.at("phases"), phase).at("bytes").as_number(), 0) << phase;
    EXPECT_GT(test::named_row(profile.at("phases"), "data").at("count").as_integer(), 0);
    EXPECT_PRED2(test::contains, read_text(folder_ / graph / "report.html"), "A step on the device");
  }
}

}  // namespace
}  // namespace hearth::train
