// SPDX-License-Identifier: Apache-2.0
// Energy of the machine's processors and memory, by the kernel's counters.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "core/export.h"
#include "core/io/json_text.h"

namespace hearth::train {

/// Joules by zone of running average power limits (RAPL, /sys/class/powercap): packages, and the memory beside them.
/// Often only root may read them. `root` stands in front of /sys.
struct EnergyZone {
  double joules = 0;
  double range = 0;  ///< the counter begins anew after so many; 0: not known
};
HEARTH_API std::map<std::string, EnergyZone> read_energy_zones(const std::string& root = {});

/// Measures intervals, which have to be shorter than the counters' range: some minutes at full load.
class HEARTH_API MachineEnergy {
 public:
  explicit MachineEnergy(std::string root = {}) : root_(std::move(root)), before_(read_energy_zones(root_)) {}
  /// Adds the joules since the last call, or the construction, to a record, and their mean in W: `machine_energy` and
  /// `machine_power`; neither where no zone can be read.
  void write(Json& record);
  /// Since the construction.
  std::optional<double> read_joules();

 private:
  using Clock = std::chrono::steady_clock;
  void read();

  std::string root_;
  Clock::time_point at_ = Clock::now();
  double seconds_ = 0;
  std::map<std::string, EnergyZone> before_;
  std::optional<double> interval_, all_;
};

}  // namespace hearth::train
