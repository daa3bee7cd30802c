// SPDX-License-Identifier: Apache-2.0
#include "train/cli/shared_cores.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>
#include <thread>

#include "core/cpu/parallel.h"
#include "core/error.h"

namespace hearth::train {
namespace {

// For the gap between two loops. OpenMP itself takes 300,000 where nothing is said.
constexpr const char* few_spins = "1000";

/// Threads of all processes that run now or want to; 0 where the system does not tell.
int running_threads() {
  std::ifstream file("/proc/loadavg");
  std::string minute, five_minutes, quarter;
  int running = 0;
  file >> minute >> five_minutes >> quarter >> running;
  return file ? running : 0;
}

bool computes(std::string_view command) {
  constexpr std::string_view those[] = {"train", "eval", "predict", "plan",  "summary",
                                        "bench", "tune", "report",  "doctor"};
  return std::ranges::find(those, command) != std::end(those);
}

}  // namespace

int other_threads() {
  std::array<int, 5> looks{};
  for (int& look : looks) {
    look = running_threads();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::ranges::nth_element(looks, looks.begin() + looks.size() / 2);
  return std::max(0, looks[looks.size() / 2] - 1);
}

void spin_briefly_on_shared_cores(int argc, char** argv) {
  if (argc < 2 || !computes(argv[1])) return;
  for (const char* variable : {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"})
    if (std::getenv(variable) != nullptr) return;
  try {
    const int threads = cpu::threads();
    if (threads == 1) return;
    const auto cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
    const int others = other_threads();
    if (others + threads <= cores) return;
    std::error_code error;
    const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).string();
    if (error || setenv("GOMP_SPINCOUNT", few_spins, 1) != 0) return;
    std::cerr << "warning   " << others << (others == 1 ? " other thread runs" : " other threads run") << " on the "
              << cores << " cores of this machine: the " << threads << " threads wait briefly before they sleep "
              << "(GOMP_SPINCOUNT=" << few_spins << "); with HEARTH_THREADS=1 there is nothing to wait for\n";
    execv(program.c_str(), argv);
  } catch (const Error&) {
    // What is wrong with the environment is told by the command.
  }
}

}  // namespace hearth::train
