// SPDX-License-Identifier: Apache-2.0
#include "dist/environment.h"

#include <gtest/gtest.h>

#include <map>

#include "core/error.h"
#include "tests/support/error_message.h"

namespace hearth::dist::environment_test {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<Placement> read(const Variables& variables, const std::string& address = "") {
  return placement_of(
      [&](const char* name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        if (found == variables.end()) return {};
        return found->second;
      },
      address);
}
std::string refusal(const Variables& variables, const std::string& address = "") {
  return test::error_message<ConfigError>([&] { (void)read(variables, address); });
}
/// "rank of size, local rank, address:port, source".
std::string text(const Variables& variables, const std::string& address = "") {
  const std::optional<Placement> at = read(variables, address);
  if (!at) return "none";
  return join_text(at->rank, " of ", at->size, ", ", at->local_rank, ", ", at->address, ":", at->port, ", ",
                   at->source);
}
Variables with(Variables variables, const char* name, const char* value) {
  variables[name] = value;
  return variables;
}
Variables without(Variables variables, const char* name) {
  variables.erase(name);
  return variables;
}

const Variables torchrun{
    {"RANK", "3"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1234"}};
const Variables slurm{{"SLURM_PROCID", "5"},  {"SLURM_NTASKS", "16"},    {"SLURM_LOCALID", "1"},
                      {"SLURM_JOB_ID", "99"}, {"SLURM_STEP_ID", "0"},    {"SLURM_JOB_NODELIST", "node[07-10,12],z"},
                      {"SLURM_NNODES", "4"},  {"HEARTH_TOKEN", "secret"}};
const Variables open_mpi{{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"PMIX_NAMESPACE", "1234567"}};
const Variables kubernetes{
    {"JOB_COMPLETION_INDEX", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "train-0.train"}, {"HEARTH_TOKEN", "secret"}};

TEST(Placement, NothingSetsNothing) { EXPECT_EQ(text({{"WORLD_SIZE", "2"}, {"SLURM_JOB_ID", "2"}}), "none"); }

TEST(Placement, OfTorchrun) {
  EXPECT_EQ(text(torchrun), "3 of 8, 1, 127.0.0.1:1234, torchrun variables");
  EXPECT_EQ(text(without(without(torchrun, "LOCAL_RANK"), "MASTER_PORT")),
            "3 of 8, 0, 127.0.0.1:29500, torchrun variables");
  EXPECT_EQ(text(with(torchrun, "HEARTH_SERVER", "launcher"), "elsewhere"), "3 of 8, 1, 127.0.0.1:1234, hearth launch");
}

TEST(Placement, BesideTorchrunsAgent) {
  Variables agent = with(torchrun, "TORCHELASTIC_USE_AGENT_STORE", "True");
  agent["TORCHELASTIC_RUN_ID"] = "none";
  agent["TORCHELASTIC_RESTART_COUNT"] = "0";
  const Placement first = *read(agent);
  EXPECT_NE(first.port, 1234);
  EXPECT_EQ(read(with(agent, "RANK", "0"))->port, first.port);
  EXPECT_NE(read(with(agent, "MASTER_PORT", "1235"))->port, first.port) << "two jobs of one machine";
  EXPECT_NE(read(with(agent, "TORCHELASTIC_RESTART_COUNT", "1"))->port, first.port);
  // The name of the machine is not its loopback.
  const Variables named = with(with(agent, "MASTER_ADDR", "192.0.2.1"), "HEARTH_TOKEN", "secret");
  EXPECT_EQ(read(named)->address, "192.0.2.1");
  EXPECT_EQ(read(with(named, "LOCAL_WORLD_SIZE", "8"))->address, "127.0.0.1");
  EXPECT_EQ(read(agent, "127.0.0.1:77")->port, 77);
}

TEST(Placement, OfOpenMpiAndSlurm) {
  const std::string mpi = text(open_mpi);
  EXPECT_TRUE(mpi.starts_with("1 of 2, 1, 127.0.0.1:")) << mpi;
  EXPECT_TRUE(mpi.ends_with(", Open MPI")) << mpi;
  EXPECT_NE(text(with(open_mpi, "PMIX_NAMESPACE", "7654321")), mpi) << "two jobs of one machine";

  const std::string job = text(slurm);
  EXPECT_TRUE(job.starts_with("5 of 16, 1, node07:")) << job;
  EXPECT_TRUE(text(with(slurm, "SLURM_JOB_NODELIST", "a1,b[1-2]")).starts_with("5 of 16, 1, a1:"));
  EXPECT_TRUE(text(with(slurm, "SLURM_JOB_NODELIST", "solo")).starts_with("5 of 16, 1, solo:"));
  EXPECT_TRUE(text(with(without(slurm, "HEARTH_TOKEN"), "SLURM_NNODES", "1")).starts_with("5 of 16, 1, 127.0.0.1:"));
  EXPECT_EQ(text(without(slurm, "SLURM_NTASKS")), "none") << "an allocation without srun";
}

TEST(Placement, OfKubernetes) { EXPECT_EQ(text(kubernetes), "2 of 4, 0, train-0.train:29500, Kubernetes"); }

TEST(Placement, AnAddressGoesFirst) {
  EXPECT_EQ(text(torchrun, "localhost:77"), "3 of 8, 1, localhost:77, torchrun variables");
  EXPECT_EQ(text(torchrun, "localhost"), "3 of 8, 1, localhost:1234, torchrun variables");
  EXPECT_EQ(text(torchrun, "::1"), "3 of 8, 1, ::1:1234, torchrun variables");
}

TEST(Placement, IncompleteOrImpossible) {
  EXPECT_PRED2(test::contains, refusal(without(torchrun, "WORLD_SIZE")), "has RANK (\"3\") and no WORLD_SIZE");
  EXPECT_PRED2(test::contains, refusal(without(kubernetes, "WORLD_SIZE")), "JOB_COMPLETION_INDEX (\"2\")");
  EXPECT_PRED2(test::contains, refusal(without(slurm, "SLURM_STEP_ID")), "use srun hearth train");
  EXPECT_PRED2(test::contains, refusal({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}), "MPICH or Intel MPI");
  EXPECT_EQ(text({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}), "none");
  EXPECT_EQ(text(without(with(with(slurm, "SLURM_NTASKS", "1"), "SLURM_PROCID", "0"), "SLURM_STEP_ID")).substr(0, 6),
            "0 of 1");
  EXPECT_EQ(refusal(with(torchrun, "RANK", "8")), "dist: torchrun variables: rank 8 of 8 ranks; ranks are 0..7");
  EXPECT_EQ(refusal(with(torchrun, "RANK", "-1")), "dist: RANK is \"-1\"; it is a number of 0..65535");
  EXPECT_EQ(refusal(with(torchrun, "RANK", "1x")), "dist: RANK is \"1x\"; it is a number of 0..65535");
  EXPECT_EQ(refusal(with(torchrun, "MASTER_PORT", "0")), "dist: MASTER_PORT is \"0\"; it is a number of 1..65535");
  EXPECT_PRED2(test::contains, refusal(without(torchrun, "MASTER_ADDR")), "Set MASTER_ADDR");
  EXPECT_PRED2(test::contains, refusal(with(open_mpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "1")), "Set MASTER_ADDR");
  EXPECT_PRED2(test::contains, refusal(torchrun, "localhost:x"), "is no port");
  EXPECT_PRED2(test::contains, refusal(torchrun, "localhost:70000"), "is no port");
}

TEST(Placement, SeveralMachinesNeedAToken) {
  const std::string message = refusal(with(torchrun, "MASTER_ADDR", "192.0.2.1"));
  EXPECT_PRED2(test::contains, message, "HEARTH_TOKEN");
  EXPECT_EQ(read(with(with(torchrun, "MASTER_ADDR", "192.0.2.1"), "HEARTH_TOKEN", "secret"))->token, "secret");
  EXPECT_PRED2(test::contains, refusal(without(kubernetes, "HEARTH_TOKEN")), "HEARTH_TOKEN");
}

}  // namespace
}  // namespace hearth::dist::environment_test
