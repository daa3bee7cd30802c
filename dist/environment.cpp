// SPDX-License-Identifier: Apache-2.0
#include "dist/environment.h"

#include <charconv>
#include <cstdlib>

#include "core/error.h"
#include "core/io/checksum.h"
#include "dist/socket.h"

namespace hearth::dist {
namespace {

// torchrun's; ports that are derived from a job's name lie above it.
constexpr int default_port = 29500;
constexpr int derived_ports = 16384;

struct Reader {
  const Environment& environment;

  bool has(const char* name) const { return environment(name).has_value(); }
  std::string text(const char* name) const { return environment(name).value_or(""); }
  int number(const char* name, int min, int max) const {
    const std::optional<std::string> found = environment(name);
    HEARTH_CHECK(ConfigError, found, "dist: the environment has no ", name);
    int value = 0;
    const char* const end = found->data() + found->size();
    const auto [stop, code] = std::from_chars(found->data(), end, value);
    HEARTH_CHECK(ConfigError, code == std::errc() && stop == end && value >= min && value <= max, "dist: ", name,
                 " is \"", *found, "\"; it is a number of ", min, "..", max);
    return value;
  }
  int number_or(const char* name, int otherwise, int min, int max) const {
    return has(name) ? number(name, min, max) : otherwise;
  }
};

/// A port that all ranks of a job derive alike.
int port_of_job(const std::string& job) {
  return default_port + 1 + static_cast<int>(crc32c(std::as_bytes(std::span(job))) % derived_ports);
}

/// The first host of Slurm's list: "node[07-12,15],other" begins with node07.
std::string first_host(const std::string& list) {
  const std::size_t bracket = list.find('['), comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  return list.substr(0, bracket) + list.substr(bracket + 1, list.find_first_of(",-]", bracket) - bracket - 1);
}

constexpr int max_ranks = 1 << 16;
constexpr const char* run_alone = "; where this process is a run by itself, set dist.backend to none";

Placement of_torchrun(const Reader& read) {
  HEARTH_CHECK(ConfigError, read.has("WORLD_SIZE"), "dist: the environment has RANK (\"", read.text("RANK"),
               "\") and no WORLD_SIZE: what starts ranks, as torchrun and `hearth launch` do, sets both", run_alone);
  Placement at{.rank = read.number("RANK", 0, max_ranks - 1), .size = read.number("WORLD_SIZE", 1, max_ranks)};
  at.local_rank = read.number_or("LOCAL_RANK", 0, 0, max_ranks - 1);
  at.address = read.text("MASTER_ADDR");
  at.port = read.number_or("MASTER_PORT", default_port, 1, 65535);
  at.is_server_elsewhere = read.text("HEARTH_SERVER") == "launcher";
  at.source = at.is_server_elsewhere ? "hearth launch" : "torchrun variables";
  // torchrun's agent listens on MASTER_PORT itself.
  if (read.text("TORCHELASTIC_USE_AGENT_STORE") != "True") return at;
  if (read.number_or("LOCAL_WORLD_SIZE", 0, 0, max_ranks) == at.size) at.address = "127.0.0.1";
  at.port = port_of_job(
      join_text(read.text("TORCHELASTIC_RUN_ID"), ".", at.port, ".", read.text("TORCHELASTIC_RESTART_COUNT")));
  at.source = "torchrun";
  return at;
}

Placement of_open_mpi(const Reader& read) {
  Placement at{.rank = read.number("OMPI_COMM_WORLD_RANK", 0, max_ranks - 1),
               .size = read.number("OMPI_COMM_WORLD_SIZE", 1, max_ranks)};
  at.local_rank = read.number_or("OMPI_COMM_WORLD_LOCAL_RANK", 0, 0, max_ranks - 1);
  at.address = read.text("MASTER_ADDR");
  if (at.address.empty() && read.number_or("OMPI_COMM_WORLD_LOCAL_SIZE", 0, 0, max_ranks) == at.size)
    at.address = "127.0.0.1";
  at.port = read.number_or("MASTER_PORT", port_of_job(read.text("PMIX_NAMESPACE")), 1, 65535);
  at.source = "Open MPI";
  return at;
}

Placement of_slurm(const Reader& read) {
  HEARTH_CHECK(
      ConfigError, read.has("SLURM_STEP_ID") || read.text("SLURM_NTASKS") == "1", "dist: Slurm has ",
      read.text("SLURM_NTASKS"),
      " tasks for this job, but srun did not start this process (there is no SLURM_STEP_ID), so that there are "
      "no others: use srun hearth train ...",
      run_alone);
  Placement at{.rank = read.number("SLURM_PROCID", 0, max_ranks - 1),
               .size = read.number("SLURM_NTASKS", 1, max_ranks)};
  at.local_rank = read.number_or("SLURM_LOCALID", 0, 0, max_ranks - 1);
  at.address = read.has("MASTER_ADDR") ? read.text("MASTER_ADDR") : first_host(read.text("SLURM_JOB_NODELIST"));
  if (read.number_or("SLURM_NNODES", 0, 0, max_ranks) == 1 && !read.has("MASTER_ADDR")) at.address = "127.0.0.1";
  at.port = read.number_or("MASTER_PORT", port_of_job(read.text("SLURM_JOB_ID") + "." + read.text("SLURM_STEP_ID")), 1,
                           65535);
  at.source = "Slurm";
  return at;
}

Placement of_kubernetes(const Reader& read) {
  HEARTH_CHECK(ConfigError, read.has("WORLD_SIZE"), "dist: the environment has JOB_COMPLETION_INDEX (\"",
               read.text("JOB_COMPLETION_INDEX"),
               "\") and no WORLD_SIZE: ranks of an indexed job need WORLD_SIZE, MASTER_ADDR and HEARTH_TOKEN",
               run_alone);
  Placement at{.rank = read.number("JOB_COMPLETION_INDEX", 0, max_ranks - 1),
               .size = read.number("WORLD_SIZE", 1, max_ranks)};
  at.address = read.text("MASTER_ADDR");
  at.port = read.number_or("MASTER_PORT", default_port, 1, 65535);
  at.source = "Kubernetes";
  return at;
}

void take_address(Placement& at, const std::string& address) {
  const std::size_t colon = address.rfind(':');
  // Several colons are those of a number of IPv6.
  const bool has_port = colon != std::string::npos && address.find(':') == colon;
  at.address = has_port ? address.substr(0, colon) : address;
  if (!has_port) return;
  const std::string port = address.substr(colon + 1);
  const auto [stop, code] = std::from_chars(port.data(), port.data() + port.size(), at.port);
  HEARTH_CHECK(ConfigError,
               code == std::errc() && stop == port.data() + port.size() && at.port >= 1 && at.port <= 65535,
               "dist.address: \"", address, "\": \"", port, "\" is no port; ports are 1..65535");
}

}  // namespace

std::optional<Placement> placement_of(const Environment& environment, const std::string& address) {
  const Reader read{environment};
  Placement at;
  if (read.has("RANK"))
    at = of_torchrun(read);
  else if (read.has("OMPI_COMM_WORLD_RANK"))
    at = of_open_mpi(read);
  else if (read.has("SLURM_PROCID") && read.has("SLURM_NTASKS"))
    at = of_slurm(read);
  else if (read.has("JOB_COMPLETION_INDEX"))
    at = of_kubernetes(read);
  else if (read.number_or("PMI_SIZE", 1, 1, max_ranks) > 1)
    throw ConfigError(join_text("dist: mpiexec of MPICH or Intel MPI started this process as rank ",
                                read.text("PMI_RANK"), " of ", read.text("PMI_SIZE"),
                                ", whose variables are not read; use hearth launch, Open MPI or srun, or set RANK, "
                                "WORLD_SIZE and MASTER_ADDR",
                                run_alone));
  else
    return {};
  if (!address.empty() && !at.is_server_elsewhere) take_address(at, address);
  at.token = read.text("HEARTH_TOKEN");
  HEARTH_CHECK(ConfigError, at.rank < at.size, "dist: ", at.source, ": rank ", at.rank, " of ", at.size,
               " ranks; ranks are 0..", at.size - 1);
  HEARTH_CHECK(ConfigError, !at.address.empty(), "dist: ", at.source,
               ": where is rank 0? Set MASTER_ADDR to its host, or dist.address in the configuration");
  HEARTH_CHECK(ConfigError, !at.token.empty() || is_loopback(at.address), "dist: ranks that meet at ", at.address,
               " need a token, so that nobody else can join: set HEARTH_TOKEN to the same secret in every rank");
  return at;
}

std::optional<Placement> placement(const std::string& address) {
  return placement_of(
      [](const char* name) -> std::optional<std::string> {
        const char* const value = std::getenv(name);
        if (value == nullptr) return {};
        return value;
      },
      address);
}

}  // namespace hearth::dist
