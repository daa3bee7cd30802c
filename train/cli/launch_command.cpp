// SPDX-License-Identifier: Apache-2.0
// `hearth launch`: the ranks of a run as processes of this machine.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <mutex>
#include <thread>

#include "core/cpu/cores.h"
#include "core/cpu/parallel.h"
#include "core/error.h"
#include "core/io/checksum.h"
#include "dist/control.h"
#include "dist/frame.h"
#include "train/cli/commands.h"
#include "train/cli/near_device.h"

namespace hearth::train {
namespace {

// For the other ranks to notice that one is gone, to write what they have to, and to end.
constexpr double seconds_to_end = 20;
constexpr int code_of_peers = 6;

struct Rank {
  pid_t pid = -1;
  int code = -1;       ///< once it has ended
  std::thread output;  ///< passes on what it prints
};

/// Signals that the launcher takes one by one, as long as this lives.
class Blocked {
 public:
  Blocked() {
    sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&set, signal);
    pthread_sigmask(SIG_BLOCK, &set, &before);
  }
  ~Blocked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
  sigset_t set, before;
};

/// Lines of a rank's output, each with its rank.
void pass_on(int descriptor, int rank) {
  static std::mutex mutex;
  std::string pending;
  char bytes[4096];
  while (true) {
    const ssize_t got = read(descriptor, bytes, sizeof bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got > 0) pending.append(bytes, static_cast<std::size_t>(got));
    if (got <= 0 && !pending.empty() && pending.back() != '\n') pending += '\n';
    for (std::size_t end; (end = pending.find('\n')) != pending.npos; pending.erase(0, end + 1)) {
      const std::lock_guard lock(mutex);
      // In one piece: other processes write to the same stream.
      std::cerr << join_text("[rank ", rank, "] ", pending.substr(0, end), "\n");
    }
    if (got <= 0) break;
  }
  close(descriptor);
}

class Launch {
 public:
  Launch(int size, std::vector<std::string> words) : size_(size), words_(std::move(words)) {}
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
  /// Ends what an exception has left.
  ~Launch() {
    for (Rank& rank : ranks_) {
      if (rank.pid > 0 && rank.code < 0) kill(rank.pid, SIGKILL), waitpid(rank.pid, nullptr, 0);
      if (rank.output.joinable()) rank.output.join();
    }
  }

  /// Runs all ranks to their end; the exit code of the first that failed, 0 where none did.
  int run() {
    // Other users of this machine reach the port, too.
    const char* const given = std::getenv("HEARTH_TOKEN");
    const bool is_empty = given != nullptr && *given == 0;
    if (is_empty) std::cerr << "warning   HEARTH_TOKEN is empty, which is no secret; this run has one of its own\n";
    token_ = given != nullptr && !is_empty ? given : sha256(dist::random_nonce());
    dist::ControlServer server("127.0.0.1", 0, {.size = size_, .token = token_});
    const Blocked blocked;
    ranks_ = std::vector<Rank>(static_cast<std::size_t>(size_));
    first_failed_ = -1;
    for (int rank = 0; rank < size_; ++rank) start(rank, server.port(), blocked.before);
    watch(blocked.set, server);
    for (Rank& rank : ranks_)
      if (rank.output.joinable()) rank.output.join();
    return first_failed_ < 0 ? 0 : ranks_[static_cast<std::size_t>(first_failed_)].code;
  }
  /// The signal that asked the launcher to stop, or 0.
  int stopped_by() const { return stopped_by_; }

 private:
  /// A part of the cores, as OMP_PLACES takes them: else each rank would bind its threads to the first.
  static std::string places_of(int rank, int threads) {
    const std::vector<int> cores = cpu::allowed_cores();
    std::string text;
    for (int i = 0; i < threads; ++i)
      text += join_text(i == 0 ? "{" : ",{", cores[static_cast<std::size_t>(rank * threads + i) % cores.size()], "}");
    return text;
  }
  void start(int rank, int port, const sigset_t& mask) {
    int ends[2] = {-1, -1};
    HEARTH_CHECK(DeviceError, rank == 0 || pipe2(ends, O_CLOEXEC) == 0, "launch: no pipe: ", std::strerror(errno));
    const std::pair<const char*, std::string> variables[] = {
        {"RANK", std::to_string(rank)}, {"LOCAL_RANK", std::to_string(rank)},  {"WORLD_SIZE", std::to_string(size_)},
        {"MASTER_ADDR", "127.0.0.1"},   {"MASTER_PORT", std::to_string(port)}, {"HEARTH_SERVER", "launcher"},
        {"HEARTH_TOKEN", token_}};
    std::vector<char*> arguments{const_cast<char*>("hearth")};
    for (std::string& word : words_) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const int each = std::max(1, cpu::threads() / size_);
    const std::string threads = std::to_string(each), places = cpu::openmp_binds() ? places_of(rank, each) : "";
    const std::vector<int> cores = places.empty() ? cpu::cores_of_rank(nodes_, rank, size_) : std::vector<int>();
    const std::string all_cores = cpu::describe_cores(cpu::allowed_cores());
    const pid_t launcher = getpid(), pid = fork();
    if (pid < 0) {
      const int error = errno;
      for (const int end : ends)
        if (end >= 0) close(end);
      throw DeviceError(join_text("launch: rank ", rank, " cannot be started: ", std::strerror(error)));
    }
    if (pid == 0) {
      // No rank outlives the launcher, whatever ends it; signals from a terminal come by it.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != launcher) _exit(1);
      setpgid(0, 0);
      if (rank != 0) dup2(ends[1], STDOUT_FILENO), dup2(ends[1], STDERR_FILENO);
      for (const auto& [name, value] : variables) setenv(name, value.c_str(), 1);
      setenv("HEARTH_THREADS", threads.c_str(), 0);
      // Memory lies where it is first written to: on the node of the rank's threads.
      cpu::run_on_cores(cores);
      // A rank with a GPU takes those of the GPU's node instead.
      if (places.empty()) setenv(cores_of_launch, all_cores.c_str(), 1);
      if (!places.empty()) setenv("OMP_PLACES", places.c_str(), 1), setenv("OMP_PROC_BIND", "close", 1);
      pthread_sigmask(SIG_SETMASK, &mask, nullptr);
      execv("/proc/self/exe", arguments.data());
      _exit(127);
    }
    Rank& started = ranks_[static_cast<std::size_t>(rank)];
    started.pid = pid;
    if (rank == 0) return;
    close(ends[1]);
    started.output = std::thread(pass_on, ends[0], rank);
  }

