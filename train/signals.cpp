// SPDX-License-Identifier: Apache-2.0
#include "hearth/train/signals.h"

#include <signal.h>
#include <unistd.h>

namespace hearth::train {
namespace {

volatile sig_atomic_t stop_signal = 0;
volatile sig_atomic_t checkpoint_signal = 0;

void stop(int number) {
  // A closing terminal sends SIGHUP more than once.
  if (stop_signal != 0 && number == SIGHUP) return;
  if (stop_signal != 0) _exit(128 + number);
  stop_signal = number;
}

void save(int) { checkpoint_signal = 1; }

struct Handled {
  int number;
  void (*handler)(int);
  struct sigaction previous;
};
Handled handled[] = {
    {SIGINT, stop, {}}, {SIGTERM, stop, {}}, {SIGHUP, stop, {}}, {SIGUSR1, save, {}}, {SIGPIPE, SIG_IGN, {}}};

}  // namespace

SignalScope::SignalScope() {
  stop_signal = 0;
  checkpoint_signal = 0;
  for (Handled& signal : handled) {
    struct sigaction action {};
    action.sa_handler = signal.handler;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(signal.number, nullptr, &signal.previous);
    if (signal.number == SIGHUP && signal.previous.sa_handler == SIG_IGN) continue;
    sigaction(signal.number, &action, nullptr);
  }
}

SignalScope::~SignalScope() {
  for (const Handled& signal : handled) sigaction(signal.number, &signal.previous, nullptr);
}

int SignalScope::requested() { return stop_signal; }

bool SignalScope::checkpoint_requested() {
  const bool requested = checkpoint_signal != 0;
  checkpoint_signal = 0;
  return requested;
}

}  // namespace hearth::train
