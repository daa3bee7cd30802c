// SPDX-License-Identifier: Apache-2.0
// Which rank this process is, as what started it says.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/export.h"

namespace hearth::dist {

/// This process among those of a run.
struct Placement {
  int rank = 0;
  int size = 1;
  int local_rank = 0;     ///< among those of this machine
  std::string address{};  ///< where the server of the group listens
  int port = 0;
  std::string token{};
  bool is_server_elsewhere = false;  ///< `hearth launch` runs it; else rank 0 does
  std::string source{};              ///< who says so: "torchrun", "Open MPI", "Slurm", "Kubernetes"
};

/// Reads an environment variable; nothing where it is not set.
using Environment = std::function<std::optional<std::string>(const char* name)>;

/// From the variables of torchrun (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; also those of `hearth launch`; beside
/// torchrun's agent, which has MASTER_PORT, another port of this job), Open MPI, Slurm, or an indexed job of Kubernetes
/// (JOB_COMPLETION_INDEX with WORLD_SIZE and MASTER_ADDR), the first of them that are there; nothing where none is.
/// `address`, "host" or "host:port", goes before theirs. The token is that of HEARTH_TOKEN. ConfigError for variables
/// that contradict each other or are incomplete, and where ranks of several machines would meet without a token.
HEARTH_API std::optional<Placement> placement_of(const Environment& environment, const std::string& address = "");
/// That of this process.
HEARTH_API std::optional<Placement> placement(const std::string& address = "");

}  // namespace hearth::dist
