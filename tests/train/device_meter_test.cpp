// SPDX-License-Identifier: Apache-2.0
// Intervals of made-up devices.
#include "train/profile/device_meter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "tests/support/error_message.h"

namespace hearth::train::device_meter_test {
namespace {

using cuda::DeviceReadings;
using cuda::Throttle;

Json written(DeviceInterval& interval) {
  Json record = Json::object();
  interval.write(record);
  return record;
}

TEST(DeviceInterval, HasMeansLargestAndGrowths) {
  DeviceInterval interval("cuda:0");
  DeviceReadings now{.use = 0.5,
                     .power = 100,
                     .energy = 10,
                     .memory = 7,
                     .clock = 1000,
                     .memory_clock = 2000,
                     .temperature = 50,
                     .throttled = std::vector<Throttle>{},
                     .pcie_sent = 10,
                     .pcie_received = 30,
                     .nvlink_sent = 100,
                     .nvlink_received = 200,
                     .ecc_corrected = 3,
                     .ecc_uncorrected = 0};
  interval.add(now, 1);
  now = {.use = 1.0,
         .power = 300,
         .energy = 15,
         .memory = 5,
         .clock = 2000,
         .memory_clock = 2000,
         .temperature = 40,
         .throttled = std::vector{Throttle::power_limit},
         .pcie_sent = 20,
         .pcie_received = 50,
         .nvlink_sent = 400,
         .nvlink_received = 250,
         .ecc_corrected = 4,
         .ecc_uncorrected = 0};
  interval.add(now, 3);
  const Json first = written(interval);
  const auto expect = [&](const char* key, double value) { EXPECT_DOUBLE_EQ(first.at(key).as_number(), value) << key; };
  expect("device_use", 0.75);
  expect("device_power", 200);
  expect("device_energy", 5);
  expect("device_memory", 7);
  expect("device_clock", 1500);
  expect("device_memory_clock", 2000);
  expect("device_temperature", 50);
  expect("device_pcie_sent", 15);
  expect("device_pcie_received", 40);
  expect("device_nvlink_sent", 150);
  expect("device_nvlink_received", 25);
  expect("device_ecc_corrected", 1);
  expect("device_ecc_uncorrected", 0);
  EXPECT_EQ(to_text(first.at("device_throttled")), R"({"power limit":0.5})");
  EXPECT_EQ(first.find("device_xid"), nullptr);

  EXPECT_EQ(to_text(written(interval)), "{}") << "nothing was read since";
  now.energy = 21;
  interval.add(now, 4);
  EXPECT_DOUBLE_EQ(written(interval).at("device_energy").as_number(), 6) << "from the reading before the line before";
  EXPECT_DOUBLE_EQ(interval.joules().value(), 11);
}

TEST(DeviceInterval, WhatADeviceDoesNotGiveIsAbsent) {
  DeviceInterval interval("cuda:0");
  for (const double seconds : {1, 2}) interval.add({.clock = 5}, seconds);
  EXPECT_EQ(to_text(written(interval)), R"({"device_clock":5.0})");
  EXPECT_FALSE(interval.joules().has_value());
}

TEST(DeviceInterval, AddsUpPowerWhereThereIsNoEnergy) {
  DeviceInterval interval("cuda:0");
  interval.add({.power = 100}, 10);
  interval.add({.power = 300}, 12);
  EXPECT_DOUBLE_EQ(written(interval).at("device_energy").as_number(), 400);
  // A counter that begins anew, as after a reset, has no growth.
  interval.add({.power = 300, .energy = 50}, 13);
  interval.add({.power = 300, .energy = 5}, 14);
  EXPECT_DOUBLE_EQ(written(interval).at("device_energy").as_number(), 600);
}

TEST(DeviceInterval, TellsOnceWhatHoldsADeviceBack) {
  DeviceInterval interval("cuda:1");
  const DeviceReadings cool{.throttled = std::vector<Throttle>{}}, hot{.throttled = std::vector{Throttle::temperature}};
  for (const auto* const each : {&hot, &cool, &cool}) interval.add(*each, 1);
  (void)written(interval);
  EXPECT_TRUE(interval.take_messages().empty()) << "for a moment";
  for (int line = 0; line < 2; ++line) {
    interval.add(hot, 1);
    interval.add(hot, 2);
    interval.add(cool, 3);
    (void)written(interval);
  }
  const std::vector<std::string> told = interval.take_messages();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0],
            "cuda:1 is held back, in 67 % of the readings, by its temperature: it is too hot; see to its cooling");
}

