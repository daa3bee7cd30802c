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

/// Those of `cores` on each NUMA node of the machine that has some, ascending; all in one where the system does not
/// tell of nodes.
HEARTH_API std::vector<std::vector<int>> cores_by_node(const std::vector<int>& cores,
                                                       const std::filesystem::path& root = "/");
/// Where rank `rank` of `size` local ranks runs: the cores of its node, neighbouring ranks on the same; empty, which is
/// anywhere, where there is one node or fewer ranks than nodes.
HEARTH_API std::vector<int> cores_of_rank(const std::vector<std::vector<int>>& nodes, int rank, int size);
/// Lets the calling thread, and those that it starts, run on these cores only. A refusal leaves it where it is.
HEARTH_API void run_on_cores(const std::vector<int>& cores) noexcept;

/// Where OpenMP binds: lets the calling thread, which is none of OpenMP's, run on all of them.
void use_all_cores() noexcept;

}  // namespace hearth::cpu
