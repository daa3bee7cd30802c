// SPDX-License-Identifier: Apache-2.0
// What `hearth doctor` and `hearth devices` tell of a machine.
#include <cstdlib>

#include "core/cpu/cores.h"
#include "core/io/json_text.h"
#include "tests/train/cli_program.h"

namespace hearth::train::doctor_test {
namespace {

// OpenMP leaves the thread that starts the process on the first of its places.
TEST_F(Cli, bound_threads_have_all_cores) {
  const auto threads = [&](std::vector<std::string> variables) {
    std::vector<std::string> words{"/usr/bin/env", "-u", "HEARTH_THREADS"};
    words.insert(words.end(), variables.begin(), variables.end());
    words.insert(words.end(), {test::hearth_program(), "doctor", "--json"});
    const ProgramResult result = test::run_program(words, path(""));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return parse_json(result.out, "stdout").at("cpu").at("threads").as_integer();
  };
  const std::int64_t unbound = threads({});
  for (const char* bind : {"true", "close", "spread"})
    EXPECT_EQ(threads({join_text("OMP_PROC_BIND=", bind)}), unbound) << bind;
  EXPECT_EQ(threads({"OMP_PLACES=threads"}), unbound);
  const std::vector<int> cores = cpu::allowed_cores();
  ASSERT_FALSE(cores.empty());
  std::string all, places;
  for (const int core : cores) all += join_text(core, " "), places += join_text(places.empty() ? "{" : ",{", core, "}");
  EXPECT_EQ(threads({"GOMP_CPU_AFFINITY=" + all}), unbound);
  EXPECT_EQ(threads({"OMP_PROC_BIND=true", "OMP_PLACES=" + places}), unbound);
  EXPECT_EQ(threads({"OMP_PROC_BIND=true", join_text("OMP_PLACES={", cores.front(), "}")}), 1);
}

TEST(Cores, AreDescribedByRanges) {
  EXPECT_EQ(cpu::describe_cores({}), "");
  EXPECT_EQ(cpu::describe_cores({3}), "3");
  EXPECT_EQ(cpu::describe_cores({0, 1, 2, 5, 8, 9}), "0-2, 5, 8-9");
}

TEST_F(Cli, devices_are_listed_as_json) {
  const ProgramResult result = hearth({"devices", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_PRED2(contains, to_text(parse_json(result.out, "stdout")), "cpu");
}

TEST_F(Cli, doctor_tells_what_was_found_and_what_replaces_the_rest) {
  const ProgramResult result = hearth({"doctor", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const Json report = parse_json(result.out, "stdout");
  EXPECT_GE(report.at("cpu").at("threads").as_number(), 1);
  EXPECT_EQ(report.at("cuda_devices").items().empty(), !report.at("why_no_cuda").as_string().empty());
  std::vector<std::string> names;
  for (const Json& part : report.at("libraries").items()) {
    const std::string name = part.at("name").as_string();
    names.push_back(name);
    EXPECT_EQ(part.at("used").as_boolean(), part.at("why_unused").as_string().empty()) << name;
    EXPECT_EQ(part.at("found").as_boolean(), !part.at("version").as_string().empty()) << name;
    EXPECT_TRUE(part.at("found").as_boolean() || !part.at("used").as_boolean()) << name;
    EXPECT_NE(part.at("without").as_string(), "") << name;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"oneDNN", "JPEG", "PNG", "WebP", "zlib", "expat", "SentencePiece", "cuDNN",
                                             "cuBLASLt"}));

  const ProgramResult text = hearth({"doctor"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  for (const std::string& name : names) EXPECT_PRED2(contains, text.out, "\n" + name + " ");
}

TEST_F(Cli, doctor_says_what_libraries_do_not_open) {
  // A file of the library's name that is none.
  write("libcudnn.so.9", "not a library");
  ASSERT_EQ(setenv("HEARTH_CUDA_LIBRARIES", path("").c_str(), 1), 0);
  const ProgramResult result = hearth({"doctor"});
  unsetenv("HEARTH_CUDA_LIBRARIES");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_PRED2(contains, result.out, "HEARTH_CUDA_LIBRARIES=" + path("").string());
  EXPECT_PRED2(contains, result.out, "Hearth's native kernels");
}

TEST_F(Cli, doctor_tells_of_the_network) {
  ASSERT_EQ(setenv("NCCL_SOCKET_IFNAME", "nothing-here", 1), 0);
  const ProgramResult result = hearth({"doctor", "--network", "--json"}), text = hearth({"doctor", "--network"});
  unsetenv("NCCL_SOCKET_IFNAME");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json report = parse_json(result.out, "stdout");
  EXPECT_FALSE(report.at("interfaces").items().empty());
  EXPECT_EQ(report.at("nccl").at("library").as_string(), "libnccl.so.2");
  EXPECT_EQ(report.at("nccl").at("variables").at("NCCL_SOCKET_IFNAME").as_string(), "nothing-here");
  EXPECT_TRUE(report.at("gpu_paths").is_array() && report.at("gpu_direct").is_array());
  EXPECT_FALSE(report.at("advice").items().empty()) << "no interface has that name";
  for (const Json& one : report.at("advice").items()) {
    EXPECT_NE(one.at("setting").as_string(), "");
    EXPECT_NE(one.at("why").as_string(), "");
  }
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(text.err, "");
  for (const char* line :
       {"\nlo ", "\nNUMA ", "\nTCP ", "\nNCCL ", "\n/dev/shm ", "\nchange ", "NCCL_SOCKET_IFNAME=nothing-here"})
    EXPECT_PRED2(contains, "\n" + text.out, line);
}

TEST_F(Cli, doctor_reads_logs_of_nccl) {
  const auto link = [](int from, int to, const char* end) {
    return join_text("host", end[2] == 's' ? from : to, ":1:2 [0] NCCL INFO Channel 00/0 : ", from, "[0] -> ", to,
                     "[0]", end, "via NET/IB/0/GDRDMA\n");
  };
  const auto log = [&](int rank, const std::string& links) {
    return join_text("host", rank, ":1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.5<0>\n",
                     links, "host", rank,
                     ":1:2 [0] NCCL INFO 4 coll channels, 4 p2p channels, 2 p2p channels per peer\n", "host", rank,
                     ":1:2 [0] NCCL INFO comm 0x1 rank ", rank, " nranks 2 cudaDev 0 busId 3d000 - Init COMPLETE\n");
  };
  write("rank0.log", log(0, link(0, 1, " [send] ") + link(1, 0, " [receive] ")));
  write("rank1.log", log(1, link(1, 0, " [send] ") + link(0, 1, " [receive] ")));
  write("none.log", "all is well\n");
  const std::vector<std::string> words{"doctor",          "--network",  "--nccl-log",
                                       path("rank0.log"), "--nccl-log", path("rank1.log")};
  std::vector<std::string> as_json = words;
  as_json.push_back("--json");
  const ProgramResult result = hearth(as_json), text = hearth(words);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json report = parse_json(result.out, "stdout"), &nccl = report.at("nccl_log");
  EXPECT_EQ(nccl.at("ranks").as_integer(), 2);
  EXPECT_EQ(nccl.at("channels").as_integer(), 4);
  EXPECT_EQ(nccl.at("hosts").size(), 2U);
  ASSERT_EQ(nccl.at("connections").size(), 1U) << to_text(nccl);
  EXPECT_EQ(to_text(nccl.at("connections").at(0)), R"({"by":"NET/IB","gpu_direct":true,"pairs":2})");
  ASSERT_EQ(nccl.at("links").size(), 2U);
  EXPECT_EQ(to_text(nccl.at("links").at(0)), R"({"from":0,"to":1,"by":"NET/IB","gpu_direct":true,"channels":1})");
  for (const Json& check : nccl.at("checks").items()) EXPECT_EQ(check.at("state").as_string(), "ok") << to_text(check);
  ASSERT_EQ(text.exit_code, 0) << text.err;
  for (const char* line : {"\nNCCL chose    2 of 2 ranks, 4 channels\n", "  NET/IB, GPUDirect: 2 pairs of ranks\n",
                           "\nNCCL chose    between hosts ok: NET/IB by mlx5_0\n"})
    EXPECT_PRED2(contains, text.out, line);

  const ProgramResult other = hearth({"doctor", "--network", "--nccl-log", path("none.log")});
  EXPECT_EQ(other.exit_code, 3);
  EXPECT_PRED2(contains, other.err, "has no line \"NCCL INFO\"; NCCL writes them with NCCL_DEBUG=INFO");
  EXPECT_EQ(hearth({"doctor", "--nccl-log", path("rank0.log")}).exit_code, 2);
}

}  // namespace
}  // namespace hearth::train::doctor_test
