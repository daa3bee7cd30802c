// SPDX-License-Identifier: Apache-2.0
// Reader and writer of safetensors files on top of the header's parser.
#include "core/io/safetensors.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/io/checksum.h"
#include "core/io/safetensors_header.h"
#include "core/nearest.h"
#include "core/text_stream.h"

namespace hearth {

namespace {

using safetensors::Declaration;
using safetensors::fail;
using safetensors::FormatDType;

// The key in the header's text, up to its value.
constexpr std::string_view header_checksum_marker = R"("hearth.header_crc32c":")";
static_assert(header_checksum_marker.substr(1, header_checksum_marker.size() - 4) == safetensors::header_checksum_key);
constexpr std::size_t checksum_digits = 8;

std::string list(const std::vector<std::uint64_t>& extents) {
  std::string text = "[";
  for (std::size_t i = 0; i < extents.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(extents[i]);
  return text + "]";
}

/// Bytes of a tensor by its shape and type.
std::uint64_t declared_bytes(const Declaration& tensor, const FormatDType& dtype, const std::filesystem::path& path) {
  std::uint64_t bits = static_cast<std::uint64_t>(dtype.bits);
  bool fits = true;
  std::uint64_t elements = 1;
  for (const std::uint64_t extent : tensor.shape) fits = fits && !__builtin_mul_overflow(elements, extent, &elements);
  fits = fits && !__builtin_mul_overflow(bits, elements, &bits);
  if (!fits)
    fail(path, "ValidationOverflow", "tensor '", tensor.name, "': the size of ", list(tensor.shape), " ", tensor.dtype,
         " does not fit 64 bits");
  if (bits % 8 != 0)
    fail(path, "MisalignedSlice", "tensor '", tensor.name, "': ", list(tensor.shape), " ", tensor.dtype,
         " ends inside a byte");
  return bits / 8;
}

Shape shape_of(const Declaration& tensor, const std::filesystem::path& path) {
  if (tensor.shape.size() > static_cast<std::size_t>(Shape::max_rank))
    fail(path, "UnsupportedRank", "tensor '", tensor.name, "' has ", tensor.shape.size(),
         " dimensions; this library has tensors of up to ", Shape::max_rank);
  std::vector<std::int64_t> extents;
  for (const std::uint64_t extent : tensor.shape) {
    // What does not fit is negative and refused by Shape, as are products that do not fit.
    extents.push_back(static_cast<std::int64_t>(extent));
  }
  try {
    return Shape(std::span<const std::int64_t>(extents));
  } catch (const ShapeError& error) {
    fail(path, "ValidationOverflow", "tensor '", tensor.name, "': ", error.what());
  }
}

/// Checks one tensor whose bytes must begin at `expected_begin`.
TensorRecord record_of(const Declaration& tensor, std::uint64_t expected_begin, const std::filesystem::path& path) {
  if (tensor.begin != expected_begin || tensor.end < tensor.begin)
    fail(path, "InvalidOffset", "tensor '", tensor.name, "' has data_offsets [", tensor.begin, ", ", tensor.end,
         "]; it should begin at ", expected_begin, ", where the tensor before it ends");
  const FormatDType* dtype = safetensors::find_format_dtype(tensor.dtype);
  if (dtype == nullptr)
    fail(path, "InvalidHeaderDeserialization", "tensor '", tensor.name, "' has the type '", tensor.dtype,
         "', which the format does not know");
  const std::uint64_t bytes = declared_bytes(tensor, *dtype, path);
  if (bytes != tensor.end - tensor.begin)
    fail(path, "TensorInvalidInfo", "tensor '", tensor.name, "': ", list(tensor.shape), " ", tensor.dtype, " takes ",
         bytes, " bytes but its data_offsets [", tensor.begin, ", ", tensor.end, "] hold ", tensor.end - tensor.begin);
  if (!dtype->supported)
    fail(path, "UnsupportedDtype", "tensor '", tensor.name, "' has the type ", tensor.dtype,
         "; readable are F32 F64 F16 BF16 I32 I64 U8 BOOL; convert it first");
  return {tensor.name, dtype->dtype, shape_of(tensor, path), tensor.begin, tensor.end};
}

std::size_t block_count(std::uint64_t bytes) {
  return static_cast<std::size_t>(bytes / safetensors::checksum_block +
                                  (bytes % safetensors::checksum_block != 0 ? 1 : 0));
}

/// Block `index` of a tensor's bytes. Blocks begin anew with every tensor.
template <class Byte>
std::span<Byte> block_of(std::span<Byte> bytes, std::size_t index) {
  const std::size_t begin = index * safetensors::checksum_block;
  return bytes.subspan(begin, std::min<std::size_t>(safetensors::checksum_block, bytes.size() - begin));
}

FileReader open(const std::filesystem::path& path) {
  try {
    return FileReader(path);
  } catch (const FileError& error) {
    fail(path, "IoError", error.what());
  }
}

template <class... Parts>
[[noreturn]] void fail_header(const std::filesystem::path& path, const Parts&... parts) {
  fail(path, "HeaderDamaged", parts..., "; another program that rewrites a file must leave out the metadata '",
       safetensors::block_checksums_key, "' and '", safetensors::header_checksum_key, "'");
}

std::string quoted(const std::string& text, const std::filesystem::path& path) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    fail(path, "JsonError", "the name or text '", text, "' is not UTF-8");
  }
}

