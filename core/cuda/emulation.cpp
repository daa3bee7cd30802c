// SPDX-License-Identifier: Apache-2.0
// The macros are definitions of this source (CMakeLists.txt).
#include "core/cuda/emulation.h"

#include "core/cuda/error.h"

#if HEARTH_CUDA_EMULATED
#include "tests/emulated_gpu/runtime.h"
#endif

namespace hearth::cuda {

bool is_emulated() { return HEARTH_CUDA_EMULATED != 0; }

const char* kernel_architectures() { return HEARTH_CUDA_ARCHITECTURES; }

std::string fault_details() {
#if HEARTH_CUDA_EMULATED
  const std::string report = emulate::last_fault();
  return report.empty() ? report : ": " + report;
#else
  return "";
#endif
}

}  // namespace hearth::cuda
