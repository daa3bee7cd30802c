// SPDX-License-Identifier: Apache-2.0
// Files as the rest of the library uses them: read whole, mapped, appended to, or replaced so that after a crash the
// name leads to the old bytes or to the new ones, never to a mixture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hearth/core/error.h"

namespace hearth {

/// The bytes of a text, for the functions below.
inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

/// All bytes of a regular file. FileError names the path and the reason.
std::vector<std::byte> read_file(const std::filesystem::path& path);
/// All bytes of a regular file as text, unchanged.
std::string read_text(const std::filesystem::path& path);

/// Replaces `path` by the concatenation of `parts`: written to a temporary sibling, synced, renamed, directory synced.
/// FileError if it cannot be; then `path` is as before and the sibling is gone, unless it was the directory that could
/// not be synced: then `path` has the new bytes, and a crash may bring the old ones back. When space ran out the
/// message has the bytes needed and the bytes free on that file system.
void write_file_synced(const std::filesystem::path& path, std::span<const std::span<const std::byte>> parts);
void write_file_synced(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_file_synced(const std::filesystem::path& path, std::string_view text);

/// Makes the entries of a directory durable (names created, renamed and removed in it).
void sync_directory(const std::filesystem::path& directory);
/// Makes the bytes of a file durable.
void sync_file(const std::filesystem::path& path);

/// True if the path leads to a file of any kind or a directory; FileError if that cannot be told.
bool file_exists(const std::filesystem::path& path);
/// Bytes of a regular file.
std::uint64_t size_of_file(const std::filesystem::path& path);
/// Names (not paths) in a directory, sorted; FileError if it cannot be read.
std::vector<std::string> list_directory(const std::filesystem::path& directory);
/// Makes the directory and those above it. FileError if one cannot be made.
void make_directories(const std::filesystem::path& directory);

/// A file that grows: records of a log. Every append reaches the operating system before it returns.
class FileWriter {
 public:
  enum class Mode : std::uint8_t { append, truncate };

  /// Creates the file where there is none. FileError if it cannot be opened.
  explicit FileWriter(std::filesystem::path path, Mode mode = Mode::append);
  /// Closes without a word; call close() to learn of errors.
  ~FileWriter();
  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&& other) noexcept;

  /// Adds the bytes at the end. FileError if they do not all fit: then the file is cut back, so that no torn record
  /// stays.
  void append(std::span<const std::byte> bytes);
  void append(std::string_view text) { append(bytes_of(text)); }
  /// Makes what was appended durable.
  void sync();
  /// Further calls but close() are UsageErrors.
  void close();

  bool is_open() const { return descriptor_ >= 0; }
  const std::filesystem::path& path() const { return path_; }
  /// Bytes in the file after the last append.
  std::uint64_t size() const { return size_; }

 private:
  void check_open() const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

/// A regular file in memory, read-only, paged in as it is touched. The file must not be shortened meanwhile: touching
/// a page that is gone ends the process, as with any mapping. Replacing the file by a rename is harmless.
class MappedFile {
 public:
  MappedFile() = default;
  /// FileError if the file cannot be opened or mapped.
  explicit MappedFile(std::filesystem::path path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

}  // namespace hearth
