// SPDX-License-Identifier: Apache-2.0
#include "train/profile/run_cost.h"

#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "train/checkpoint/run_info.h"
#include "train/report/report.h"

namespace hearth::train::run_cost_test {
namespace {

TEST(RunCost, AddsUpDevicesOfRanksAndMachinesOnce) {
  const std::vector<RankEnergy> ranks{{3.6e6, 7.2e6, "a"}, {3.6e6, 7.3e6, "a"}, {std::nullopt, 3.6e6, "b"}};
  const Json cost = run_cost({}, 1800, ranks, 4.0);
  EXPECT_DOUBLE_EQ(cost.at("hours").as_number(), 0.5);
  EXPECT_DOUBLE_EQ(cost.at("device_kwh").as_number(), 2);
  EXPECT_DOUBLE_EQ(cost.at("machine_kwh").as_number(), (7.3 + 3.6) / 3.6);
  EXPECT_DOUBLE_EQ(cost.at("price").as_number(), 2);
}

TEST(RunCost, GoesOnFromWhatTheProcessesBeforeHadCost) {
  const Json before = run_cost({}, 3600, {{3.6e6, std::nullopt, "a"}}, 1.0);
  const Json cost = run_cost(before, 3600, {{3.6e6, std::nullopt, "a"}}, 1.0);
  EXPECT_DOUBLE_EQ(cost.at("hours").as_number(), 2);
  EXPECT_DOUBLE_EQ(cost.at("device_kwh").as_number(), 2);
  EXPECT_DOUBLE_EQ(cost.at("price").as_number(), 2);
  EXPECT_EQ(cost.find("machine_kwh"), nullptr) << "nobody knows it";
  // One that goes on where there are no sensors keeps what was read.
  EXPECT_DOUBLE_EQ(run_cost(before, 0, {{}}, std::nullopt).at("device_kwh").as_number(), 1);
}

TEST(RunCost, StaysInTheRunsFolder) {
  const test::TempDir folder;
  const std::string path = (folder / "run.json").string();
  EXPECT_TRUE(cost_in(path).is_null()) << "there is no run yet";
  const RunInfo info(path, {"a", 0, "cpu", "train"});
  info.write("running");
  EXPECT_TRUE(cost_in(path).is_null());
  const Json cost = run_cost({}, 3600, {{}}, 2.0);
  info.write("finished", {.cost = cost});
  EXPECT_EQ(cost_in(path), cost);
}

TEST(RunCost, IsALine) {
  EXPECT_EQ(cost_text(Json()), "");
  EXPECT_EQ(cost_text(run_cost({}, 3720, {{3.6e5, 7.2e5, "a"}}, 3.0)),
            "1h 02m, 0.1 kWh of devices, 0.2 kWh of processors and memory, price 3.1");
}

}  // namespace
}  // namespace hearth::train::run_cost_test
