// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/free_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <locale>
#include <optional>
#include <string>
#include <utility>

#include "core/cpu/control_groups.h"

namespace hearth::cpu {
namespace {

using std::filesystem::path;

/// What a group's folder calls its limit, its use, and the parts of that which files take that can be read again.
struct Names {
  const char* limit;
  const char* used;
  const char* idle_files;
  const char* active_files;
};
constexpr Names interfaces[] = {
    {"memory.max", "memory.current", "inactive_file", "active_file"},
    {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file"}};

/// Nothing where there is no such file, or no number in it ("max").
std::optional<std::int64_t> number_in(const path& file) {
  std::ifstream text(file);
  text.imbue(std::locale::classic());
  std::int64_t value = 0;
  return text >> value ? std::optional(value) : std::nullopt;
}

/// The number behind a word; nothing where it is not there.
std::optional<std::int64_t> number_after(const path& file, const std::string& name) {
  std::ifstream words(file);
  words.imbue(std::locale::classic());
  for (std::string word; words >> word;)
    if (std::int64_t value = 0; word == name && words >> value) return value;
  return std::nullopt;
}

std::optional<std::int64_t> left_to_group(const path& folder, std::int64_t on_machine) {
  for (const Names& names : interfaces) {
    const auto limit = number_in(folder / names.limit), used = number_in(folder / names.used);
    // The first interface says a number that no machine has where there is no limit.
    if (!limit || !used || *limit >= on_machine) continue;
    std::int64_t files = 0;
    for (const char* name : {names.idle_files, names.active_files})
      files += number_after(folder / "memory.stat", name).value_or(0);
    return std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, *used - files));
  }
  return std::nullopt;
}

std::int64_t memory_of_machine(const path& root, const char* name) {
  if (const auto kilobytes = number_after(root / "proc/meminfo", name)) return *kilobytes << 10;
  return static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::int64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

std::optional<std::int64_t> group_memory(const path& root) {
  const std::int64_t on_machine = memory_of_machine(root, "MemTotal:");
  std::optional<std::int64_t> least;
  for_each_control_group(root, "memory", [&](const path& folder) {
    if (const auto left = left_to_group(folder, on_machine)) least = std::min(least.value_or(*left), *left);
  });
  return least;
}

std::optional<std::int64_t> limited_memory(const path& root) {
  std::ifstream pages(root / "proc/self/statm");
  pages.imbue(std::locale::classic());
  // The first number counts all pages that are mapped, the sixth those of data and stacks.
  std::int64_t mapped = 0, data = 0, other = 0;
  if (!(pages >> mapped >> other >> other >> other >> other >> data)) return std::nullopt;
  std::optional<std::int64_t> least;
  for (const auto& [resource, used] : {std::pair{RLIMIT_AS, mapped}, std::pair{RLIMIT_DATA, data}}) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) continue;
    const auto most =
        static_cast<std::int64_t>(std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<std::int64_t>::max()));
    const std::int64_t left = std::max<std::int64_t>(0, most - used * static_cast<std::int64_t>(sysconf(_SC_PAGESIZE)));
    least = std::min(least.value_or(left), left);
  }
  return least;
}

std::int64_t free_memory(const path& root) {
  const std::int64_t on_machine = memory_of_machine(root, "MemAvailable:");
  return std::min({on_machine, group_memory(root).value_or(on_machine), limited_memory(root).value_or(on_machine)});
}

}  // namespace hearth::cpu
