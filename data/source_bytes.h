// SPDX-License-Identifier: Apache-2.0
// Whole files as bytes, gzip-compressed or not: what the data set formats are read from.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace hearth::data {

/// The bytes of a file. FileError with the system's reason.
void read_bytes(const std::string& path, std::vector<std::uint8_t>& bytes);
/// The bytes of a file, inflated if they are gzip (told by content). FileError if it cannot be read, DataError if
/// the compressed stream is damaged or inflates to more than `max_bytes`.
std::vector<std::uint8_t> read_maybe_gzip(const std::string& path, std::uint64_t max_bytes = std::uint64_t{8} << 30);
/// Inflates gzip members up to the end of `bytes`; `name` is for messages.
std::vector<std::uint8_t> inflate_gzip(std::span<const std::uint8_t> bytes, const std::string& name,
                                       std::uint64_t max_bytes);

}  // namespace hearth::data
