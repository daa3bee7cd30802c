// SPDX-License-Identifier: Apache-2.0
// What Hearth declares of NVML, beside NVIDIA's header where the toolkit has it.
#include "core/cuda/nvml/abi.h"

#include <gtest/gtest.h>

#if __has_include(<nvml.h>)
#include <nvml.h>

#include <cstddef>
#endif

namespace hearth::cuda {
namespace {

TEST(CudaNvml, IsDeclaredAsInTheHeader) {
#if __has_include(<nvml.h>)
  EXPECT_EQ(sizeof(nvml::Utilization), sizeof(nvmlUtilization_t));
  EXPECT_EQ(sizeof(nvml::Memory), sizeof(nvmlMemory_t));
  EXPECT_EQ(offsetof(nvml::Memory, used), offsetof(nvmlMemory_t, used));
  EXPECT_EQ(sizeof(nvml::FieldValue), sizeof(nvmlFieldValue_t));
  EXPECT_EQ(offsetof(nvml::FieldValue, scope), offsetof(nvmlFieldValue_t, scopeId));
  EXPECT_EQ(offsetof(nvml::FieldValue, result), offsetof(nvmlFieldValue_t, nvmlReturn));
  EXPECT_EQ(offsetof(nvml::FieldValue, value), offsetof(nvmlFieldValue_t, value));
  EXPECT_EQ(sizeof(nvml::Event), sizeof(nvmlEventData_t));
  EXPECT_EQ(offsetof(nvml::Event, data), offsetof(nvmlEventData_t, eventData));
  EXPECT_EQ(offsetof(nvml::Event, gpu_instance), offsetof(nvmlEventData_t, gpuInstanceId));
  EXPECT_EQ(sizeof(nvml::Pci), sizeof(nvmlPciInfo_t));
  EXPECT_EQ(offsetof(nvml::Pci, address), offsetof(nvmlPciInfo_t, busId));
  EXPECT_EQ(nvml::most_links, static_cast<unsigned>(NVML_NVLINK_MAX_LINKS));
  EXPECT_EQ(sizeof(nvml::Result), sizeof(nvmlReturn_t));
  EXPECT_EQ(nvml::not_supported, NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(nvml::not_found, NVML_ERROR_NOT_FOUND);
  EXPECT_EQ(nvml::timed_out, NVML_ERROR_TIMEOUT);
  EXPECT_EQ(nvml::gpu_is_lost, NVML_ERROR_GPU_IS_LOST);
  EXPECT_EQ(nvml::clock_sm, NVML_CLOCK_SM);
  EXPECT_EQ(nvml::clock_memory, NVML_CLOCK_MEM);
  EXPECT_EQ(nvml::temperature_gpu, NVML_TEMPERATURE_GPU);
  EXPECT_EQ(nvml::pcie_sent, NVML_PCIE_UTIL_TX_BYTES);
  EXPECT_EQ(nvml::pcie_received, NVML_PCIE_UTIL_RX_BYTES);
  EXPECT_EQ(nvml::ecc_corrected, NVML_MEMORY_ERROR_TYPE_CORRECTED);
  EXPECT_EQ(nvml::ecc_uncorrected, NVML_MEMORY_ERROR_TYPE_UNCORRECTED);
  EXPECT_EQ(nvml::ecc_since_driver, NVML_VOLATILE_ECC);
  EXPECT_EQ(nvml::mig_enabled, static_cast<unsigned>(NVML_DEVICE_MIG_ENABLE));
  EXPECT_EQ(nvml::event_xid, static_cast<unsigned long long>(nvmlEventTypeXidCriticalError));
  EXPECT_EQ(nvml::nvlink_sent_kib, static_cast<unsigned>(NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX));
  EXPECT_EQ(nvml::nvlink_received_kib, static_cast<unsigned>(NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX));
  EXPECT_EQ(nvml::reason_power_limit, static_cast<unsigned long long>(nvmlClocksThrottleReasonSwPowerCap));
  EXPECT_EQ(nvml::reason_hardware, static_cast<unsigned long long>(nvmlClocksThrottleReasonHwSlowdown));
  EXPECT_EQ(nvml::reason_temperature, static_cast<unsigned long long>(nvmlClocksThrottleReasonSwThermalSlowdown));
  EXPECT_EQ(nvml::reason_hardware_temperature,
            static_cast<unsigned long long>(nvmlClocksThrottleReasonHwThermalSlowdown));
  EXPECT_EQ(nvml::reason_power_brake, static_cast<unsigned long long>(nvmlClocksThrottleReasonHwPowerBrakeSlowdown));
#else
  GTEST_SKIP() << "the toolkit has no nvml.h";
#endif
}

}  // namespace
}  // namespace hearth::cuda
