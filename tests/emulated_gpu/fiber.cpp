// SPDX-License-Identifier: Apache-2.0
// Fibers: the stack switch, the stacks, and what the address sanitizer must be told about both.
#include "tests/emulated_gpu/fiber.h"

#include <sys/mman.h>

#include <cstdint>

#include "core/error.h"
#include "tests/emulated_gpu/sanitizer.h"

#if !HEARTH_FIBER_UCONTEXT
// void hearth_switch_stack(void** save, void* load): what a called function must keep goes onto the old stack, the
// rest the compiler has already saved. The return goes where the new stack stopped.
extern "C" void hearth_switch_stack(void** save, void* load);
asm(R"(
.text
.globl hearth_switch_stack
.hidden hearth_switch_stack
.type hearth_switch_stack, @function
hearth_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size hearth_switch_stack, .-hearth_switch_stack
)");
#endif

namespace hearth::cuda::emulate {
namespace {

constexpr std::size_t page = 4096;
// Frames are larger with the address sanitizer.
constexpr std::size_t usable = HEARTH_HAS_ASAN ? 256 * 1024 : 64 * 1024;
constexpr std::size_t stride = usable + page;

// The fiber that is being left, for the one that is entered to complete the hand-over.
thread_local Fiber* left = nullptr;

}  // namespace

void Fiber::start(std::byte* stack, std::size_t bytes, void (*entry)()) {
  stack_ = stack;
  bytes_ = bytes;
  fake_stack_ = nullptr;
  unpoison(stack, bytes);
#if HEARTH_FIBER_UCONTEXT
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack;
  context_.uc_stack.ss_size = bytes;
  context_.uc_link = nullptr;
  makecontext(&context_, entry, 0);
#else
  // Six registers, where `ret` goes, and a return address of zero, which ends backtraces. On entry the stack pointer is
  // as after a call: 8 above a multiple of 16.
  auto** slot = reinterpret_cast<void**>(reinterpret_cast<std::uintptr_t>(stack + bytes) & ~std::uintptr_t{15});
  *--slot = nullptr;
  *--slot = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--slot = nullptr;
  top_ = slot;
#endif
}

void Fiber::switch_to(Fiber& other) {
  left = this;
  start_switch(&fake_stack_, other.stack_, other.bytes_);
#if HEARTH_FIBER_UCONTEXT
  swapcontext(&context_, &other.context_);
#else
  hearth_switch_stack(&top_, other.top_);
#endif
  finish_switch(fake_stack_, nullptr, nullptr);
}

void Fiber::entered() {
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  finish_switch(nullptr, &bottom, &bytes);
  // The host's own stack is known only now.
  if (left->stack_ == nullptr && bottom != nullptr) {
    left->stack_ = static_cast<std::byte*>(const_cast<void*>(bottom));
    left->bytes_ = bytes;
  }
}

FiberStacks::FiberStacks(std::size_t count) : count_(count) {
  void* base = mmap(nullptr, count * stride, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  HEARTH_CHECK(OutOfMemory, base != MAP_FAILED, "emulated GPU: no room for ", count, " thread stacks of ", stride,
               " bytes; raise the limit of address space (ulimit -v)");
  base_ = static_cast<std::byte*>(base);
  for (std::size_t i = 0; i < count; ++i) mprotect(base_ + i * stride, page, PROT_NONE);
}

std::size_t FiberStacks::bytes() const { return count_ * stride; }

FiberStacks::~FiberStacks() {
  unpoison(base_, bytes());
  munmap(base_, bytes());
}

std::byte* FiberStacks::stack(std::size_t i) const { return base_ + i * stride + page; }

std::size_t FiberStacks::stack_bytes(std::size_t i) const {
  // Tops at different distances from the page's end: frames of all threads must not meet in the same cache sets.
  return usable - (i * 5 % 32) * 128;
}

}  // namespace hearth::cuda::emulate
