// SPDX-License-Identifier: Apache-2.0
// Which cores the process may use: those of the affinity mask, or those that OpenMP binds its threads to, as far as the
// control groups grant them in time.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/export.h"

namespace hearth::cpu {

/// At least 1. A container limited to two cores' time on a machine of 64 gives 2; a part of a core counts as one.
/// `root` is where the files of the system lie.
HEARTH_API int available_cores(const std::filesystem::path& root = "/");

/// Whether OpenMP binds each of its threads to cores of its own (OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY): the
/// thread that started the process has the first of them only, and threads that it starts inherit that.
HEARTH_API bool openmp_binds();

/// The numbers of the cores, ascending: all that OpenMP binds to, where it does, else those of the calling thread's
/// mask. Empty where the system does not tell.
HEARTH_API std::vector<int> allowed_cores();
/// "0-3, 8".
HEARTH_API std::string describe_cores(const std::vector<int>& cores);

/// The numbers in a list as the kernel writes it, "0-3,8", and as describe_cores() does; none of one that is not
/// understood.
HEARTH_API std::vector<int> cores_in_list(const std::string& list);
/// The cores that are online, whatever the mask is; empty where the system does not tell.
HEARTH_API std::vector<int> online_cores(const std::filesystem::path& root = "/");

struct NumaNode {
  int number = 0;
  std::vector<int> cores{};  ///< ascending; none of a node that is memory only
};
/// All of the machine, ascending; none where the system does not tell of nodes.
HEARTH_API std::vector<NumaNode> numa_nodes(const std::filesystem::path& root = "/");
/// The node that an NVIDIA GPU is at, by its address on the bus ("0000:3d:00.0"); -1 where the system does not tell.
HEARTH_API int numa_node_of_gpu(const std::string& address, const std::filesystem::path& root = "/");

/// Those of `cores` on each NUMA node of the machine that has some, ascending; all in one where the system does not
/// tell of nodes.
HEARTH_API std::vector<std::vector<int>> cores_by_node(const std::vector<int>& cores,
                                                       const std::filesystem::path& root = "/");
/// Where rank `rank` of `size` local ranks runs: the cores of its node, neighbouring ranks on the same; empty, which is
/// anywhere, where there is one node or fewer ranks than nodes.
HEARTH_API std::vector<int> cores_of_rank(const std::vector<std::vector<int>>& nodes, int rank, int size);
/// Lets the calling thread, and those that it starts from then on, run on these cores only. A refusal leaves it where
/// it is.
HEARTH_API void run_on_cores(const std::vector<int>& cores) noexcept;

/// Where OpenMP binds: lets the calling thread, which is none of OpenMP's, run on all of them.
void use_all_cores() noexcept;

}  // namespace hearth::cpu
