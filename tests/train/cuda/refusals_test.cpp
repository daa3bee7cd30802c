// SPDX-License-Identifier: Apache-2.0
// Devices, drivers and libraries that are not there: the program ends with code 4 and says what was asked, what was
// found, and the remedy. Where the device would be a real one, only what needs no emulation is looked at.
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/cuda/emulation.h"
#include "core/device.h"
#include "core/io/file.h"
#include "core/io/json_text.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/run_program.h"

namespace hearth::train::refusals_test {
namespace {

using test::contains;
using test::ProgramResult;

class CudaRefusals : public testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::is_emulated()) GTEST_SKIP() << "what is missing here is emulated";
    write_file_synced(folder_ / "run.json", R"({
      "model": {"type": "resnet", "blocks": [1], "stem": "small", "width": 8}, "data": {"type": "digits"},
      "optimizer": {"type": "sgd", "lr": 0.1}, "train": {"batch_size": 8, "steps": 1}})");
  }

  /// The program under one more environment variable.
  ProgramResult hearth(const char* variable, const char* value, std::vector<std::string> words) {
    words.insert(words.begin(), test::hearth_program());
    setenv(variable, value, 1);
    ProgramResult result = test::run_program(std::move(words), folder_.path());
    unsetenv(variable);
    return result;
  }
  ProgramResult train(const char* variable, const char* value, const std::string& device) {
    return hearth(variable, value, {"train", "run.json", "--device", device});
  }

  test::TempDir folder_;
};

void expect_refusal(const ProgramResult& result, const std::vector<std::string>& parts) {
  EXPECT_EQ(result.exit_code, 4) << result.err;
  const std::string line = result.last_error_line();
  EXPECT_EQ(line.find("hearth: error: device: "), 0u) << result.err;
  for (const std::string& part : parts) EXPECT_PRED2(contains, line, part);
  EXPECT_EQ(result.out, "");
}

TEST_F(CudaRefusals, AnIndexBeyondTheDevices) {
  expect_refusal(train("HEARTH_EMULATE_DEVICES", "1", "cuda:7"), {"cuda:7", "1 CUDA device;", "use cuda:0, or"});
  expect_refusal(train("HEARTH_EMULATE_DEVICES", "3", "cuda:7"), {"cuda:7", "3 CUDA devices", "cuda:0 to cuda:2"});
}

TEST_F(CudaRefusals, ADriverThatIsTooOldOrAbsent) {
  const std::vector<std::string> old{"cuda:0", "too old", "CUDA 12.4", "newer driver", "device cpu"};
  expect_refusal(train("HEARTH_EMULATE_DRIVER", "12040", "cuda"), old);
  expect_refusal(train("HEARTH_EMULATE_DRIVER", "0", "cuda"), {"cuda:0", "no NVIDIA driver", "install", "device cpu"});
}

TEST_F(CudaRefusals, ADeviceThatTheBuildHasNoKernelsFor) {
  const char* const capability = "HEARTH_EMULATE_CAPABILITY";
  const std::vector<std::string> no_code{"cuda:0", "built for sm_90", "this device is 8.6",
                                         "-DCMAKE_CUDA_ARCHITECTURES=86", "device cpu"};
  expect_refusal(train(capability, "86", "cuda"), no_code);
  const std::vector<std::string> too_old{"cuda:0", "capability 7.5 is not supported", "needs 8.0", "device cpu"};
  expect_refusal(train(capability, "75", "cuda"), too_old);
  EXPECT_EQ(train(capability, "120", "cuda").exit_code, 0) << "the driver compiles for what came after";
  const ProgramResult doctor = hearth(capability, "86", {"doctor", "--json"});
  ASSERT_EQ(doctor.exit_code, 0) << doctor.err;
  const Json report = parse_json(doctor.out, "stdout");
  ASSERT_EQ(report.at("cuda_devices").size(), 2u);
  const Json& device = report.at("cuda_devices").items()[0];
  EXPECT_EQ(device.at("compute_capability").as_string(), "8.6");
  EXPECT_PRED2(contains, device.at("why_unused").as_string(), "-DCMAKE_CUDA_ARCHITECTURES=86");
  EXPECT_PRED2(contains, hearth(capability, "75", {"doctor"}).out, "not used: its compute capability 7.5");
}

TEST_F(CudaRefusals, DoNotKeepTheProcessorFromTraining) {
  for (const char* device : {"auto", "cpu"}) {
    const ProgramResult result = train("HEARTH_EMULATE_DRIVER", "0", device);
    EXPECT_EQ(result.exit_code, 0) << device << ": " << result.err;
  }
  const ProgramResult doctor = hearth("HEARTH_EMULATE_DRIVER", "12040", {"doctor", "--json"});
  ASSERT_EQ(doctor.exit_code, 0) << doctor.err;
  const Json report = parse_json(doctor.out, "stdout");
  EXPECT_TRUE(report.at("cuda_devices").items().empty());
  EXPECT_PRED2(contains, report.at("why_no_cuda").as_string(), "too old");
  EXPECT_EQ(report.at("device_auto").as_string(), "cpu");
}

TEST_F(CudaRefusals, ADamagedFileOfPlansIsTold) {
  write_file_synced(folder_ / "plans-1.jsonl", "{\"hearth_plans\":1}\n{\"library\":\n");
  const ProgramResult doctor = hearth("HEARTH_CACHE_DIR", folder_.path().c_str(), {"doctor", "--json"});
  ASSERT_EQ(doctor.exit_code, 0) << doctor.err;
  const Json report = parse_json(doctor.out, "stdout");
  EXPECT_EQ(report.at("plans").at("file").as_string(), (folder_ / "plans-1.jsonl").string());
  EXPECT_EQ(report.at("plans").at("plans").as_integer(), 0);
  EXPECT_PRED2(contains, to_text(report.at("plans").at("remarks")), "line 2 is left out");
}

TEST_F(CudaRefusals, ALibraryThatAPinAsksFor) {
  expect_refusal(train("HEARTH_PICK", "conv2d:cudnn", "cuda"), {"conv2d", "forced to cudnn", "HEARTH_PICK"});
  expect_refusal(train("HEARTH_PICK", "linear:cublaslt", "cuda"), {"linear", "forced to cublaslt", "HEARTH_PICK"});
}

}  // namespace
}  // namespace hearth::train::refusals_test
