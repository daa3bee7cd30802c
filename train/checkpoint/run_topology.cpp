// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint/run_topology.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/cuda/nvml/bus_address.h"
#include "dist/agreement.h"

namespace hearth::train {
namespace {

constexpr std::size_t most_pairs = 64;

void set_node(Json& json, const char* key, int node) {
  if (node >= 0) json.set(key, node);
}

void set_text(Json& json, const char* key, const std::string& text) {
  if (!text.empty()) json.set(key, text);
}

void set_list(Json& json, const char* key, const Json& list) {
  if (list.size() > 0) json.set(key, list);
}

/// Of the two lines that a connection between hosts has, what is sent; of a log of one rank, what there is.
std::map<std::pair<int, int>, std::vector<const dist::NcclLink*>> links_by_pair(const dist::NcclLog& log) {
  std::map<std::pair<int, int>, std::vector<const dist::NcclLink*>> pairs;
  for (const bool receives : {false, true})
    for (const dist::NcclLink& link : log.links) {
      if (link.receives != receives) continue;
      std::vector<const dist::NcclLink*>& known = pairs[{link.from, link.to}];
      if (!receives || known.empty() || known[0]->receives) known.push_back(&link);
    }
  return pairs;
}

Json to_json(const dist::NcclLink& link) {
  Json json = Json::object().set("from", link.from).set("to", link.to).set("by", link.by);
  if (link.by.starts_with("NET/")) json.set("gpu_direct", link.gpu_direct);
  return json.set("channels", static_cast<std::int64_t>(link.channels.size()));
}

void set_links(Json& json, const dist::NcclLog& log) {
  std::map<std::pair<std::string, bool>, std::int64_t> kinds;
  Json single = Json::array();
  const auto pairs = links_by_pair(log);
  for (const auto& [pair, links] : pairs)
    for (const dist::NcclLink* const link : links) {
      ++kinds[{link->by, link->gpu_direct}];
      if (pairs.size() <= most_pairs) single.push_back(to_json(*link));
    }
  Json connections = Json::array();
  for (const auto& [kind, count] : kinds) {
    Json of_kind = Json::object().set("by", kind.first);
    if (kind.first.starts_with("NET/")) of_kind.set("gpu_direct", kind.second);
    connections.push_back(of_kind.set("pairs", count));
  }
  set_list(json, "connections", connections);
  set_list(json, "links", single);
}

}  // namespace

Json place_of_rank(int rank, Device device, const std::vector<cpu::NumaNode>& nodes) {
  const std::vector<int> cores = cpu::allowed_cores();
  Json place = Json::object().set("rank", rank);
  set_text(place, "host", dist::nccl_host());
  set_text(place, "cores", cpu::describe_cores(cores));
  for (const cpu::NumaNode& node : nodes)
    if (!cores.empty() && std::ranges::includes(node.cores, cores)) set_node(place, "numa_node", node.number);
  place.set("device", name_of(device));
  if (!device.is_cuda()) return place;
  const std::string address = cuda::bus_address(device);
  place.set("gpu", address);
  set_node(place, "gpu_numa_node", cpu::numa_node_of_gpu(address));
  return place;
}

Json machine_topology(const dist::Network& network, const std::vector<dist::GpuPath>& paths,
                      const std::vector<cpu::NumaNode>& nodes) {
  Json json = Json::object(), of_nodes = Json::array(), gpus = Json::array(), of_paths = Json::array(),
       interfaces = Json::array(), rdma = Json::array();
  for (const cpu::NumaNode& node : nodes) {
    Json entry = Json::object().set("node", node.number);
    set_text(entry, "cores", cpu::describe_cores(node.cores));
    of_nodes.push_back(entry);
  }
  for (const dist::PciGpu& gpu : network.gpus) {
    Json entry = Json::object().set("gpu", gpu.name);
    set_node(entry, "numa_node", gpu.at.numa_node);
    gpus.push_back(entry);
  }
  for (const dist::GpuPath& path : paths)
    if (!path.path.empty())
      of_paths.push_back(Json::object().set("from", path.from).set("to", path.to).set("by", path.path));
  for (const dist::NetworkInterface& interface : network.interfaces) {
    if (!interface.is_up || interface.is_loopback) continue;
    Json entry = Json::object().set("name", interface.name);
    if (interface.mbit > 0) entry.set("mbit", interface.mbit);
    set_node(entry, "numa_node", interface.at.numa_node);
    interfaces.push_back(entry);
  }
  for (const dist::RdmaDevice& device : network.rdma) {
    Json entry = Json::object().set("name", device.name);
    set_text(entry, "state", device.state);
    set_text(entry, "rate", device.rate);
    set_text(entry, "layer", device.layer);
    set_node(entry, "numa_node", device.at.numa_node);
    rdma.push_back(entry);
  }
  set_list(json, "numa_nodes", of_nodes);
  set_list(json, "gpus", gpus);
  set_list(json, "gpu_paths", of_paths);
  set_list(json, "interfaces", interfaces);
  set_list(json, "rdma", rdma);
  return json;
}

Json run_topology(Collective& group, Device device, bool is_alone) {
  const std::vector<cpu::NumaNode> nodes = cpu::numa_nodes();
  const std::vector<std::string> places = dist::gather(group, to_text(place_of_rank(group.rank(), device, nodes)));
  if (group.rank() != 0) return Json::object();
  const dist::Network network = dist::look_at_network();
  Json ranks = Json::array(), json = machine_topology(network, dist::gpu_paths(network), nodes);
  for (const std::string& text : places) ranks.push_back(parse_json(text, "place of a rank"));
  json.set("ranks", ranks);
  if (!is_alone) json.set("backend", group.backend());
  return json;
}

Json to_json(const std::vector<dist::Check>& checks) {
  Json list = Json::array();
  for (const dist::Check& check : checks)
    list.push_back(Json::object()
                       .set("name", check.name)
                       .set("state", dist::name_of(check.state))
                       .set("finding", check.finding)
                       .set("remedy", check.remedy));
  return list;
}

Json to_json(const dist::NcclLog& log, const std::vector<dist::Check>& checks) {
  Json json = Json::object();
  std::set<std::string> hosts;
  for (const auto& [rank, place] : log.ranks)
    if (!place.host.empty()) hosts.insert(place.host);
  set_text(json, "version", log.version);
  json.set("ranks", static_cast<std::int64_t>(log.ranks.size())).set("size", log.size);
  set_list(json, "hosts", Json::array_of(hosts));
  set_text(json, "between_hosts", log.between_hosts);
  set_list(json, "plugins", Json::array_of(log.plugins));
  set_list(json, "rdma", Json::array_of(log.rdma));
  set_list(json, "interfaces", Json::array_of(log.interfaces));
  if (log.channels > 0) json.set("channels", log.channels).set("p2p_channels", log.p2p_channels);
  if (log.nvls_channels) json.set("nvls_channels", *log.nvls_channels);
  if (log.has_multicast) json.set("multicast", *log.has_multicast);
  Json connected = Json::array();
  for (const auto& [name, is_so] :
       {std::pair("rings", log.has_rings), {"trees", log.has_trees}, {"NVLS tree", log.has_nvls_tree}})
    if (is_so) connected.push_back(name);
  set_list(json, "connected", connected);
  set_links(json, log);
  json.set("checks", to_json(checks));
  set_list(json, "warnings", Json::array_of(log.warnings));
  return json;
}

}  // namespace hearth::train
