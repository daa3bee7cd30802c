// SPDX-License-Identifier: Apache-2.0
// The topology of run.json, of made-up machines and of this one.
#include "train/checkpoint/run_topology.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "dist/process_group.h"
#include "tests/dist/made_up_machine.h"
#include "tests/support/ranks.h"

namespace hearth::train::run_topology_test {
namespace {

class Server : public dist::MadeUpMachine {
 public:
  Server() {
    numa_node(0, "0-3,8-11");
    numa_node(1, "4-7,12-15");
    numa_node(2, "");
    gpu_at("0000:3d:00.0", 0);
    gpu_at("0000:bd:00.0", 1);
    gpu_at("0000:cd:00.0", -1);
    pci("pci0000:3a/0000:3a:00.0/0000:3e:00.0", 0, "0x020700", "0x15b3");
    rdma("mlx5_0", "4: ACTIVE", "pci0000:3a/0000:3a:00.0/0000:3e:00.0");
    interface("lo", "0x9", "unknown");
    interface("eth0", "0x1003", "up", 10000);
    interface("eth1", "0x1003", "up");
    interface("eth2", "0x1002", "down", 10000);
  }
};

TEST(RunTopology, HasWhatTheMachineGives) {
  const Server server;
  const dist::Network network = server.look();
  const std::vector<cuda::NvLink> links{{"0000:3d:00.0", "0000:bd:00.0", 4}};
  const Json topology = machine_topology(network, dist::gpu_paths(network, links), cpu::numa_nodes(server.root()));
  EXPECT_EQ(to_text(topology.at("numa_nodes")),
            R"([{"node":0,"cores":"0-3, 8-11"},{"node":1,"cores":"4-7, 12-15"},{"node":2}])");
  EXPECT_EQ(to_text(topology.at("gpus")),
            R"([{"gpu":"0000:3d:00.0","numa_node":0},{"gpu":"0000:bd:00.0","numa_node":1},{"gpu":"0000:cd:00.0"}])");
  EXPECT_EQ(to_text(topology.at("gpu_paths").at(0)), R"({"from":"0000:3d:00.0","to":"0000:bd:00.0","by":"NV4"})");
  EXPECT_EQ(to_text(topology.at("interfaces")), R"([{"name":"eth0","mbit":10000},{"name":"eth1"}])");
  EXPECT_EQ(
      to_text(topology.at("rdma")),
      R"~([{"name":"mlx5_0","state":"ACTIVE","rate":"100 Gb/sec (4X EDR)","layer":"InfiniBand","numa_node":0}])~");
}

TEST(RunTopology, LacksWhatAMachineDoesNotGive) {
  const dist::MadeUpMachine nothing;
  EXPECT_EQ(to_text(machine_topology(nothing.look(), {}, cpu::numa_nodes(nothing.root()))), "{}");
}

TEST(RunTopology, OfThisMachineHasThePlacesOfAllRanks) {
  EXPECT_EQ(run_topology(dist::one_process(), {}, true).find("backend"), nullptr);
  for (const std::string& failure : test::failures_of_ranks(dist::loopback_groups(3), [](Collective& group) {
         const Json topology = run_topology(group, {}, false);
         if (group.rank() != 0) return;
         EXPECT_EQ(topology.at("backend").as_string(), group.backend());
         ASSERT_EQ(topology.at("ranks").size(), 3U);
         for (std::size_t rank = 0; rank < 3; ++rank) {
           const Json& place = topology.at("ranks").at(rank);
           EXPECT_EQ(place.at("rank").as_integer(), static_cast<std::int64_t>(rank));
           EXPECT_EQ(place.at("host").as_string(), dist::nccl_host());
           EXPECT_EQ(place.at("cores").as_string(), cpu::describe_cores(cpu::allowed_cores()));
           EXPECT_EQ(place.at("device").as_string(), "cpu");
           EXPECT_EQ(place.find("gpu"), nullptr);
         }
       }))
    EXPECT_EQ(failure, "");
}

TEST(RunTopology, PlaceIsOnTheNodeThatHasAllCores) {
  const std::vector<int> cores = cpu::allowed_cores();
  ASSERT_FALSE(cores.empty());
  std::vector<int> more = cores;
  more.push_back(cores.back() + 1);
  EXPECT_EQ(place_of_rank(0, {}, {{3, {}}, {5, more}}).at("numa_node").as_integer(), 5);
  EXPECT_EQ(place_of_rank(0, {}, {{0, {cores.back() + 1}}}).find("numa_node"), nullptr);
  EXPECT_EQ(place_of_rank(0, {}, {}).find("numa_node"), nullptr);
}

TEST(RunTopology, OfNcclCountsPairsAndListsFew) {
  const auto json_of = [](int ranks) {
    dist::NcclLog log{.size = ranks};
    for (int rank = 0; rank < ranks; ++rank) {
      const int next = (rank + 1) % ranks;
      log.ranks[rank] = {"alpha", ""};
      // Both ends of one by the network, of which the channels of the sender count.
      for (const bool receives : {false, true})
        log.links.push_back({.from = rank, .to = next, .by = "NET/IB", .receives = receives, .channels = {0, 1}});
    }
    return to_json(log, {});
  };
  const Json few = json_of(64), many = json_of(65);
  EXPECT_EQ(to_text(few.at("connections")), R"([{"by":"NET/IB","gpu_direct":false,"pairs":64}])");
  EXPECT_EQ(few.at("links").size(), 64U);
  EXPECT_EQ(to_text(few.at("links").at(0)), R"({"from":0,"to":1,"by":"NET/IB","gpu_direct":false,"channels":2})");
  EXPECT_EQ(many.at("connections").at(0).at("pairs").as_integer(), 65);
  EXPECT_EQ(many.find("links"), nullptr);
  for (const char* absent : {"version", "between_hosts", "rdma", "channels", "nvls_channels", "multicast", "warnings"})
    EXPECT_EQ(few.find(absent), nullptr) << absent;
  // What a log of the receiver alone has.
  dist::NcclLog half{.size = 2};
  half.links.push_back({.from = 0, .to = 1, .by = "NET/IB", .receives = true, .gpu_direct = true, .channels = {0}});
  EXPECT_EQ(to_text(to_json(half, {}).at("connections")), R"([{"by":"NET/IB","gpu_direct":true,"pairs":1}])");
}

}  // namespace
}  // namespace hearth::train::run_topology_test
