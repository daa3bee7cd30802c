// SPDX-License-Identifier: Apache-2.0
// Kernel sources of a HEARTH_EMULATE_CHECK build are compiled with -fsanitize=thread but not linked with that
// sanitizer: the functions that the compiler makes them call at each load and store are these.
#include "tests/emulated_gpu/access.h"

#if HEARTH_EMULATE_CHECK
#include <cstdint>

using hearth::cuda::emulate::Access;
using hearth::cuda::emulate::in_kernel;
using hearth::cuda::emulate::note_access;

// NOLINTBEGIN: the names are the compiler's.
extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}

#define HEARTH_HOOK(name, bytes, access)                                               \
  void name(void* p) {                                                                 \
    if (in_kernel) note_access(p, bytes, Access::access, __builtin_return_address(0)); \
  }
#define HEARTH_HOOKS(bytes)                               \
  HEARTH_HOOK(__tsan_read##bytes, bytes, read)            \
  HEARTH_HOOK(__tsan_write##bytes, bytes, write)          \
  HEARTH_HOOK(__tsan_volatile_read##bytes, bytes, read)   \
  HEARTH_HOOK(__tsan_volatile_write##bytes, bytes, write) \
  HEARTH_HOOK(__tsan_unaligned_read##bytes, bytes, read)  \
  HEARTH_HOOK(__tsan_unaligned_write##bytes, bytes, write)
HEARTH_HOOKS(1)
HEARTH_HOOKS(2)
HEARTH_HOOKS(4)
HEARTH_HOOKS(8)
HEARTH_HOOKS(16)
#undef HEARTH_HOOKS
#undef HEARTH_HOOK

void __tsan_read_range(void* p, std::size_t bytes) {
  if (in_kernel) note_access(p, bytes, Access::read, __builtin_return_address(0));
}
void __tsan_write_range(void* p, std::size_t bytes) {
  if (in_kernel) note_access(p, bytes, Access::write, __builtin_return_address(0));
}

// The host's part of a kernel source has atomics too: guards of statics, counts of shared pointers.
#define HEARTH_ATOMICS(bits, T)                                                                                     \
  T __tsan_atomic##bits##_load(const volatile T* p, int) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }           \
  void __tsan_atomic##bits##_store(volatile T* p, T v, int) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }           \
  T __tsan_atomic##bits##_exchange(volatile T* p, T v, int) { return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); } \
  T __tsan_atomic##bits##_fetch_add(volatile T* p, T v, int) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); } \
  T __tsan_atomic##bits##_fetch_sub(volatile T* p, T v, int) { return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST); } \
  T __tsan_atomic##bits##_fetch_and(volatile T* p, T v, int) { return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST); } \
  T __tsan_atomic##bits##_fetch_or(volatile T* p, T v, int) { return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST); }   \
  T __tsan_atomic##bits##_fetch_xor(volatile T* p, T v, int) { return __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST); } \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* expected, T v, int, int) {                    \
    return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                  \
  }                                                                                                                 \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* expected, T v, int, int) {                      \
    return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                  \
  }
HEARTH_ATOMICS(8, std::uint8_t)
HEARTH_ATOMICS(16, std::uint16_t)
HEARTH_ATOMICS(32, std::uint32_t)
HEARTH_ATOMICS(64, std::uint64_t)
#undef HEARTH_ATOMICS
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

}  // extern "C"
// NOLINTEND
#endif
