// SPDX-License-Identifier: Apache-2.0
// What `mfu` compares with, on a CPU that was measured and on one that was not.
#include "train/plan/run_peak.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "core/cpu/parallel.h"
#include "core/io/json_text.h"
#include "tests/support/temp_dir.h"
#include "train/plan/machine.h"

namespace hearth::train::run_peak_test {
namespace {

class RunPeak : public testing::Test {
 protected:
  RunPeak() { setenv("HEARTH_CACHE_DIR", folder_.path().c_str(), 1); }
  ~RunPeak() override {
    before_.empty() ? unsetenv("HEARTH_CACHE_DIR") : setenv("HEARTH_CACHE_DIR", before_.c_str(), 1);
  }
  void write_machine(std::int64_t cores) const {
    std::ofstream(machine_file(DeviceType::cpu)) << R"({"name": "here", "device": "cpu", "cores": )" << cores
                                                 << R"(, "peak_tflops": {"f32": 0.1, "bf16": 0.25}, "copy_gbs": 20})";
  }

  test::TempDir folder_;
  std::string before_ = std::getenv("HEARTH_CACHE_DIR") == nullptr ? "" : std::getenv("HEARTH_CACHE_DIR");
};

TEST_F(RunPeak, OfACpuIsWhatWasMeasuredWithAsManyThreads) {
  EXPECT_EQ(run_peak(Device{}, ComputeType::f32).tflops, 0) << "nothing was measured";
  write_machine(cpu::threads());
  EXPECT_EQ(run_peak(Device{}, ComputeType::f32).tflops, 0.1);
  EXPECT_EQ(run_peak(Device{}, ComputeType::bf16).tflops, 0.25);
  EXPECT_EQ(run_peak(Device{}, ComputeType::bf16).gbs, 0) << "bytes are not counted on a CPU";
  write_machine(cpu::threads() + 1);
  EXPECT_EQ(run_peak(Device{}, ComputeType::f32).tflops, 0);
}

TEST_F(RunPeak, AFileThatCannotBeReadIsNoReasonToFail) {
  std::ofstream(machine_file(DeviceType::cpu)) << "{";
  EXPECT_EQ(run_peak(Device{}, ComputeType::f32).tflops, 0);
}

}  // namespace
}  // namespace hearth::train::run_peak_test
