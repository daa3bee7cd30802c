// SPDX-License-Identifier: Apache-2.0
// NVML's functions, found when first needed. For sources of this folder only.
#pragma once

#include <string>

#include "core/cuda/library.h"
#include "core/cuda/nvml/abi.h"

namespace hearth::cuda {

using NvmlHandle = nvml::Handle;
using NvmlResult = nvml::Result;

struct NvmlFunctions {
  Library file{"NVML", {"libnvidia-ml.so.1"}};
  NvmlResult (*start)() = file.find("nvmlInit_v2");
  const char* (*text)(NvmlResult) = file.find("nvmlErrorString");
  NvmlResult (*device_by_uuid)(const char*, NvmlHandle*) = file.find("nvmlDeviceGetHandleByUUID");

  // What a device, a driver or a version may lack.
  NvmlResult (*mig_mode)(NvmlHandle, unsigned*, unsigned*) = if_there("nvmlDeviceGetMigMode");
  NvmlResult (*whole_device)(NvmlHandle, NvmlHandle*) = if_there("nvmlDeviceGetDeviceHandleFromMigDeviceHandle");
  NvmlResult (*instance)(NvmlHandle, unsigned*) = if_there("nvmlDeviceGetGpuInstanceId");
  NvmlResult (*use)(NvmlHandle, nvml::Utilization*) = if_there("nvmlDeviceGetUtilizationRates");
  NvmlResult (*power)(NvmlHandle, unsigned*) = if_there("nvmlDeviceGetPowerUsage");
  NvmlResult (*energy)(NvmlHandle, unsigned long long*) = if_there("nvmlDeviceGetTotalEnergyConsumption");
  NvmlResult (*memory)(NvmlHandle, nvml::Memory*) = if_there("nvmlDeviceGetMemoryInfo");
  NvmlResult (*clock)(NvmlHandle, int, unsigned*) = if_there("nvmlDeviceGetClockInfo");
  NvmlResult (*temperature)(NvmlHandle, int, unsigned*) = if_there("nvmlDeviceGetTemperature");
  NvmlResult (*reasons)(NvmlHandle, unsigned long long*) = if_there("nvmlDeviceGetCurrentClocksEventReasons");
  NvmlResult (*reasons_before_r535)(NvmlHandle,
                                    unsigned long long*) = if_there("nvmlDeviceGetCurrentClocksThrottleReasons");
  NvmlResult (*pcie)(NvmlHandle, int, unsigned*) = if_there("nvmlDeviceGetPcieThroughput");
  NvmlResult (*fields)(NvmlHandle, int, nvml::FieldValue*) = if_there("nvmlDeviceGetFieldValues");
  NvmlResult (*ecc)(NvmlHandle, int, int, unsigned long long*) = if_there("nvmlDeviceGetTotalEccErrors");
  NvmlResult (*make_events)(nvml::Events*) = if_there("nvmlEventSetCreate");
  NvmlResult (*add_events)(NvmlHandle, unsigned long long, nvml::Events) = if_there("nvmlDeviceRegisterEvents");
  NvmlResult (*next_event)(nvml::Events, nvml::Event*, unsigned) = if_there("nvmlEventSetWait_v2");
  NvmlResult (*free_events)(nvml::Events) = if_there("nvmlEventSetFree");

  NvmlResult (*device_by_bus)(const char*, NvmlHandle*) = if_there("nvmlDeviceGetHandleByPciBusId_v2");
  NvmlResult (*link_state)(NvmlHandle, unsigned, unsigned*) = if_there("nvmlDeviceGetNvLinkState");
  NvmlResult (*link_peer)(NvmlHandle, unsigned, nvml::Pci*) = if_there("nvmlDeviceGetNvLinkRemotePciInfo_v2");

  Library::Function if_there(const char* symbol) {
    return file.has(symbol) ? file.find(symbol) : Library::Function{nullptr};
  }
};

NvmlFunctions& nvml_api();
/// Whether the functions can be called. If not, `why_not` says why, or is empty in builds for the emulated GPU.
bool starts_nvml(std::string& why_not);

}  // namespace hearth::cuda
