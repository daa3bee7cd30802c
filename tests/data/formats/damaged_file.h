// SPDX-License-Identifier: Apache-2.0
// Files on the disk, read whole and damaged by a bit.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

namespace hearth::test {

inline std::vector<std::uint8_t> bytes_of_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void flip(const std::filesystem::path& path, std::uint64_t bit) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(bit / 8));
  const int byte = file.get() ^ (1 << (bit % 8));
  file.seekp(static_cast<std::streamoff>(bit / 8));
  file.put(static_cast<char>(byte));
}

}  // namespace hearth::test
