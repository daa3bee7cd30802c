// SPDX-License-Identifier: Apache-2.0
// Sensors of two emulated GPUs by the reference NVML, and a training that is watched by them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "core/cuda/nvml/links.h"
#include "core/cuda/nvml/sensors.h"
#include "core/cuda/stream.h"
#include "core/io/file.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"
#include "train/trainer.h"

namespace hearth::train {
namespace {

using cuda::DeviceReadings;
using cuda::Throttle;

class CudaSensors : public testing::Test {
 protected:
  CudaSensors() { ::setenv("HEARTH_REFERENCE_NVML", (folder_ / "devices").c_str(), 1); }
  ~CudaSensors() override { ::unsetenv("HEARTH_REFERENCE_NVML"); }

  static std::string uuid(int index) { return cuda::device_info({DeviceType::cuda, index}).uuid; }
  /// Lines "READING VALUE" of a device, added to those before.
  void say(const std::string& device, const std::string& lines) {
    std::ofstream out(folder_ / "devices", std::ios::app);
    std::istringstream in(lines);
    for (std::string line; std::getline(in, line);) out << device << ' ' << line << '\n';
  }
  void say_anew(const std::string& device, const std::string& lines) {
    std::ofstream(folder_ / "devices", std::ios::trunc).close();
    say(device, lines);
  }
  static std::unique_ptr<cuda::DeviceSensors> open(int index) {
    std::string why_not;
    auto sensors = cuda::open_sensors(uuid(index), why_not);
    EXPECT_EQ(why_not, "");
    return sensors;
  }

  test::TempDir folder_;
};

TEST_F(CudaSensors, AreFoundByTheUuidOfTheDevice) {
  EXPECT_EQ(uuid(1), "00000000-0000-0000-0000-000000000001");
  say("GPU-" + uuid(0), "power 100000\n");
  say("GPU-" + uuid(1), "power 200000\n");
  EXPECT_EQ(open(0)->read().power, 100);
  EXPECT_EQ(open(1)->read().power, 200);
}

TEST_F(CudaSensors, ReadAllThatADeviceGives) {
  say("GPU-" + uuid(0),
      "use 75\npower 300500\nenergy 12000\nmemory 4096\nclock 1200\nmemory_clock 2619\ntemperature 61\nreasons 4\n"
      "pcie_sent 2\npcie_received 3\nnvlink_sent 4\nnvlink_received 5\necc_corrected 6\necc_uncorrected 7\nxid 79\n");
  const auto sensors = open(0);
  const DeviceReadings now = sensors->read();
  EXPECT_DOUBLE_EQ(now.use.value(), 0.75);
  EXPECT_DOUBLE_EQ(now.power.value(), 300.5);
  EXPECT_DOUBLE_EQ(now.energy.value(), 12);
  EXPECT_EQ(now.memory, 4096);
  EXPECT_EQ(now.clock, 1200);
  EXPECT_EQ(now.memory_clock, 2619);
  EXPECT_EQ(now.temperature, 61);
  EXPECT_EQ(now.throttled, std::vector{Throttle::power_limit});
  EXPECT_EQ(now.pcie_sent, 2000);
  EXPECT_EQ(now.pcie_received, 3000);
  EXPECT_EQ(now.nvlink_sent, 4096);
  EXPECT_EQ(now.nvlink_received, 5120);
  EXPECT_EQ(now.ecc_corrected, 6);
  EXPECT_EQ(now.ecc_uncorrected, 7);
  EXPECT_EQ(now.xids, std::vector<std::int64_t>{79});
  EXPECT_EQ(now.lost, "");
  EXPECT_TRUE(sensors->read().xids.empty()) << "each is reported once";
}

TEST_F(CudaSensors, WhatADeviceDoesNotGiveIsAbsent) {
  say("GPU-" + uuid(0), "temperature 40\n");
  const DeviceReadings now = open(0)->read();
  EXPECT_EQ(now.temperature, 40);
  for (const auto& reading :
       {now.use, now.power, now.energy, now.memory, now.clock, now.memory_clock, now.pcie_sent, now.pcie_received,
        now.nvlink_sent, now.nvlink_received, now.ecc_corrected, now.ecc_uncorrected})
    EXPECT_FALSE(reading.has_value());
  EXPECT_FALSE(now.throttled.has_value());
  EXPECT_EQ(now.lost, "");
}

TEST_F(CudaSensors, NameWhatHoldsADeviceBack) {
  const auto reasons = [&](unsigned bits) {
    say_anew("GPU-" + uuid(0), "reasons " + std::to_string(bits) + "\n");
    return open(0)->read().throttled.value();
  };
  using Reasons = std::vector<Throttle>;
  EXPECT_EQ(reasons(0x1 | 0x2 | 0x10 | 0x100), Reasons{}) << "idle, and clocks that somebody has set";
  EXPECT_EQ(reasons(0x4 | 0x20), (Reasons{Throttle::power_limit, Throttle::temperature}));
  EXPECT_EQ(reasons(0x8), Reasons{Throttle::hardware});
  EXPECT_EQ(reasons(0x8 | 0x40), Reasons{Throttle::hardware_temperature});
  EXPECT_EQ(reasons(0x8 | 0x80), Reasons{Throttle::power_brake});
}

TEST_F(CudaSensors, OfAPartOfAGpuHaveItsMemoryAndWhatTheWholeShares) {
  say("GPU-ff", "power 400000\nenergy 5\nuse 90\nclock 1500\nmemory 900\npcie_sent 1\nxid 31@3\nxid 13@2\nxid 79\n");
  say("MIG-" + uuid(0), "memory 70\npart_of GPU-ff\ninstance 3\npower 1\nuse 1\n");
  const DeviceReadings now = open(0)->read();
  EXPECT_EQ(now.memory, 70);
  EXPECT_EQ(now.clock, 1500);
  EXPECT_EQ(now.xids, (std::vector<std::int64_t>{31, 79})) << "not those of another part";
  EXPECT_FALSE(now.power || now.energy || now.use || now.pcie_sent) << "they would be of all parts together";
}

TEST_F(CudaSensors, OfADividedGpuWhosePartIsNotKnownHaveNoMemory) {
  say("GPU-" + uuid(0), "mig 1\npower 400000\nclock 1500\nmemory 900\n");
  const DeviceReadings now = open(0)->read();
  EXPECT_EQ(now.clock, 1500);
  EXPECT_FALSE(now.power || now.memory);
}

TEST_F(CudaSensors, SayThatADeviceIsLost) {
  say("GPU-" + uuid(0), "power 1\nlost 1\n");
  const DeviceReadings now = open(0)->read();
  EXPECT_EQ(now.lost, "GPU is lost");
  EXPECT_FALSE(now.power);
}

TEST_F(CudaSensors, AreNotThereForAUuidThatNvmlDoesNotKnow) {
  say("GPU-" + uuid(1), "power 1\n");
  std::string why_not;
  EXPECT_EQ(cuda::open_sensors(uuid(0), why_not), nullptr);
  EXPECT_EQ(why_not, "NVML knows no device with the UUID " + uuid(0) + ": Not Found");
}

TEST_F(CudaSensors, CountLinksByWhereTheyLead) {
  say("0000:3d:00.0", "link 00000000:3E:00.0\nlink off\nlink 00000000:3E:00.0\nlink 00000001:3E:00.0\n");
  const std::vector<cuda::NvLink> links = cuda::nv_links({"0000:3d:00.0", "0000:99:00.0"});
  ASSERT_EQ(links.size(), 2U);
  EXPECT_EQ(links[0].gpu + " " + links[0].to, "0000:3d:00.0 0000:3e:00.0");
  EXPECT_EQ(links[0].count, 2);
  EXPECT_EQ(links[1].to, "0001:3e:00.0") << "of another domain";
}

/// A training of two steps on the second of two GPUs.
class CudaMeteredTraining : public CudaSensors {
 protected:
  struct Result {
    std::string log, state;
    Json last, info;
  };
  Result train(const std::vector<std::string>& settings = {}) {
    write_file_synced(folder_ / "run.json", R"({"seed": 1, "device": "cuda:1", "model": {"type": "mlp", "hidden": [16]},
      "data": {"type": "digits", "workers": 0}, "optimizer": {"type": "sgd", "lr": 0.1},
      "train": {"batch_size": 16, "steps": 2}, "log": {"every_steps": 1}})");
    Session session(load_config((folder_ / "run.json").string(), settings));
    const std::string name = join_text("run", ++runs_);
    RunFolder into(folder_ / name);
    std::ostringstream log;
    Progress progress(log, false);
    (void)Trainer(session, into, progress).run("test");
    Result result{log.str(), session.model_state.hash() + session.training_state.hash(), {}, {}};
    std::ifstream metrics(folder_ / (name + "/metrics.jsonl"));
    for (std::string line; std::getline(metrics, line);)
      if (const Json record = parse_json(line, "metrics"); record.at("split").as_string() == "train")
        result.last = record;
    result.info = read_json((folder_ / (name + "/run.json")).string());
    report_ = read_text(folder_ / (name + "/report.html"));
    return result;
  }

