// SPDX-License-Identifier: Apache-2.0
// How fast the files of a dataset can be read at all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hearth::train {

/// Files below a folder, or the file itself, in an order that only depends on their names: as many as hold about
/// `max_bytes`. None where the path is neither.
std::vector<std::string> some_files(const std::string& path, std::uint64_t max_bytes);

struct DiskSpeed {
  std::uint64_t bytes = 0;
  double warm_seconds = 0;               ///< when the system holds them in memory
  std::optional<double> cold_seconds{};  ///< when it does not; nothing where it would not let go of them
};
/// Reads the files whole, with so many threads. FileError.
DiskSpeed read_speed(const std::vector<std::string>& files, int threads);

/// Drops what the system holds of the files in memory, as far as it does; the part of their bytes that it still holds.
double drop_from_memory(const std::vector<std::string>& files);

}  // namespace hearth::train
