// SPDX-License-Identifier: Apache-2.0
// The "topology" of run.json: the machine's nodes, devices and paths between them, where each rank runs, and what
// connects the ranks. What the machine does not give is absent.
#pragma once

#include <vector>

#include "core/collective.h"
#include "core/cpu/cores.h"
#include "core/device.h"
#include "core/io/json_text.h"
#include "dist/check.h"
#include "dist/gpu_paths.h"
#include "dist/nccl_log/log.h"
#include "dist/network.h"

namespace hearth::train {

/// What this process can use, and where: `device` is that of its rank.
Json place_of_rank(int rank, Device device, const std::vector<cpu::NumaNode>& nodes);

/// Nodes, GPUs, interfaces that are up, and RDMA devices.
Json machine_topology(const dist::Network& network, const std::vector<dist::GpuPath>& paths,
                      const std::vector<cpu::NumaNode>& nodes);

/// Of this machine, with where each rank runs and what connects the ranks. Every rank calls it.
Json run_topology(Collective& group, Device device, bool is_alone);

Json to_json(const std::vector<dist::Check>& checks);
/// What NCCL chose: the channels, each kind of connection with the number of pairs of ranks, single connections of up
/// to 64 pairs, and the checks.
Json to_json(const dist::NcclLog& log, const std::vector<dist::Check>& checks);

}  // namespace hearth::train
