// SPDX-License-Identifier: Apache-2.0
// What the process and its machine did while a run trained, by the kernel's counters.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/export.h"
#include "core/io/json_text.h"

namespace hearth::train {

/// Counters that only grow; a counter that the machine does not give is absent.
struct ProcessCounters {
  double seconds = 0;      ///< a clock
  double cpu_seconds = 0;  ///< of all threads
  std::int64_t minor_faults = 0;
  std::int64_t major_faults = 0;
  std::map<std::string, double> counts{};  ///< by the counter's key; those of one interface are
  ///< "machine_network/eth0/sent"
};

/// Reads the counters: bytes of the process's reads and writes (/proc/self/io), of network interfaces
/// (/proc/net/dev) and InfiniBand ports, pages that NUMA nodes gave to other nodes (numastat), bytes of memory traffic
/// (resctrl). `root` stands in front of /proc and /sys.
HEARTH_API ProcessCounters read_process_counters(const std::string& root = {});

/// Measures intervals.
class HEARTH_API ProcessMeter {
 public:
  explicit ProcessMeter(std::string root = {});
  /// Adds the time since the last call, or the construction, to a record: `process_cpus` (processors busy),
  /// `process_memory`, `process_swapped` and `machine_memory_left` in bytes, `process_minor_faults` and
  /// `process_major_faults` of the interval, and bytes a second: `process_read`, `process_written`, and by name
  /// `machine_network`, `machine_infiniband` and `machine_memory_traffic`; `machine_remote_pages` a second where there
  /// are several NUMA nodes.
  void write(Json& record);

 private:
  std::string root_;
  ProcessCounters before_;
};

}  // namespace hearth::train
