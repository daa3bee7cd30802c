// SPDX-License-Identifier: Apache-2.0
// Logs as NCCL 2.14 to 2.28 would write them, after the formats in its sources. No run of NCCL wrote them.
#include "dist/nccl_log/log.h"

#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <random>

#include "core/error.h"
#include "dist/nccl_log/kept_log.h"
#include "tests/dist/made_up_machine.h"
#include "tests/support/error_message.h"

namespace hearth::dist::nccl_log_test {
namespace {

using test::contains;
using Lines = std::vector<std::string>;
using Names = std::set<std::string>;

/// A line of a rank's thread; messages of ranks are those of its process.
std::string line(const std::string& host, int rank, const std::string& message) {
  return join_text(host, ":", 4700 + rank, ":", 4800 + rank, " [", rank % 4, "] NCCL INFO ", message, "\n");
}
std::string complete(const std::string& host, int rank, int size, const std::string& bus = "3d000") {
  return line(host, rank,
              join_text("ncclCommInitRank comm 0x55d0c0 rank ", rank, " nranks ", size, " cudaDev ", rank % 4,
                        " nvmlDev ", rank % 4, " busId ", bus, " commId 0x61f2aa - Init COMPLETE"));
}
/// Both ends of a connection over the network, by so many channels.
std::string network_link(const std::string& by, const std::string& from_host, int from, const std::string& to_host,
                         int to, int channels = 2) {
  std::string text;
  for (int channel = 0; channel < channels; ++channel) {
    const std::string ends = join_text("Channel 0", channel, "/0 : ", from, "[0] -> ", to, "[0] ");
    text += line(from_host, from, ends + "[send] via " + by) + line(to_host, to, ends + "[receive] via " + by);
  }
  return text;
}
/// Two hosts with a rank each, over the network.
std::string two_hosts(const std::string& by, const std::string& before = "") {
  return before + line("alpha", 0, "Using network " + by.substr(4, by.find('/', 4) - 4)) +
         network_link(by, "alpha", 0, "beta", 1) + network_link(by, "beta", 1, "alpha", 0) +
         line("alpha", 0, "Connected all rings") + complete("alpha", 0, 2) + complete("beta", 1, 2);
}
/// Two ranks of a host.
std::string one_host(const std::string& by, const std::string& before = "") {
  return before + line("alpha", 0, "Channel 00/0 : 0[0] -> 1[1] via " + by) +
         line("alpha", 1, "Channel 00/0 : 1[1] -> 0[0] via " + by) + complete("alpha", 0, 2) +
         complete("alpha", 1, 2, "ba000");
}
const std::string rdma = line("alpha", 0, "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.5<0>"),
                  graph = line("alpha", 0, "=== System : maxBw 24.0 totalBw 24.0 ==="),
                  tcp = line("alpha", 0, "NET/IB : No device found.") +
                        line("alpha", 0, "NET/Socket : Using [0]eth0:10.0.0.5<0> [1]eth1:10.1.0.5<0>");

TEST(NcclLog, OfVersion214HasAddressesInBrackets) {
  const NcclLog log = read_nccl_log(
      "NCCL version 2.14.3+cuda11.7\n"
      "alpha:77:81 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.5<0>\n"
      "alpha:77:81 [0] NCCL INFO NET/Plugin : No plugin found (libnccl-net.so), using internal implementation\n"
      "alpha:77:81 [0] NCCL INFO NCCL version 2.14.3+cuda11.7\n"
      "alpha:77:81 [0] NCCL INFO NET/IB : No device found.\n"
      "alpha:77:81 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.5<0>\n"
      "alpha:77:81 [0] NCCL INFO Using network Socket\n"
      "alpha:77:81 [0] NCCL INFO Channel 00/02 :    0   1\n"
      "alpha:77:81 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1\n"
      "alpha:77:81 [0] NCCL INFO Channel 00 : 0[3d000] -> 1[ba000] via SHM/direct/direct\n"
      "alpha:77:81 [0] NCCL INFO Channel 01 : 0[3d000] -> 1[ba000] via SHM/direct/direct\n"
      "alpha:77:81 [0] NCCL INFO Connected all rings\n"
      "alpha:77:81 [0] NCCL INFO Connected all trees\n"
      "alpha:77:81 [0] NCCL INFO 2 coll channels, 2 p2p channels, 1 p2p channels per peer\n"
      "alpha:77:81 [0] NCCL INFO comm 0x5581 rank 0 nranks 2 cudaDev 0 busId 3d000 - Init COMPLETE\n");
  EXPECT_EQ(log.version, "2.14.3+cuda11.7");
  EXPECT_EQ(log.between_hosts, "Socket");
  EXPECT_EQ(log.interfaces, Names{"eth0"});
  EXPECT_TRUE(log.no_rdma && log.has_rings && log.has_trees && !log.has_nvls_tree);
  ASSERT_EQ(log.links.size(), 1U);
  EXPECT_EQ(log.links[0].by, "SHM");
  EXPECT_EQ(log.links[0].from, 0);
  EXPECT_EQ(log.links[0].to, 1);
  EXPECT_EQ(log.links[0].channels, (std::set<int>{0, 1}));
  EXPECT_EQ(log.channels, 2);
  EXPECT_EQ(log.p2p_channels, 2);
  EXPECT_FALSE(log.nvls_channels || log.has_multicast);
  EXPECT_EQ(log.size, 2);
  ASSERT_EQ(log.ranks.size(), 1U);
  EXPECT_EQ(log.ranks.at(0).host, "alpha");
  EXPECT_EQ(log.ranks.at(0).gpu, "0000:3d:00.0");
  EXPECT_EQ(nccl_checks(log, {}, "alpha").at(0).finding, "it has 1 of 2 ranks");
}

TEST(NcclLog, OfVersion228HasGroupsSwitchesAndTimes) {
  const std::string by = "[2026-01-02 03:04:05] alpha:77:81 [0] NCCL INFO ";
  const NcclLog log = read_nccl_log(
      "[rank0]: alpha:77:77 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\r\n" + by +
      "NET/Plugin: Loaded net plugin AWS Libfabric (v10)\n" + by + "Using network AWS Libfabric\n" + by +
      "NCCL_P2P_LEVEL set by environment to NVL\n" + by +
      "NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)\n" + by +
      "              + NVL[360.0] - NVS/0\n" + by + "NVLS Head  0:  0  1\n" + by +
      "Channel 03/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n" + by +
      "Channel 00/0 : 0[0] -> 9[1] [send] via NET/AWS Libfabric/3(1)/GDRDMA(PCI)/Shared\n" + by +
      "Connected all rings, use ring PXN 1 GDR 1\n" + by + "Connected NVLS tree\n" + by +
      "24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer\n" + by +
      "ncclCommInitRank comm 0xab rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 1000053000 commId 0xfe - Init COMPLETE\n"
      "\n[2026-01-02 03:04:05] alpha:77:81 [0] transport/net.cc:12 NCCL WARN something \x1b[31m odd\n");
  EXPECT_EQ(log.version, "2.28.9+cuda13.0");
  EXPECT_EQ(log.between_hosts, "AWS Libfabric");
  EXPECT_EQ(log.plugins, Names{"AWS Libfabric"});
  EXPECT_EQ(log.variables.at("NCCL_P2P_LEVEL"), "NVL");
  EXPECT_EQ(log.has_multicast, true);
  EXPECT_EQ(log.hosts_with_nvlink, Names{"alpha"});
  ASSERT_EQ(log.links.size(), 2U);
  EXPECT_EQ(log.links[0].by, "P2P/CUMEM");
  EXPECT_EQ(log.links[1].by, "NET/AWS Libfabric");
  EXPECT_TRUE(log.links[1].gpu_direct && !log.links[1].receives);
  EXPECT_TRUE(log.has_rings && log.has_nvls_tree);
  EXPECT_EQ(log.channels, 24);
  EXPECT_EQ(log.nvls_channels, 16);
  EXPECT_EQ(log.p2p_channels, 32);
  EXPECT_EQ(log.ranks.at(0).host, "alpha");
  EXPECT_EQ(log.ranks.at(0).gpu, "10000:53:00.0");
  EXPECT_EQ(log.groups.size(), 1U);
  EXPECT_EQ(log.warnings, Lines{"something \\x1b[31m odd"});
}

TEST(NcclLog, LinesOfInterestAreReadAsTheWholeIs) {
  const std::string text = two_hosts("NET/IB/0/GDRDMA", rdma + graph + line("alpha", 0, "P2P Chunksize set to 131072"));
  const std::string lines = nccl_lines_of_interest(text);
  EXPECT_FALSE(contains(lines, "Chunksize"));
  const NcclLog log = read_nccl_log(lines), whole = read_nccl_log(text);
  EXPECT_EQ(log.ranks.size(), 2U);
  EXPECT_EQ(log.links.size(), whole.links.size());
  EXPECT_EQ(log.rdma, (Names{"mlx5_0", "mlx5_1"}));
}

TEST(NcclLog, OddLinesAreNoChoices) {
  for (const std::string message :
       {"Channel ", "Channel 00/0 : ", "Channel 00/0 : 0[0] -> ", "Channel 00/0 : 0[0] -> 1[1] via ",
        "Channel 00/0 : 0[0] -> 1[1] via pigeons", "Channel 99999999999/0 : 0[0] -> 1[1] via SHM/direct/direct",
        "Channel 0/0 : -1[0] -> 1[1] via SHM/direct/direct", " coll channels", "NCCL_ set",
        "comm 0 rank 3 nranks 2 cudaDev 0 busId 1 - Init COMPLETE", "comm 0 rank x nranks 2 - Init COMPLETE"}) {
    const NcclLog log = read_nccl_log(line("alpha", 0, message));
    EXPECT_TRUE(log.links.empty() && log.ranks.empty() && log.variables.empty() && log.channels == 0) << message;
    EXPECT_EQ(nccl_lines_of_interest(line("alpha", 0, message)), "") << message;
  }
  EXPECT_EQ(read_nccl_log("NCCL INFO Using network IB").between_hosts, "IB") << "without a host";
  EXPECT_TRUE(read_nccl_log("").ranks.empty());
}

TEST(NcclLog, LaunchersPutWordsInFrontOfLines) {
  const std::string message = " [0] NCCL INFO comm 0x1 rank 2 nranks 4 cudaDev 0 busId 1000 - Init COMPLETE";
  for (const std::string front :
       {"", "[rank2]:", "[rank2]: ", "2: ", "2:", "[1,2]<stderr>: ", "Jan  2 03:04:05 log[7]: "})
    EXPECT_EQ(read_nccl_log(front + "alpha:1:2" + message).ranks.at(2).host, "alpha") << front;
  EXPECT_EQ(read_nccl_log("no host" + message).ranks.at(2).host, "");
}

TEST(NcclLog, MulticastIsThatOfAllGpus) {
  const std::string there = line("alpha", 0, "NVLS multicast support is available on dev 0"),
                    absent = line("alpha", 1, "NVLS multicast support is not available on dev 1");
  EXPECT_EQ(read_nccl_log(there + there).has_multicast, true);
  EXPECT_EQ(read_nccl_log(there + absent + there).has_multicast, false);
}

TEST(NcclLog, MuchIsCutAndSaidSo) {
  std::string text = complete("alpha", 0, 2) + complete("alpha", 1, 2);
  for (int rank = 0; rank < 70000; ++rank)
    text += join_text("a:1:2 [0] NCCL INFO Channel 00/0 : ", rank, "[0] -> 1[1] via SHM/direct/direct\n");
  const NcclLog log = read_nccl_log(text);
  EXPECT_TRUE(log.is_cut);
  EXPECT_LE(log.links.size(), 65536U);
  EXPECT_EQ(nccl_checks(log, {}, "").at(0).state, CheckState::unknown);
  EXPECT_LE(nccl_lines_of_interest(text).size(), std::size_t{1} << 20);
}

/// The host alpha: an RDMA device, eth0 and eth1, of which eth1 is ten times as fast.
class Host : public MadeUpMachine {
 public:
  Host() {
    interface("eth0", "0x1003", "up", 10000);
    interface("eth1", "0x1003", "up", 100000);
    addresses_ = {{"eth0", "10.0.0.5"}, {"eth1", "10.1.0.5"}};
  }
};

struct Case {
  const char* name;
  std::string log;
  Lines differs;  ///< checks that are not ok: "NAME STATE: FINDING; REMEDY", parts of it
  std::function<void(Host&)> change = [](Host&) {};
  const char* host = "alpha";
};
void PrintTo(const Case& of, std::ostream* out) { *out << of.name; }

void add_rdma(Host& host) { host.rdma("mlx5_0", "4: ACTIVE", ""); }

const Case cases[] = {
    {"nvlinks_of_a_host", one_host("P2P/CUMEM/read", graph + line("alpha", 0, "+ NVL[360.0] - NVS/0")), {}},
    {"ipc_of_a_host", one_host("P2P/IPC"), {}},
    {"one_rank", complete("alpha", 0, 1), {}},
    {"rdma_straight_to_the_gpus", two_hosts("NET/IB/0/GDRDMA", rdma), {}},
    {"rdma_of_a_plugin", two_hosts("NET/IBext_v9/1/GDRDMA/Shared", rdma), {}},
    {"rdma_by_the_host",
     two_hosts("NET/IB/0", rdma + line("alpha", 0, "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'")),
     {"GPUDirect RDMA wrong: rank 0 to 1 goes by the host's memory: NET/IB : GPU Direct RDMA Disabled for HCA 0 "
      "'mlx5_0'; modprobe nvidia_peermem"}},
    {"rdma_of_a_distant_card",
     two_hosts("NET/IB/0", rdma + line("alpha", 0, "GPU Direct RDMA Disabled for GPU 0 / HCA 0 (distance 8 > 5)")),
     {"GPUDirect RDMA wrong: rank 0 to 1 goes by the host's memory: GPU Direct RDMA Disabled for GPU 0 / HCA 0 "
      "(distance 8 > 5); move the cards"}},
    {"rdma_that_only_receives_straight",
     rdma + line("alpha", 0, "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0") +
         line("beta", 1, "Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0/GDRDMA") + complete("alpha", 0, 2) +
         complete("beta", 1, 2),
     {}},
    {"rdma_that_is_not_read",
     rdma + line("alpha", 0, "NCCL_NET_GDR_READ set by environment to 0.") +
         line("alpha", 0, "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0") +
         line("beta", 1, "Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0/GDRDMA") + complete("alpha", 0, 2) +
         complete("beta", 1, 2),
     {"GPUDirect RDMA wrong: rank 0 to 1 goes by the host's memory: NCCL_NET_GDR_READ=0; unset NCCL_NET_GDR_READ"}},
    {"tcp_without_rdma", two_hosts("NET/Socket/0", line("alpha", 0, "NET/Socket : Using [0]eth1:10.1.0.5<0>")), {}},
    {"tcp_by_the_slow_interface",
     two_hosts("NET/Socket/0", tcp),
     {"interface wrong: eth0 has 10000 Mbit/s, and eth1 100000; NCCL_SOCKET_IFNAME=eth1"}},
    {"tcp_beside_rdma",
     two_hosts("NET/Socket/0", line("alpha", 0, "NET/Socket : Using [0]eth1:10.1.0.5<0>")),
     {"between hosts wrong: NET/Socket, beside the RDMA device mlx5_0; install rdma-core (libibverbs.so.1)"},
     add_rdma},
    {"tcp_by_a_variable",
     two_hosts("NET/Socket/0", line("alpha", 0, "NCCL_IB_DISABLE set by environment to 1.") +
                                   line("alpha", 0, "NET/Socket : Using [0]eth1:10.1.0.5<0>")),
     {"between hosts wrong: NET/Socket, by NCCL_IB_DISABLE=1, beside the RDMA device mlx5_0; unset NCCL_IB_DISABLE"},
     add_rdma},
    {"tcp_by_choice_where_nccl_knows_rdma",
     two_hosts("NET/Socket/0", rdma + line("alpha", 0, "NCCL_NET set by environment to Socket") +
                                   line("alpha", 0, "NET/Socket : Using [0]eth1:10.1.0.5<0>")),
     {"between hosts wrong: NET/Socket, by NCCL_NET=Socket, beside the RDMA device mlx5_0; unset NCCL_NET"}},
    {"tcp_beside_a_port_that_is_down",
     two_hosts("NET/Socket/0", line("alpha", 0, "NET/Socket : Using [0]eth1:10.1.0.5<0>")),
     {"between hosts wrong: NET/Socket by eth1; no RDMA device has an active port; connect a port of mlx5_0"},
     [](Host& host) { host.rdma("mlx5_0", "1: DOWN", ""); }},
    {"tcp_of_other_machines",
     two_hosts("NET/Socket/0", tcp),
     {"between hosts unknown: NET/Socket by eth0, eth1; whether there is an RDMA device, this log does not tell; "
      "`hearth doctor --network --nccl-log FILE` on alpha",
      "interface unknown: eth0, eth1; its speed is not known"},
     add_rdma,
     "gamma"},
    {"peers_are_off",
     one_host("SHM/direct/direct", line("alpha", 0, "NCCL_P2P_DISABLE set by environment to 1.")),
     {"GPU to GPU wrong: NCCL_P2P_DISABLE=1 keeps GPUs from each other's memory; unset NCCL_P2P_DISABLE"}},
    {"shared_memory_beside_nvlinks",
     one_host("SHM/direct/direct", graph + line("alpha", 0, "+ NVL[264.0] - GPU/ba000")),
     {"GPU to GPU wrong: rank 0 to 1 goes by the host's memory (SHM), and the GPUs of this host have NVLinks"}},
    {"shared_memory_without_nvlinks", one_host("SHM/direct/direct", graph), {}},
    {"shared_memory_of_a_short_log",
     one_host("SHM/direct/direct"),
     {"GPU to GPU unknown: rank 0 to 1 goes by the host's memory (SHM); NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,ENV"}},
    {"peers_that_the_driver_refuses",
     one_host(
         "SHM/direct/direct",
         graph + line("alpha", 0, "P2P is disabled between connected GPUs 1 and 0. You can repress this message.")),
     {"GPU to GPU unknown: rank 0 to 1 goes by the host's memory (SHM): P2P is disabled between connected GPUs 1 and "
      "0; `nvidia-smi topo -p2p r`"}},
    {"nvlinks_that_are_broken",
     one_host("SHM/direct/direct", line("alpha", 0, "P2P is disabled between NVLINK connected GPUs 1 and 0. This")),
     {"GPU to GPU wrong: P2P is disabled between NVLINK connected GPUs 1 and 0; look for errors of NVLinks"}},
    {"ranks_of_two_containers",
     network_link("NET/IB/0/GDRDMA", "alpha", 0, "alpha", 1) + complete("alpha", 0, 2) + complete("alpha", 1, 2),
     {"GPU to GPU wrong: rank 0 to 1 goes by NET/IB within one host; run the ranks of a host in one container"}},
    {"multicast_that_fails",
     one_host("P2P/CUMEM", line("alpha", 0, "NVLS multicast support is available on dev 0") +
                               "alpha:1:2 [0] transport/nvls.cc:1 NCCL WARN Failed to bind NVLink SHARP (NVLS) "
                               "Multicast memory of size 4 : CUDA error 1\n"),
     {"NVLS wrong: Failed to bind NVLink SHARP (NVLS) Multicast memory of size 4 : CUDA error 1; have Fabric Manager"}},
    {"multicast_that_is_off",
     one_host("P2P/CUMEM", line("alpha", 0, "NVLS multicast support is available on dev 0") +
                               line("alpha", 0, "NCCL_NVLS_ENABLE set by environment to 0.")),
     {"NVLS wrong: NCCL_NVLS_ENABLE=0 turns sums in the switches off; unset NCCL_NVLS_ENABLE"}},
    {"no_multicast", one_host("P2P/CUMEM", line("alpha", 0, "NVLS multicast support is not available on dev 0")), {}},
    {"a_log_that_ends_early", line("alpha", 0, "Using network IB"), {"log unknown: no rank has come to"}},
    {"a_log_before_the_first_step",
     complete("alpha", 0, 2) + complete("beta", 1, 2),
     {"log unknown: no connection is in it", "between hosts unknown: no connection between hosts is in the log"}},
};

class NcclChoice : public testing::TestWithParam<Case> {};

TEST_P(NcclChoice, IsCheckedLineByLine) {
  Host host;
  GetParam().change(host);
  Lines differs;
  for (const Check& check : nccl_checks(read_nccl_log(GetParam().log), host.look(), GetParam().host)) {
    EXPECT_NE(check.finding, "") << check.name;
    EXPECT_EQ(check.remedy.empty(), check.state == CheckState::ok) << check.name;
    if (check.state != CheckState::ok)
      differs.push_back(check.name + " " + name_of(check.state) + ": " + check.finding + "; " + check.remedy);
  }
  ASSERT_EQ(differs.size(), GetParam().differs.size()) << testing::PrintToString(differs);
  for (std::size_t i = 0; i < differs.size(); ++i) EXPECT_PRED2(contains, differs[i], GetParam().differs[i]);
}

INSTANTIATE_TEST_SUITE_P(Logs, NcclChoice, testing::ValuesIn(cases),
                         [](const auto& of) { return std::string(of.param.name); });

TEST(NcclLog, AnyBytesAreRead) {
  std::string all;
  for (const Case& of : cases) all += of.log;
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    std::string text = all;
    for (int changes = 0; changes < 200; ++changes) {
      const std::size_t at = random() % text.size();
      if (changes % 2 == 0)
        text[at] = static_cast<char>(random());
      else
        text.erase(at, random() % 12);
    }
    const NcclLog log = read_nccl_log(text);
    EXPECT_NO_THROW((void)nccl_checks(log, {}, "alpha"));
    EXPECT_LE(log.ranks.size(), std::size_t{64});
    EXPECT_LE(nccl_lines_of_interest(text).size(), text.size() + 1);
  }
}

class KeptLog : public testing::Test {
 protected:
  static void forget() {
    for (const char* const name : {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"}) unsetenv(name);
  }
  KeptLog() { forget(); }
  ~KeptLog() override { forget(); }
};

// In this order: what a process has begun stays.
TEST_F(KeptLog, IsTheUsersWhereHeAsksForItAndElseInMemory) {
  EXPECT_PRED2(contains, kept_nccl_log().why_none, "was not asked");
  setenv("NCCL_DEBUG", "WARN", 1);
  keep_nccl_log({.files = {}});
  EXPECT_PRED2(contains, kept_nccl_log().why_none, "NCCL_DEBUG is set, so NCCL logs as it says");
  EXPECT_STREQ(getenv("NCCL_DEBUG"), "WARN");
  EXPECT_EQ(getenv("NCCL_DEBUG_FILE"), nullptr);
  forget();
  MadeUpMachine machine;
  machine.write("nccl.conf", "# settings\nNCCL_DEBUG_FILE=/tmp/log");
  keep_nccl_log({.files = {machine.root() + "/absent", machine.root() + "/nccl.conf"}});
  EXPECT_PRED2(contains, kept_nccl_log().why_none, "NCCL_DEBUG_FILE is set in " + machine.root());
  EXPECT_EQ(getenv("NCCL_DEBUG"), nullptr);

  keep_nccl_log({.files = {}});
  ASSERT_EQ(kept_nccl_log().why_none, "");
  EXPECT_EQ(kept_nccl_log().text, "");
  EXPECT_STREQ(getenv("NCCL_DEBUG"), "INFO");
  const std::string name = getenv("NCCL_DEBUG_FILE");
  // As NCCL does.
  std::FILE* const file = std::fopen(name.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fputs("alpha:1:2 [0] NCCL INFO Using network IB\n", file);
  std::fflush(file);
  EXPECT_EQ(kept_nccl_log().text, "alpha:1:2 [0] NCCL INFO Using network IB\n");
  keep_nccl_log({.files = {}});
  EXPECT_EQ(getenv("NCCL_DEBUG_FILE"), name) << "it is kept once";
  std::fclose(file);
}

}  // namespace
}  // namespace hearth::dist::nccl_log_test
