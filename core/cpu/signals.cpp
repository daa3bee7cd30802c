// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/signals.h"

#include <omp.h>
#include <pthread.h>
#include <signal.h>

#include <utility>

namespace hearth::cpu {
namespace {

sigset_t all_but_faults() {
  sigset_t set;
  sigfillset(&set);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) sigdelset(&set, fault);
  return set;
}

struct ThreadState {
  int blocks = 0;   // SignalBlocks alive, and one more once signals are blocked for good
  sigset_t before;  // the mask to restore after the outermost
  bool for_good = false;
  int pool = 1;  // the largest thread pool whose other threads have signals blocked
};
constinit thread_local ThreadState state{};

void block(sigset_t* before) {
  static const sigset_t set = all_but_faults();
  pthread_sigmask(SIG_BLOCK, &set, before);
}

}  // namespace

SignalBlock::SignalBlock() {
  if (state.blocks++ == 0) block(&state.before);
}

SignalBlock::~SignalBlock() {
  if (--state.blocks == 0) pthread_sigmask(SIG_SETMASK, &state.before, nullptr);
}

void block_signals_for_good() {
  if (std::exchange(state.for_good, true)) return;
  ++state.blocks;
  block(nullptr);
}

void block_signals_in_thread_pool(int pool) {
  if (pool <= state.pool || omp_in_parallel()) return;
#pragma omp parallel num_threads(pool)
  if (omp_get_thread_num() != 0) block_signals_for_good();
  state.pool = pool;
}

}  // namespace hearth::cpu
