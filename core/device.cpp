// SPDX-License-Identifier: Apache-2.0
#include "core/device.h"

#include <charconv>
#include <ostream>

#include "core/build.h"
#include "core/cuda/nvml/bus_address.h"
#include "core/cuda/nvml/links.h"
#include "core/cuda/nvml/sensors.h"
#include "core/cuda/stream.h"
#include "core/error.h"

namespace hearth {

Device::Device(std::string_view name) : Device() {
  if (name == "cpu") return;
  if (name == "cuda") {
    type = DeviceType::cuda;
    return;
  }
  constexpr std::string_view prefix = "cuda:";
  if (name.starts_with(prefix)) {
    const std::string_view digits = name.substr(prefix.size());
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (error == std::errc{} && end == digits.data() + digits.size() && index >= 0) {
      type = DeviceType::cuda;
      return;
    }
  }
  throw ConfigError(join_text("device \"", name, "\" is not known; use cpu, cuda or cuda:N"));
}

std::string name_of(Device device) {
  return device.is_cpu() ? std::string("cpu") : "cuda:" + std::to_string(device.index);
}

std::ostream& operator<<(std::ostream& out, Device device) { return out << name_of(device); }

#if !HEARTH_HAS_CUDA
namespace cuda {
int device_count() { return 0; }
std::string why_no_device() { return "not in this build; build it with -DHEARTH_CUDA=ON"; }
DeviceInfo device_info(Device device) { throw DeviceError(join_text("device ", device, ": ", why_no_device())); }
std::string bus_address(Device device) { throw DeviceError(join_text("device ", device, ": ", why_no_device())); }
std::unique_ptr<DeviceSensors> open_sensors(const std::string& /*uuid*/, std::string& why_not) {
  why_not = why_no_device();
  return nullptr;
}
std::vector<NvLink> nv_links(const std::vector<std::string>& /*gpus*/) { return {}; }
}  // namespace cuda
#endif

int device_count(DeviceType type) { return type == DeviceType::cpu ? 1 : cuda::device_count(); }

}  // namespace hearth
