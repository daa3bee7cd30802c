// SPDX-License-Identifier: Apache-2.0
// Where a tensor lives.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

#include "core/export.h"

namespace hearth {

enum class DeviceType : std::uint8_t { cpu, cuda };

struct HEARTH_API Device {
  constexpr Device(DeviceType type_ = DeviceType::cpu, int index_ = 0)  // NOLINT: a type is its first device
      : type(type_), index(index_) {}
  /// "cpu", "cuda" or "cuda:N", so that a name does where a device is taken: x.to("cuda"). ConfigError with the
  /// accepted forms for others.
  Device(std::string_view name);                                       // NOLINT
  Device(const char* name) : Device(std::string_view(name)) {}         // NOLINT
  Device(const std::string& name) : Device(std::string_view(name)) {}  // NOLINT

  DeviceType type;
  int index;

  bool is_cpu() const { return type == DeviceType::cpu; }
  bool is_cuda() const { return type == DeviceType::cuda; }
  bool operator==(const Device&) const = default;
};

/// "cpu" or "cuda:N".
HEARTH_API std::string name_of(Device device);
HEARTH_API std::ostream& operator<<(std::ostream& out, Device device);

/// How many devices of this type can be used now. One CPU; 0 for cuda in a build without it, without a driver or
/// without a GPU. HEARTH_CUDA=EMULATE builds have an emulated GPU.
HEARTH_API int device_count(DeviceType type);

}  // namespace hearth
