// SPDX-License-Identifier: Apache-2.0
// Energy counters of made-up machines.
#include "train/profile/machine_energy.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temp_dir.h"

namespace hearth::train::machine_energy_test {
namespace {

class MachineEnergies : public testing::Test {
 protected:
  void zone(const std::string& folder, const std::string& name, const std::string& microjoules) {
    const std::filesystem::path path = folder_ / ("sys/class/powercap/" + folder);
    std::filesystem::create_directories(path);
    std::ofstream(path / "name") << name << "\n";
    std::ofstream(path / "max_energy_range_uj") << "9000000\n";
    std::ofstream(path / "energy_uj") << microjoules << "\n";
  }
  std::string root() const { return folder_.path(); }

 private:
  test::TempDir folder_;
};

TEST_F(MachineEnergies, AreThoseOfPackagesAndTheMemoryBesideThem) {
  zone("intel-rapl:0", "package-0", "1000000");
  zone("intel-rapl:1", "package-1", "2000000");
  zone("intel-rapl:0:0", "core", "500000");
  zone("intel-rapl:0:1", "dram", "3000000");
  zone("intel-rapl:2", "psys", "7000000");
  zone("intel-rapl-mmio:0", "package-0", "1000000");
  MachineEnergy meter(root());
  for (const char* each : {"intel-rapl:0", "intel-rapl:0:1", "intel-rapl:0:0", "intel-rapl:2", "intel-rapl-mmio:0"})
    zone(each,
         each == std::string("intel-rapl:0:1")   ? "dram"
         : each == std::string("intel-rapl:0:0") ? "core"
         : each == std::string("intel-rapl:2")   ? "psys"
                                                 : "package-0",
         "8000000");
  Json record = Json::object();
  meter.write(record);
  EXPECT_DOUBLE_EQ(record.at("machine_energy").as_number(), 7 + 5);
  EXPECT_GT(record.at("machine_power").as_number(), 0);
  Json next = Json::object();
  meter.write(next);
  EXPECT_EQ(next.at("machine_energy").as_number(), 0) << "nothing was added since";
  EXPECT_DOUBLE_EQ(meter.read_joules().value(), 12);
}

TEST_F(MachineEnergies, GoOnWhereACounterBeginsAnew) {
  zone("intel-rapl:0", "package-0", "8000000");
  MachineEnergy meter(root());
  zone("intel-rapl:0", "package-0", "500000");
  EXPECT_DOUBLE_EQ(meter.read_joules().value(), 1.5);
}

TEST_F(MachineEnergies, AreAbsentWhereTheyCannotBeRead) {
  Json record = Json::object();
  MachineEnergy none(root());
  none.write(record);
  // As a counter that root alone may read.
  zone("intel-rapl:0", "package-0", "");
  MachineEnergy unreadable(root());
  unreadable.write(record);
  EXPECT_EQ(record.size(), 0U);
  EXPECT_FALSE(unreadable.read_joules().has_value());
}

}  // namespace
}  // namespace hearth::train::machine_energy_test
