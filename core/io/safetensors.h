// SPDX-License-Identifier: Apache-2.0
// The safetensors format: named tensors in one file, readable by Python and by every other program that knows the
// format (https://github.com/huggingface/safetensors#format). Files written here also carry checksums of their header
// and of every MiB of every tensor, as metadata, so that damage can be told and located.
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
#include "core/io/file.h"
#include "core/shape.h"

namespace hearth {

/// One tensor of a file: its bytes are [begin, end) of the data that follows the header, row-major, little-endian.
struct TensorRecord {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// Free text kept beside the tensors.
using SafetensorsMetadata = std::map<std::string, std::string>;

/// A safetensors file, open. Every error is a FileError reading "<path>: <Kind>: <what was found>", the kinds being
/// those of the format's reference reader: IoError, HeaderTooSmall, HeaderTooLarge, InvalidHeaderLength, InvalidHeader,
/// InvalidHeaderStart, InvalidHeaderDeserialization, InvalidOffset, ValidationOverflow, MisalignedSlice,
/// TensorInvalidInfo, MetadataIncompleteBuffer, TensorNotFound; and beyond those DuplicateName, UnsupportedDtype,
/// UnsupportedRank, HeaderDamaged, TensorDamaged.
class HEARTH_API SafetensorsFile {
 public:
  /// Opens the file and checks the header in full: afterwards every record lies inside the file, fits its shape and
  /// overlaps no other. The tensors' bytes are not read.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  /// In the order of their bytes.
  const std::vector<TensorRecord>& records() const { return records_; }
  /// Null if there is no such tensor.
  const TensorRecord* find(std::string_view name) const;
  /// TensorNotFound, with the nearest name, if there is no such tensor.
  const TensorRecord& at(std::string_view name) const;
  /// Fills `target`, which has as many bytes, with those of one of records(). Checksums are compared on the way:
  /// TensorDamaged as of verify(). Several threads may read at once.
  void read(const TensorRecord& record, std::span<std::byte> target) const;
  /// The same into memory of its own; OutOfMemory if that is not free.
  std::vector<std::byte> read(const TensorRecord& record) const;
  /// Without the entries that hold checksums.
  const SafetensorsMetadata& metadata() const { return metadata_; }

  bool has_checksums() const { return has_block_checksums_ || !header_checksum_.empty(); }
  /// Compares all checksums: HeaderDamaged, or TensorDamaged with the tensor's name and the damaged block's byte offset
  /// in the file. Does nothing for files without checksums. Reads the whole file.
  void verify() const;

 private:
  void parse_checksums(const std::string& text);
  void verify_header() const;
  void read_block(std::size_t record, std::size_t block, std::span<std::byte> target) const;

  FileReader file_;
  std::uint64_t data_offset_ = 0;
  std::vector<TensorRecord> records_;
  std::vector<std::size_t> by_name_;  // indices of records_, sorted by name
  SafetensorsMetadata metadata_;
  std::vector<std::size_t> first_blocks_;  // of each record, counted through the file
  bool has_block_checksums_ = false;
  std::vector<std::uint32_t> block_checksums_;
  std::string header_checksum_;
};

/// A tensor to write; `bytes` row-major, little-endian.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::span<const std::byte> bytes;
  /// In place of `bytes`, where these are not there at once: passes them to its argument part by part, in order. It is
  /// called twice, for the checksums and to write.
  std::function<void(const ByteSink&)> parts{};
};
/// Whether a tensor comes before another in a file: by type, widest first, then by name.
HEARTH_API bool comes_first(const SafetensorsEntry& a, const SafetensorsEntry& b);

/// Replaces `path` as write_file_synced does. The result depends on names, contents and metadata only: as with the
/// reference writer tensors are ordered by type, widest first, then by name. FileError "<path>: <Kind>: ...":
/// InvalidTensorView (bytes do not fit the shape, or a reserved name), DuplicateName, JsonError (text that is not
/// UTF-8), HeaderTooLarge, or what write_file_synced throws.
HEARTH_API void write_safetensors(const std::filesystem::path& path, std::vector<SafetensorsEntry> entries,
                                  SafetensorsMetadata metadata = {});
/// The same without checksums, byte for byte as the reference writer has it.
HEARTH_API void write_plain_safetensors(const std::filesystem::path& path, std::vector<SafetensorsEntry> entries,
                                        const SafetensorsMetadata& metadata = {});

}  // namespace hearth
