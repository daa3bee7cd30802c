// SPDX-License-Identifier: Apache-2.0
// By what bytes go from GPU to GPU within this machine, and what keeps them from going straight to an RDMA device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/cuda/nvml/links.h"
#include "dist/network.h"

namespace hearth::dist {

/// Two GPUs, by their addresses on the bus.
struct GpuPath {
  std::string from, to;
  std::string path;  ///< "NV4" (so many NVLinks, straight or by switches), or as pci_distance() has it; "" unknown
};
/// Each pair once, in the order of the bus.
std::vector<GpuPath> gpu_paths(const Network& network, const std::vector<cuda::NvLink>& links);

enum class CheckState : std::uint8_t { ok, wrong, unknown };
/// "ok"
const char* name_of(CheckState state);

/// One condition of GPUDirect RDMA, by which an RDMA device reads and writes a GPU's memory itself.
struct GpuDirectCheck {
  std::string name;  ///< "memory of the GPU"
  CheckState state = CheckState::unknown;
  std::string finding{};  ///< what the state goes by
  std::string remedy{};   ///< where it is wrong, or what tells where it is unknown
};
/// All of them, in a fixed order; none where the machine has no GPU or no RDMA device. `root` stands in front of /proc
/// and /sys.
std::vector<GpuDirectCheck> gpu_direct_checks(const Network& network, const std::string& root = {});

}  // namespace hearth::dist
