// SPDX-License-Identifier: Apache-2.0
// `hearth doctor --network`: what ranks of several machines would go by, and what to change.
#include <iostream>

#include "core/error.h"
#include "core/io/json_text.h"
#include "dist/gpu_paths.h"
#include "dist/nccl/library.h"
#include "dist/process_group.h"
#include "train/cli/doctor.h"

namespace hearth::train {
namespace {

Json json_of(const dist::PciPosition& at) { return Json::object().set("path", at.path).set("numa_node", at.numa_node); }

template <class Devices>
Json names_of(const Devices& devices) {
  Json names = Json::array();
  for (const auto* one : devices) names.push_back(one->name);
  return names;
}

/// From every GPU to every RDMA device, or, where there is none, to every interface on the bus.
Json distances_of(const dist::Network& network) {
  Json distances = Json::array();
  const auto add = [&](const dist::PciGpu& gpu, const auto& device) {
    const std::string distance = dist::pci_distance(gpu.at, device.at);
    if (!distance.empty())
      distances.push_back(Json::object().set("gpu", gpu.name).set("to", device.name).set("distance", distance));
  };
  for (const dist::PciGpu& gpu : network.gpus) {
    for (const dist::RdmaDevice& one : network.rdma) add(gpu, one);
    for (const dist::NetworkInterface& one : network.interfaces)
      if (network.rdma.empty()) add(gpu, one);
  }
  return distances;
}

std::vector<dist::GpuPath> paths_of(const dist::Network& network) {
  std::vector<std::string> gpus;
  for (const dist::PciGpu& gpu : network.gpus) gpus.push_back(gpu.name);
  return dist::gpu_paths(network, gpus.empty() ? std::vector<cuda::NvLink>() : cuda::nv_links(gpus));
}

Json json_of_gpu_paths(const dist::Network& network) {
  Json paths = Json::array();
  for (const dist::GpuPath& path : paths_of(network))
    paths.push_back(Json::object().set("from", path.from).set("to", path.to).set("path", path.path));
  return paths;
}

Json json_of_gpu_direct(const dist::Network& network) {
  Json checks = Json::array();
  for (const dist::Check& check : dist::gpu_direct_checks(network))
    checks.push_back(Json::object()
                         .set("name", check.name)
                         .set("state", dist::name_of(check.state))
                         .set("finding", check.finding)
                         .set("remedy", check.remedy));
  return checks;
}

Json json_of_nccl(const dist::Network& network) {
  const cuda::LibraryInfo library = dist::nccl::about();
  Json variables = Json::object();
  for (const auto& [name, value] : network.nccl) variables.set(name, value);
  return Json::object()
      .set("library", "libnccl.so.2")
      .set("version", library.version)
      .set("path", library.path)
      .set("why_unused", dist::why_no_nccl())
      .set("variables", variables)
      .set("rdma", names_of(dist::nccl_rdma(network)))
      .set("interfaces", names_of(dist::nccl_interfaces(network)));
}

Json json_of(const dist::Network& network) {
  Json interfaces = Json::array(), rdma = Json::array(), gpus = Json::array(), advice = Json::array();
  for (const dist::NetworkInterface& one : network.interfaces)
    interfaces.push_back(Json::object()
                             .set("name", one.name)
                             .set("addresses", Json::array_of(one.addresses))
                             .set("up", one.is_up)
                             .set("mbit", one.mbit > 0 ? Json(one.mbit) : Json())
                             .set("default_route", one.name == network.default_interface)
                             .set("at", json_of(one.at)));
  for (const dist::RdmaDevice& one : network.rdma)
    rdma.push_back(Json::object()
                       .set("name", one.name)
                       .set("state", one.state)
                       .set("rate", one.rate)
                       .set("layer", one.layer)
                       .set("at", json_of(one.at)));
  for (const dist::PciGpu& one : network.gpus)
    gpus.push_back(Json::object().set("name", one.name).set("at", json_of(one.at)));
  for (const dist::NetworkAdvice& one : dist::network_advice(network))
    advice.push_back(Json::object().set("setting", one.setting).set("why", one.why));
  const std::int64_t shared = network.shared_memory_bytes;
  return Json::object()
      .set("interfaces", interfaces)
      .set("rdma", rdma)
      .set("gpus", gpus)
      .set("numa_nodes", network.numa_nodes)
      .set("distances", distances_of(network))
      .set("gpu_paths", json_of_gpu_paths(network))
      .set("gpu_direct", json_of_gpu_direct(network))
      .set("shared_memory_mb", shared < 0 ? Json() : Json(shared >> 20))
      .set("nccl", json_of_nccl(network))
      .set("advice", advice);
}

std::string listed(const Json& names, const std::string& none) {
  std::string text;
  for (const Json& name : names.items()) text += (text.empty() ? "" : ", ") + name.as_string();
  return text.empty() ? none : text;
}

std::string numa_text(const dist::PciPosition& at) {
  return at.numa_node < 0 ? "" : join_text(", NUMA node ", at.numa_node);
}

void print_devices(const dist::Network& network) {
  for (const dist::NetworkInterface& one : network.interfaces)
    print_line(one.name, join_text(listed(Json::array_of(one.addresses), "no address"), one.is_up ? ", up" : ", down",
                                   one.mbit > 0 ? join_text(", ", static_cast<double>(one.mbit) / 1000, " Gbit/s") : "",
                                   one.name == network.default_interface ? ", default route" : "", numa_text(one.at)));
  for (const dist::RdmaDevice& one : network.rdma)
    print_line(one.name, join_text("RDMA, ", one.layer, ", ", one.state, ", ", one.rate, numa_text(one.at)));
  if (network.rdma.empty()) print_line("RDMA", "no device");
  for (const dist::PciGpu& one : network.gpus) print_line("GPU", join_text(one.name, numa_text(one.at)));
  print_line("NUMA", join_text(network.numa_nodes, network.numa_nodes == 1 ? " node" : " nodes"));
}

void print_gpu_direct(const Json& checks) {
  for (const Json& check : checks.items()) {
    const std::string remedy = check.at("remedy").as_string();
    print_line("GPUDirect", join_text(check.at("name").as_string(), " ", check.at("state").as_string(), ": ",
                                      check.at("finding").as_string(), remedy.empty() ? "" : "; " + remedy));
  }
}

void print_nccl(const Json& nccl) {
  const std::string why = nccl.at("why_unused").as_string(), version = nccl.at("version").as_string();
  print_line("NCCL",
             join_text(version.empty() ? nccl.at("library").as_string() : version + ", " + nccl.at("path").as_string(),
                       why.empty() ? "" : "; not used: " + why));
  for (const JsonMember& variable : nccl.at("variables").members())
    print_line("", variable.key + "=" + variable.value.as_string());
  const std::string by_tcp = "TCP by " + listed(nccl.at("interfaces"), "no interface");
  print_line("",
             join_text("would take ", nccl.at("rdma").size() > 0 ? "RDMA by " + listed(nccl.at("rdma"), "") : by_tcp,
                       " to other machines"));
}

}  // namespace

void print_network(const dist::Network& network, bool as_json) {
  const Json report = json_of(network);
  if (as_json) {
    std::cout << to_text(report) << "\n";
    return;
  }
  print_devices(network);
  for (const Json& path : report.at("gpu_paths").items())
    if (const std::string by = path.at("path").as_string(); !by.empty())
      print_line(by, path.at("from").as_string() + " to " + path.at("to").as_string());
  for (const Json& one : report.at("distances").items())
    print_line(one.at("distance").as_string(), one.at("gpu").as_string() + " to " + one.at("to").as_string());
  print_gpu_direct(report.at("gpu_direct"));
  print_line("TCP", "takes the interface by which rank 0 (MASTER_ADDR) is reached");
  print_nccl(report.at("nccl"));
  const Json& shared = report.at("shared_memory_mb");
  print_line("/dev/shm", shared.is_null() ? "absent" : to_text(shared) + " MB");
  for (const Json& one : report.at("advice").items())
    print_line("change", one.at("setting").as_string() + ": " + one.at("why").as_string());
  if (report.at("advice").size() == 0) print_line("change", "nothing");
}

}  // namespace hearth::train
