// SPDX-License-Identifier: Apache-2.0
// Numbers as bytes, the lowest first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hearth::data {

/// The bytes of numbers, one after the other.
template <class Range>
std::vector<std::byte> little_endian(const Range& values) {
  std::vector<std::byte> bytes;
  for (const auto value : values)
    for (std::size_t i = 0; i < sizeof(value); ++i)
      bytes.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i)));
  return bytes;
}

/// The value whose bytes begin at `at`.
template <class T>
T from_little_endian(std::span<const std::byte> bytes, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = sizeof(T); i-- > 0;) value = value << 8 | std::to_integer<std::uint64_t>(bytes[at + i]);
  return static_cast<T>(value);
}

}  // namespace hearth::data
