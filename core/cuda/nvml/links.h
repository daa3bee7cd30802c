// SPDX-License-Identifier: Apache-2.0
// NVLinks between the GPUs of this machine, by NVML. In every build.
#pragma once

#include <string>
#include <vector>

#include "core/export.h"

namespace hearth::cuda {

/// Active links from a GPU to another one, or to a switch. Devices are their addresses on the PCI bus.
struct NvLink {
  std::string gpu, to;
  int count = 0;
};

/// Those of these GPUs ("0000:3d:00.0"); none where NVML is not there, or does not know a GPU.
HEARTH_API std::vector<NvLink> nv_links(const std::vector<std::string>& gpus);

}  // namespace hearth::cuda
