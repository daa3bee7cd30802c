// SPDX-License-Identifier: Apache-2.0
// Reads zip archives whose entries are stored, not compressed, as PyTorch writes them.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/io/file.h"

namespace hearth::models {

/// An archive, with or without the fields of zip64. The directory at its end is checked in full: afterwards
/// every entry lies inside the file, and all together are no larger than it. FileError "<path>: ..." for an archive
/// that is damaged, encrypted or compressed.
class StoredZip {
 public:
  explicit StoredZip(const std::filesystem::path& path);
  /// Whether the file begins as an archive does.
  static bool is_zip(std::span<const std::byte> bytes);

  const std::filesystem::path& path() const { return file_.path(); }
  std::uint64_t size() const { return file_.size(); }
  /// Where the bytes of an entry are.
  struct Entry {
    std::uint64_t begin = 0;
    std::uint64_t size = 0;
    std::uint32_t crc32 = 0;
  };
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }
  /// The bytes of an entry, compared with its checksum. FileError if they are damaged, more than `limit`, or there is
  /// no such entry; OutOfMemory if they do not fit.
  std::vector<std::byte> read(const std::string& name, ReadLimit limit) const;

 private:
  std::uint64_t number(std::uint64_t at, int bytes) const;
  void require_bytes(std::uint64_t at, std::uint64_t count) const;
  std::vector<std::byte> bytes_at(std::uint64_t at, std::uint64_t count) const;
  void read_directory();
  std::uint64_t read_entry(std::uint64_t at);
  [[noreturn]] void fail(const std::string& what) const;

  FileReader file_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace hearth::models
