// SPDX-License-Identifier: Apache-2.0
#include "dist/network.h"

#include <gtest/gtest.h>

#include "tests/dist/made_up_machine.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::dist::network_test {
namespace {

namespace fs = std::filesystem;
using test::contains;
using Names = std::vector<std::string>;

/// A machine of two CPUs in a folder: a GPU and mlx5_0 below one switch of the first, mlx5_1 at the second, eth0.
class FakeMachine : public testing::Test, protected MadeUpMachine {
 protected:
  FakeMachine() {
    pci("pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:00.0/0000:3d:00.0", 0, "0x030200", "0x10de");
    pci("pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:01.0/0000:3e:00.0", 0, "0x020700", "0x15b3");
    pci("pci0000:3a/0000:3a:02.0/0000:40:00.0", 0, "0x020000", "0x8086");
    pci("pci0000:5a/0000:5a:00.0/0000:5b:00.0", 0, "0x020700", "0x15b3");
    pci("pci0000:ba/0000:ba:00.0/0000:bb:00.0", 1, "0x020700", "0x15b3");
    for (const char* node : {"node0", "node1", "has_cpu"})
      fs::create_directories(root_ / "sys/devices/system/node" / node);
    interface("lo", "0x9", "unknown");
    interface("eth0", "0x1003", "up", 1000, "pci0000:3a/0000:3a:02.0/0000:40:00.0");
    write("proc/net/route", "Iface\tDestination\tGateway\neth0\t0000A8C0\t0\neth0\t00000000\t0100A8C0\n");
    fs::create_directories(root_ / "dev/shm");
    addresses_ = {{"lo", "127.0.0.1"}, {"eth0", "192.168.0.5"}};
  }

