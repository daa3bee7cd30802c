// SPDX-License-Identifier: Apache-2.0
// What NCCL would choose, and what to change.
#include <algorithm>
#include <sstream>

#include "core/error.h"
#include "dist/network.h"

namespace hearth::dist {
namespace {

constexpr std::int64_t slow_mbit = 1000, small_shared_memory = std::int64_t{256} << 20;

std::string variable(const Network& network, const char* name) {
  const auto found = network.nccl.find(name);
  return found == network.nccl.end() ? "" : found->second;
}

std::string speed_text(const NetworkInterface& one) {
  return join_text(one.name, one.mbit > 0 ? join_text(" (", static_cast<double>(one.mbit) / 1000, " Gbit/s)") : "");
}

/// Whether a list of NCCL's, "eth,ib", "=eth0" (whole names) or "^docker" (all but these), has the name.
bool list_has(std::string list, const std::string& name) {
  const bool all_but = list.starts_with('^');
  if (all_but) list.erase(0, 1);
  const bool whole = list.starts_with('=');
  if (whole) list.erase(0, 1);
  std::istringstream words(list);
  bool found = false;
  for (std::string word; std::getline(words, word, ',');) {
    // A port, "mlx5_0:1", is of no matter here.
    word = word.substr(0, word.find(':'));
    found = found || (whole ? name == word : name.starts_with(word));
  }
  return found != all_but;
}

bool is_usable(const NetworkInterface& one) { return one.is_up && !one.addresses.empty(); }

void advise_on_tcp(const Network& network, const NetworkInterface& fastest, std::vector<NetworkAdvice>& advice) {
  const auto is_slower = [&](const NetworkInterface& one) { return one.mbit > 0 && 2 * one.mbit <= fastest.mbit; };
  const std::vector<const NetworkInterface*> chosen = nccl_interfaces(network);
  const auto slow = std::find_if(chosen.begin(), chosen.end(), [&](const auto* one) { return is_slower(*one); });
  if (const std::string list = variable(network, "NCCL_SOCKET_IFNAME"); chosen.empty() && !list.empty())
    advice.push_back({"NCCL_SOCKET_IFNAME=" + fastest.name,
                      join_text("NCCL_SOCKET_IFNAME=", list, " names no interface that is up here")});
  else if (slow != chosen.end() && nccl_rdma(network).empty())
    advice.push_back({"NCCL_SOCKET_IFNAME=" + fastest.name,
                      join_text("NCCL takes ", speed_text(**slow), "; ", speed_text(fastest), " is faster")});
  for (const NetworkInterface& one : network.interfaces)
    if (one.name == network.default_interface && is_slower(one))
      advice.push_back({join_text("MASTER_ADDR=", fastest.addresses[0], " on all ranks, if rank 0 is here"),
                        join_text("TCP takes the interface by which rank 0 is reached; the default route is by ",
                                  speed_text(one), ", and ", speed_text(fastest), " is faster")});
  if (fastest.mbit > 0 && fastest.mbit <= slow_mbit && nccl_rdma(network).empty())
    advice.push_back({"dist.wire=\"bf16\", or a larger train.accumulate",
                      join_text("100 MB of gradients take ", 800 / static_cast<double>(fastest.mbit), " s by ",
                                speed_text(fastest), ", the fastest interface")});
}

void advise_on_rdma(const Network& network, std::vector<NetworkAdvice>& advice) {
  const bool has_active = std::any_of(network.rdma.begin(), network.rdma.end(),
                                      [](const RdmaDevice& one) { return one.state == "ACTIVE"; });
  if (!network.rdma.empty() && !has_active)
    advice.push_back({"connect a port of " + network.rdma[0].name,
                      join_text("no RDMA device has an active port (", network.rdma[0].name, " is ",
                                network.rdma[0].state, "): NCCL goes by TCP")});
  if (!has_active || !nccl_rdma(network).empty()) return;
  const bool off = variable(network, "NCCL_IB_DISABLE") == "1";
  const std::string name = off ? "NCCL_IB_DISABLE" : "NCCL_IB_HCA";
  advice.push_back({"unset " + name, join_text(name, "=", variable(network, name.c_str()),
                                               " leaves out every RDMA device that is active: NCCL goes by TCP")});
}

}  // namespace

const NetworkInterface* fastest_interface(const Network& network) {
  const NetworkInterface* fastest = nullptr;
  for (const NetworkInterface& one : network.interfaces)
    if (is_usable(one) && !one.is_loopback && (fastest == nullptr || one.mbit > fastest->mbit)) fastest = &one;
  return fastest;
}

std::vector<const NetworkInterface*> nccl_interfaces(const Network& network) {
  const std::string given = variable(network, "NCCL_SOCKET_IFNAME");
  const std::vector<std::string> tries =
      given.empty() ? std::vector<std::string>{"ib", "^docker,lo,virbr", "docker", "lo", "virbr"}
                    : std::vector<std::string>{given};
  std::vector<const NetworkInterface*> chosen;
  for (const std::string& list : tries) {
    for (const NetworkInterface& one : network.interfaces)
      if (is_usable(one) && list_has(list, one.name)) chosen.push_back(&one);
    if (!chosen.empty()) break;
  }
  return chosen;
}

std::vector<const RdmaDevice*> nccl_rdma(const Network& network) {
  std::vector<const RdmaDevice*> chosen;
  if (variable(network, "NCCL_IB_DISABLE") == "1") return chosen;
  const std::string list = variable(network, "NCCL_IB_HCA");
  for (const RdmaDevice& one : network.rdma)
    if (one.state == "ACTIVE" && (list.empty() || list_has(list, one.name))) chosen.push_back(&one);
  return chosen;
}

std::vector<NetworkAdvice> network_advice(const Network& network) {
  std::vector<NetworkAdvice> advice;
  const NetworkInterface* const fastest = fastest_interface(network);
  if (fastest == nullptr)
    advice.push_back(
        {"bring up an interface with an address", "there is none but the loopback: ranks can only be on this machine"});
  advise_on_rdma(network, advice);
  if (fastest != nullptr) advise_on_tcp(network, *fastest, advice);
  for (const char* name : {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"})
    if (variable(network, name) == "1")
      advice.push_back({join_text("unset ", name), join_text(name, "=1 has GPUs of this machine take a slower way")});
  if (network.shared_memory_bytes < small_shared_memory)
    advice.push_back({"docker run --shm-size=1g, or a volume of medium Memory at /dev/shm",
                      join_text("/dev/shm has ", std::max<std::int64_t>(0, network.shared_memory_bytes) >> 20,
                                " MB; NCCL's ranks of one machine exchange bytes there")});
  return advice;
}

}  // namespace hearth::dist
