// SPDX-License-Identifier: Apache-2.0
// Paths between GPUs and to RDMA devices, of made-up machines.
#include "dist/gpu_paths.h"

#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <vector>

#include "tests/dist/made_up_machine.h"
#include "tests/support/error_message.h"

namespace hearth::dist::gpu_paths_test {
namespace {

using Words = std::vector<std::string>;

const std::string gpu_port = "pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:00.0",
                  card_port = "pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:01.0", gpu = gpu_port + "/0000:3d:00.0",
                  card = card_port + "/0000:3e:00.0", other_gpu = "pci0000:ba/0000:ba:00.0/0000:bb:00.0",
                  other_card = "pci0000:ba/0000:ba:01.0/0000:bc:00.0";

/// Registers of a device of PCI Express, with other capabilities before those that matter.
std::string registers(unsigned device_control, unsigned access_control) {
  std::string bytes(4096, '\0');
  const auto set = [&](std::size_t at, unsigned word) {
    bytes[at] = static_cast<char>(word & 0xff);
    bytes[at + 1] = static_cast<char>(word >> 8);
  };
  set(0x34, 0x50);
  set(0x50, 0x7001);
  set(0x70, 0x0010);
  set(0x78, device_control);
  set(0x100, 0x0001);
  set(0x102, 0x1501);
  set(0x150, 0x000d);
  set(0x156, access_control);
  return bytes;
}
constexpr unsigned relaxed = 0x10, redirecting = 0x1d;

/// A GPU and a card below a switch, with all that GPUDirect RDMA needs.
class Machine : public MadeUpMachine {
 public:
  Machine() {
    write("sys/module/nvidia_peermem/refcnt", "0");
    add_gpu(gpu, 0);
    add_card("mlx5_0", card, 0);
    for (const std::string& port : {gpu_port, card_port}) config(port, registers(0, 0));
    // The port above the switch sends nothing on.
    config("pci0000:3a/0000:3a:00.0", registers(0, redirecting));
  }

  void add_gpu(const std::string& path, int node) {
    pci(path, node, "0x030200", "0x10de");
    // A region of registers, ports, one of 128 GiB.
    write("sys/devices/" + path + "/resource",
          "0x00000000c0000000 0x00000000c0ffffff 0x0000000000040200\n"
          "0x0000000000003000 0x00000000ffffffff 0x0000000000040101\n"
          "0x0000383000000000 0x0000384fffffffff 0x000000000014220c\n"
          "0x0000000000000000 0x0000000000000000 0x0000000000000000");
  }
  void add_card(const std::string& name, const std::string& path, int node) {
    pci(path, node, "0x020700", "0x15b3");
    rdma(name, "4: ACTIVE", path);
    config(path, registers(relaxed, 0));
  }
  void config(const std::string& path, const std::string& bytes) {
    const std::filesystem::path file = root_ / ("sys/devices/" + path + "/config");
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << bytes;
  }
  void group(const std::string& path, const char* type) {
    const std::string folder = "sys/kernel/iommu_groups/7";
    write(folder + "/type", type);
    std::filesystem::create_directory_symlink(root_ / folder, root_ / ("sys/devices/" + path + "/iommu_group"));
  }
  void remove(const std::string& path) { std::filesystem::remove_all(root_ / path); }
  void without_module(const std::string& driver, const std::string& kernel) {
    remove("sys/module");
    write("proc/driver/nvidia/version", driver);
    write("proc/sys/kernel/osrelease", kernel);
  }

