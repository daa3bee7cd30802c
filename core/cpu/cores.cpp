// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/cores.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <limits>
#include <new>
#include <sstream>
#include <string>
#include <thread>

#include "core/cpu/control_groups.h"
#include "core/error.h"

namespace hearth::cpu {
namespace {

using std::filesystem::path;

constexpr double no_limit = std::numeric_limits<double>::infinity();

// Cores' worth of time; `quota` may be "max" or -1.
double cores_of(const std::string& quota, double period) {
  const double time = std::atof(quota.c_str());
  return time > 0 && period > 0 ? time / period : no_limit;
}

double limit_of_folder(const path& folder) {
  std::string quota;
  double period = 0;
  if (std::ifstream(folder / "cpu.max") >> quota >> period) return cores_of(quota, period);
  if (std::ifstream(folder / "cpu.cfs_quota_us") >> quota && std::ifstream(folder / "cpu.cfs_period_us") >> period)
    return cores_of(quota, period);
  return no_limit;
}

void add_place(int place, std::vector<int>& cores) {
  std::vector<int> numbers(static_cast<std::size_t>(std::max(0, omp_get_place_num_procs(place))));
  if (!numbers.empty()) omp_get_place_proc_ids(place, numbers.data());
  cores.insert(cores.end(), numbers.begin(), numbers.end());
}

std::vector<int> cores_of_places() {
  std::vector<int> cores;
  if (omp_get_proc_bind() == omp_proc_bind_master)
    // All threads share the place of the first.
    add_place(std::max(0, omp_get_place_num()), cores);
  else
    for (int place = 0; place < omp_get_num_places(); ++place) add_place(place, cores);
  std::sort(cores.begin(), cores.end());
  cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
  return cores;
}

std::vector<int> cores_of_thread() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> cores;
  // It fails where there are more cores than the set holds.
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  return cores;
}

/// The first line of a file of the system; "" where it cannot be read.
std::string first_line(const path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

}  // namespace

bool openmp_binds() { return omp_get_proc_bind() != omp_proc_bind_false && omp_get_num_places() > 0; }

std::vector<int> allowed_cores() { return openmp_binds() ? cores_of_places() : cores_of_thread(); }

std::string describe_cores(const std::vector<int>& cores) {
  std::string text;
  for (std::size_t i = 0; i < cores.size();) {
    std::size_t last = i;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    text += join_text(i == 0 ? "" : ", ", cores[i]);
    if (last > i) text += join_text("-", cores[last]);
    i = last + 1;
  }
  return text;
}

std::vector<int> cores_in_list(const std::string& list) {
  constexpr int most = 1 << 16;
  std::vector<int> cores;
  std::istringstream in(list);
  for (std::string part; std::getline(in, part, ',');) {
    int first = -1, last = -1, end = 0;
    if (std::sscanf(part.c_str(), " %d%n-%d%n", &first, &end, &last, &end) < 2) last = first;
    if (first < 0 || last < first || last >= most || static_cast<std::size_t>(end) != part.size()) return {};
    for (int core = first; core <= last; ++core) cores.push_back(core);
  }
  std::sort(cores.begin(), cores.end());
  cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
  return cores;
}

std::vector<int> online_cores(const path& root) {
  return cores_in_list(first_line(root / "sys/devices/system/cpu/online"));
}

std::vector<NumaNode> numa_nodes(const path& root) {
  std::vector<NumaNode> nodes;
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(root / "sys/devices/system/node", absent)) {
    const std::string name = entry.path().filename();
    int number = -1, end = 0;
    if (std::sscanf(name.c_str(), "node%d%n", &number, &end) == 1 && number >= 0 &&
        static_cast<std::size_t>(end) == name.size())
      nodes.push_back({number, cores_in_list(first_line(entry.path() / "cpulist"))});
  }
  std::ranges::sort(nodes, {}, &NumaNode::number);
  return nodes;
}

int numa_node_of_gpu(const std::string& address, const path& root) {
  const path device = root / "sys/bus/pci/devices" / address;
  // The emulated GPU has an address too, at which there may be anything.
  if (address.empty() || first_line(device / "vendor") != "0x10de") return -1;
  const std::string text = first_line(device / "numa_node");
  return text.empty() || text.find_first_not_of("0123456789") != text.npos || text.size() > 6 ? -1 : std::stoi(text);
}

std::vector<std::vector<int>> cores_by_node(const std::vector<int>& cores, const path& root) {
  std::vector<std::vector<int>> nodes;
  std::size_t placed = 0;
  for (const NumaNode& node : numa_nodes(root)) {
    std::vector<int> of_node;
    std::ranges::copy_if(cores, std::back_inserter(of_node),
                         [&](int core) { return std::ranges::binary_search(node.cores, core); });
    placed += of_node.size();
    if (!of_node.empty()) nodes.push_back(std::move(of_node));
  }
  // Of a list that is not understood, or lacks a core, nothing is taken.
  return placed == cores.size() && !nodes.empty() ? nodes : std::vector<std::vector<int>>{cores};
}

std::vector<int> cores_of_rank(const std::vector<std::vector<int>>& nodes, int rank, int size) {
  const auto count = static_cast<int>(nodes.size());
  if (count < 2 || size < count) return {};
  return nodes[static_cast<std::size_t>(rank * count / size)];
}

void run_on_cores(const std::vector<int>& cores) noexcept {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  for (const int core : cores)
    if (core >= 0 && core < CPU_SETSIZE) CPU_SET(core, &allowed);
  if (CPU_COUNT(&allowed) > 0) (void)sched_setaffinity(0, sizeof(allowed), &allowed);
}

void use_all_cores() noexcept {
  if (!openmp_binds()) return;
  try {
    run_on_cores(cores_of_places());
  } catch (const std::bad_alloc&) {
    // Likewise.
  }
}

int available_cores(const path& root) {
  const std::vector<int> cores = allowed_cores();
  const int allowed = std::max(
      1, cores.empty() ? static_cast<int>(std::thread::hardware_concurrency()) : static_cast<int>(cores.size()));
  double granted = no_limit;
  for_each_control_group(root, "cpu",
                         [&](const path& folder) { granted = std::min(granted, limit_of_folder(folder)); });
  granted = std::ceil(granted);
  return granted < allowed ? std::max(1, static_cast<int>(granted)) : allowed;
}

}  // namespace hearth::cpu
