// SPDX-License-Identifier: Apache-2.0
#include "hearth/train/signals.h"

#include <signal.h>
#include <unistd.h>

namespace hearth::train {
namespace {

volatile sig_atomic_t stop_signal = 0;
struct sigaction previous_int, previous_term;

void on_signal(int number) {
  if (stop_signal != 0) _exit(128 + number);
  stop_signal = number;
}

}  // namespace

SignalScope::SignalScope() {
  stop_signal = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &previous_int);
  sigaction(SIGTERM, &action, &previous_term);
}

SignalScope::~SignalScope() {
  sigaction(SIGINT, &previous_int, nullptr);
  sigaction(SIGTERM, &previous_term, nullptr);
}

int SignalScope::requested() { return stop_signal; }

}  // namespace hearth::train
