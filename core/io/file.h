// SPDX-License-Identifier: Apache-2.0
// Files as the rest of the library uses them: read whole, read by position, appended to, or replaced so that after a
// crash the name leads to the old bytes or to the new ones, never to a mixture. What is read is a regular file; pipes,
// devices and directories are refused without opening them, so that no name can block or never end. A process that
// comes near its limit of open files raises it to the hard one (`ulimit -Hn`).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/error.h"

namespace hearth {

/// Takes bytes that are given part by part.
using ByteSink = std::function<void(std::span<const std::byte>)>;

/// The bytes of a text, for the functions below.
inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

/// The most bytes that a caller takes, and what it takes them for: a plural with which a message goes on.
struct ReadLimit {
  std::uint64_t bytes;
  const char* what;
};
/// Limit of the small files that Hearth writes for itself.
inline constexpr ReadLimit small_file{std::uint64_t{16} << 20, "such files"};

/// All bytes of a regular file. FileError names the path and the reason; a file of more bytes than `limit` is refused
/// unread. OutOfMemory if it is larger than the memory that is free.
HEARTH_API std::vector<std::byte> read_file(const std::filesystem::path& path, ReadLimit limit = small_file);
/// The same as text, unchanged.
HEARTH_API std::string read_text(const std::filesystem::path& path, ReadLimit limit = small_file);
/// What is left of a stream. FileError, naming `source`, if that is more than `limit` or cannot be read.
HEARTH_API std::string read_stream(std::istream& stream, const std::string& source, ReadLimit limit);
/// FileError, naming `source`, if `bytes` are more than the limit; OutOfMemory if they are more than the memory that is
/// free.
HEARTH_API void require_readable_size(const std::string& source, std::uint64_t bytes, ReadLimit limit);

/// Replaces `path` by the concatenation of `parts`: written to a temporary sibling, synced, renamed, directory synced.
/// FileError if it cannot be; then `path` is as before and the sibling is gone, unless it was the directory that could
/// not be synced: then `path` has the new bytes, and a crash may bring the old ones back. When space ran out the
/// message has the bytes needed and the bytes free on that file system.
HEARTH_API void write_file_synced(const std::filesystem::path& path, std::span<const std::span<const std::byte>> parts);
HEARTH_API void write_file_synced(const std::filesystem::path& path, std::span<const std::byte> bytes);
/// The same with `size` bytes in all that `give` passes to its argument, part by part. What it throws ends the writing.
HEARTH_API void write_file_synced(const std::filesystem::path& path, std::uint64_t size,
                                  const std::function<void(const ByteSink&)>& give);
HEARTH_API void write_file_synced(const std::filesystem::path& path, std::string_view text);

/// Makes the entries of a directory durable (names created, renamed and removed in it).
HEARTH_API void sync_directory(const std::filesystem::path& directory);
/// Makes the bytes of a file durable.
HEARTH_API void sync_file(const std::filesystem::path& path);

/// An error of the system in words, with what to do about those of shares and disks.
HEARTH_API std::string reason_of(const std::error_code& error);

/// True if the path leads to a file of any kind or a directory; FileError if that cannot be told.
HEARTH_API bool file_exists(const std::filesystem::path& path);
/// Bytes of a regular file.
HEARTH_API std::uint64_t size_of_file(const std::filesystem::path& path);
/// Names (not paths) in a directory, sorted; FileError if it cannot be read.
HEARTH_API std::vector<std::string> list_directory(const std::filesystem::path& directory);
/// Removes a file, a link or a directory with all that is in it; nothing where there is none. FileError if it cannot
/// be.
HEARTH_API void remove_tree(const std::filesystem::path& path);
/// Makes the directory and those above it. FileError if one cannot be made. Directories and files are made with the
/// modes 0755 and 0644 or, as the umask says, fewer permissions.
HEARTH_API void make_directories(const std::filesystem::path& directory);

/// A file that grows: records of a log. Every append reaches the operating system before it returns.
class HEARTH_API FileWriter {
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

/// A regular file that is read by position, by several threads at once if need be. Replacing the file by a rename is
/// harmless; a file that becomes shorter is a FileError where bytes are missing, never a signal as with a mapping.
class HEARTH_API FileReader {
 public:
  /// FileError if the file cannot be opened or is no regular file.
  explicit FileReader(std::filesystem::path path);
  ~FileReader();
  FileReader(FileReader&& other) noexcept;
  FileReader& operator=(FileReader&& other) noexcept;

  /// Fills `target` with the bytes from `offset` on. FileError, naming the offset, if they cannot all be read.
  void read(std::uint64_t offset, std::span<std::byte> target) const;
  /// Has the system read these bytes to its memory, and does not wait for them. A courtesy: nothing but time is lost
  /// where it does not.
  void read_ahead(std::uint64_t offset, std::uint64_t bytes) const;
  /// Bytes of the file when it was opened.
  std::uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace hearth