  void watch(const sigset_t& set, dist::ControlServer& server) {
    dist::Deadline end = dist::Deadline::max();
    while (std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.code < 0; })) {
      const timespec tenth{0, 100'000'000};
      const int signal = sigtimedwait(&set, nullptr, &tenth);
      if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) {
        stopped_by_ = signal;
        tell_all(signal);
      }
      reap(server);
      if (first_failed_ >= 0 && end == dist::Deadline::max()) end = dist::in_seconds(seconds_to_end);
      if (std::chrono::steady_clock::now() > end) tell_all(SIGKILL);
    }
  }

  void tell_all(int signal) {
    for (const Rank& rank : ranks_)
      if (rank.code < 0) kill(rank.pid, signal);
  }

  void reap(dist::ControlServer& server) {
    for (int i = 0; i < size_; ++i) {
      Rank& rank = ranks_[static_cast<std::size_t>(i)];
      int status = 0;
      if (rank.code >= 0 || waitpid(rank.pid, &status, WNOHANG) != rank.pid) continue;
      rank.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      if (WIFSIGNALED(status))
        std::cerr << join_text("launch: rank ", i, " (pid ", rank.pid, ") was ended by signal ", WTERMSIG(status),
                               "\n");
      server.ended(i, join_text("rank ", i, " (pid ", rank.pid, ") ended with code ", rank.code, " before it joined"));
      // What the others fail with tells of the first.
      const int first = first_failed_ < 0 ? 0 : ranks_[static_cast<std::size_t>(first_failed_)].code;
      if (rank.code != 0 && (first == 0 || (first == code_of_peers && rank.code != code_of_peers))) first_failed_ = i;
    }
  }

  const int size_;
  const std::vector<std::vector<int>> nodes_ = cpu::cores_by_node(cpu::allowed_cores());  ///< NUMA nodes
  std::vector<std::string> words_;
  std::string token_;
  std::vector<Rank> ranks_;
  int first_failed_ = -1;
  int stopped_by_ = 0;
};

int launch_command(const Arguments& arguments) {
  const std::int64_t size = arguments.positive("-n", 0);
  HEARTH_CHECK(UsageError, size >= 1 && size <= 1024, "launch: -n says how many ranks are started, 1 to 1024");
  const std::vector<std::string>& words = arguments.positional();
  const std::string second = words.size() > 1 ? words[1] : "";
  const bool searches = words[0] == "tune" && second != "" && second != "batch" && second != "lr";
  const bool is_bench = words[0] == "bench" && second == "dist";
  HEARTH_CHECK(UsageError, words[0] == "train" || searches || is_bench, "launch: ", words[0],
               words[0] == "tune" ? " " + second : "",
               " does not run as several ranks; usage: hearth launch -n N -- train|tune CONFIG.json [options]");
  const std::int64_t restarts = arguments.whole("--restart", 0, 0);
  Launch launch(static_cast<int>(size), words);
  int code = launch.run();
  // What the same command would run into again is no reason to try again.
  for (std::int64_t i = 1; i <= restarts && code != 0 && code != 2 && code != 3 && launch.stopped_by() == 0; ++i) {
    std::cerr << join_text("launch: restart ", i, " of ", restarts, "\n");
    code = launch.run();
  }
  return code;
}

}  // namespace

CommandSpec launch_spec() {
  return {
      "launch",
      "-n N -- train|tune CONFIG.json [options]",
      1,
      1 << 20,
      "Starts N processes of this machine as the ranks of one data parallel run, or of a search for what makes it "
      "faster.",
      {{"-n", "N", "how many ranks"},
       {"--restart", "K", "start all again, up to K times, where a rank fails; they go on from the last checkpoint"}},
      launch_command};
}

}  // namespace hearth::train
