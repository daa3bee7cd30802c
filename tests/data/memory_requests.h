// SPDX-License-Identifier: Apache-2.0
// How often a thread asks for memory.
#pragma once

namespace hearth::test {

/// Calls of operator new by this thread so far. A sanitizer has an allocator of its own: tests that count are left out.
long memory_requests();

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool counts_memory_requests = false;
#else
inline constexpr bool counts_memory_requests = true;
#endif

}  // namespace hearth::test