  int runs_ = 0;
  std::string report_;
};

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t times = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++times;
  return times;
}

TEST_F(CudaMeteredTraining, HasTheReadingsOfItsOwnDevice) {
  say("GPU-" + uuid(0), "power 100000\nuse 1\nreasons 4\n");
  say("GPU-" + uuid(1), "power 200000\nuse 50\nenergy 7000\nreasons 64\nmemory 123\n");
  const Result run = train({"log.price_per_hour=3600"});
  EXPECT_DOUBLE_EQ(run.last.at("device_power").as_number(), 200);
  EXPECT_DOUBLE_EQ(run.last.at("device_use").as_number(), 0.5);
  EXPECT_EQ(run.last.at("device_memory").as_number(), 123);
  EXPECT_EQ(run.last.find("device_temperature"), nullptr);
  EXPECT_EQ(run.last.at("device_throttled").at("temperature, by the hardware").as_number(), 1);
  EXPECT_EQ(count(run.log, "warning: cuda:1 is held back"), 1U) << run.log;
  const Json& cost = run.info.at("cost");
  EXPECT_EQ(cost.at("device_kwh").as_number(), 0) << "the counter stood still";
  EXPECT_NEAR(cost.at("price").as_number(), run.info.at("seconds").as_number(), 0.5 * cost.at("price").as_number());
  EXPECT_PRED2(test::contains, run.log, "cost: ");
  EXPECT_PRED2(test::contains, report_, "kWh of devices, price ");
}

TEST_F(CudaMeteredTraining, HasNoReadingsAndSaysWhyWhereNvmlDoesNotKnowTheDevice) {
  const Result run = train();
  EXPECT_EQ(run.last.find("device_power"), nullptr);
  EXPECT_EQ(count(run.log, "warning: there are no readings of the device: NVML knows no device"), 1U) << run.log;
  EXPECT_EQ(run.info.at("cost").find("device_kwh"), nullptr);
  EXPECT_EQ(run.info.at("cost").find("price"), nullptr);
}

TEST_F(CudaMeteredTraining, HasTheBitsOfOneThatIsNotMetered) {
  const std::string plain = train().state;
  say("GPU-" + uuid(1), "power 200000\nenergy 7000\n");
  EXPECT_EQ(train().state, plain);
}

}  // namespace
}  // namespace hearth::train
