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
  EXPECT_EQ(names,
            (std::vector<std::string>{"oneDNN", "JPEG", "PNG", "WebP", "zlib", "SentencePiece", "cuDNN", "cuBLASLt"}));

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

}  // namespace
}  // namespace hearth::train::doctor_test
