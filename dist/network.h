// SPDX-License-Identifier: Apache-2.0
// What ranks of several machines could go by: interfaces, RDMA devices, how far these are from the GPUs, and what NCCL
// would choose of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace hearth::dist {

/// By interface, in the order in which the system lists them.
using InterfaceAddresses = std::vector<std::pair<std::string, std::string>>;
/// IPv4 addresses, and IPv6 addresses that are not of one link only, of the interfaces that are up.
InterfaceAddresses interface_addresses();
/// The variables of the environment whose names begin with NCCL_.
std::map<std::string, std::string> nccl_variables();

/// Where it is looked; tests have a folder of their own in place of /.
struct NetworkSources {
  std::string root = "/";
  InterfaceAddresses addresses = interface_addresses();
  std::map<std::string, std::string> nccl = nccl_variables();
};

/// A position on the PCIe bus; empty where it is none, as of a virtual interface.
struct PciPosition {
  std::string path{};  ///< the folder below /sys/devices
  int numa_node = -1;  ///< -1: unknown
};

struct NetworkInterface {
  std::string name{};
  std::vector<std::string> addresses{};
  bool is_up = false;
  bool is_loopback = false;
  std::int64_t mbit = -1;  ///< -1: unknown
  PciPosition at{};
};

struct RdmaDevice {
  std::string name{};                    ///< "mlx5_0"
  std::string state{}, rate{}, layer{};  ///< of its best port: "ACTIVE", "100 Gb/sec (4X EDR)", "InfiniBand"
  PciPosition at{};
};

struct PciGpu {
  std::string name;  ///< its address on the bus: "0000:3b:00.0"
  PciPosition at;
};

struct Network {
  std::vector<NetworkInterface> interfaces{};
  std::vector<RdmaDevice> rdma{};
  std::vector<PciGpu> gpus{};
  int numa_nodes = 0;
  std::int64_t shared_memory_bytes = -1;  ///< of /dev/shm; -1: there is none
  std::string default_interface{};        ///< of the default route; "" without one
  std::map<std::string, std::string> nccl{};
};

Network look_at_network(const NetworkSources& sources = {});

/// How far two devices are from each other, by NVIDIA's words: PIX (one PCIe switch), PXB (several), PHB (the host
/// bridge of a CPU), NODE (host bridges of one NUMA node), SYS (NUMA nodes); "" where a position is unknown.
std::string pci_distance(const PciPosition& a, const PciPosition& b);

/// The fastest of the interfaces that reach other machines; null where there is none.
const NetworkInterface* fastest_interface(const Network& network);

/// Interfaces that NCCL takes for TCP: those of NCCL_SOCKET_IFNAME, or those whose names begin with "ib", or all but
/// docker, lo and virbr (ncclFindInterfaces in NCCL's src/misc/socket.cc).
std::vector<const NetworkInterface*> nccl_interfaces(const Network& network);
/// RDMA devices that NCCL takes: active ones, which NCCL_IB_HCA may restrict; none with NCCL_IB_DISABLE=1.
std::vector<const RdmaDevice*> nccl_rdma(const Network& network);

/// A setting to change, and why.
struct NetworkAdvice {
  std::string setting;  ///< "NCCL_SOCKET_IFNAME=eth1", or what is to be done
  std::string why;
};
/// Most important first; empty where nothing has to be changed.
std::vector<NetworkAdvice> network_advice(const Network& network);

}  // namespace hearth::dist
