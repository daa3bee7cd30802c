// SPDX-License-Identifier: Apache-2.0
// The threads and the memory of a run on the NUMA node of its GPU.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/device.h"

namespace hearth::train {

/// What the choice of cores depends on.
struct NearDeviceFacts {
  std::string gpu{};              ///< its address on the bus
  std::vector<int> cores{};       ///< that the process may use now
  std::string cores_of_launch{};  ///< those of `hearth launch`, which has chosen some for the rank; "" without it
  bool openmp_binds = false;      ///< cpu::openmp_binds()
  int threads_asked = 0;          ///< HEARTH_THREADS of a run without `hearth launch`; 0 where it is not set
  std::filesystem::path root = "/";
};

struct NearDevice {
  std::vector<int> cores{};  ///< to run on; empty: where the process is
  int node = -1;             ///< of the GPU; -1 where it is not known
  std::string why_not{};     ///< on a machine of several nodes, where the process stays outside of the GPU's
};

/// The cores of the GPU's node: of those of `hearth launch` for its ranks; of all, if the process may use all, for a
/// run without it. A mask that something else has set stays.
NearDevice near_device(const NearDeviceFacts& facts);

/// Moves this process to near_device(), if `device` is a GPU: threads that are started from now on, and memory that is
/// written to or pinned first from now on, are there. Comes before the device is used, and before the thread pool. A
/// warning on stderr says where it does not move, and why.
void move_near(Device device);

/// In the environment of the ranks of `hearth launch`: the cores that it could use itself.
inline constexpr const char* cores_of_launch = "HEARTH_LAUNCH_CORES";

}  // namespace hearth::train
