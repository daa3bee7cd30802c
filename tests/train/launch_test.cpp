// SPDX-License-Identifier: Apache-2.0
// Ranks as processes: started by `hearth launch` or by the variables of other launchers, killed, and started again.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "core/cpu/cores.h"
#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json_text.h"
#include "tests/dist/groups.h"
#include "tests/support/devices.h"
#include "tests/support/error_message.h"
#include "tests/support/listening.h"
#include "tests/support/places.h"
#include "tests/support/run_program.h"

namespace hearth::train::launch_test {
namespace {

using test::contains;
using test::ProgramResult;

class Launched : public testing::Test {
 protected:
  Launched() {
    std::ofstream(folder_ / "run.json") << R"({"seed": 3, "device": "cpu",
      "model": {"type": "resnet", "blocks": [1], "stem": "small", "width": 8},
      "data": {"type": "digits", "valid_fraction": 0.1}, "optimizer": {"type": "adamw", "lr": 0.003},
      "train": {"batch_size": 16, "steps": 60, "deterministic": true},
      "checkpoint": {"every_steps": 10}, "log": {"every_steps": 5, "report": false, "tensorboard": false}})";
  }

  ProgramResult run(std::vector<std::string> words) const { return test::run_program(words, folder_.path(), 300); }
  ProgramResult launch(const std::string& ranks, const std::string& out, std::vector<std::string> more = {}) const {
    std::vector<std::string> words{test::hearth_program(), "launch", "-n", ranks};
    for (const char* option : {"--restart"})
      if (!more.empty() && more[0] == option) {
        words.insert(words.end(), more.begin(), more.begin() + 2);
        more.erase(more.begin(), more.begin() + 2);
      }
    words.insert(words.end(), {"--", "train", "run.json", "--out", out});
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  Json info_of(const std::string& out) const { return read_json(folder_ / (out + "/run.json")); }
  std::string weights(const std::string& out) const {
    const Json info = info_of(out);
    EXPECT_EQ(info.at("status").as_string(), "finished");
    return info.at("metrics").at("weights_sha256").as_string();
  }

  void wait_for_checkpoint(const std::string& out) const {
    while (!std::filesystem::exists(folder_ / (out + "/checkpoints/latest")))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  /// Processes of this program that train into `out`.
  std::vector<pid_t> ranks_of(const std::string& out) const {
    std::vector<pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != name.npos) continue;
      std::ifstream file(entry.path() / "cmdline");
      const std::string line(std::istreambuf_iterator<char>(file), {});
      std::error_code none;
      const auto place = std::filesystem::read_symlink(entry.path() / "cwd", none);
      if (contains(line, std::string("\0train\0", 7)) && contains(line, out) && !contains(line, "launch") &&
          place == std::filesystem::canonical(folder_.path()))
        found.push_back(std::stoi(name));
    }
    return found;
  }

  test::TempDir folder_;
};

TEST_F(Launched, AnyNumberOfRanksEndsWithTheSameBits) {
  for (const char* ranks : {"1", "2", "4"}) {
    const ProgramResult result = launch(ranks, std::string("out") + ranks);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_TRUE(contains(result.err, std::string("ranks     ") + ranks + " (shared memory, hearth launch)"))
        << result.err;
    EXPECT_FALSE(contains(result.err, "[rank ")) << "only rank 0 tells of the progress: " << result.err;
  }
  EXPECT_EQ(weights("out2"), weights("out1"));
  EXPECT_EQ(weights("out4"), weights("out1"));
  const ProgramResult by_tcp = launch("2", "out_tcp", {"--set", "dist.backend=\"tcp\""});
  ASSERT_EQ(by_tcp.exit_code, 0) << by_tcp.err;
  EXPECT_TRUE(contains(by_tcp.err, "ranks     2 (tcp, hearth launch)")) << by_tcp.err;
  EXPECT_EQ(weights("out_tcp"), weights("out1"));
}

