// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/nvml/sensors.h"

#include <utility>

#include "core/cuda/nvml/functions.h"
#include "core/error.h"

namespace hearth::cuda {
namespace {

/// A device, and the partition of it (MIG) that the program has.
struct NvmlPosition {
  NvmlHandle gpu = nullptr, partition = nullptr;  ///< no partition where it is not known
  bool is_divided = false;                        ///< among several users (MIG)
  unsigned instance = nvml::no_instance;          ///< the number of the partition
};

class NvmlSensors final : public DeviceSensors {
 public:
  explicit NvmlSensors(const NvmlPosition& at) : at_(at) {
    if (api_.make_events == nullptr || api_.add_events == nullptr || api_.next_event == nullptr) return;
    if (api_.make_events(&events_) != nvml::success) events_ = nullptr;
    if (events_ != nullptr) (void)api_.add_events(at_.gpu, nvml::event_xid, events_);
  }
  ~NvmlSensors() override {
    if (events_ != nullptr && api_.free_events != nullptr) (void)api_.free_events(events_);
  }

  DeviceReadings read() override {
    DeviceReadings now;
    lost_.clear();
    if (at_.partition != nullptr) {
      nvml::Memory memory{};
      if (asks(api_.memory, at_.partition, &memory)) now.memory = static_cast<double>(memory.used);
    }
    now.clock = number(api_.clock, nvml::clock_sm);
    now.memory_clock = number(api_.clock, nvml::clock_memory);
    now.temperature = number(api_.temperature, nvml::temperature_gpu);
    read_throttling(now);
    read_errors(now);
    // Of all who share a divided GPU together.
    if (!at_.is_divided) read_whole(now);
    now.lost = lost_;
    return now;
  }

 private:
  /// Whether the function is there and gave an answer.
  template <class F, class... Arguments>
  bool asks(F* function, Arguments... arguments) {
    if (function == nullptr) return false;
    const NvmlResult result = function(arguments...);
    if (result == nvml::gpu_is_lost) lost_ = api_.text(result);
    return result == nvml::success;
  }
  std::optional<double> number(NvmlResult (*function)(NvmlHandle, int, unsigned*), int kind) {
    unsigned value = 0;
    return asks(function, at_.gpu, kind, &value) ? std::optional<double>(value) : std::nullopt;
  }

  void read_whole(DeviceReadings& now) {
    constexpr double percent = 0.01, milli = 1e-3, kilo = 1e3, kib = 1024;
    nvml::Utilization use{};
    if (asks(api_.use, at_.gpu, &use)) now.use = percent * use.gpu;
    unsigned milliwatts = 0;
    if (asks(api_.power, at_.gpu, &milliwatts)) now.power = milli * milliwatts;
    unsigned long long millijoules = 0;
    if (asks(api_.energy, at_.gpu, &millijoules)) now.energy = milli * static_cast<double>(millijoules);
    if (const auto sent = number(api_.pcie, nvml::pcie_sent)) now.pcie_sent = kilo * *sent;
    if (const auto received = number(api_.pcie, nvml::pcie_received)) now.pcie_received = kilo * *received;
    nvml::FieldValue links[2]{};
    links[0].field = nvml::nvlink_sent_kib;
    links[1].field = nvml::nvlink_received_kib;
    links[0].scope = links[1].scope = nvml::all_links;
    if (!asks(api_.fields, at_.gpu, 2, links)) return;
    const auto bytes = [](const nvml::FieldValue& field) {
      return field.result == nvml::success ? std::optional(kib * static_cast<double>(field.value.u64)) : std::nullopt;
    };
    now.nvlink_sent = bytes(links[0]);
    now.nvlink_received = bytes(links[1]);
  }

  void read_throttling(DeviceReadings& now) {
    unsigned long long bits = 0;
    if (!asks(api_.reasons, at_.gpu, &bits) && !asks(api_.reasons_before_r535, at_.gpu, &bits)) return;
    std::vector<Throttle>& found = now.throttled.emplace();
    const auto add = [&](unsigned long long bit, Throttle reason) {
      if ((bits & bit) != 0) found.push_back(reason);
    };
    add(nvml::reason_power_limit, Throttle::power_limit);
    add(nvml::reason_temperature, Throttle::temperature);
    add(nvml::reason_hardware_temperature, Throttle::hardware_temperature);
    add(nvml::reason_power_brake, Throttle::power_brake);
    // Set beside the two above, which say more.
    if ((bits & (nvml::reason_hardware_temperature | nvml::reason_power_brake)) == 0)
      add(nvml::reason_hardware, Throttle::hardware);
  }

  void read_errors(DeviceReadings& now) {
    for (const auto& [kind, reading] :
         {std::pair(nvml::ecc_corrected, &now.ecc_corrected), std::pair(nvml::ecc_uncorrected, &now.ecc_uncorrected)}) {
      unsigned long long count = 0;
      if (asks(api_.ecc, at_.gpu, kind, nvml::ecc_since_driver, &count)) *reading = static_cast<double>(count);
    }
    constexpr int most = 64;
    nvml::Event event{};
    for (int i = 0; i < most && events_ != nullptr && asks(api_.next_event, events_, &event, 0U); ++i) {
      const bool is_other =
          at_.is_divided && event.gpu_instance != nvml::no_instance && event.gpu_instance != at_.instance;
      if (event.type == nvml::event_xid && !is_other) now.xids.push_back(static_cast<std::int64_t>(event.data));
    }
  }

  NvmlFunctions& api_ = nvml_api();
  NvmlPosition at_;
  nvml::Events events_ = nullptr;
  std::string lost_;
};

}  // namespace

std::unique_ptr<DeviceSensors> open_sensors(const std::string& uuid, std::string& why_not) {
  NvmlFunctions& api = nvml_api();
  why_not.clear();
  if (!starts_nvml(why_not)) return nullptr;
  NvmlPosition at;
  at.is_divided = true;
  if (api.device_by_uuid(("MIG-" + uuid).c_str(), &at.partition) == nvml::success) {
    if (api.whole_device == nullptr || api.whole_device(at.partition, &at.gpu) != nvml::success) at.gpu = at.partition;
    if (api.instance != nullptr) (void)api.instance(at.partition, &at.instance);
    return std::make_unique<NvmlSensors>(at);
  }
  if (const NvmlResult result = api.device_by_uuid(("GPU-" + uuid).c_str(), &at.gpu); result != nvml::success) {
    why_not = join_text("NVML knows no device with the UUID ", uuid, ": ", api.text(result));
    return nullptr;
  }
  unsigned mode = 0, later = 0;
  // Of a divided GPU, the part is not known by this UUID.
  at.is_divided =
      api.mig_mode != nullptr && api.mig_mode(at.gpu, &mode, &later) == nvml::success && mode == nvml::mig_enabled;
  if (!at.is_divided) at.partition = at.gpu;
  return std::make_unique<NvmlSensors>(at);
}

}  // namespace hearth::cuda
