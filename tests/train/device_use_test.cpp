// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "core/profiler.h"
#include "train/profile/device_use.h"

namespace hearth::train::device_use_test {
namespace {

TEST(DeviceUse, AReplayAsksForWhatTheStepBeforeAskedFor) {
  StepWorkMeter meter;
  for (const double flops : {3e9, 0.0, 5e9}) {
    meter.begin_step();
    if (flops > 0) profiler::add_flops(flops);
    meter.end_step();
  }
  EXPECT_DOUBLE_EQ(meter.last().flops, 5e9);
  EXPECT_DOUBLE_EQ(meter.sum().flops, 11e9);
  meter.clear();
  EXPECT_DOUBLE_EQ(meter.sum().flops, 0);
}

TEST(DeviceUse, IsAPartOfTheDataSheetsPeak) {
  EXPECT_DOUBLE_EQ(known_peak("NVIDIA H100 80GB HBM3").gbs, 3350);
  EXPECT_DOUBLE_EQ(known_peak("NVIDIA H100 PCIe").gbs, 2000);
  EXPECT_DOUBLE_EQ(known_peak("NVIDIA H200").gbs, 4800);
  EXPECT_DOUBLE_EQ(known_peak("NVIDIA H200").tflops, 989);
  EXPECT_DOUBLE_EQ(known_peak("NVIDIA H200", Products::tf32).tflops, 494.5);
  EXPECT_DOUBLE_EQ(known_peak("NVIDIA A100-SXM4-80GB", Products::f32).tflops, 19.5);
  EXPECT_DOUBLE_EQ(known_peak("something else").tflops, 0);
  Json record = Json::object();
  write_use(record, {.flops = 5e14, .bytes = 1e12}, 1, {1000, 4000});
  EXPECT_DOUBLE_EQ(record.at("mfu").as_number(), 0.5);
  EXPECT_DOUBLE_EQ(record.at("bandwidth").as_number(), 0.25);
  Json unknown = Json::object();
  write_use(unknown, {.flops = 5e14, .bytes = 1e12}, 1, {});
  EXPECT_EQ(unknown.size(), 0u);
}

}  // namespace
}  // namespace hearth::train::device_use_test