  std::map<std::string, std::string> nccl;
};

struct Case {
  const char* name;
  std::function<void(Machine&)> change;
  Words differs;  ///< checks that are not ok: "NAME VERDICT: FINDING; REMEDY", parts of it
};
void PrintTo(const Case& machine, std::ostream* out) { *out << machine.name; }

const char* const open_driver = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82";
const char* const closed_driver = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54";

const Case cases[] = {
    {"a_server_that_has_all", [](Machine&) {}, {}},
    {"dma_buf_of_the_open_driver", [](Machine& m) { m.without_module(open_driver, "6.5.0-45"); }, {}},
    {"a_kernel_without_dma_buf",
     [](Machine& m) { m.without_module(open_driver, "5.4.0-190"); },
     {"peer memory wrong: no peer memory module is loaded, and this kernel has no dma-buf of devices; "
      "modprobe nvidia_peermem"}},
    {"the_closed_driver_without_a_module",
     [](Machine& m) { m.without_module(closed_driver, "6.5.0-45"); },
     {"peer memory wrong: no peer memory module is loaded, and the driver has no dma-buf; modprobe nvidia_peermem"}},
    {"no_driver", [](Machine& m) { m.remove("sys/module"); }, {"peer memory unknown"}},
    {"acs_in_the_switch",
     [](Machine& m) { m.config(card_port, registers(0, redirecting)); },
     {"ACS wrong: on in 0000:3c:01.0: transfers go by the CPU"}},
    {"a_user_who_is_not_root",
     [](Machine& m) {
       for (const std::string& path : {gpu_port, card_port, card}) m.config(path, registers(0, 0).substr(0, 64));
     },
     {"ACS unknown: the registers of bridges can be read by root only; run as root", "relaxed ordering unknown"}},
    {"an_iommu_that_translates",
     [](Machine& m) { m.group(gpu, "DMA-FQ"); },
     {"IOMMU wrong: it translates the addresses of 0000:3d:00.0; iommu=pt on the kernel's command line"}},
    {"an_iommu_that_passes_addresses_on", [](Machine& m) { m.group(gpu, "identity"); }, {}},
    {"strict_ordering", [](Machine& m) { m.config(card, registers(0, 0)); }, {"relaxed ordering wrong: off in mlx5_0"}},
    {"a_small_window",
     [](Machine& m) {
       m.write("sys/devices/" + gpu + "/resource", "0x00000000b0000000 0x00000000bfffffff 0x000000000014220c");
     },
     {"BAR wrong: 0000:3d:00.0 shows 256 MiB of its memory at a time; turn on Above 4G Decoding"}},
    {"a_card_at_the_other_processor",
     [](Machine& m) { m.add_gpu(other_gpu, 1); },
     {"NCCL_NET_GDR_LEVEL wrong: PXB, the default, leaves out the nearest RDMA device of 0000:bb:00.0 (SYS); "
      "NCCL_NET_GDR_LEVEL=SYS"}},
    {"a_card_for_each_processor",
     [](Machine& m) {
       m.add_gpu(other_gpu, 1);
       m.add_card("mlx5_1", other_card, 1);
       m.nccl = {{"NCCL_NET_GDR_LEVEL", "PHB"}};
     },
     {}},
    {"variables_that_turn_it_off",
     [](Machine& m) {
       m.nccl = {{"NCCL_NET_GDR_LEVEL", "0"}, {"NCCL_NET_GDR_READ", "0"}, {"NCCL_IB_PCI_RELAXED_ORDERING", "0"}};
     },
     {"relaxed ordering wrong: NCCL_IB_PCI_RELAXED_ORDERING=0; unset NCCL_IB_PCI_RELAXED_ORDERING",
      "NCCL_NET_GDR_LEVEL wrong: 0 turns GPUDirect RDMA off; unset NCCL_NET_GDR_LEVEL",
      "NCCL_NET_GDR_READ wrong: 0 has what is sent go by the host's memory; unset NCCL_NET_GDR_READ"}},
    {"a_level_that_is_no_distance",
     [](Machine& m) {
       m.nccl = {{"NCCL_NET_GDR_LEVEL", "FAR"}};
     },
     {"NCCL_NET_GDR_LEVEL wrong: FAR is no distance; set it to PIX, PXB, PHB, NODE or SYS"}},
};

class GpuDirect : public testing::TestWithParam<Case> {};

TEST_P(GpuDirect, IsCheckedLineByLine) {
  Machine machine;
  GetParam().change(machine);
  Words differs;
  const std::vector<Check> checks = gpu_direct_checks(machine.look(machine.nccl), machine.root());
  EXPECT_EQ(checks.size(), 7U);
  for (const Check& check : checks) {
    EXPECT_NE(check.finding, "") << check.name;
    EXPECT_EQ(check.remedy.empty(), check.state == CheckState::ok) << check.name;
    if (check.state != CheckState::ok)
      differs.push_back(check.name + " " + name_of(check.state) + ": " + check.finding + "; " + check.remedy);
  }
  ASSERT_EQ(differs.size(), GetParam().differs.size()) << testing::PrintToString(differs);
  for (std::size_t i = 0; i < differs.size(); ++i) EXPECT_PRED2(test::contains, differs[i], GetParam().differs[i]);
}

INSTANTIATE_TEST_SUITE_P(Machines, GpuDirect, testing::ValuesIn(cases),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(GpuDirectChecks, AreNoneWithoutACardOrAGpu) {
  MadeUpMachine machine;
  machine.pci(gpu, 0, "0x030200", "0x10de");
  EXPECT_TRUE(gpu_direct_checks(machine.look(), machine.root()).empty());
}

Words texts_of(const std::vector<GpuPath>& paths) {
  Words texts;
  for (const GpuPath& path : paths) texts.push_back(path.from + " " + path.to + " " + path.path);
  return texts;
}

TEST(GpuPaths, AreLinksOrTheBus) {
  Machine machine;
  machine.add_gpu(card_port + "/0000:3f:00.0", 0);
  machine.add_gpu(other_gpu, 1);
  const std::string a = "0000:3d:00.0", b = "0000:3f:00.0", c = "0000:bb:00.0";
  const Network network = machine.look();
  EXPECT_EQ(texts_of(gpu_paths(network, {})),
            (Words{a + " " + b + " PIX", a + " " + c + " SYS", b + " " + c + " SYS"}));
  // Four straight from the first to the last.
  EXPECT_EQ(texts_of(gpu_paths(network, {{a, c, 4}, {c, a, 4}})),
            (Words{a + " " + b + " PIX", a + " " + c + " NV4", b + " " + c + " SYS"}));
}

TEST(GpuPaths, BySwitchesAreAsManyAsBothEndsHave) {
  Machine machine;
  machine.add_gpu(other_gpu, 1);
  const std::string a = "0000:3d:00.0", c = "0000:bb:00.0";
  const std::vector<cuda::NvLink> links{
      {a, "0000:07:00.0", 9}, {a, "0000:08:00.0", 9}, {c, "0000:07:00.0", 9}, {c, "0000:08:00.0", 8}};
  EXPECT_EQ(texts_of(gpu_paths(machine.look(), links)), Words{a + " " + c + " NV17"});
}

}  // namespace
}  // namespace hearth::dist::gpu_paths_test
