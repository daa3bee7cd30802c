// SPDX-License-Identifier: Apache-2.0
// Where ranks are placed on made-up machines of several NUMA nodes.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "core/cpu/cores.h"
#include "tests/support/temp_dir.h"

namespace hearth::cpu::numa_cores_test {
namespace {

using Nodes = std::vector<std::vector<int>>;

class NumaCores : public testing::Test {
 protected:
  void node(int number, const std::string& list) const {
    const std::filesystem::path folder =
        std::filesystem::path(folder_.path()) / "sys/devices/system/node" / ("node" + std::to_string(number));
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "cpulist") << list << "\n";
  }
  Nodes nodes(const std::vector<int>& cores) const { return cores_by_node(cores, folder_.path()); }

  test::TempDir folder_;
};

TEST_F(NumaCores, AreThoseOfTheMaskByNode) {
  const std::vector<int> all{0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(nodes(all), (Nodes{all})) << "no such files";
  node(0, "0-1,4-5");
  node(1, "2-3,6-7");
  node(2, "");
  EXPECT_EQ(nodes(all), (Nodes{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  EXPECT_EQ(nodes({0, 1}), (Nodes{{0, 1}})) << "a mask of one node";
  EXPECT_EQ(nodes({1, 6, 9}), (Nodes{{1, 6, 9}})) << "a core of no node";
  node(1, "two and three");
  EXPECT_EQ(nodes(all), (Nodes{all})) << "a list that is not understood";
}

TEST_F(NumaCores, OfAMachineAreInOrderOfTheNumbers) {
  EXPECT_TRUE(numa_nodes(folder_.path()).empty());
  node(10, "4-7");
  node(8, "0-3");
  node(252, "");
  std::filesystem::create_directories(std::filesystem::path(folder_.path()) / "sys/devices/system/node/node1x");
  const std::vector<NumaNode> all = numa_nodes(folder_.path());
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].number, 8);
  EXPECT_EQ(all[0].cores, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(all[1].number, 10);
  EXPECT_EQ(all[2].number, 252);
  EXPECT_TRUE(all[2].cores.empty());
  EXPECT_EQ(nodes({2, 3, 4}), (Nodes{{2, 3}, {4}}));
}

TEST(Cores, AreReadFromLists) {
  EXPECT_EQ(cores_in_list("0-2,8"), (std::vector<int>{0, 1, 2, 8}));
  EXPECT_EQ(cores_in_list("8, 0-1"), (std::vector<int>{0, 1, 8}));
  EXPECT_EQ(cores_in_list(describe_cores({3, 4, 5, 9})), (std::vector<int>{3, 4, 5, 9}));
  for (const char* odd : {"", "x", "1-", "3-1", "-1", "1,x", "0-99999999", "1 2", "1-2-3"})
    EXPECT_TRUE(cores_in_list(odd).empty()) << odd;
}

TEST_F(NumaCores, OfAGpuAreThoseOfItsNode) {
  const auto device = [&](const std::string& address, const std::string& vendor, const std::string& node) {
    const std::filesystem::path folder = std::filesystem::path(folder_.path()) / "sys/bus/pci/devices" / address;
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "vendor") << vendor << "\n";
    std::ofstream(folder / "numa_node") << node << "\n";
  };
  device("0000:3d:00.0", "0x10de", "1");
  device("0000:3e:00.0", "0x10de", "-1");
  device("0000:3f:00.0", "0x15b3", "1");
  device("0000:40:00.0", "0x10de", "one");
  EXPECT_EQ(numa_node_of_gpu("0000:3d:00.0", folder_.path()), 1);
  for (const char* address : {"0000:3e:00.0", "0000:3f:00.0", "0000:40:00.0", "0000:41:00.0", ""})
    EXPECT_EQ(numa_node_of_gpu(address, folder_.path()), -1) << address;
}

TEST_F(NumaCores, NeighbouringRanksShareANode) {
  const Nodes two{{0, 1}, {2, 3}};
  EXPECT_EQ(cores_of_rank(two, 0, 4), two[0]);
  EXPECT_EQ(cores_of_rank(two, 1, 4), two[0]);
  EXPECT_EQ(cores_of_rank(two, 2, 4), two[1]);
  EXPECT_EQ(cores_of_rank(two, 2, 3), two[1]);
  EXPECT_TRUE(cores_of_rank(two, 0, 1).empty()) << "one rank uses both";
  EXPECT_TRUE(cores_of_rank({{0, 1}}, 0, 2).empty());
}

TEST_F(NumaCores, AThreadStaysOnItsCores) {
  std::vector<int> seen, refused;
  std::thread([&] {
    const std::vector<int> before = allowed_cores();
    run_on_cores({before.front()});
    seen = openmp_binds() ? std::vector<int>{before.front()} : allowed_cores();
    run_on_cores({});
    refused = openmp_binds() ? seen : allowed_cores();
  }).join();
  EXPECT_EQ(seen.size(), 1U);
  EXPECT_EQ(refused, seen) << "no core is no wish";
}

}  // namespace
}  // namespace hearth::cpu::numa_cores_test
