// SPDX-License-Identifier: Apache-2.0
// Slow runs on the emulated GPU with one planted cause each: the report names it first, and what to change.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/cuda/stream.h"
#include "core/io/file.h"
#include "hearth.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"
#include "tests/support/variable_scope.h"
#include "train/profile/trace/device_trace.h"
#include "train/report/bottlenecks.h"
#include "train/trainer.h"

namespace hearth::train::planted_device_losses_test {
namespace {

using test::contains;

/// Small layers, between which the host does something else for longer than they take.
struct SlowHost : nn::Module {
  nn::Linear first, second, out;
  explicit SlowHost(const models::InputInfo& input) : first(64, 16), second(16, 16), out(16, input.classes) {
    register_module("first", first);
    register_module("second", second);
    register_module("out", out);
  }
  Tensor forward(const Tensor& images) override {
    Tensor x = relu(first(flatten(images)));
    for (int i = 0; i < 20 && is_training(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      x = relu(x);
    }
    return out(second(x));
  }
};

class CudaPlantedLoss : public testing::Test {
 protected:
  Bottleneck first_loss(const std::string& model, const std::vector<std::string>& settings) {
    write_file_synced(folder_ / "run.json", join_text(R"({"seed": 1, "device": "cuda", "model": )", model, R"(,
      "data": {"type": "digits", "workers": 0}, "optimizer": {"type": "sgd", "lr": 0.01},
      "train": {"batch_size": 16, "steps": 40}, "eval": {"every_epochs": 99}, "checkpoint": {"every_epochs": 99},
      "log": {"every_steps": 40}})"));
    Session session(load_config((folder_ / "run.json").string(), settings));
    const std::string name = join_text("run", ++runs_);
    RunFolder into(folder_ / name);
    std::ostringstream log;
    Progress progress(log, false);
    (void)Trainer(session, into, progress).run("test");
    const std::vector<Bottleneck> all = bottlenecks(read_run(folder_ / name));
    return all.empty() ? Bottleneck{.cause = "none", .text = log.str()} : all[0];
  }

  const test::VariableScope computes_{"HEARTH_REFERENCE_IDLE"};
  test::TempDir folder_;
  int runs_ = 0;
};

TEST_F(CudaPlantedLoss, LaunchesOfAHostThatIsSlow) {
  if (const std::string reason = cuda::why_no_device_trace(); !reason.empty()) GTEST_SKIP() << reason;
  models::add("slow_host", [](const models::InputInfo& input) { return std::make_unique<SlowHost>(input); });
  const Bottleneck first = first_loss(R"({"type": "slow_host"})", {"train.graph=false", "log.profile=true"});
  EXPECT_EQ(first.cause, "launches") << first.text;
  EXPECT_PRED2(contains, first.text, "launch bound: record them (train.graph true)");
  EXPECT_NE(first_loss(R"({"type": "slow_host"})", {"train.graph=true", "log.profile=true"}).cause, "launches")
      << "which is the remedy";
}

TEST_F(CudaPlantedLoss, ADeviceThatIsThrottled) {
  const test::VariableScope devices("HEARTH_REFERENCE_NVML", folder_ / "devices");
  const std::string model = R"({"type": "mlp", "hidden": [16]})";
  const std::vector<std::string> many{"train.steps=400", "log.every_steps=400"};
  const auto say = [&](const char* reasons) {
    std::ofstream(folder_ / "devices") << "GPU-" << cuda::device_info({DeviceType::cuda, 0}).uuid << " reasons "
                                       << reasons << "\n";
  };
  say("0");
  EXPECT_NE(first_loss(model, many).cause, "throttled device");
  say("64");
  const Bottleneck first = first_loss(model, many);
  EXPECT_EQ(first.cause, "throttled device") << first.text;
  EXPECT_PRED2(contains, first.text, "the device was throttled (temperature, by the hardware) in 100");
  EXPECT_PRED2(contains, first.text, "check its cooling and power limit (nvidia-smi -q -d PERFORMANCE)");
}

}  // namespace
}  // namespace hearth::train::planted_device_losses_test
