// SPDX-License-Identifier: Apache-2.0
// The part of NVML's binary interface that Hearth calls, by NVIDIA's NVML API reference. The library comes with the
// driver, and its header not with every toolkit.
#pragma once

#include <cstdint>

namespace hearth::cuda::nvml {

struct OpaqueHandle;
using Handle = OpaqueHandle*;
struct OpaqueEvents;
using Events = OpaqueEvents*;

/// nvmlReturn_t
using Result = int;
constexpr Result success = 0, invalid_argument = 2, not_supported = 3, not_found = 6, driver_not_loaded = 9,
                 timed_out = 10, gpu_is_lost = 15;

struct Utilization {
  unsigned gpu, memory;  ///< percent
};
struct Memory {
  unsigned long long total, free, used;  ///< bytes
};
constexpr int clock_sm = 1, clock_memory = 2;
constexpr int temperature_gpu = 0;
constexpr int pcie_sent = 0, pcie_received = 1;
constexpr int ecc_corrected = 0, ecc_uncorrected = 1;
constexpr int ecc_since_driver = 0;
constexpr unsigned mig_enabled = 1;

// nvmlClocksEventReasons
constexpr unsigned long long reason_power_limit = 0x4, reason_hardware = 0x8, reason_temperature = 0x20,
                             reason_hardware_temperature = 0x40, reason_power_brake = 0x80;

union Value {
  double real;
  unsigned u32;
  unsigned long long u64;
};
struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency;
  int type;  ///< nvmlValueType_t
  Result result;
  Value value;
};
constexpr unsigned nvlink_sent_kib = 138, nvlink_received_kib = 139;
constexpr unsigned all_links = ~0U;

struct Event {
  Handle device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
constexpr unsigned long long event_xid = 0x8;
constexpr unsigned no_instance = ~0U;

struct Pci {
  char short_address[16];
  unsigned domain, bus, device, id, subsystem;
  char address[32];  ///< "00000000:3D:00.0"
};
constexpr unsigned most_links = 18;

}  // namespace hearth::cuda::nvml
