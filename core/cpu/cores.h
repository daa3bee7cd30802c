// SPDX-License-Identifier: Apache-2.0
// How many cores the process may use: what the affinity mask allows and what the control groups grant in time.
#pragma once

#include <filesystem>

namespace hearth::cpu {

/// At least 1. A container limited to two cores' time on a machine of 64 gives 2; a part of a core counts as one.
/// `root` is where the files of the system lie.
int available_cores(const std::filesystem::path& root = "/");

}  // namespace hearth::cpu
