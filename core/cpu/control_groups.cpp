// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/control_groups.h"

#include <fstream>

namespace hearth::cpu {
namespace {

using std::filesystem::path;
using Visit = std::function<void(const path&)>;

// In a container the file may tell a path that is not to be seen there.
void visit_upwards(const path& mount, path group, const Visit& f) {
  f(mount);
  for (; !group.empty(); group = group.parent_path()) f(mount / group);
}

}  // namespace

void for_each_control_group(const path& root, const std::string& controller, const Visit& f) {
  const path mounts = root / "sys/fs/cgroup";
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':'), second = line.find(":/", first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const path group = line.substr(second + 2);
    if (controllers.empty()) visit_upwards(mounts, group, f);
    if (("," + controllers + ",").find("," + controller + ",") == std::string::npos) continue;
    visit_upwards(mounts / controller, group, f);
    if (controllers != controller) visit_upwards(mounts / controllers, group, f);
  }
}

}  // namespace hearth::cpu
