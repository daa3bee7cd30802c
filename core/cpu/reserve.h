// SPDX-License-Identifier: Apache-2.0
// Asks the system beforehand for what a library is about to take. oneDNN writes through the null pointer of a request
// that failed, and OpenMP ends the process where a thread does not start; an exception from here comes before either.
#pragma once

#include <cstddef>

namespace hearth::cpu {

/// Most bytes that one call of oneDNN was seen to take for code, descriptors and packed operands, with a margin.
inline constexpr std::size_t library_call_bytes = std::size_t{16} << 20;

/// OutOfMemory, naming `library`, unless the system would give the process `bytes` more now. Asks only where the
/// process has a limit of its address space or the system does not overcommit; elsewhere no request is refused.
void reserve_for_library(const char* library, std::size_t bytes = library_call_bytes);

/// OutOfMemory unless the process can run a thread pool of `count` threads, the calling one included. A number once
/// found to be possible is not tried again.
void reserve_threads(int count);

/// Whether this is the child of a process that had reserved threads: fork() copies none of them, and OpenMP, which
/// counts on them, would wait for ever where it is asked for more than one.
bool lost_threads() noexcept;

}  // namespace hearth::cpu