TEST_F(Launched, DividedStateEndsWithTheSameBitsAfterADeathAndOnAnotherNumberOfRanks) {
  const std::vector<std::string> averaged{"--set", "train.ema=0.9", "--set", "train.steps=200"};
  ASSERT_EQ(launch("1", "whole", averaged).exit_code, 0);
  std::vector<std::string> divided = averaged;
  divided.insert(divided.end(), {"--set", "dist.zero=1"});
  auto killed = std::async(std::launch::async, [&] {
    wait_for_checkpoint("divided");
    for (const pid_t rank : ranks_of("divided")) return kill(rank, SIGKILL);
    return -1;
  });
  const ProgramResult dead = launch("2", "divided", divided);
  EXPECT_EQ(killed.get(), 0);
  EXPECT_NE(dead.exit_code, 0);
  EXPECT_TRUE(contains(dead.err, ") died")) << dead.err;
  const ProgramResult resumed = launch("4", "divided", divided);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_TRUE(contains(resumed.err, "resumed at step ")) << resumed.err;
  EXPECT_EQ(weights("divided"), weights("whole"));
}

TEST_F(Launched, ACudaDeviceEndsWithTheSameBitsTooAndSkipsTogether) {
  if (test::devices().size() < 2) GTEST_SKIP() << "no CUDA device";
  // A scale that overflows at once, so that updates are skipped.
  const std::vector<std::string> options{"--device", "cuda",
                                         "--set",    "train.steps=6",
                                         "--set",    R"(precision={"level": "O2", "dtype": "f16"})",
                                         "--set",    "precision.growth_steps=1",
                                         "--set",    "train.graph=true"};
  for (const char* ranks : {"1", "2"}) {
    const ProgramResult result = launch(ranks, std::string("out") + ranks, options);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    // NCCL sums where each rank has a GPU of its own.
    const bool by_nccl = contains(result.err, " (nccl, hearth launch)");
    EXPECT_TRUE(by_nccl ||
                contains(result.err, "graph: steps run one by one, as shared memory sums gradients on the host"))
        << result.err;
  }
  EXPECT_EQ(weights("out2"), weights("out1"));
}

TEST_F(Launched, AKilledRankIsNamedAndARestartEndsWithTheSameBits) {
  // Long enough to be met while it runs.
  const std::vector<std::string> longer{"--set", "train.steps=300"};
  ASSERT_EQ(launch("2", "quiet", longer).exit_code, 0);
  // Killed after the first checkpoint; the moment is another one each time.
  const auto kill_one = [&](const std::string& out) {
    wait_for_checkpoint(out);
    const std::vector<pid_t> ranks = ranks_of(out);
    EXPECT_EQ(ranks.size(), 2U);
    if (!ranks.empty()) kill(ranks.back(), SIGKILL);
    return std::chrono::steady_clock::now();
  };
  auto killed = std::async(std::launch::async, [&] { return kill_one("dead"); });
  const ProgramResult dead = launch("2", "dead", longer);
  const auto end = std::chrono::steady_clock::now();
  EXPECT_EQ(dead.exit_code, 137) << dead.err;
  EXPECT_TRUE(contains(dead.err, "was ended by signal 9")) << dead.err;
  EXPECT_TRUE(contains(dead.err, "hearth: error: peer: rank ")) << dead.err;
  EXPECT_TRUE(contains(dead.err, ") died")) << dead.err;
  // Nobody waits for a time limit; the machine may be busy.
  EXPECT_LT(end - killed.get(), std::chrono::seconds(15));
  EXPECT_TRUE(ranks_of("dead").empty()) << "an orphan";

  auto once = std::async(std::launch::async, [&] { return kill_one("again"); });
  const ProgramResult again = launch("2", "again", {"--restart", "1", "--set", "train.steps=300"});
  (void)once.get();
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_TRUE(contains(again.err, "launch: restart 1 of 1")) << again.err;
  EXPECT_TRUE(contains(again.err, "resumed at step ")) << again.err;
  EXPECT_EQ(weights("again"), weights("quiet"));
}

