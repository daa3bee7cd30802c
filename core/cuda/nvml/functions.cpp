// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/nvml/functions.h"

#include "core/cuda/emulation.h"
#include "core/error.h"

namespace hearth::cuda {

// Leaked, like the library.
NvmlFunctions& nvml_api() {
  static NvmlFunctions& loaded = *new NvmlFunctions;
  return loaded;
}

bool starts_nvml(std::string& why_not) {
  NvmlFunctions& api = nvml_api();
  if (!why_not_run(api.file).empty()) {
    if (!is_emulated())
      why_not = api.file.why_absent() + "; in a container, NVIDIA_DRIVER_CAPABILITIES has to name utility";
    return false;
  }
  static const std::string& reason = *new std::string([&api] {
    const NvmlResult result = api.start();
    return result == nvml::success ? std::string() : join_text("NVML does not start: ", api.text(result));
  }());
  why_not = reason;
  return reason.empty();
}

}  // namespace hearth::cuda
