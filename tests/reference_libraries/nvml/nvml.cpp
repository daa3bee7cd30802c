// SPDX-License-Identifier: Apache-2.0
// An NVML whose devices are lines of the file that HEARTH_REFERENCE_NVML names, read again at each call:
//   GPU-00000000-0000-0000-0000-000000000001 power 300000
// A reading without a line is not supported, and a device without a line not known. "xid" lines are events, each given
// once; "part_of" names the whole device of a part, and "lost" makes a device answer nothing. "driver start 9" is what
// starting the library gives.
#include "core/cuda/nvml/abi.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <vector>

using namespace hearth::cuda::nvml;

namespace {

using Lines = std::vector<std::string>;

/// The values of a device's lines with this reading.
Lines values_of(const std::string& device, const std::string& reading) {
  const char* const path = std::getenv("HEARTH_REFERENCE_NVML");
  std::ifstream stream(path == nullptr ? "" : path);
  Lines values;
  for (std::string name, key, value; stream >> name >> key >> value;)
    if (name == device && (key == reading || reading.empty())) values.push_back(value);
  return values;
}

/// Handles are names that stay.
Handle handle_of(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, char>& names = *new std::map<std::string, char>;
  const std::lock_guard lock(mutex);
  return reinterpret_cast<Handle>(const_cast<std::string*>(&names.try_emplace(name).first->first));
}
const std::string& name_of(Handle device) { return *reinterpret_cast<const std::string*>(device); }

template <class T>
Result give(Handle device, const char* reading, T* value) {
  const std::string& name = name_of(device);
  if (!values_of(name, "lost").empty()) return gpu_is_lost;
  const Lines values = values_of(name, reading);
  if (values.empty()) return not_supported;
  *value = static_cast<T>(std::stoull(values.front()));
  return success;
}

/// Of one device; its place among the events is behind those given.
struct EventSet {
  std::string device;
  std::size_t given = 0;
};

}  // namespace

extern "C" {

/// By this symbol Hearth knows that the library runs on the emulated GPU.
void hearth_runs_on_the_emulated_gpu() {}

Result nvmlInit_v2() {
  const Lines values = values_of("driver", "start");
  return values.empty() ? success : std::stoi(values.front());
}

const char* nvmlErrorString(Result result) {
  switch (result) {
    case not_found:
      return "Not Found";
    case driver_not_loaded:
      return "Driver Not Loaded";
    case gpu_is_lost:
      return "GPU is lost";
    default:
      return "as the reference says";
  }
}

Result nvmlDeviceGetHandleByUUID(const char* uuid, Handle* device) {
  if (values_of(uuid, "").empty()) return not_found;
  *device = handle_of(uuid);
  return success;
}

Result nvmlDeviceGetMigMode(Handle device, unsigned* now, unsigned* later) {
  const Result result = give(device, "mig", now);
  *later = *now;
  return result;
}
Result nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Handle part, Handle* whole) {
  const Lines values = values_of(name_of(part), "part_of");
  if (values.empty()) return invalid_argument;
  *whole = handle_of(values.front());
  return success;
}
Result nvmlDeviceGetGpuInstanceId(Handle part, unsigned* id) { return give(part, "instance", id); }

Result nvmlDeviceGetUtilizationRates(Handle device, Utilization* use) { return give(device, "use", &use->gpu); }
Result nvmlDeviceGetPowerUsage(Handle device, unsigned* milliwatts) { return give(device, "power", milliwatts); }
Result nvmlDeviceGetTotalEnergyConsumption(Handle device, unsigned long long* millijoules) {
  return give(device, "energy", millijoules);
}
Result nvmlDeviceGetMemoryInfo(Handle device, Memory* memory) { return give(device, "memory", &memory->used); }
Result nvmlDeviceGetClockInfo(Handle device, int kind, unsigned* mhz) {
  return give(device, kind == clock_sm ? "clock" : "memory_clock", mhz);
}
Result nvmlDeviceGetTemperature(Handle device, int, unsigned* degrees) { return give(device, "temperature", degrees); }
Result nvmlDeviceGetCurrentClocksEventReasons(Handle device, unsigned long long* bits) {
  return give(device, "reasons", bits);
}
Result nvmlDeviceGetPcieThroughput(Handle device, int kind, unsigned* kb) {
  return give(device, kind == pcie_sent ? "pcie_sent" : "pcie_received", kb);
}
Result nvmlDeviceGetFieldValues(Handle device, int count, FieldValue* values) {
  for (int i = 0; i < count; ++i) {
    const char* const name = values[i].field == nvlink_sent_kib       ? "nvlink_sent"
                             : values[i].field == nvlink_received_kib ? "nvlink_received"
                                                                      : "unknown";
    values[i].result = values[i].scope == all_links ? give(device, name, &values[i].value.u64) : invalid_argument;
  }
  return success;
}
Result nvmlDeviceGetTotalEccErrors(Handle device, int kind, int since, unsigned long long* count) {
  if (since != ecc_since_driver) return invalid_argument;
  return give(device, kind == ecc_corrected ? "ecc_corrected" : "ecc_uncorrected", count);
}

Result nvmlDeviceGetHandleByPciBusId_v2(const char* address, Handle* device) {
  return nvmlDeviceGetHandleByUUID(address, device);
}
/// Each "link" line is one: an address on the bus, or "off".
Result nvmlDeviceGetNvLinkState(Handle device, unsigned link, unsigned* active) {
  const Lines links = values_of(name_of(device), "link");
  if (link >= links.size()) return invalid_argument;
  *active = links[link] == "off" ? 0 : 1;
  return success;
}
Result nvmlDeviceGetNvLinkRemotePciInfo_v2(Handle device, unsigned link, Pci* peer) {
  *peer = {};
  values_of(name_of(device), "link").at(link).copy(peer->address, sizeof(peer->address) - 1);
  return success;
}

Result nvmlEventSetCreate(Events* events) {
  *events = reinterpret_cast<Events>(new EventSet);
  return success;
}
Result nvmlDeviceRegisterEvents(Handle device, unsigned long long types, Events events) {
  if (types != event_xid) return not_supported;
  reinterpret_cast<EventSet*>(events)->device = name_of(device);
  return success;
}
/// "79" is of the whole device, "31@3" of its part with the number 3.
Result nvmlEventSetWait_v2(Events events, Event* event, unsigned) {
  auto& set = *reinterpret_cast<EventSet*>(events);
  const Lines all = values_of(set.device, "xid");
  if (set.given >= all.size()) return timed_out;
  const std::string& text = all[set.given++];
  const std::size_t at = text.find('@');
  *event = {handle_of(set.device), event_xid, std::stoull(text),
            at == std::string::npos ? no_instance : static_cast<unsigned>(std::stoul(text.substr(at + 1))),
            no_instance};
  return success;
}
Result nvmlEventSetFree(Events events) {
  delete reinterpret_cast<EventSet*>(events);
  return success;
}

}  // extern "C"
