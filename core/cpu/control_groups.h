// SPDX-License-Identifier: Apache-2.0
// The control groups that bind the process: where Linux tells of limits on time and memory.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace hearth::cpu {

/// f(folder) for each folder that may hold the limits of a controller ("cpu", "memory") for this process: of its group
/// and of those above, which bind it too, for both versions of the interface. Not every one of them need exist.
/// `root` is where the files of the system lie.
void for_each_control_group(const std::filesystem::path& root, const std::string& controller,
                            const std::function<void(const std::filesystem::path&)>& f);

}  // namespace hearth::cpu
