// SPDX-License-Identifier: Apache-2.0
// By what bytes go from GPU to GPU within this machine, and what keeps them from going straight to an RDMA device.
#pragma once

#include <string>
#include <vector>

#include "core/cuda/nvml/links.h"
#include "dist/check.h"
#include "dist/network.h"

namespace hearth::dist {

/// Two GPUs, by their addresses on the bus.
struct GpuPath {
  std::string from, to;
  std::string path;  ///< "NV4" (so many NVLinks, straight or by switches), or as pci_distance() has it; "" unknown
};
/// Each pair once, in the order of the bus.
std::vector<GpuPath> gpu_paths(const Network& network, const std::vector<cuda::NvLink>& links);
/// The same with the links that NVML tells of.
std::vector<GpuPath> gpu_paths(const Network& network);

/// The conditions of GPUDirect RDMA, by which an RDMA device reads and writes a GPU's memory itself, in a fixed order;
/// none where the machine has no GPU or no RDMA device. `root` stands in front of /proc and /sys.
std::vector<Check> gpu_direct_checks(const Network& network, const std::string& root = {});

}  // namespace hearth::dist