TEST(DeviceInterval, TellsOnceOfEachKindOfError) {
  DeviceInterval interval("cuda:0");
  DeviceReadings now{.ecc_uncorrected = 2};
  interval.add(now, 1);
  std::vector<std::string> told = interval.take_messages();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_PRED2(test::contains, told[0], "cuda:0 has had 2 uncorrected memory errors");
  now.ecc_uncorrected = 3;
  now.xids = {79, 79, 31};
  now.lost = "GPU is lost";
  interval.add(now, 2);
  told = interval.take_messages();
  ASSERT_EQ(told.size(), 4U);
  EXPECT_PRED2(test::contains, told[0], "its results may be wrong");
  EXPECT_PRED2(test::contains, told[1], "Xid 79");
  EXPECT_PRED2(test::contains, told[2], "Xid 31");
  EXPECT_PRED2(test::contains, told[3], "no longer answers: GPU is lost");
  EXPECT_EQ(to_text(written(interval).at("device_xid")), "[79,31]");
  now.ecc_uncorrected = 4;
  interval.add(now, 3);
  EXPECT_TRUE(interval.take_messages().empty());
}

/// Sensors that count how often they are read.
class Counting final : public cuda::DeviceSensors {
 public:
  explicit Counting(std::atomic<int>& reads) : reads_(reads) {}
  DeviceReadings read() override {
    DeviceReadings now;
    now.energy = ++reads_;
    return now;
  }

 private:
  std::atomic<int>& reads_;
};

constexpr std::chrono::hours never{1};

TEST(DeviceMeter, ReadsAtTheStartAndWhenAsked) {
  std::atomic<int> reads = 0;
  DeviceMeter meter(
      "cuda:0", [&](std::string&) { return std::make_unique<Counting>(reads); }, never);
  Json record = Json::object();
  meter.write(record, true);
  EXPECT_GE(reads, 1);
  const int before = reads;
  // A reading that was asked for begins after that.
  EXPECT_EQ(meter.read_joules(), std::optional<double>(before));
  EXPECT_EQ(reads, before + 1);
  record = Json::object();
  meter.write(record, true);
  EXPECT_EQ(record.at("device_energy").as_number(), 2) << "of the readings since the line before";
  EXPECT_EQ(reads, before + 2);
  EXPECT_TRUE(meter.take_messages().empty());
}

TEST(DeviceMeter, SaysWhyThereIsNothingToRead) {
  DeviceMeter meter(
      "cuda:0",
      [](std::string& why_not) {
        why_not = "NVML is not to be found";
        return nullptr;
      },
      never);
  Json record = Json::object();
  meter.write(record, true);
  EXPECT_EQ(record.size(), 0U);
  EXPECT_FALSE(meter.read_joules().has_value());
  EXPECT_EQ(meter.take_messages(),
            std::vector<std::string>{"there are no readings of the device: NVML is not to be found"});
  EXPECT_TRUE(meter.take_messages().empty());
}

TEST(DeviceMeter, EndsWithSensorsThatFail) {
  class Failing final : public cuda::DeviceSensors {
    DeviceReadings read() override { throw std::runtime_error("no answer"); }
  };
  DeviceMeter meter(
      "cuda:0", [](std::string&) { return std::make_unique<Failing>(); }, never);
  EXPECT_FALSE(meter.read_joules().has_value());
}

TEST(DeviceMeter, OfACpuReadsNothing) {
  DeviceMeter meter{Device("cpu")};
  Json record = Json::object();
  meter.write(record, true);
  EXPECT_EQ(record.size(), 0U);
  EXPECT_FALSE(meter.read_joules().has_value());
}

}  // namespace
}  // namespace hearth::train::device_meter_test
