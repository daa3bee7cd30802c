// SPDX-License-Identifier: Apache-2.0
#include "train/profile/process_use.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "core/cpu/free_memory.h"

namespace hearth::train {
namespace {

namespace fs = std::filesystem;
using Counts = std::map<std::string, double>;

// An InfiniBand port counts in words of four bytes.
constexpr double infiniband_word = 4;

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

/// The number that a file holds; nothing where it holds none, such as "Unavailable".
std::optional<double> number_in(const fs::path& file) {
  std::ifstream stream(file);
  double value = 0;
  return stream >> value ? std::optional(value) : std::nullopt;
}

/// The folder's entries; none where it is not there.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    entries.push_back(at->path());
  std::ranges::sort(entries);
  return entries;
}

/// The fields behind the name in parentheses, which may hold anything.
void add_faults(const std::string& root, ProcessCounters& now) {
  std::ifstream stream(root + "/proc/self/stat");
  std::string line;
  std::getline(stream, line);
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return;
  std::istringstream fields(line.substr(name_end + 1));
  std::string skipped;
  for (int i = 0; i < 7; ++i) fields >> skipped;
  fields >> now.minor_faults >> skipped >> now.major_faults;
}

/// "VmSwap: 12 kB"; nothing where the kernel does not swap.
std::optional<std::int64_t> swapped_bytes(const std::string& root) {
  std::ifstream stream(root + "/proc/self/status");
  std::int64_t kilobytes = 0;
  for (std::string word; stream >> word;)
    if (word == "VmSwap:" && stream >> kilobytes) return kilobytes << 10;
  return std::nullopt;
}

/// "rchar: 123", of what read() and write() were asked for.
void add_process_io(const std::string& root, Counts& counts) {
  std::ifstream stream(root + "/proc/self/io");
  double value = 0;
  for (std::string name; stream >> name >> value;) {
    if (name == "rchar:") counts["process_read"] = value;
    if (name == "wchar:") counts["process_written"] = value;
  }
}

/// "eth0: " bytes received, seven other numbers, bytes sent.
void add_interfaces(const std::string& root, Counts& counts) {
  constexpr int numbers_between = 7;
  std::ifstream stream(root + "/proc/net/dev");
  for (std::string line; std::getline(stream, line);) {
    const std::size_t colon = line.rfind(':');
    if (colon == std::string::npos) continue;
    std::istringstream numbers(line.substr(colon + 1));
    double received = 0, sent = 0;
    numbers >> received;
    for (int i = 0; i <= numbers_between; ++i) numbers >> sent;
    if (!numbers) continue;
    const std::string name =
        "machine_network/" + line.substr(line.find_first_not_of(' '), colon - line.find_first_not_of(' '));
    counts[name + "/received"] = received;
    counts[name + "/sent"] = sent;
  }
}

void add_infiniband(const std::string& root, Counts& counts) {
  for (const fs::path& device : entries_of(root + "/sys/class/infiniband"))
    for (const fs::path& port : entries_of(device / "ports")) {
      const std::string name = "machine_infiniband/" + device.filename().string() + ":" + port.filename().string();
      for (const auto& [file, key] : {std::pair("port_rcv_data", "/received"), {"port_xmit_data", "/sent"}})
        if (const auto words = number_in(port / "counters" / file)) counts[name + key] = infiniband_word * *words;
    }
}

/// Pages that a node gave to a process on another one; nothing where there is one node.
void add_numa(const std::string& root, Counts& counts) {
  double sum = 0;
  int nodes = 0;
  for (const fs::path& node : entries_of(root + "/sys/devices/system/node")) {
    std::ifstream stream(node / "numastat");
    double value = 0;
    for (std::string name; stream >> name >> value;)
      if (name == "other_node") sum += value, ++nodes;
  }
  if (nodes > 1) counts["machine_remote_pages"] = sum;
}

void add_memory_traffic(const std::string& root, Counts& counts) {
  const std::vector<fs::path> domains = entries_of(root + "/sys/fs/resctrl/mon_data");
  for (const auto& [file, key] : {std::pair("mbm_local_bytes", "local"), {"mbm_total_bytes", "total"}}) {
    std::optional<double> sum = 0;
    // A domain that cannot be read now would come back with all of its count.
    for (const fs::path& domain : domains) {
      const std::optional<double> bytes = number_in(domain / file);
      sum = sum && bytes ? std::optional(*sum + *bytes) : std::nullopt;
    }
    if (sum && !domains.empty()) counts[std::string("machine_memory_traffic/") + key] = *sum;
  }
}

/// Sets `value` under a path of keys, such as "machine_network/eth0/sent".
void set_at(Json& record, const std::string& path, double value) {
  const std::size_t slash = path.find('/');
  if (slash == std::string::npos) {
    record.set(path, value);
    return;
  }
  const std::string key = path.substr(0, slash);
  const Json* const known = record.find(key);
  Json inner = known != nullptr ? *known : Json::object();
  set_at(inner, path.substr(slash + 1), value);
  record.set(key, std::move(inner));
}

}  // namespace

ProcessCounters read_process_counters(const std::string& root) {
  ProcessCounters now;
  now.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  now.cpu_seconds = seconds_of(used.ru_utime) + seconds_of(used.ru_stime);
  add_faults(root, now);
  add_process_io(root, now.counts);
  add_interfaces(root, now.counts);
  add_infiniband(root, now.counts);
  add_numa(root, now.counts);
  add_memory_traffic(root, now.counts);
  return now;
}

ProcessMeter::ProcessMeter(std::string root) : root_(std::move(root)), before_(read_process_counters(root_)) {}

void ProcessMeter::write(Json& record) {
  const ProcessCounters now = read_process_counters(root_), before = std::exchange(before_, now);
  const double seconds = now.seconds - before.seconds;
  if (seconds <= 0) return;
  record.set("process_cpus", (now.cpu_seconds - before.cpu_seconds) / seconds);
  std::ifstream stream(root_ + "/proc/self/statm");
  std::int64_t all = 0, resident = 0;
  if (stream >> all >> resident)
    record.set("process_memory", resident * static_cast<std::int64_t>(sysconf(_SC_PAGESIZE)));
  if (const auto swapped = swapped_bytes(root_)) record.set("process_swapped", *swapped);
  if (fs::exists(root_ + "/proc/meminfo"))
    record.set("machine_memory_left", cpu::free_memory(root_.empty() ? fs::path("/") : fs::path(root_)));
  record.set("process_minor_faults", now.minor_faults - before.minor_faults)
      .set("process_major_faults", now.major_faults - before.major_faults);
  for (const auto& [key, value] : now.counts) {
    // An interface that came meanwhile, or a counter that began anew, has no interval.
    const auto known = before.counts.find(key);
    if (known == before.counts.end() || value < known->second) continue;
    // Machines have many interfaces that stand idle.
    if (value > known->second || key.find('/') == std::string::npos)
      set_at(record, key, (value - known->second) / seconds);
  }
}

}  // namespace hearth::train
