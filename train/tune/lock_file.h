// SPDX-License-Identifier: Apache-2.0
// What `hearth tune` found, as a file that a training obeys on the machine where it was found.
#pragma once

#include <string>
#include <vector>

#include "core/device.h"
#include "core/io/json_text.h"
#include "train/config/run_config.h"
#include "train/tune/search.h"

namespace hearth::train {

/// The device as locks name it: "cpu", or a GPU's model.
std::string device_model(Device device);

/// What a run computes on.
struct TuneTarget {
  std::string device;  ///< as device_model() says
  int ranks = 1;
};

/// The lock of a run: values to set, the configuration that they were found for, the device, the machine and the
/// versions, and how they were found.
Json make_lock(const LoadedConfig& loaded, const TuneTarget& target, const TuneResult& result, const Json& guard);

/// The words of --set that a lock stands for. `loaded` is the configuration that is to be trained, without them, on
/// `target`. ConfigError with all that differs: device, ranks, machine, a version, or what matters in the
/// configuration; or what the file lacks.
std::vector<std::string> words_of_lock(const Json& lock, const LoadedConfig& loaded, const TuneTarget& target);

}  // namespace hearth::train
