// SPDX-License-Identifier: Apache-2.0
// Keeps signal handlers away from threads that run library kernels. Generated kernels of oneDNN use a heap buffer as
// their stack: a handler that starts there writes its frame into the heap, below that buffer. So no signal may arrive
// while such a kernel runs. Signals of faults (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS) and SIGABRT are never
// blocked.
#pragma once

namespace hearth::cpu {

/// Blocks signals in the calling thread for the life of the object; what arrives meanwhile is delivered afterwards, or
/// to another thread at once. Objects nest, and only the outermost one makes system calls (two of them).
class SignalBlock {
 public:
  SignalBlock();
  ~SignalBlock();
  SignalBlock(const SignalBlock&) = delete;
  SignalBlock& operator=(const SignalBlock&) = delete;
};

/// Blocks signals in the calling thread for the rest of its life: for threads that the library starts.
void block_signals_for_good();

/// Blocks signals for good in the other threads of the thread pool of this size that the calling thread leads. Costs
/// nothing after the first call of a thread with its largest thread pool.
void block_signals_in_thread_pool(int pool);

}  // namespace hearth::cpu
