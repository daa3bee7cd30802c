// SPDX-License-Identifier: Apache-2.0
// Stacks that run in turns on one host thread: what the emulated GPU runs its threads on. The switch is a few
// instructions on x86-64 and POSIX ucontext elsewhere (which asks the kernel at each switch and is ten times slower).
#pragma once

#include <cstddef>

#if !defined(__x86_64__) || defined(HEARTH_EMULATE_UCONTEXT)
#define HEARTH_FIBER_UCONTEXT 1
#include <ucontext.h>
#else
#define HEARTH_FIBER_UCONTEXT 0
#endif

namespace hearth::cuda::emulate {

/// One stack and the position where it stopped. The host's own stack is a fiber too: a default-constructed one.
class Fiber {
 public:
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Makes the next switch to this fiber call entry() on the given stack. entry never returns. Whatever ran on the
  /// stack before is forgotten: its destructors do not run.
  void start(std::byte* stack, std::size_t bytes, void (*entry)());

  /// Stops the caller, which runs on this fiber, and goes on with the other. Returns when something switches back.
  void switch_to(Fiber& other);

  /// To be called first thing in entry().
  static void entered();

 private:
  std::byte* stack_ = nullptr;
  std::size_t bytes_ = 0;
  void* fake_stack_ = nullptr;  // of the address sanitizer
#if HEARTH_FIBER_UCONTEXT
  ucontext_t context_{};
#else
  void* top_ = nullptr;
#endif
};

/// Fiber stacks in one mapping, each with an inaccessible page below it, so that an overflow faults at once.
class FiberStacks {
 public:
  explicit FiberStacks(std::size_t count);
  ~FiberStacks();
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;

  /// The whole mapping.
  const std::byte* base() const { return base_; }
  std::size_t bytes() const;
  std::byte* stack(std::size_t i) const;
  std::size_t stack_bytes(std::size_t i) const;

 private:
  std::size_t count_;
  std::byte* base_ = nullptr;
};

}  // namespace hearth::cuda::emulate
