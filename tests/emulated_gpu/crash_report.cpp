// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated_gpu/crash_report.h"

#include <csignal>
#include <string>

#include <unistd.h>

#include "core/error.h"
#include "tests/emulated_gpu/memory.h"

namespace hearth::cuda::emulate {
namespace {

const Memory* watched = nullptr;
struct sigaction earlier_action;
thread_local const char* running = nullptr;

// Allocates, which a handler should not: the fault lies in our pages, so the allocator is not at fault, and the process
// ends in any case.
void report(int, siginfo_t* info, void*) {
  if (watched->in_ranges(info->si_addr)) {
    const std::string text =
        join_text("emulated GPU: ", running == nullptr ? "the host" : running,
                  running == nullptr ? "" : " (queued work)", " touched ", watched->describe(info->si_addr), '\n');
    if (write(STDERR_FILENO, text.data(), text.size()) < 0) running = nullptr;  // nowhere left to say it
  }
  sigaction(SIGSEGV, &earlier_action, nullptr);  // the same access faults again, into whoever was asked before
}

}  // namespace

void report_crashes([[maybe_unused]] const Memory& memory) {
#if !defined(__SANITIZE_ADDRESS__)
  watched = &memory;
  struct sigaction action = {};
  action.sa_sigaction = report;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &earlier_action);
#endif
}

void set_running(const char* name) { running = name; }

}  // namespace hearth::cuda::emulate
