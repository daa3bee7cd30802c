// SPDX-License-Identifier: Apache-2.0
#include "train/cli/near_device.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <iterator>

#include "core/cpu/cores.h"
#include "core/cpu/parallel.h"
#include "core/cuda/emulation.h"
#include "core/cuda/nvml/bus_address.h"
#include "core/error.h"

namespace hearth::train {
namespace {

std::vector<int> common(const std::vector<int>& cores, const std::vector<int>& others) {
  std::vector<int> both;
  std::ranges::set_intersection(cores, others, std::back_inserter(both));
  return both;
}

}  // namespace

NearDevice near_device(const NearDeviceFacts& facts) {
  const std::vector<cpu::NumaNode> nodes = cpu::numa_nodes(facts.root);
  NearDevice near{.node = cpu::numa_node_of_gpu(facts.gpu, facts.root)};
  if (std::ranges::count_if(nodes, [](const cpu::NumaNode& node) { return !node.cores.empty(); }) < 2) return near;
  const auto node = std::ranges::find(nodes, near.node, &cpu::NumaNode::number);
  if (node == nodes.end()) {
    near.why_not = "the system does not tell its NUMA node";
    return near;
  }
  if (std::ranges::includes(node->cores, facts.cores)) return near;
  const std::string place =
      join_text("it is at NUMA node ", near.node, " (cores ", cpu::describe_cores(node->cores), ")");
  const bool launched = !facts.cores_of_launch.empty();
  const std::vector<int> base = launched ? cpu::cores_in_list(facts.cores_of_launch) : facts.cores;
  std::vector<int> cores = common(base, node->cores);
  if (node->cores.empty())
    near.why_not = join_text("its NUMA node ", near.node, " has no cores");
  else if (facts.openmp_binds)
    near.why_not = place + "; OMP_PROC_BIND, OMP_PLACES or GOMP_CPU_AFFINITY says where the threads are";
  else if (!launched && facts.cores != cpu::online_cores(facts.root))
    near.why_not = place + "; what started the process chose its cores";
  else if (cores.empty())
    near.why_not = place + "; hearth launch may not use these";
  else if (static_cast<std::size_t>(facts.threads_asked) > cores.size())
    near.why_not = join_text(place, "; HEARTH_THREADS asks for ", facts.threads_asked, " threads");
  else
    near.cores = std::move(cores);
  return near;
}

void move_near(Device device) {
  if (!device.is_cuda() || cuda::is_emulated()) return;
  const char* const launch = std::getenv(cores_of_launch);
  const bool asked = launch == nullptr && std::getenv("HEARTH_THREADS") != nullptr;
  const std::vector<int> cores = cpu::allowed_cores();
  const NearDevice near = near_device({.gpu = cuda::bus_address(device),
                                       .cores = cores,
                                       .cores_of_launch = launch == nullptr ? "" : launch,
                                       .openmp_binds = cpu::openmp_binds(),
                                       .threads_asked = asked ? cpu::threads() : 0});
  if (!near.why_not.empty())
    std::cerr << join_text("warning   threads and memory stay on cores ", cpu::describe_cores(cores),
                           ", perhaps far from ", device, ": ", near.why_not, "\n");
  if (near.cores.empty()) return;
  cpu::run_on_cores(near.cores);
  cpu::set_threads(std::min(cpu::threads(), static_cast<int>(near.cores.size())));
}

}  // namespace hearth::train