/// Passes the bytes of a tensor to `take`, part by part.
void give(const SafetensorsEntry& entry, const ByteSink& take) { entry.parts ? entry.parts(take) : take(entry.bytes); }

std::uint64_t byte_count(const SafetensorsEntry& entry) {
  return entry.parts ? static_cast<std::uint64_t>(entry.shape.size()) * size_of(entry.dtype) : entry.bytes.size();
}

/// Orders as comes_first(); DuplicateName if two names are equal.
void sort_as_reference(std::vector<SafetensorsEntry>& entries, const std::filesystem::path& path) {
  std::sort(entries.begin(), entries.end(), comes_first);
  std::vector<std::string_view> names;
  for (const SafetensorsEntry& entry : entries) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    fail(path, "DuplicateName", "tensor '", *twice, "' is given twice");
}

/// The header's member for a tensor whose bytes begin at `offset`.
std::string declaration_of(const SafetensorsEntry& entry, std::uint64_t offset, const std::filesystem::path& path) {
  const std::int64_t expected =
      checked_mul(entry.shape.size(), static_cast<std::int64_t>(size_of(entry.dtype)), "safetensors: tensor size");
  if (entry.bytes.size() != static_cast<std::uint64_t>(expected) && !entry.parts)
    fail(path, "InvalidTensorView", "tensor '", entry.name, "' ", entry.dtype, " ", entry.shape, " takes ", expected,
         " bytes but ", entry.bytes.size(), " are given");
  if (entry.name == safetensors::metadata_key)
    fail(path, "InvalidTensorView", "the tensor name '", entry.name, "' is reserved; choose another");
  // No tree of nlohmann's: its destructor asks for memory and ends the process where there is none.
  TextStream out;
  out << quoted(entry.name, path) << R"(:{"dtype":")" << safetensors::format_dtype_of(entry.dtype).name
      << R"(","shape":[)";
  for (int axis = 0; axis < entry.shape.rank(); ++axis) out << (axis > 0 ? "," : "") << entry.shape[axis];
  out << R"(],"data_offsets":[)" << offset << "," << offset + static_cast<std::uint64_t>(expected) << "]}";
  return out.str();
}

std::string checksums_prefix() { return std::to_string(safetensors::checksum_block) + ":"; }

