// SPDX-License-Identifier: Apache-2.0
// Private to the safetensors reader and writer: the header's limits, its names for types, and its parser.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"
#include "core/io/file.h"
#include "core/io/printable.h"

namespace hearth::safetensors {

constexpr std::uint64_t length_bytes = 8;
constexpr std::uint64_t longest_header = 100'000'000;
constexpr std::uint64_t checksum_block = std::uint64_t{1} << 20;
constexpr const char* metadata_key = "__metadata__";
constexpr const char* block_checksums_key = "hearth.crc32c";
constexpr const char* header_checksum_key = "hearth.header_crc32c";

/// Throws FileError "<path>: <kind>: <text>", the text being that of all parts.
template <class... Parts>
[[noreturn]] void fail(const std::filesystem::path& path, const char* kind, const Parts&... parts) {
  throw FileError(printable(join_text(path.string(), ": ", kind, ": ", parts...)));
}

/// One tensor as the header has it; nothing is checked but the JSON types.
struct Declaration {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct Header {
  std::uint64_t data_offset = 0;
  std::vector<Declaration> tensors;
  std::map<std::string, std::string> metadata;
};

/// FileReader::read() whose errors are of kind IoError.
void read(const FileReader& file, std::uint64_t offset, std::span<std::byte> target);

/// Reads length and JSON of a file, in time linear in the header's length.
Header read_header(const FileReader& file);

/// A type the format knows: whether or not this library has it.
struct FormatDType {
  const char* name;
  int bits;
  bool supported;
  DType dtype;
};
/// Null if the format has no such type.
const FormatDType* find_format_dtype(std::string_view name);
const FormatDType& format_dtype_of(DType dtype);
/// The reference's order of types, in which wider ones come later.
int rank_of(DType dtype);

}  // namespace hearth::safetensors
