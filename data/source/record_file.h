// SPDX-License-Identifier: Apache-2.0
// Files of records in the layout of FFRecord (https://github.com/HFAiLab/ffrecord): all integers little-endian,
//   u32 checksum of what follows up to the first record, i64 n, u32 checksum of each record, i64 offset of each record,
//   then the records, one after the other, the last up to the end of the file.
// Checksums are CRC-32 as zlib has it. What a record holds is left to the caller.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "data/source/source.h"

namespace hearth {
class Sha256;
}

namespace hearth::data {

/// Writes one file of a known number of records: to PATH.part, which becomes PATH when all of it is on the disk.
class HEARTH_API RecordWriter {
 public:
  /// FileError if the file cannot be made.
  RecordWriter(std::filesystem::path path, std::int64_t records);
  /// Removes PATH.part of a file that was not finished.
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  /// The next record, in pieces. FileError if it cannot be written; UsageError for more records than promised.
  void add(std::initializer_list<std::span<const std::byte>> pieces);
  /// UsageError if records are missing.
  void finish();

 private:
  void write(std::uint64_t offset, std::span<const std::byte> bytes);

  std::filesystem::path path_;
  std::filesystem::path part_;
  int descriptor_ = -1;
  std::int64_t records_;
  std::uint64_t end_;
  std::vector<std::uint32_t> checksums_;
  std::vector<std::uint64_t> offsets_;
};

/// Reads records by number, from several threads at once.
class HEARTH_API RecordFile {
 public:
  /// FileError if the file cannot be opened; DataError, naming file, record and offset, for a header that is cut off,
  /// does not fit its checksum, or has records outside of the file. Memory is taken for as many records as the file
  /// can hold.
  explicit RecordFile(const std::string& name);

  std::int64_t size() const { return static_cast<std::int64_t>(checksums_.size()); }
  std::uint64_t file_bytes() const { return file_->size(); }
  std::uint64_t offset(std::int64_t record) const { return offsets_[static_cast<std::size_t>(record)]; }
  std::uint64_t bytes(std::int64_t record) const { return offset(record + 1) - offset(record); }
  std::uint32_t checksum(std::int64_t record) const { return checksums_[static_cast<std::size_t>(record)]; }
  /// "FILE: record 3 at offset 120", for messages.
  std::string place(std::int64_t record) const;
  /// Puts the record into `content`, whose memory is used again. DataError, naming file, record and offset, if it does
  /// not fit its checksum, is no longer there, or is larger than a record may be; OutOfMemory if it is larger than the
  /// memory that is free.
  void read(std::int64_t record, std::vector<std::uint8_t>& content) const;
  /// Says that the record is read soon.
  void read_ahead(std::int64_t record) const { file_->read_ahead(offset(record), bytes(record)); }
  /// Adds the header to `digest`, and with it the checksum of every record.
  void identify(Sha256& digest) const;

 private:
  SourceFilePointer file_;
  std::vector<std::uint32_t> checksums_;
  std::vector<std::uint64_t> offsets_;  // one more than records: the end
};

}  // namespace hearth::data