/// "1048576:" and the checksums of all blocks in the order of the file, separated by commas.
std::string checksums_of(const std::vector<SafetensorsEntry>& entries) {
  std::string text = checksums_prefix();
  for (const SafetensorsEntry& entry : entries) {
    std::uint32_t sum = 0;
    std::size_t filled = 0;
    const auto close = [&] {
      text += hex_of(sum) + ",";
      sum = 0, filled = 0;
    };
    give(entry, [&](std::span<const std::byte> part) {
      while (!part.empty()) {
        const std::size_t count = std::min<std::size_t>(part.size(), safetensors::checksum_block - filled);
        sum = crc32c(part.first(count), sum);
        filled += count;
        part = part.subspan(count);
        if (filled == safetensors::checksum_block) close();
      }
    });
    if (filled > 0) close();
  }
  if (text.back() == ',') text.pop_back();
  return text;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(open(path)) {
  safetensors::Header header = safetensors::read_header(file_);
  data_offset_ = header.data_offset;
  std::vector<Declaration>& tensors = header.tensors;
  const auto by_offset = [](const Declaration& a, const Declaration& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  };
  std::stable_sort(tensors.begin(), tensors.end(), by_offset);
  by_name_.resize(tensors.size());
  std::iota(by_name_.begin(), by_name_.end(), std::size_t{0});
  std::sort(by_name_.begin(), by_name_.end(),
            [&](std::size_t a, std::size_t b) { return tensors[a].name < tensors[b].name; });
  for (std::size_t i = 1; i < by_name_.size(); ++i) {
    const std::string& name = tensors[by_name_[i]].name;
    if (name == tensors[by_name_[i - 1]].name) fail(path, "DuplicateName", "tensor '" + name + "' appears twice");
  }
  std::uint64_t end = 0;
  records_.reserve(tensors.size());
  std::size_t blocks = 0;
  for (const Declaration& tensor : tensors) {
    records_.push_back(record_of(tensor, end, path));
    end = tensor.end;
    first_blocks_.push_back(blocks);
    blocks += block_count(tensor.end - tensor.begin);
  }
  const std::uint64_t present = file_.size() - data_offset_;
  if (end != present) {
    const std::string last = records_.empty() ? "" : "; the last tensor is '" + records_.back().name + "'";
    fail(path, "MetadataIncompleteBuffer", "the header describes ", end, " bytes of data, the file has ", present,
         last);
  }
  metadata_ = std::move(header.metadata);
  if (auto node = metadata_.extract(safetensors::header_checksum_key)) header_checksum_ = std::move(node.mapped());
  if (auto node = metadata_.extract(safetensors::block_checksums_key)) {
    parse_checksums(node.mapped());
    if (blocks != block_checksums_.size())
      fail_header(path, block_checksums_.size(), " checksums for ", blocks, " blocks");
  }
}

const TensorRecord* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                      [&](std::size_t i, std::string_view n) { return records_[i].name < n; });
  return found != by_name_.end() && records_[*found].name == name ? &records_[*found] : nullptr;
}

const TensorRecord& SafetensorsFile::at(std::string_view name) const {
  const TensorRecord* found = find(name);
  if (found == nullptr) {
    std::vector<std::string> names;
    for (const TensorRecord& record : records_) names.push_back(record.name);
    const std::string near = nearest(name, names);
    fail(path(), "TensorNotFound", "there is no tensor '", name, "' among the ", names.size(), " of the file",
         near.empty() ? near : "; did you mean '" + near + "'?");
  }
  return *found;
}

void SafetensorsFile::read_block(std::size_t record, std::size_t block, std::span<std::byte> target) const {
  const std::uint64_t offset = data_offset_ + records_[record].begin + block * safetensors::checksum_block;
  safetensors::read(file_, offset, target);
  if (!has_block_checksums_ || crc32c(target) == block_checksums_[first_blocks_[record] + block]) return;
  fail(path(), "TensorDamaged", "tensor '", records_[record].name, "' does not fit its checksum in the ", target.size(),
       " bytes at offset ", offset, " of the file; use another copy");
}

void SafetensorsFile::read(const TensorRecord& record, std::span<std::byte> target) const {
  const auto index = static_cast<std::size_t>(&record - records_.data());
  HEARTH_CHECK(UsageError, index < records_.size() && target.size() == record.end - record.begin, path().string(), ": ",
               target.size(), " bytes cannot take the record of '", record.name, "', or it is not one of this file");
  for (std::size_t block = 0; block < block_count(target.size()); ++block)
    read_block(index, block, block_of(target, block));
}

std::vector<std::byte> SafetensorsFile::read(const TensorRecord& record) const {
  require_readable_size(path().string(), record.end - record.begin, {UINT64_MAX, "tensors"});
  std::vector<std::byte> bytes(record.end - record.begin);
  read(record, bytes);
  return bytes;
}

void SafetensorsFile::verify_header() const {
  std::string text(data_offset_, '\0');
  safetensors::read(file_, 0, std::as_writable_bytes(std::span(text)));
  const std::size_t marker = text.find(header_checksum_marker);
  const std::size_t digits = marker + header_checksum_marker.size();
  bool intact = marker != std::string::npos && header_checksum_.size() == checksum_digits;
  if (intact) {
    // The checksum was taken with zeros in its own place.
    text.replace(digits, checksum_digits, checksum_digits, '0');
    intact = hex_of(crc32c(bytes_of(text))) == header_checksum_;
  }
  if (!intact) fail_header(path(), "the header does not fit its checksum");
}

