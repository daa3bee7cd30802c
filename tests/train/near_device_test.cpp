// SPDX-License-Identifier: Apache-2.0
// Where a run goes on made-up machines whose GPUs are at NUMA nodes. No such machine was at hand.
#include "train/cli/near_device.h"

#include <gtest/gtest.h>

#include <functional>
#include <ostream>

#include "core/cpu/cores.h"
#include "core/error.h"
#include "tests/dist/made_up_machine.h"
#include "tests/support/error_message.h"

namespace hearth::train::near_device_test {
namespace {

using dist::MadeUpMachine;

const std::string gpu = "0000:3d:00.0", far_gpu = "0000:bd:00.0";

void two_nodes(MadeUpMachine& machine) {
  machine.online("0-63");
  machine.numa_node(0, "0-15,32-47");
  machine.numa_node(1, "16-31,48-63");
  machine.gpu_at(gpu, 0);
  machine.gpu_at(far_gpu, 1);
}

struct Case {
  const char* name;
  std::function<void(MadeUpMachine&)> machine;
  NearDeviceFacts facts;     ///< with the machine's root
  const char* mask;          ///< NearDeviceFacts::cores
  const char* cores;         ///< where it goes; "" where it stays
  int node;                  ///< of the GPU
  const char* why_not = "";  ///< a part of it
};
void PrintTo(const Case& of, std::ostream* out) { *out << of.name; }

const Case cases[] = {
    {"a_workstation_of_one_node",
     [](MadeUpMachine& m) {
       m.online("0-7");
       m.numa_node(0, "0-7");
       m.gpu_at(gpu, 0);
     },
     {.gpu = gpu},
     "0-7",
     "",
     0},
    {"a_system_without_nodes", [](MadeUpMachine& m) { m.gpu_at(gpu, -1); }, {.gpu = gpu}, "0-7", "", -1},
    {"a_gpu_at_the_second_processor", two_nodes, {.gpu = far_gpu}, "0-63", "16-31, 48-63", 1},
    {"a_gpu_at_the_first_processor", two_nodes, {.gpu = gpu}, "0-63", "0-15, 32-47", 0},
    {"a_processor_of_four_nodes",
     [](MadeUpMachine& m) {
       m.online("0-31");
       for (int node = 0; node < 4; ++node) m.numa_node(node, join_text(8 * node, "-", 8 * node + 7));
       m.gpu_at(gpu, 2);
     },
     {.gpu = gpu},
     "0-31",
     "16-23",
     2},
    {"nodes_whose_numbers_have_gaps",
     [](MadeUpMachine& m) {
       m.online("0-79");
       m.numa_node(0, "0-39");
       m.numa_node(8, "40-79");
       m.numa_node(252, "");
       m.gpu_at(gpu, 8);
     },
     {.gpu = gpu},
     "0-79",
     "40-79",
     8},
    {"a_gpu_at_a_node_of_memory_only",
     [](MadeUpMachine& m) {
       two_nodes(m);
       m.numa_node(2, "");
       m.gpu_at("0000:dd:00.0", 2);
     },
     {.gpu = "0000:dd:00.0"},
     "0-63",
     "",
     2,
     "its NUMA node 2 has no cores"},
    {"a_processor_beside_a_node_of_the_gpus_memory",
     [](MadeUpMachine& m) {
       m.online("0-71");
       m.numa_node(0, "0-71");
       m.numa_node(1, "");
       m.gpu_at(gpu, 1);
     },
     {.gpu = gpu},
     "0-71",
     "",
     1},
    {"a_virtual_machine_that_hides_the_bus",
     [](MadeUpMachine& m) {
       two_nodes(m);
       m.gpu_at("0000:dd:00.0", -1);
     },
     {.gpu = "0000:dd:00.0"},
     "0-63",
     "",
     -1,
     "does not tell its NUMA node"},
    {"a_container_with_cores_of_the_other_node",
     two_nodes,
     {.gpu = far_gpu},
     "0-7",
     "",
     1,
     "it is at NUMA node 1 (cores 16-31, 48-63); what started the process chose its cores"},
    {"a_container_with_cores_of_the_gpus_node", two_nodes, {.gpu = far_gpu}, "16-19", "", 1},
    {"a_rank_that_launch_put_at_the_other_node",
     two_nodes,
     {.gpu = far_gpu, .cores_of_launch = "0-63"},
     "0-15,32-47",
     "16-31, 48-63",
     1},
    {"a_rank_of_a_launch_that_has_some_cores_of_the_node",
     two_nodes,
     {.gpu = far_gpu, .cores_of_launch = "8-19"},
     "8-15",
     "16-19",
     1},
    {"a_rank_of_a_launch_that_has_none",
     two_nodes,
     {.gpu = far_gpu, .cores_of_launch = "0-7"},
     "0-7",
     "",
     1,
     "hearth launch may not use these"},
    {"threads_that_openmp_binds", two_nodes, {.gpu = far_gpu, .openmp_binds = true}, "0-63", "", 1, "OMP_PLACES"},
    {"more_threads_than_the_node_has_cores",
     two_nodes,
     {.gpu = far_gpu, .threads_asked = 64},
     "0-63",
     "",
     1,
     "HEARTH_THREADS asks for 64 threads"},
    {"as_many_threads_as_the_node_has_cores",
     two_nodes,
     {.gpu = far_gpu, .threads_asked = 32},
     "0-63",
     "16-31, 48-63",
     1},
    {"another_device_at_the_address",
     [](MadeUpMachine& m) {
       two_nodes(m);
       m.pci("pci0000:01/0000:01:00.0", 1, "0x020000", "0x8086");
     },
     {.gpu = "0000:01:00.0"},
     "0-63",
     "",
     -1,
     "does not tell its NUMA node"},
};

class NearDevice : public testing::TestWithParam<Case> {};

TEST_P(NearDevice, IsTheNodeOfTheGpu) {
  MadeUpMachine machine;
  GetParam().machine(machine);
  NearDeviceFacts facts = GetParam().facts;
  facts.root = machine.root();
  facts.cores = cpu::cores_in_list(GetParam().mask);
  const train::NearDevice near = near_device(facts);
  EXPECT_EQ(cpu::describe_cores(near.cores), GetParam().cores);
  EXPECT_EQ(near.node, GetParam().node);
  EXPECT_PRED2(test::contains, near.why_not, GetParam().why_not);
  EXPECT_EQ(near.why_not.empty(), *GetParam().why_not == 0) << near.why_not;
}

INSTANTIATE_TEST_SUITE_P(Machines, NearDevice, testing::ValuesIn(cases),
                         [](const auto& of) { return std::string(of.param.name); });

}  // namespace
}  // namespace hearth::train::near_device_test