TEST_F(Launched, ASignalStopsAllRanksAfterACheckpoint) {
  auto stopped = std::async(std::launch::async, [&] {
    wait_for_checkpoint("out");
    // To one rank only: the others hear of it.
    const std::vector<pid_t> ranks = ranks_of("out");
    if (ranks.empty()) return std::string();
    std::ifstream file(join_text("/proc/", ranks.back(), "/environ"));
    const std::string environment(std::istreambuf_iterator<char>(file), {});
    kill(ranks.back(), SIGTERM);
    return environment;
  });
  const ProgramResult result = launch("2", "out", {"--set", "train.steps=100000"});
  const std::string environment = stopped.get(), cores = cpu::describe_cores(cpu::allowed_cores());
  if (!cpu::openmp_binds()) {
    EXPECT_PRED2(contains, environment, "HEARTH_LAUNCH_CORES=" + cores);
  }
  EXPECT_EQ(result.exit_code, 143) << result.err;
  EXPECT_TRUE(contains(result.err, "stopped by signal 15 after step ")) << result.err;
  EXPECT_FALSE(contains(result.err, "error")) << result.err;
  const Json topology = info_of("out").at("topology");
  EXPECT_EQ(topology.at("backend").as_string(), "shared memory");
  ASSERT_EQ(topology.at("ranks").size(), 2U);
  EXPECT_EQ(topology.at("ranks").at(1).at("rank").as_integer(), 1);
  EXPECT_NE(topology.at("ranks").at(1).at("cores").as_string(), "");
  EXPECT_EQ(topology.find("nccl"), nullptr);
}

// The server is the launcher's, which reads no configuration.
TEST_F(Launched, AFrozenRankIsGivenUpAfterTheLimitOfTheRun) {
  auto frozen = std::async(std::launch::async, [&] {
    wait_for_checkpoint("out");
    const std::vector<pid_t> ranks = ranks_of("out");
    if (ranks.empty()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(600));  // some signs of life
    kill(ranks.back(), SIGSTOP);
    std::this_thread::sleep_for(std::chrono::seconds(4));
    // The launcher waits for its end.
    kill(ranks.back(), SIGCONT);
  });
  const ProgramResult result = launch("2", "out", {"--set", "train.steps=100000", "--set", "dist.timeout=1.5"});
  frozen.get();
  EXPECT_EQ(result.exit_code, 6) << result.err;
  EXPECT_TRUE(contains(result.err, " gave no sign of life for 1.5 s, last seen at ")) << result.err;
}

TEST_F(Launched, ARankThatDoesNotJoinIsNamedAfterTheLimitOfTheRun) {
  const auto begin = std::chrono::steady_clock::now();
  const ProgramResult result =
      run({"/usr/bin/env", "RANK=0", "WORLD_SIZE=3", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29632",
           test::hearth_program(), "train", "run.json", "--set", "dist.join_timeout=0.5"});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15)) << "the machine may be busy";
  EXPECT_EQ(result.exit_code, 6) << result.err;
  EXPECT_TRUE(contains(result.err, "ranks 1, 2 did not join within 0.5 s")) << result.err;
}

TEST_F(Launched, OnlyTheLauncherListensOnLoopbackAndWithAToken) {
  std::vector<std::pair<std::string, int>> listening, of_ranks;
  auto looked = std::async(std::launch::async, [&] {
    wait_for_checkpoint("out");
    const std::vector<pid_t> ranks = ranks_of("out");
    if (ranks.empty()) return;
    std::ifstream stat("/proc/" + std::to_string(ranks[0]) + "/stat");
    std::string skipped, launcher;
    stat >> skipped >> skipped >> skipped >> launcher;
    for (const auto& one : test::listening(launcher)) listening.push_back(one);
    for (const pid_t rank : ranks)
      for (const auto& one : test::listening(std::to_string(rank))) of_ranks.push_back(one);
    if (listening.size() == 1) {
      // Another user's process, which has no token.
      std::string answer;
      (void)dist::join_by_hand(listening[0].second, dist::request_of(1, 2), "", &answer);
      EXPECT_PRED2(contains, answer, "another token");
    }
    kill(ranks[0], SIGTERM);
  });
  const ProgramResult result = launch("2", "out", {"--set", "train.steps=100000"});
  looked.get();
  EXPECT_EQ(result.exit_code, 143) << result.err;
  ASSERT_EQ(listening.size(), 1U);
  EXPECT_EQ(listening[0].first, "127.0.0.1");
  EXPECT_TRUE(of_ranks.empty());
}

