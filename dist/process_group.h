// SPDX-License-Identifier: Apache-2.0
// Groups of ranks: processes, or threads of one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/collective.h"
#include "dist/environment.h"
#include "dist/route.h"

namespace hearth::dist {

struct ProcessGroupOptions {
  double join_seconds = 120;    ///< to wait for the other ranks at the start
  double give_up_seconds = 60;  ///< without a sign of life from a rank: the group fails
  bool shared_memory = true;    ///< in place of TCP between ranks that are processes of one machine
  Route route = Route::automatic;
  /// Sums by pairs of neighbouring ranks, as Collective says; else a route may add in an order of its own.
  bool ordered = true;
  /// Ranks that give the same text share memory; "": the machine and container of this process.
  std::string host{};
  /// Called on another thread with what the user should hear of: a rank that is silent, one that is there again.
  std::function<void(const std::string&)> warn{};
};

/// Joins the group of `placement`, connected by shared memory, by TCP, or within hosts by the one and between them by
/// the other; rank 0 runs the server that the ranks meet at, unless what started them does. PeerError where the ranks
/// do not come together; ConfigError where they cannot sum by `route`.
HEARTH_API std::unique_ptr<Collective> join_processes(const Placement& placement,
                                                      const ProcessGroupOptions& options = {});

/// The group of a process that is alone: it sends nothing, and its collectives are done at once.
HEARTH_API Collective& one_process();

/// A group of which only this rank is there, to plan what it needs: all others are taken to do as it does, sums have
/// its own term only, parts that only others have are zeros, and nothing is sent. UsageError for a rank outside of the
/// group.
HEARTH_API std::unique_ptr<Collective> imagined_group(int rank, int size);

/// Groups of `size` ranks that are threads of this process: for tests, and for programs that compute in threads. Each
/// object is used by one thread.
HEARTH_API std::vector<std::unique_ptr<Collective>> loopback_groups(int size);

struct NcclOptions {
  /// Floating sums by pairs of neighbouring ranks, as Collective says, with the bits of every other kind of group. Else
  /// in NCCL's order, which is faster; sums of 16-bit types keep theirs.
  bool ordered = true;
};

/// Why this build or machine has no NCCL, with the remedy; empty where it has.
HEARTH_API std::string why_no_nccl();
/// Why the ranks of `host` cannot use NCCL for tensors of `device`, this rank's, the same on all ranks but for what is
/// known here only; empty if they can: each has the library and a CUDA device of its own. Every rank calls it.
HEARTH_API std::string why_no_nccl(Collective& host, Device device);
/// The ranks of `host`, a group of join_processes() or loopback_groups(), connected by NCCL for tensors of `device`,
/// a CUDA device that no other rank has. Other tensors, and what the ranks compare, still go by `host`. Every rank
/// calls it. PeerError where the ranks do not come together; DeviceError where why_no_nccl() says why.
HEARTH_API std::unique_ptr<Collective> nccl_group(std::unique_ptr<Collective> host, Device device,
                                                  const NcclOptions& options = {});

}  // namespace hearth::dist
