// SPDX-License-Identifier: Apache-2.0
#include "hearth/core/cpu/cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <thread>

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

// A group is bound by the groups above it too. In a container the file may tell a path that is not to be seen there.
double limit_of_group(const path& mount, path group) {
  double limit = limit_of_folder(mount);
  for (; !group.empty(); group = group.parent_path()) limit = std::min(limit, limit_of_folder(mount / group));
  return limit;
}

double limit_of_groups(const path& root) {
  double limit = no_limit;
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':'), second = line.find(":/", first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const path group = line.substr(second + 2), mounts = root / "sys/fs/cgroup";
    if (controllers.empty()) limit = std::min(limit, limit_of_group(mounts, group));
    if (("," + controllers + ",").find(",cpu,") != std::string::npos)
      limit = std::min({limit, limit_of_group(mounts / "cpu", group), limit_of_group(mounts / controllers, group)});
  }
  return limit;
}

int allowed_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) return CPU_COUNT(&allowed);
  // More cores than the set holds.
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

int available_cores(const path& root) {
  const int allowed = std::max(1, allowed_cores());
  const double granted = std::ceil(limit_of_groups(root));
  return granted < allowed ? std::max(1, static_cast<int>(granted)) : allowed;
}

}  // namespace hearth::cpu