TEST_F(Launched, VariablesOfOtherLaunchersMakeRanksToo) {
  const std::vector<std::vector<std::string>> launchers{
      {"RANK=%", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29617"},
      {"OMPI_COMM_WORLD_RANK=%", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=77"},
      {"SLURM_PROCID=%", "SLURM_NTASKS=2", "SLURM_NNODES=1", "SLURM_JOB_ID=711", "SLURM_STEP_ID=0"},
      {"JOB_COMPLETION_INDEX=%", "WORLD_SIZE=2", "MASTER_ADDR=localhost", "MASTER_PORT=29618", "HEARTH_TOKEN=secret"}};
  for (std::size_t i = 0; i < launchers.size(); ++i) {
    const std::string out = "out" + std::to_string(i);
    std::vector<std::future<ProgramResult>> ranks;
    for (const char* rank : {"0", "1"}) {
      std::vector<std::string> words{"/usr/bin/env"};
      for (std::string word : launchers[i]) {
        if (word.back() == '%') word.replace(word.size() - 1, 1, rank);
        words.push_back(word);
      }
      words.insert(words.end(), {test::hearth_program(), "train", "run.json", "--out", out, "--set", "train.steps=4"});
      ranks.push_back(std::async(std::launch::async, [this, words] { return run(words); }));
    }
    for (std::future<ProgramResult>& rank : ranks) {
      const ProgramResult result = rank.get();
      EXPECT_EQ(result.exit_code, 0) << result.err;
    }
    EXPECT_EQ(weights(out), weights("out0"));
  }
}

TEST_F(Launched, MpirunStartsRanks) {
  if (!std::filesystem::exists("/usr/bin/mpirun")) GTEST_SKIP() << "no mpirun";
  const ProgramResult result =
      run({"/usr/bin/env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "/usr/bin/mpirun",
           "--oversubscribe", "-n", "2", test::hearth_program(), "train", "run.json", "--out", "mpi"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(contains(result.err, "ranks     2 (shared memory, Open MPI)")) << result.err;
  ASSERT_EQ(launch("1", "one").exit_code, 0);
  EXPECT_EQ(weights("mpi"), weights("one"));
}

TEST_F(Launched, MachinesWithAddressesOfTheirOwn) {
  const std::vector<std::string> machines{test::source_dir() + "/scripts/machines",
                                          "--hosts",
                                          "2",
                                          "--ranks",
                                          "2",
                                          "--rate",
                                          "1gbit",
                                          "--",
                                          test::hearth_program()};
  const auto on_machines = [&](std::vector<std::string> words) {
    words.insert(words.begin(), machines.begin(), machines.end());
    return run(words);
  };
  const ProgramResult result = on_machines({"train", "run.json", "--out", "four"});
  if (result.exit_code == 77) GTEST_SKIP() << result.err;
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(contains(result.err,
                       "ranks     4 (shared memory and tcp, torchrun variables), route hierarchical, 2 "
                       "hosts of 2 ranks"))
      << result.err;
  ASSERT_EQ(launch("1", "one").exit_code, 0);
  EXPECT_EQ(weights("four"), weights("one"));
  const Json chosen = info_of("four").at("topology").at("sums");
  EXPECT_EQ(chosen.at("forecasts").size(), 3U) << "routes of the same bits";
  const std::string sums = join_text("sums: route ", chosen.at("route").as_string(), ", buckets of 10 MiB");
  EXPECT_TRUE(contains(result.err, sums + ": steps wait ")) << result.err;
  const ProgramResult longer = on_machines({"train", "run.json", "--out", "four", "--set", "train.steps=70"});
  ASSERT_EQ(longer.exit_code, 0) << longer.err;
  EXPECT_TRUE(contains(longer.err, sums + ", as before")) << longer.err;
  const ProgramResult doctor = on_machines({"doctor", "--network", "--json"});
  ASSERT_EQ(doctor.exit_code, 0) << doctor.err;
  const Json routes = parse_json(doctor.out, "doctor").at("sums").at("routes");
  for (const char* const route : {"direct", "ring", "tree", "hierarchical"})
    EXPECT_GE(routes.at(route).at("latency_us").as_number(), 0) << route;
  const ProgramResult by_tree = on_machines(
      {"train", "run.json", "--out", "tree", "--set", "dist.route=\"tree\"", "--set", "dist.backend=\"tcp\""});
  ASSERT_EQ(by_tree.exit_code, 0) << by_tree.err;
  EXPECT_TRUE(contains(by_tree.err, "ranks     4 (tcp, torchrun variables), route tree")) << by_tree.err;
  EXPECT_EQ(weights("tree"), weights("one"));
}

TEST_F(Launched, ARouteThatTheRanksCannotTakeIsRefused) {
  for (const auto& [ranks, route, why] : {std::tuple{"2", "ring", "wants sums by pairs of neighbouring ranks"},
                                          {"2", "hierarchical", "all ranks are on one host"}}) {
    const ProgramResult result = run({test::hearth_program(), "launch", "-n", ranks, "--", "train", "run.json", "--set",
                                      join_text("dist.route=\"", route, '"')});
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_TRUE(contains(result.err, join_text("dist.route: ", route, ": "))) << result.err;
    EXPECT_TRUE(contains(result.err, why)) << result.err;
  }
}

TEST_F(Launched, ReplaysTheTrafficOfAModel) {
  const ProgramResult result =
      run({test::hearth_program(), "launch", "-n", "2", "--", "bench", "dist", "--traffic", "swin_t", "--compute-ms",
           "1", "--steps", "2", "--route", "tree", "--set", "dist.bucket_mb=30", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json bench = parse_json(result.out, "bench dist");
  EXPECT_EQ(bench.at("parameters").as_integer(), 28288354);
  EXPECT_EQ(bench.at("route").as_string(), "tree");
  EXPECT_EQ(bench.at("buckets").as_integer(), 5);
  // Each of two ranks sends half of the gradients, and the sum of the other half.
  EXPECT_NEAR(bench.at("bytes").as_number(), 2 * 4 * 28288354.0, 1e5);
  EXPECT_EQ(bench.at("remote_bytes").as_integer(), 0);
  EXPECT_GE(bench.at("step_ms").as_number(), bench.at("exposed_ms").as_number());
  const ProgramResult compressed =
      run({test::hearth_program(), "launch", "-n", "2", "--", "bench", "dist", "--traffic", "swin_t", "--compute-ms",
           "1", "--steps", "2", "--set", "dist.compress={\"type\": \"int8\"}", "--json"});
  ASSERT_EQ(compressed.exit_code, 0) << compressed.err;
  EXPECT_NEAR(parse_json(compressed.out, "bench dist").at("bytes").as_number(), 2 * 28288354.0, 0.02 * 28288354);
  const ProgramResult chosen =
      run({test::hearth_program(), "launch", "-n", "2", "--", "bench", "dist", "--traffic", "swin_t", "--compute-ms",
           "50", "--steps", "2", "--set", "dist.bucket_mb=\"auto\"", "--json"});
  ASSERT_EQ(chosen.exit_code, 0) << chosen.err;
  const Json by_auto = parse_json(chosen.out, "bench dist");
  EXPECT_TRUE(contains(by_auto.at("choice").as_string(), "route direct, buckets of ")) << chosen.out;
  EXPECT_GE(by_auto.at("predicted_step_ms").as_number(), 50);
  EXPECT_NE(by_auto.at("costs").find("direct"), nullptr);
  const ProgramResult alone = run({test::hearth_program(), "bench", "dist", "--traffic", "vgg16", "--compute-ms", "1"});
  EXPECT_EQ(alone.exit_code, 2) << alone.err;
  EXPECT_TRUE(contains(alone.err, "this process is no rank of a run")) << alone.err;
  const ProgramResult unknown = run(
      {test::hearth_program(), "launch", "-n", "1", "--", "bench", "dist", "--traffic", "vgg11", "--compute-ms", "1"});
  EXPECT_EQ(unknown.exit_code, 2) << unknown.err;
  EXPECT_TRUE(contains(unknown.err, "there is that of resnet50, bert, vgg16, swin_t")) << unknown.err;
}

TEST_F(Launched, FaultsOfUse) {
  const auto expect = [&](const std::vector<std::string>& words, int code, const std::string& text) {
    std::vector<std::string> all{test::hearth_program()};
    all.insert(all.end(), words.begin(), words.end());
    const ProgramResult result = run(all);
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_TRUE(contains(result.err, text)) << result.err;
  };
  expect({"launch", "--", "train", "run.json"}, 2, "-n says how many ranks");
  expect({"launch", "-n", "0", "--", "train", "run.json"}, 2, "at least 1");
  expect({"launch", "-n", "2", "--", "eval", "run"}, 2, "eval does not run as several ranks");
  expect({"launch", "-n", "2", "--", "train", "absent.json"}, 3, "absent.json");
  expect({"launch", "-n", "3", "--", "train", "run.json"}, 2, "/dist/shards: 1 batches of 8 pieces");
  expect({"train", "run.json", "--set", "dist.backend=\"tcp\""}, 2, "nothing says which rank this process is");
}

}  // namespace
}  // namespace hearth::train::launch_test
