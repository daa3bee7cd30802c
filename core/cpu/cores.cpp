// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <thread>

#include "core/cpu/control_groups.h"

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
  double granted = no_limit;
  for_each_control_group(root, "cpu",
                         [&](const path& folder) { granted = std::min(granted, limit_of_folder(folder)); });
  granted = std::ceil(granted);
  return granted < allowed ? std::max(1, static_cast<int>(granted)) : allowed;
}

}  // namespace hearth::cpu
