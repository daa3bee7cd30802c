// SPDX-License-Identifier: Apache-2.0
// How much memory the process could still get: what the system has free and what the control groups allow.
#pragma once

#include <cstdint>
#include <filesystem>

namespace hearth::cpu {

/// Bytes that Linux would give without swapping, and no more than the control groups of the process have left; what
/// they hold of files that can be read again counts as free, as it does for the system. `root` is where the files of
/// the system lie.
std::int64_t free_memory(const std::filesystem::path& root = "/");

}  // namespace hearth::cpu
