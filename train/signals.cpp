// SPDX-License-Identifier: Apache-2.0
#include "train/signals.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <system_error>

namespace hearth::train {
namespace {

// Handlers run on any thread that does not block them.
std::atomic<int> stop_signal{0};
std::atomic<bool> checkpoint_wanted{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void stop(int number) {
  int none = 0;
  if (stop_signal.compare_exchange_strong(none, number)) return;
  // A closing terminal sends SIGHUP more than once, and SIGXCPU comes each second.
  if (number == SIGHUP || number == SIGXCPU) return;
  _exit(128 + number);
}

void save(int) { checkpoint_wanted = true; }

void go_on(int) {}

struct Handled {
  int number;
  void (*handler)(int);
  struct sigaction previous;
};
Handled handled[] = {{SIGINT, stop, {}},  {SIGTERM, stop, {}}, {SIGHUP, stop, {}},
                     {SIGXCPU, stop, {}}, {SIGUSR1, save, {}}, {SIGPIPE, go_on, {}}};

// Objects alive; trainings may run side by side.
std::mutex scopes_mutex;
int scopes = 0;

/// An alternate stack is used where the thread has one, as programs in other languages ask for it.
struct sigaction action_of(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  return action;
}

void take_over() {
  stop_signal = 0;
  checkpoint_wanted = false;
  for (Handled& signal : handled) {
    sigaction(signal.number, nullptr, &signal.previous);
    if (signal.number == SIGHUP && signal.previous.sa_handler == SIG_IGN) continue;
    const struct sigaction action = action_of(signal.handler);
    sigaction(signal.number, &action, nullptr);
  }
}

}  // namespace

SignalScope::SignalScope() {
  {
    const std::lock_guard lock(scopes_mutex);
    if (scopes++ == 0) take_over();
  }
  try {
    listener_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "hearth-signals");
      done_.acquire();
    });
  } catch (const std::system_error&) {
    // No thread to be had: signals wait for the end of a library call.
  }
}

SignalScope::~SignalScope() {
  if (listener_.joinable()) {
    done_.release();
    listener_.join();
  }
  const std::lock_guard lock(scopes_mutex);
  if (--scopes > 0) return;
  for (const Handled& signal : handled) sigaction(signal.number, &signal.previous, nullptr);
}

int SignalScope::requested() { return stop_signal; }

bool SignalScope::checkpoint_requested() { return checkpoint_wanted.exchange(false); }

void survive(int signal) {
  struct sigaction found {};
  if (sigaction(signal, nullptr, &found) != 0 || (found.sa_flags & SA_SIGINFO) != 0 || found.sa_handler != SIG_DFL)
    return;
  // A handler and not SIG_IGN, which programs started from here would inherit.
  const struct sigaction action = action_of(go_on);
  sigaction(signal, &action, nullptr);
}

}  // namespace hearth::train
