// SPDX-License-Identifier: Apache-2.0
// Counters of made-up machines, and of this process.
#include "train/profile/process_use.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "tests/support/temp_dir.h"

namespace hearth::train::process_use_test {
namespace {

class ProcessUse : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::string root() const { return folder_.path(); }

 private:
  test::TempDir folder_;
};

TEST_F(ProcessUse, CountersOfAMachineWithTwoNodesAndInfiniband) {
  write("proc/self/io", "rchar: 1000\nwchar: 20\nsyscr: 5\nread_bytes: 7\n");
  write("proc/net/dev",
        "Inter-|   Receive                                                |  Transmit\n"
        " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls\n"
        "    lo: 100 1 0 0 0 0 0 0 200 1 0 0 0 0 0 0\n"
        "  eth0:300 1 0 0 0 0 0 0 400 1 0 0 0 0 0 0\n");
  write("sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data", "10\n");
  write("sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", "20\n");
  write("sys/devices/system/node/node0/numastat", "numa_hit 9\nother_node 3\n");
  write("sys/devices/system/node/node1/numastat", "numa_hit 9\nother_node 4\n");
  write("sys/fs/resctrl/mon_data/mon_L3_00/mbm_local_bytes", "50\n");
  write("sys/fs/resctrl/mon_data/mon_L3_01/mbm_local_bytes", "60\n");
  write("sys/fs/resctrl/mon_data/mon_L3_00/mbm_total_bytes", "70\n");
  write("sys/fs/resctrl/mon_data/mon_L3_01/mbm_total_bytes", "Unavailable\n");
  const std::map<std::string, double> expected{{"process_read", 1000},
                                               {"process_written", 20},
                                               {"machine_network/lo/received", 100},
                                               {"machine_network/lo/sent", 200},
                                               {"machine_network/eth0/received", 300},
                                               {"machine_network/eth0/sent", 400},
                                               {"machine_infiniband/mlx5_0:1/received", 40},
                                               {"machine_infiniband/mlx5_0:1/sent", 80},
                                               {"machine_remote_pages", 7},
                                               {"machine_memory_traffic/local", 110}};
  EXPECT_EQ(read_process_counters(root()).counts, expected);
}

TEST_F(ProcessUse, WhatAMachineDoesNotGiveIsAbsent) {
  write("sys/devices/system/node/node0/numastat", "other_node 3\n");
  EXPECT_TRUE(read_process_counters(root()).counts.empty());
  Json record = Json::object();
  ProcessMeter(root()).write(record);
  EXPECT_EQ(record.find("process_read"), nullptr);
  EXPECT_EQ(record.find("process_memory"), nullptr);
  EXPECT_NE(record.find("process_cpus"), nullptr);
}

TEST_F(ProcessUse, AnIntervalHasRates) {
  write("proc/self/io", "rchar: 1000\n");
  const std::string idle = "eth2: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n";
  write("proc/net/dev", "eth0: 300 1 0 0 0 0 0 0 400 1 0 0 0 0 0 0\n" + idle);
  write("proc/self/statm", "500 3 0 0\n");
  ProcessMeter meter(root());
  write("proc/self/io", "rchar: 3000\n");
  write("proc/net/dev", "eth0: 200 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0\neth1: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n" + idle);
  Json record = Json::object();
  meter.write(record);
  EXPECT_GT(record.at("process_read").as_number(), 0);
  EXPECT_EQ(record.at("process_memory").as_integer() % 3, 0);
  const Json& network = record.at("machine_network");
  EXPECT_GT(network.at("eth0").at("sent").as_number(), 0);
  EXPECT_EQ(network.at("eth0").find("received"), nullptr) << "the counter began anew";
  EXPECT_EQ(network.find("eth2"), nullptr) << "it stood idle";
  EXPECT_EQ(network.find("eth1"), nullptr) << "it came meanwhile";
}

TEST_F(ProcessUse, OfThisProcess) {
  ProcessMeter meter;
  // Touched, so that there are faults and time.
  std::vector<char> memory(std::size_t{64} << 20);
  for (std::size_t i = 0; i < memory.size(); i += 4096) memory[i] = static_cast<char>(i);
  std::ofstream(root() + "/written") << std::string(1 << 20, 'x');
  Json record = Json::object();
  meter.write(record);
  EXPECT_GT(record.at("process_cpus").as_number(), 0.05);
  EXPECT_GE(record.at("process_memory").as_integer(), 64 << 20);
  EXPECT_GE(record.at("process_minor_faults").as_integer(), 32) << "two megabytes a page at most";
  EXPECT_GT(record.at("process_written").as_number(), 0);
}

}  // namespace
}  // namespace hearth::train::process_use_test