  /// The settings that it would change; /dev/shm is that of the machine of the test.
  static Names settings(Network network) {
    network.shared_memory_bytes = std::int64_t{1} << 30;
    Names found;
    for (const NetworkAdvice& one : network_advice(network)) found.push_back(one.setting);
    return found;
  }
};

template <class Devices>
Names names(const Devices& devices) {
  Names found;
  for (const auto* one : devices) found.push_back(one->name);
  return found;
}

TEST_F(FakeMachine, InterfacesHaveAddressesSpeedAndPosition) {
  interface("eth1", "0x1002", "down", 100000);
  const Network network = look();
  ASSERT_EQ(network.interfaces.size(), 3U);
  const NetworkInterface &eth0 = network.interfaces[0], &eth1 = network.interfaces[1], &lo = network.interfaces[2];
  EXPECT_EQ(eth0.name, "eth0");
  EXPECT_EQ(eth0.addresses, Names{"192.168.0.5"});
  EXPECT_EQ(eth0.mbit, 1000);
  EXPECT_EQ(eth0.at.numa_node, 0);
  EXPECT_TRUE(eth0.is_up && !eth0.is_loopback);
  EXPECT_FALSE(eth1.is_up);
  EXPECT_EQ(eth1.at.path, "");
  EXPECT_TRUE(lo.is_up && lo.is_loopback);
  EXPECT_EQ(lo.mbit, -1);
  EXPECT_EQ(network.default_interface, "eth0");
  EXPECT_EQ(network.numa_nodes, 2);
  EXPECT_GT(network.shared_memory_bytes, 0);
}

TEST_F(FakeMachine, DistancesOfTheGpuAreThoseOfTheBus) {
  rdma("mlx5_0", "4: ACTIVE", "pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:01.0/0000:3e:00.0");
  rdma("mlx5_1", "4: ACTIVE", "pci0000:5a/0000:5a:00.0/0000:5b:00.0");
  rdma("mlx5_2", "1: DOWN", "pci0000:ba/0000:ba:00.0/0000:bb:00.0");
  const Network network = look();
  ASSERT_EQ(network.gpus.size(), 1U);
  EXPECT_EQ(network.gpus[0].name, "0000:3d:00.0");
  ASSERT_EQ(network.rdma.size(), 3U);
  EXPECT_EQ(network.rdma[0].rate, "100 Gb/sec (4X EDR)");
  EXPECT_EQ(network.rdma[2].state, "DOWN");
  Names distances;
  for (const RdmaDevice& one : network.rdma) distances.push_back(pci_distance(network.gpus[0].at, one.at));
  distances.push_back(pci_distance(network.gpus[0].at, network.interfaces[0].at));
  distances.push_back(pci_distance(network.gpus[0].at, network.interfaces[1].at));
  EXPECT_EQ(distances, (Names{"PIX", "NODE", "SYS", "PHB", ""}));
  // A second switch below the first.
  PciPosition deeper = network.gpus[0].at;
  deeper.path += "/0000:60:00.0";
  EXPECT_EQ(pci_distance(deeper, network.rdma[0].at), "PXB");
}

TEST_F(FakeMachine, NcclTakesInterfacesAsItsSourcesSay) {
  interface("docker0", "0x1003", "up");
  interface("eth1", "0x1003", "up", 100000);
  for (const char* name : {"docker0", "eth1"}) addresses_.emplace_back(name, "10.0.0.1");
  EXPECT_EQ(names(nccl_interfaces(look())), (Names{"eth0", "eth1"}));
  EXPECT_EQ(names(nccl_interfaces(look({{"NCCL_SOCKET_IFNAME", "eth1,docker"}}))), (Names{"docker0", "eth1"}));
  EXPECT_EQ(names(nccl_interfaces(look({{"NCCL_SOCKET_IFNAME", "^eth"}}))), (Names{"docker0", "lo"}));
  EXPECT_EQ(names(nccl_interfaces(look({{"NCCL_SOCKET_IFNAME", "=eth"}}))), Names{});
  interface("ib0", "0x1003", "up");
  addresses_.emplace_back("ib0", "10.1.0.1");
  EXPECT_EQ(names(nccl_interfaces(look())), Names{"ib0"});
}

TEST_F(FakeMachine, AFasterInterfaceIsToBeTaken) {
  EXPECT_EQ(settings(look()), Names{"dist.wire=\"bf16\", or a larger train.accumulate"});
  interface("eth1", "0x1003", "up", 100000);
  EXPECT_EQ(settings(look()).size(), 1U) << "it has no address";
  addresses_.emplace_back("eth1", "10.0.0.1");
  EXPECT_EQ(settings(look()),
            (Names{"NCCL_SOCKET_IFNAME=eth1", "MASTER_ADDR=10.0.0.1 on all ranks, if rank 0 is here"}));
  write("proc/net/route", "Iface\tDestination\neth1\t00000000\n");
  EXPECT_EQ(settings(look({{"NCCL_SOCKET_IFNAME", "eth1"}})), Names{});
  EXPECT_EQ(settings(look({{"NCCL_SOCKET_IFNAME", "eth7"}})), Names{"NCCL_SOCKET_IFNAME=eth1"});
  EXPECT_PRED2(contains, network_advice(look()).at(0).why, "NCCL takes eth0 (1 Gbit/s); eth1 (100 Gbit/s) is faster");
}

TEST_F(FakeMachine, RdmaThatIsNotUsedIsNamed) {
  rdma("mlx5_0", "1: DOWN", "pci0000:5a/0000:5a:00.0/0000:5b:00.0");
  EXPECT_EQ(settings(look()).at(0), "connect a port of mlx5_0");
  rdma("mlx5_1", "4: ACTIVE", "pci0000:ba/0000:ba:00.0/0000:bb:00.0");
  EXPECT_EQ(names(nccl_rdma(look())), Names{"mlx5_1"});
  EXPECT_EQ(settings(look()), Names{}) << "TCP only brings the ranks together";
  EXPECT_EQ(settings(look({{"NCCL_IB_DISABLE", "1"}})).at(0), "unset NCCL_IB_DISABLE");
  EXPECT_EQ(settings(look({{"NCCL_IB_HCA", "mlx5_0:1"}})).at(0), "unset NCCL_IB_HCA");
  EXPECT_EQ(settings(look({{"NCCL_IB_HCA", "^mlx5_0"}})), Names{});
  EXPECT_EQ(settings(look({{"NCCL_P2P_DISABLE", "1"}})), Names{"unset NCCL_P2P_DISABLE"});
}

TEST_F(FakeMachine, SmallSharedMemoryAndNoInterfaceAreNamed) {
  Network network = look();
  network.shared_memory_bytes = std::int64_t{64} << 20;
  EXPECT_PRED2(contains, network_advice(network).back().why, "/dev/shm has 64 MB");
  addresses_ = {{"lo", "127.0.0.1"}};
  EXPECT_EQ(settings(look()), Names{"bring up an interface with an address"});
}

TEST(Network, AnEmptyMachineHasNothing) {
  const test::TempDir folder;
  const Network network = look_at_network({.root = folder.path(), .addresses = {}, .nccl = {}});
  EXPECT_TRUE(network.interfaces.empty() && network.rdma.empty() && network.gpus.empty());
  EXPECT_EQ(network.shared_memory_bytes, -1);
  EXPECT_EQ(network.default_interface, "");
}

TEST(Network, ThisMachineHasALoopback) {
  const InterfaceAddresses addresses = interface_addresses();
  EXPECT_NE(std::find(addresses.begin(), addresses.end(), std::pair<std::string, std::string>("lo", "127.0.0.1")),
            addresses.end());
  setenv("NCCL_OF_THIS_TEST", "1=2", 1);
  EXPECT_EQ(nccl_variables().at("NCCL_OF_THIS_TEST"), "1=2");
  unsetenv("NCCL_OF_THIS_TEST");
}

}  // namespace
}  // namespace hearth::dist::network_test
