// SPDX-License-Identifier: Apache-2.0
// Named ranges on the host's row of NVIDIA's profilers (NVTX): one for each op, with the path of its layer. On with the
// environment variable HEARTH_NVTX=1. Without a profiler attached a range is a call to nothing.
#pragma once

#include <string>

namespace hearth::cuda {

/// Whether ranges are marked.
bool marks_ranges() noexcept;
/// Turns them on or off from now on, whatever the environment says.
void mark_ranges(bool on) noexcept;

/// Opens a range on this thread; ranges nest.
void push_range(const std::string& name);
/// Closes the innermost one.
void pop_range() noexcept;

}  // namespace hearth::cuda
