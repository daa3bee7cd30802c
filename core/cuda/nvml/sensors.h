// SPDX-License-Identifier: Apache-2.0
// What the driver measures of a device: NVIDIA's management library (NVML), opened when first needed. In every build.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/export.h"

namespace hearth::cuda {

/// Why a device's clocks are lower than what its load asks for. Idle devices and clocks that somebody has set are none.
enum class Throttle : std::uint8_t { power_limit, temperature, hardware_temperature, power_brake, hardware };

/// A device at one moment; what it does not give is absent.
struct DeviceReadings {
  std::optional<double> use{};                               ///< part of the last moments in which a kernel ran, 0 to 1
  std::optional<double> power{};                             ///< W
  std::optional<double> energy{};                            ///< J, a counter
  std::optional<double> memory{};                            ///< bytes in use by all processes
  std::optional<double> clock{}, memory_clock{};             ///< MHz; the first is that of the multiprocessors
  std::optional<double> temperature{};                       ///< degrees Celsius
  std::optional<std::vector<Throttle>> throttled{};          ///< empty where nothing holds it back
  std::optional<double> pcie_sent{}, pcie_received{};        ///< bytes a second
  std::optional<double> nvlink_sent{}, nvlink_received{};    ///< bytes over all links, counters
  std::optional<double> ecc_corrected{}, ecc_uncorrected{};  ///< memory errors since the driver was loaded
  std::vector<std::int64_t> xids{};                          ///< numbers of the errors reported since the last reading
  std::string lost{};                                        ///< why the device no longer answers; empty while it does
};

/// The sensors of one device.
class HEARTH_API DeviceSensors {
 public:
  DeviceSensors() = default;
  DeviceSensors(const DeviceSensors&) = delete;
  DeviceSensors& operator=(const DeviceSensors&) = delete;
  virtual ~DeviceSensors() = default;
  /// Takes some 50 ms, as rates are measured meanwhile.
  virtual DeviceReadings read() = 0;
};

/// Those of the device with this UUID (DeviceInfo::uuid), whatever its number is. An instance of a divided GPU (MIG)
/// has its own memory and the whole GPU's clocks, temperature and errors; what it has no part of is absent. Null where
/// there are none: `why_not` says why, or is empty where none are expected, as of an emulated GPU.
HEARTH_API std::unique_ptr<DeviceSensors> open_sensors(const std::string& uuid, std::string& why_not);

}  // namespace hearth::cuda
