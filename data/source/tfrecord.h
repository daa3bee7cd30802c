// SPDX-License-Identifier: Apache-2.0
// Files of records as TensorFlow has them, all integers little-endian: u64 length, u32 checksum of these 8 bytes, the
// record, u32 checksum of the record. A checksum is a CRC-32C, turned right by 15 bits, plus 0xa282ead8.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/source/file_window.h"
#include "data/source/part_file.h"

namespace hearth::data {

struct TfRecord {
  std::uint64_t offset = 0;  ///< of the length in front of the record's bytes
  std::uint64_t bytes = 0;
  std::uint32_t checksum = 0;  ///< of these

  static constexpr std::uint64_t header_bytes = 12;
  std::uint64_t begin() const { return offset + header_bytes; }
};

/// Calls `visit` for each record, in order; its bytes are not read. DataError, naming file, record and offset, for a
/// length that does not fit its checksum, a record that is cut off, and one of more than 1 GiB; for compressed files,
/// with the remedy.
void scan_tfrecord(const SourceFile& file, FileWindow& window, const std::function<void(const TfRecord&)>& visit);

/// Puts a record into `content`, whose memory is used again. DataError, beginning with `place`, if it does not fit its
/// checksum or is no longer there.
void read_tfrecord(const SourceFile& file, const TfRecord& record, const std::string& place,
                   std::vector<std::uint8_t>& content);

/// Writes such a file, to PATH.part, which becomes PATH when all of it is on the disk.
class TfRecordWriter {
 public:
  explicit TfRecordWriter(std::filesystem::path path) : file_(std::move(path)) {}
  void add(std::span<const std::byte> record);
  void finish() { file_.finish(); }

 private:
  PartFile file_;
};

}  // namespace hearth::data
