// SPDX-License-Identifier: Apache-2.0
#include "hearth/core/cpu/free_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <locale>
#include <optional>
#include <string>

#include "hearth/core/cpu/control_groups.h"

namespace hearth::cpu {
namespace {

using std::filesystem::path;

constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

/// What a group's folder calls its limit, its use, and the part of that which files take that nobody touched lately.
struct Names {
  const char* limit;
  const char* used;
  const char* idle_files;
};
constexpr Names interfaces[] = {{"memory.max", "memory.current", "inactive_file"},
                                {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}};

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

std::int64_t left_to_group(const path& folder) {
  for (const Names& names : interfaces) {
    const auto limit = number_in(folder / names.limit), used = number_in(folder / names.used);
    if (!limit || !used) continue;
    const std::int64_t idle = number_after(folder / "memory.stat", names.idle_files).value_or(0);
    return std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, *used - idle));
  }
  return no_limit;
}

/// All of the machine's memory where the system does not say.
std::int64_t free_on_machine(const path& root) {
  if (const auto kilobytes = number_after(root / "proc/meminfo", "MemAvailable:")) return *kilobytes << 10;
  return static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::int64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

std::int64_t free_memory(const path& root) {
  std::int64_t left = free_on_machine(root);
  for_each_control_group(root, "memory", [&](const path& folder) { left = std::min(left, left_to_group(folder)); });
  return left;
}

}  // namespace hearth::cpu
