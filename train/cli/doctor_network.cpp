// SPDX-License-Identifier: Apache-2.0
// `hearth doctor --network`: what ranks of several machines would go by, and what to change.
#include <iomanip>
#include <iostream>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json_text.h"
#include "dist/cost/choice.h"
#include "dist/gpu_paths.h"
#include "dist/nccl/library.h"
#include "dist/process_group.h"
#include "train/checkpoint/run_topology.h"
#include "train/cli/doctor.h"
#include "train/cli/join_group.h"
#include "train/step/sum_choice.h"

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

Json json_of_gpu_paths(const dist::Network& network) {
  Json paths = Json::array();
  for (const dist::GpuPath& path : dist::gpu_paths(network))
    paths.push_back(Json::object().set("from", path.from).set("to", path.to).set("path", path.path));
  return paths;
}

/// Of logs as one text; null without a log.
Json json_of_logs(const std::vector<std::string>& paths, const dist::Network& network) {
  if (paths.empty()) return {};
  std::string text;
  for (const std::string& path : paths) text += read_text(path, {std::uint64_t{1} << 30, "logs of NCCL"}) + "\n";
  HEARTH_CHECK(FileError, text.find("NCCL INFO ") != text.npos, paths.front(),
               paths.size() > 1 ? " and the others have" : " has",
               " no line \"NCCL INFO\"; NCCL writes them with NCCL_DEBUG=INFO, into NCCL_DEBUG_FILE if that is set");
  const dist::NcclLog log = dist::read_nccl_log(text);
  return to_json(log, dist::nccl_checks(log, network, dist::nccl_host()));
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

Json json_of(const dist::Network& network, const std::vector<std::string>& nccl_logs) {
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
  Json report = Json::object()
                    .set("interfaces", interfaces)
                    .set("rdma", rdma)
                    .set("gpus", gpus)
                    .set("numa_nodes", network.numa_nodes)
                    .set("distances", distances_of(network))
                    .set("gpu_paths", json_of_gpu_paths(network))
                    .set("gpu_direct", to_json(dist::gpu_direct_checks(network)))
                    .set("shared_memory_mb", shared < 0 ? Json() : Json(shared >> 20))
                    .set("nccl", json_of_nccl(network))
                    .set("advice", advice);
  if (const Json log = json_of_logs(nccl_logs, network); !log.is_null()) report.set("nccl_log", log);
  return report;
}

/// What sums over the ranks cost by each route that they can take, where this process is a rank; else null.
Json json_of_sums() {
  RunConfig config;
  config.device = "cpu";
  std::string ranks;
  const std::unique_ptr<Collective> group = join_group(config, ranks);
  if (group == nullptr || group->size() == 1) return {};
  const dist::Routed& routed = *dist::routed(*group);
  const auto routes = dist::automatic_routes(routed.current_route(), routed.hosts(), false);
  return Json::object().set("ranks", ranks).set("routes", to_json(dist::measure_sums(*group, routes)));
}

void print_sums(const Json& sums) {
  const auto number = [](double x) { return join_text(std::fixed, std::setprecision(x < 10 ? 2 : 0), x); };
  print_line("ranks", sums.at("ranks").as_string());
  for (const JsonMember& route : sums.at("routes").members()) {
    const Json& rate = route.value.at("gbs");
    print_line(route.key,
               join_text("sums in ", number(route.value.at("latency_us").as_number()), " us and ",
                         rate.is_null() ? "at a rate too high to tell" : number(rate.as_number()) + " GB/s"));
  }
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

void print_checks(const char* of, const Json& checks) {
  for (const Json& check : checks.items()) {
    const std::string remedy = check.at("remedy").as_string();
    print_line(of, join_text(check.at("name").as_string(), " ", check.at("state").as_string(), ": ",
                             check.at("finding").as_string(), remedy.empty() ? "" : "; " + remedy));
  }
}

void print_nccl_log(const Json& log) {
  const auto number = [&](const char* key, const char* what) {
    const Json* const value = log.find(key);
    return value == nullptr || value->as_integer() == 0 ? "" : join_text(", ", value->as_integer(), what);
  };
  const Json *const version = log.find("version"), *const connected = log.find("connected");
  print_line("NCCL chose", join_text(version == nullptr ? "" : version->as_string() + ", ",
                                     log.at("ranks").as_integer(), " of ", log.at("size").as_integer(), " ranks",
                                     number("channels", " channels"), number("nvls_channels", " for NVLS"),
                                     connected == nullptr ? "" : ", " + listed(*connected, "")));
  if (const Json* const connections = log.find("connections"))
    for (const Json& kind : connections->items()) {
      const Json* const direct = kind.find("gpu_direct");
      print_line(
          "", join_text(kind.at("by").as_string(), direct != nullptr && direct->as_boolean() ? ", GPUDirect" : "", ": ",
                        kind.at("pairs").as_integer(), " pairs of ranks"));
    }
  print_checks("NCCL chose", log.at("checks"));
  if (const Json* const warnings = log.find("warnings"))
    for (const Json& warning : warnings->items()) print_line("NCCL warned", warning.as_string());
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

void print_network(const dist::Network& network, const std::vector<std::string>& nccl_logs, bool as_json) {
  Json report = json_of(network, nccl_logs);
  if (const Json sums = json_of_sums(); !sums.is_null()) report.set("sums", sums);
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
  print_checks("GPUDirect", report.at("gpu_direct"));
  print_line("TCP", "takes the interface by which rank 0 (MASTER_ADDR) is reached");
  print_nccl(report.at("nccl"));
  if (const Json* const log = report.find("nccl_log")) print_nccl_log(*log);
  if (const Json* const sums = report.find("sums")) print_sums(*sums);
  const Json& shared = report.at("shared_memory_mb");
  print_line("/dev/shm", shared.is_null() ? "absent" : to_text(shared) + " MB");
  for (const Json& one : report.at("advice").items())
    print_line("change", one.at("setting").as_string() + ": " + one.at("why").as_string());
  if (report.at("advice").size() == 0) print_line("change", "nothing");
}

}  // namespace hearth::train
