// SPDX-License-Identifier: Apache-2.0
// Whether what NCCL chose is what the machines can do, and what to change.
#include <algorithm>

#include "core/error.h"
#include "dist/nccl_log/log.h"

namespace hearth::dist {
namespace {

std::string variable(const NcclLog& log, const std::string& name) {
  const auto set = log.variables.find(name);
  return set == log.variables.end() ? "" : set->second;
}

std::string listed(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string counted(std::size_t count, const char* what) { return join_text(count, " ", what, count == 1 ? "" : "s"); }

std::string text_of(const NcclLink& link) { return join_text("rank ", link.from, " to ", link.to); }

const std::string& host_of(const NcclLog& log, int rank) {
  static const std::string unknown;
  const auto known = log.ranks.find(rank);
  return known == log.ranks.end() ? unknown : known->second.host;
}

std::set<std::string> hosts_of(const NcclLog& log) {
  std::set<std::string> hosts;
  for (const auto& [rank, place] : log.ranks) hosts.insert(place.host);
  return hosts;
}

bool is_network(const NcclLink& link) { return link.by.starts_with("NET/"); }
bool is_rdma(const NcclLink& link) { return link.by.starts_with("NET/IB"); }

template <class F>
const NcclLink* first_link(const NcclLog& log, const F& f) {
  const auto it = std::ranges::find_if(log.links, f);
  return it == log.links.end() ? nullptr : &*it;
}

Check check_log(const NcclLog& log) {
  const std::size_t ranks = log.ranks.size(), hosts = hosts_of(log).size();
  const Check check{.name = "log"};
  const auto unknown = [&](std::string finding, std::string remedy) {
    return Check{check.name, CheckState::unknown, std::move(finding), std::move(remedy)};
  };
  if (ranks == 0)
    return unknown("no rank has come to \"Init COMPLETE\"",
                   "run with NCCL_DEBUG=INFO; NCCL_DEBUG_SUBSYS unset, or with INIT, NET, GRAPH and ENV");
  if (ranks < static_cast<std::size_t>(log.size))
    return unknown(join_text("it has ", ranks, " of ", log.size, " ranks"), "give the logs of the others, too");
  if (log.is_cut) return unknown("it has more connections than are kept", "give the log of one rank");
  if (log.size > 1 && log.links.empty())
    return unknown("no connection is in it; NCCL 2.22 and newer connect at the first collective",
                   "give a log that goes on to the first step");
  return {check.name, CheckState::ok, counted(ranks, "rank") + " on " + counted(hosts, "host"), ""};
}

Check check_peers(const NcclLog& log) {
  const std::string name = "GPU to GPU";
  for (const auto& [set, is_off] : {std::pair("NCCL_P2P_DISABLE", variable(log, "NCCL_P2P_DISABLE") == "1"),
                                    {"NCCL_P2P_LEVEL", variable(log, "NCCL_P2P_LEVEL") == "LOC"}})
    if (is_off)
      return {name, CheckState::wrong, join_text(set, "=", variable(log, set), " keeps GPUs from each other's memory"),
              join_text("unset ", set)};
  for (const std::string& text : log.no_peer)
    if (text.find("NVLINK") != text.npos)
      return {
          name, CheckState::wrong, text,
          "look for errors of NVLinks in the kernel's log and in `nvidia-smi nvlink --status`; restart the machine"};
  const auto in_host = [&](const NcclLink& link) {
    const std::string& host = host_of(log, link.from);
    return !host.empty() && host == host_of(log, link.to);
  };
  if (const NcclLink* const link =
          first_link(log, [&](const NcclLink& of) { return is_network(of) && in_host(of) && log.groups.size() < 2; }))
    return {name, CheckState::wrong, text_of(*link) + " goes by " + link->by + " within one host",
            variable(log, "NCCL_SHM_DISABLE") == "1"
                ? "unset NCCL_SHM_DISABLE"
                : "run the ranks of a host in one container, with one /dev/shm and all of its GPUs"};
  const NcclLink* const shared = first_link(log, [](const NcclLink& link) { return link.by == "SHM"; });
  if (shared != nullptr) {
    const std::string& host = host_of(log, shared->from);
    const std::string finding = text_of(*shared) + " goes by the host's memory (SHM)";
    if (log.hosts_with_nvlink.count(host) > 0)
      return {name, CheckState::wrong, finding + ", and the GPUs of this host have NVLinks",
              "give each rank all GPUs of its host (CUDA_VISIBLE_DEVICES, the container's devices); "
              "`nvidia-smi topo -p2p r` tells what the driver lets"};
    if (!log.no_peer.empty())
      return {name, CheckState::unknown, finding + ": " + *log.no_peer.begin(),
              "`nvidia-smi topo -p2p r` tells what the driver lets; ACS or an IOMMU can be in the way"};
    if (log.hosts_with_graph.count(host) == 0)
      return {name, CheckState::unknown, finding,
              "NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,ENV tells whether there are NVLinks"};
    return {name, CheckState::ok, finding + "; the GPUs of this host have no NVLinks", ""};
  }
  std::set<std::string> kinds;
  for (const NcclLink& link : log.links)
    if (!is_network(link)) kinds.insert(link.by);
  return {name, CheckState::ok, kinds.empty() ? "no two ranks of a host are connected" : listed(kinds), ""};
}

/// Why NCCL goes by TCP although `device` could do better.
Check tcp_beside(const NcclLog& log, const std::string& device) {
  for (const auto& [set, is_off] : {std::pair("NCCL_IB_DISABLE", variable(log, "NCCL_IB_DISABLE") == "1"),
                                    {"NCCL_NET", !variable(log, "NCCL_NET").empty()},
                                    {"NCCL_IB_HCA", !variable(log, "NCCL_IB_HCA").empty()}})
    if (is_off)
      return {"between hosts", CheckState::wrong,
              join_text("NET/Socket, by ", set, "=", variable(log, set), ", beside the RDMA device ", device),
              join_text("unset ", set)};
  return {"between hosts", CheckState::wrong, "NET/Socket, beside the RDMA device " + device,
          "install rdma-core (libibverbs.so.1); a container needs /dev/infiniband and `--ulimit memlock=-1`"};
}

Check check_network(const NcclLog& log, const Network* machine) {
  const std::string name = "between hosts";
  std::set<std::string> kinds;
  for (const NcclLink& link : log.links)
    if (is_network(link)) kinds.insert(link.by);
  const bool by_tcp = kinds.count("NET/Socket") > 0;
  if (kinds.empty() && hosts_of(log).size() < 2) return {name, CheckState::ok, "not needed within one host", ""};
  if (kinds.empty())
    return {name, CheckState::unknown, "no connection between hosts is in the log",
            "NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,ENV, and a log that goes on to the first step"};
  if (!by_tcp) return {name, CheckState::ok, listed(kinds) + (log.rdma.empty() ? "" : " by " + listed(log.rdma)), ""};
  if (!log.rdma.empty()) return tcp_beside(log, *log.rdma.begin());
  const std::string by = "NET/Socket" + (log.interfaces.empty() ? "" : " by " + listed(log.interfaces));
  if (machine == nullptr)
    return {name, CheckState::unknown, by + "; whether there is an RDMA device, this log does not tell",
            "`hearth doctor --network --nccl-log FILE` on " + *hosts_of(log).begin()};
  for (const RdmaDevice& device : machine->rdma)
    if (device.state == "ACTIVE") return tcp_beside(log, device.name);
  if (!machine->rdma.empty())
    return {name, CheckState::wrong, by + "; no RDMA device has an active port",
            "connect a port of " + machine->rdma[0].name};
  return {name, CheckState::ok, by + "; there is no RDMA device", ""};
}

/// Of what goes by TCP.
Check check_interface(const NcclLog& log, const Network* machine) {
  const std::string name = "interface", chosen = listed(log.interfaces);
  if (machine == nullptr || log.interfaces.empty())
    return {name, CheckState::unknown, chosen.empty() ? "the log does not tell" : chosen + "; its speed is not known",
            "`hearth doctor --network --nccl-log FILE` on a host of the ranks"};
  const NetworkInterface* const fastest = fastest_interface(*machine);
  for (const NetworkInterface& interface : machine->interfaces)
    if (log.interfaces.count(interface.name) > 0 && fastest != nullptr && interface.mbit > 0 &&
        2 * interface.mbit <= fastest->mbit)
      return {name, CheckState::wrong,
              join_text(interface.name, " has ", interface.mbit, " Mbit/s, and ", fastest->name, " ", fastest->mbit),
              "NCCL_SOCKET_IFNAME=" + fastest->name};
  return {name, CheckState::ok, chosen, ""};
}

/// NCCL decides for reading (what a rank sends) and writing apart; before Ampere it reads over NVLink machines only.
Check check_gpu_direct(const NcclLog& log) {
  const std::string name = "GPUDirect RDMA";
  const auto by_host = [](bool receives) {
    return [receives](const NcclLink& link) { return is_rdma(link) && !link.gpu_direct && link.receives == receives; };
  };
  const NcclLink *const written = first_link(log, by_host(true)), *const read = first_link(log, by_host(false));
  const NcclLink* const link = written != nullptr ? written : read;
  if (link == nullptr) return {name, CheckState::ok, "all that goes by RDMA", ""};
  const std::string finding = text_of(*link) + " goes by the host's memory";
  if (variable(log, "NCCL_NET_GDR_READ") == "0" && written == nullptr)
    return {name, CheckState::wrong, finding + ": NCCL_NET_GDR_READ=0", "unset NCCL_NET_GDR_READ"};
  if (written == nullptr)
    return {name, CheckState::ok, finding + " where it is sent, and directly where it is received", ""};
  for (const std::string& why : log.no_gpu_direct)
    if (why.find("distance") != why.npos)
      return {
          name, CheckState::wrong, finding + ": " + why,
          "move the cards to one PCIe switch, or NCCL_NET_GDR_LEVEL=PHB (SYS) if a measurement is the better for it"};
  return {name, CheckState::wrong, finding + (log.no_gpu_direct.empty() ? "" : ": " + *log.no_gpu_direct.begin()),
          "modprobe nvidia_peermem, or the driver's open modules; the lines GPUDirect of `hearth doctor --network` "
          "check the rest"};
}

Check check_multicast(const NcclLog& log) {
  const std::string name = "NVLS";
  for (const std::string& warning : log.warnings)
    if (warning.find("(NVLS)") != warning.npos)
      return {name, CheckState::wrong, warning,
              "have Fabric Manager run in the driver's version and restart the machine, or NCCL_NVLS_ENABLE=0"};
  if (!*log.has_multicast) return {name, CheckState::ok, "GPU, switch or driver has no multicast", ""};
  if (variable(log, "NCCL_NVLS_ENABLE") == "0")
    return {name, CheckState::wrong, "NCCL_NVLS_ENABLE=0 turns sums in the switches off", "unset NCCL_NVLS_ENABLE"};
  const int channels = log.nvls_channels.value_or(0);
  return {name, CheckState::ok,
          channels > 0 ? counted(static_cast<std::size_t>(channels), "channel") : "NCCL takes rings and trees here",
          ""};
}

}  // namespace

std::vector<Check> nccl_checks(const NcclLog& log, const Network& machine, const std::string& host) {
  const std::set<std::string> hosts = hosts_of(log);
  const Network* const known = !host.empty() && hosts.count(host) > 0 ? &machine : nullptr;
  std::vector<Check> checks{check_log(log)};
  if (log.ranks.empty() || log.size < 2) return checks;
  checks.push_back(check_peers(log));
  checks.push_back(check_network(log, known));
  if (first_link(log, [](const NcclLink& link) { return link.by == "NET/Socket"; }) != nullptr)
    checks.push_back(check_interface(log, known));
  if (first_link(log, is_rdma) != nullptr) checks.push_back(check_gpu_direct(log));
  if (log.has_multicast) checks.push_back(check_multicast(log));
  return checks;
}

}  // namespace hearth::dist
