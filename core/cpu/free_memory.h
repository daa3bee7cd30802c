// SPDX-License-Identifier: Apache-2.0
// How much memory the process could still get: what the system has free and what the control groups allow.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace hearth::cpu {

/// Bytes that the control groups of the process have left; nothing where none of them sets a limit below the machine's
/// memory. What they hold of files that can be read again counts as free, as it does for the system. `root` is where
/// the files of the system lie.
std::optional<std::int64_t> group_memory(const std::filesystem::path& root = "/");

/// Bytes that the process may still map within its limits (`ulimit -v` and `-d`); nothing where it has none.
std::optional<std::int64_t> limited_memory(const std::filesystem::path& root = "/");

/// Bytes that Linux would give without swapping, and no more than the control groups and the limits of the process
/// leave; `root` as above.
std::int64_t free_memory(const std::filesystem::path& root = "/");

}  // namespace hearth::cpu
