// SPDX-License-Identifier: Apache-2.0
// The block that runs: its threads, who of them waits for what, and the stacks they stand on. One object for each host
// thread that runs kernels.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/emulated_gpu/access.h"
#include "tests/emulated_gpu/checker.h"
#include "tests/emulated_gpu/engine.h"
#include "tests/emulated_gpu/fiber.h"
#include "tests/emulated_gpu/order.h"
#include "tests/emulated_gpu/shared_memory.h"

namespace hearth::cuda::emulate {

inline constexpr unsigned max_threads = 1024;

/// A first-in, first-out queue of threads, each in it at most once.
class ThreadQueue {
 public:
  bool empty() const { return head_ == tail_; }
  unsigned size() const { return tail_ - head_; }
  void clear() { head_ = tail_ = 0; }
  void push(unsigned thread) { items_[tail_++ % max_threads] = static_cast<std::uint16_t>(thread); }
  unsigned pop() { return items_[head_++ % max_threads]; }
  /// Brings the i-th from the front to the front.
  void prefer(unsigned i) { std::swap(items_[head_ % max_threads], items_[(head_ + i) % max_threads]); }

 private:
  std::array<std::uint16_t, max_threads> items_;
  unsigned head_ = 0, tail_ = 0;
};

class Block {
 public:
  static Block& of_host_thread();

  Block();

  /// The whole grid or, unless 0, so many blocks of it at both ends together.
  void run_grid(const Launch& launch, const Order& order, std::uint64_t at_ends, const Call& call);

  // For the kernel.
  unsigned barrier(bool vote, const Place& place);
  unsigned barrier_threads() const { return barrier_.threads; }
  void warp_operation(unsigned mask, const char* what, void* mine, Complete complete, const Place& place);
  unsigned thread() const { return thread_; }
  SharedMemory& shared() { return shared_; }
  [[noreturn]] void fault(const std::string& message, const Place& place) const;
#if HEARTH_EMULATE_CHECK
  /// Ends the launch with an error if the running thread must not do this. Does not unwind the kernel's stack: the
  /// compiler takes the calls that lead here for ones that do not throw.
  void check_access(const void* p, std::size_t bytes, Access access, const void* site);
  Checker& checker() { return checker_; }
#endif

 private:
  // What a thread that waits has left behind.
  struct Waiter {
    enum class For : std::uint8_t { nothing, barrier, warp };
    Fiber* fiber;
    Place place;
    const char* what;
    unsigned mask;
    For what_for;
  };
  // A warp operation for which lanes are still missing.
  struct Operation {
    unsigned mask;
    unsigned arrived;
    const char* what;
    Complete complete;
    Place place;
  };
  struct Warp {
    unsigned alive;
    unsigned open;  // how many of `operations` are in use
    std::array<void*, 32> lanes;
    std::array<Operation, 32> operations;
  };
  struct Barrier {
    unsigned arrived = 0, votes = 0;
    unsigned threads = 0, result = 0;  // of the latest complete one
    Place place;
  };

  void run_block();
  void run_threads();
  static void run_fiber();

  void start_thread(unsigned thread);
  void end_thread();
  void go_on_as(unsigned thread);
  void wait(Waiter::For what_for, const char* what, unsigned mask, const Place& place);
  Fiber& next_fiber();
  Fiber& idle_fiber();
  void make_ready(unsigned first_thread, unsigned lanes);
  void complete_barrier(std::optional<unsigned> completer);
  void complete_operation(Warp& warp, unsigned first_thread, Operation& operation, std::optional<unsigned> completer);
  std::string who_waits() const;
  std::string name_of_thread(unsigned thread) const;

  Launch launch_{};
  Call call_{};
  Order order_;
  Shuffler shuffler_{0};

  unsigned threads_ = 0;  // of the block
  unsigned alive_ = 0;    // that have not returned
  unsigned started_ = 0;
  unsigned thread_ = 0;  // the one that runs
  std::vector<std::uint16_t> start_order_;
  ThreadQueue ready_;
  Barrier barrier_;
  std::array<Waiter, max_threads> waiters_;
  std::array<Warp, max_threads / 32> warps_;
  std::exception_ptr error_;

  SharedMemory shared_;
#if HEARTH_EMULATE_CHECK
  Checker checker_;
#endif
  FiberStacks stacks_{max_threads};
  std::unique_ptr<Fiber[]> fibers_;
  unsigned fibers_made_ = 0;
  std::vector<Fiber*> idle_;
  Fiber host_;
  Fiber* fiber_ = nullptr;  // the one that runs
};

/// The block that this host thread runs, null while the host itself runs.
inline HEARTH_EMULATE_THREAD_LOCAL Block* running = nullptr;

}  // namespace hearth::cuda::emulate
