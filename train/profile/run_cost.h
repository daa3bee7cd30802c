// SPDX-License-Identifier: Apache-2.0
// What a run has cost: hours, energy and price.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/collective.h"
#include "core/device.h"
#include "core/export.h"
#include "core/io/json_text.h"
#include "train/profile/device_meter.h"
#include "train/profile/machine_energy.h"

namespace hearth::train {

/// Joules of a rank; absent where its device or its machine does not tell them.
struct RankEnergy {
  std::optional<double> device{}, machine{};
  std::string host{};
};

/// The sensors of a rank's device and of its machine.
class HEARTH_API EnergyMeters {
 public:
  explicit EnergyMeters(Device device) : device_(device) {}
  /// As DeviceMeter::write() and MachineEnergy::write().
  void write(Json& record, bool reads_first);
  /// As DeviceMeter::take_messages().
  std::vector<std::string> take_messages() { return device_.take_messages(); }
  /// So far.
  RankEnergy read();
  /// That of all ranks, by order of rank; they call it together.
  std::vector<RankEnergy> read_all(Collective& group);

 private:
  DeviceMeter device_;
  MachineEnergy machine_;
};

/// Adds to what a run had cost `before`, as this function gave it: `hours`, `device_kwh` of all ranks, `machine_kwh` of
/// all machines, each where it is known, and `price` where an hour has one.
HEARTH_API Json run_cost(const Json& before, double seconds, const std::vector<RankEnergy>& ranks,
                         std::optional<double> price_per_hour);

}  // namespace hearth::train
