// SPDX-License-Identifier: Apache-2.0
#include "train/cli/join_group.h"

#include <iostream>
#include <optional>
#include <utility>

#include "core/error.h"
#include "dist/agreement.h"
#include "dist/nccl_log/kept_log.h"
#include "dist/process_group.h"
#include "train/cli/near_device.h"

namespace hearth::train {
namespace {

/// The same ranks connected by NCCL, if the run computes on GPUs and all ranks can; else `host`, and why in `text`.
/// config.device becomes this rank's.
std::unique_ptr<Collective> on_devices(std::unique_ptr<Collective> host, RunConfig& config, int local_rank,
                                       std::string& text) {
  const bool wanted = config.dist.backend == DistBackend::nccl, never = config.device == "cpu";
  const Device device = device_of_rank(config.device, local_rank);
  config.device = name_of(device);
  move_near(device);
  if (!wanted && (config.dist.backend == DistBackend::tcp || never)) return host;
  const std::string why = dist::why_no_nccl(*host, device);
  HEARTH_CHECK(ConfigError, !wanted || why.empty(), "/dist/backend: nccl: ", why);
  if (why.empty()) return dist::nccl_group(std::move(host), device, {.ordered = config.train.deterministic});
  if (device.is_cuda()) text = join_text("; no NCCL: ", why);
  return host;
}

}  // namespace

std::unique_ptr<Collective> join_group(RunConfig& config, std::string& text) {
  const DistOptions& options = config.dist;
  if (options.backend == DistBackend::none) return nullptr;
  const std::optional<dist::Placement> placement = dist::placement(options.address);
  HEARTH_CHECK(
      ConfigError, placement || options.backend == DistBackend::automatic,
      "/dist/backend: it names one, but nothing says which rank this process is; start the run by hearth launch -n N "
      "-- train ..., torchrun, mpirun or srun");
  if (!placement) return nullptr;
  // Before there are threads that might read the environment meanwhile.
  if (options.backend != DistBackend::tcp && config.device != "cpu" && device_count(DeviceType::cuda) > 0)
    dist::keep_nccl_log();
  // Rank 0 tells the user; of rank 0, which cannot, rank 1 does.
  const auto warn = [rank = placement->rank](const std::string& warning) {
    if (rank == 0 || (rank == 1 && warning.starts_with("rank 0 "))) std::cerr << join_text("warning   ", warning, "\n");
  };
  std::unique_ptr<Collective> group =
      dist::join_processes(*placement, {.join_seconds = options.join_timeout,
                                        .give_up_seconds = options.timeout,
                                        .shared_memory = options.backend != DistBackend::tcp,
                                        .route = options.route,
                                        .ordered = config.train.deterministic,
                                        .warn = warn});
  std::string why_not;
  group = on_devices(std::move(group), config, placement->local_rank, why_not);
  const std::string route = dist::route_of(*group);
  text = join_text(group->size(), " (", group->backend(), ", ", placement->source, ")", route.empty() ? "" : ", route ",
                   route, why_not);
  return group;
}

int ranks_of(const RunConfig& config) {
  const std::optional<dist::Placement> placement =
      config.dist.backend == DistBackend::none ? std::nullopt : dist::placement(config.dist.address);
  return placement ? placement->size : 1;
}

}  // namespace hearth::train
