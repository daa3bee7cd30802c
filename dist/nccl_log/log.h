// SPDX-License-Identifier: Apache-2.0
// What NCCL chose, by the log that it writes with NCCL_DEBUG=INFO. Known are the lines of 2.14 to 2.28.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "dist/check.h"
#include "dist/network.h"

namespace hearth::dist {

/// From a rank to another, by the channels that have the same kind of connection.
struct NcclLink {
  int from = 0, to = 0;
  std::string by{};          ///< "P2P/CUMEM", "P2P/IPC", "P2P/direct", "SHM", "NET/IB", "NET/Socket"
  bool receives = false;     ///< the line is that of `to`; between hosts each end writes a line
  bool gpu_direct = false;   ///< an RDMA device reads or writes the GPU's memory itself ("GDRDMA")
  std::set<int> channels{};  ///< their numbers
};

struct NcclRank {
  std::string host{};
  std::string gpu{};  ///< its address on the bus, "0000:3d:00.0"; "" where the log does not tell
};

/// Of one rank or of several.
struct NcclLog {
  std::string version{};           ///< "2.28.9+cuda13.0", which rank 0 writes
  int size = 0;                    ///< ranks of the largest communicator
  std::set<std::string> groups{};  ///< the communicators, by what NCCL calls them
  std::map<int, NcclRank> ranks{};
  std::string between_hosts{};          ///< what NCCL takes between hosts: "IB", "Socket", the name of a plugin
  std::set<std::string> plugins{};      ///< those for what goes between hosts, as they were loaded
  std::set<std::string> rdma{};         ///< "mlx5_0"
  std::set<std::string> interfaces{};   ///< of NET/Socket: "eth0"
  bool no_rdma = false;                 ///< NCCL found no RDMA device
  int channels = 0, p2p_channels = 0;   ///< of collectives, and of ncclSend; the most of the ranks
  std::optional<int> nvls_channels{};   ///< nothing where the version has no NVLS
  std::optional<bool> has_multicast{};  ///< what NVLS needs of GPU, switch and driver
  bool has_rings = false, has_trees = false, has_nvls_tree = false;  ///< connected
  std::set<std::string> hosts_with_graph{};                          ///< of which the log has the devices
  std::set<std::string> hosts_with_nvlink{};
  std::vector<NcclLink> links{};
  std::map<std::string, std::string> variables{};  ///< NCCL_* that were set
  std::set<std::string> no_gpu_direct{};           ///< why, in NCCL's words: "GPU Direct RDMA Disabled for ..."
  std::set<std::string> no_peer{};                 ///< likewise: "P2P is disabled between ..."
  std::vector<std::string> warnings{};             ///< the first few
  bool is_cut = false;                             ///< there was more than is kept
};

/// Lines that are not NCCL's are passed over. Memory is bounded, whatever the text is.
NcclLog read_nccl_log(std::string_view text);

/// The lines of a log that read_nccl_log() goes by, at most 1 MiB of them.
std::string nccl_lines_of_interest(std::string_view text);

/// Whether what was chosen is what the machines can do, in a fixed order. `machine` is this one, whose devices are
/// compared with the choice where the log is of it: of a rank on `host`, its name up to the first dot.
std::vector<Check> nccl_checks(const NcclLog& log, const Network& machine, const std::string& host);

/// The name of this machine, as NCCL's log has it: up to the first dot.
std::string nccl_host();

}  // namespace hearth::dist
