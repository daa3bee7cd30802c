// SPDX-License-Identifier: Apache-2.0
// Whole files of a source as bytes, gzip-compressed or not: what the dataset formats are read from.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/io/file.h"
#include "core/io/json_text.h"
#include "data/source/source.h"

namespace hearth::data {

/// The bytes of a file, as of read_file(), into memory that is used again.
void read_bytes(const SourceFile& file, std::vector<std::uint8_t>& bytes, ReadLimit limit);
void read_bytes(const std::string& name, std::vector<std::uint8_t>& bytes, ReadLimit limit);
/// The same as text, unchanged.
std::string read_source_text(const std::string& name, ReadLimit limit);
/// A manifest beside data. Errors as of read_json().
Json read_manifest_json(const std::string& name);
/// The first `count` bytes of a file, or all where there are fewer, inflated if they are gzip. What is damaged behind
/// them goes unnoticed.
std::vector<std::uint8_t> read_front(const std::string& path, std::size_t count);
/// The bytes of a file as of read_file(), inflated as of inflate_gzip() if they are gzip (told by content).
std::vector<std::uint8_t> read_maybe_gzip(const std::string& path, ReadLimit limit);
/// Inflates gzip members up to the end of `bytes`; `name` is for messages. Memory is taken once it is known how much.
/// DataError if the stream is damaged, inflates to more than `limit`, or to more than 64 MiB and a hundred times
/// its size; OutOfMemory as of read_file().
std::vector<std::uint8_t> inflate_gzip(std::span<const std::uint8_t> bytes, const std::string& name, ReadLimit limit);

}  // namespace hearth::data
