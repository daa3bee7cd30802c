// SPDX-License-Identifier: Apache-2.0
// Turns the status of a CUDA runtime call into an exception. For sources of the CUDA backend only.
#pragma once

#include <cuda_runtime_api.h>

#include "core/error.h"

namespace hearth::cuda {

/// Throws DeviceError (OutOfMemory where memory ran out) with the call, the runtime's own words and the remedy.
[[noreturn]] void throw_status(cudaError_t status, const char* call);

/// What more is known of the last fault: the emulated GPU's own report, nothing on a real one.
std::string fault_details();

}  // namespace hearth::cuda

/// Calls the runtime and throws unless it answers cudaSuccess.
#define HEARTH_TRY(call)                                  \
  do {                                                    \
    const cudaError_t hearth_status = (call);             \
    if (hearth_status != cudaSuccess) [[unlikely]]        \
      ::hearth::cuda::throw_status(hearth_status, #call); \
  } while (false)
