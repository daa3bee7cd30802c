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