void SafetensorsFile::parse_checksums(const std::string& text) {
  const std::string prefix = checksums_prefix();
  const std::string_view list_text = std::string_view(text).substr(std::min(prefix.size(), text.size()));
  bool good = text.starts_with(prefix) && (list_text.empty() || (list_text.size() + 1) % (checksum_digits + 1) == 0);
  for (std::size_t at = 0; good && at < list_text.size(); at += checksum_digits + 1) {
    const char* begin = list_text.data() + at;
    const char* end = begin + checksum_digits;
    const auto read = std::from_chars(begin, end, block_checksums_.emplace_back(), 16);
    good = read.ec == std::errc() && read.ptr == end && (end == text.data() + text.size() || *end == ',');
  }
  if (!good) fail_header(path(), "the metadata '", safetensors::block_checksums_key, "' is malformed");
  has_block_checksums_ = true;
}

void SafetensorsFile::verify() const {
  if (!has_checksums()) return;
  verify_header();
  std::vector<std::byte> block(safetensors::checksum_block);
  for (std::size_t record = 0; record < records_.size(); ++record) {
    const std::uint64_t bytes = records_[record].end - records_[record].begin;
    for (std::size_t index = 0; index < block_count(bytes); ++index)
      read_block(record, index,
                 std::span(block).first(std::min(block.size(), bytes - index * safetensors::checksum_block)));
  }
}

namespace {

/// Length, JSON and the blanks that fill it up to a multiple of 8; `entries` are in order.
std::string front_of(const std::vector<SafetensorsEntry>& entries, const SafetensorsMetadata& metadata,
                     const std::filesystem::path& path) {
  std::string header = "{";
  if (!metadata.empty()) {
    header += join_text('"', safetensors::metadata_key, "\":{");
    for (const auto& [key, value] : metadata) header += quoted(key, path) + ":" + quoted(value, path) + ",";
    header.back() = '}';
    header += ",";
  }
  std::uint64_t offset = 0;
  for (const SafetensorsEntry& entry : entries) {
    header += declaration_of(entry, offset, path) + ",";
    offset += byte_count(entry);
  }
  if (header.back() == ',') header.pop_back();
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  if (header.size() > safetensors::longest_header)
    fail(path, "HeaderTooLarge", "a header of ", header.size(), " bytes; the format allows ",
         safetensors::longest_header);
  std::string front;
  for (std::size_t i = 0; i < safetensors::length_bytes; ++i) front += static_cast<char>(header.size() >> (8 * i));
  return front + header;
}

void write_parts(const std::filesystem::path& path, const std::string& front,
                 const std::vector<SafetensorsEntry>& entries) {
  std::uint64_t size = front.size();
  for (const SafetensorsEntry& entry : entries) size += byte_count(entry);
  write_file_synced(path, size, [&](const ByteSink& take) {
    take(bytes_of(front));
    for (const SafetensorsEntry& entry : entries) give(entry, take);
  });
}

}  // namespace

bool comes_first(const SafetensorsEntry& a, const SafetensorsEntry& b) {
  const int rank_a = safetensors::rank_of(a.dtype), rank_b = safetensors::rank_of(b.dtype);
  return rank_a != rank_b ? rank_a > rank_b : a.name < b.name;
}

void write_safetensors(const std::filesystem::path& path, std::vector<SafetensorsEntry> entries,
                       SafetensorsMetadata metadata) {
  sort_as_reference(entries, path);
  metadata[safetensors::block_checksums_key] = checksums_of(entries);
  metadata[safetensors::header_checksum_key] = std::string(checksum_digits, '0');
  std::string front = front_of(entries, metadata, path);
  const std::size_t digits = front.find(header_checksum_marker) + header_checksum_marker.size();
  front.replace(digits, checksum_digits, hex_of(crc32c(bytes_of(front))));
  write_parts(path, front, entries);
}

void write_plain_safetensors(const std::filesystem::path& path, std::vector<SafetensorsEntry> entries,
                             const SafetensorsMetadata& metadata) {
  sort_as_reference(entries, path);
  write_parts(path, front_of(entries, metadata, path), entries);
}

}  // namespace hearth
