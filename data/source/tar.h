// SPDX-License-Identifier: Apache-2.0
// Tar archives (POSIX.1-2001, "pax"; ustar and the long names of GNU tar too), plain ones, whose members can be read by
// position.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "data/source/file_window.h"
#include "data/source/part_file.h"

namespace hearth::data {

/// A regular file in an archive, or a link to one before it.
struct TarMember {
  std::string name;
  std::uint64_t header = 0;  ///< offset of its header
  std::uint64_t offset = 0;  ///< of its bytes; of a link, those of the file that it names
  std::uint64_t bytes = 0;
};

/// Calls `visit` for each regular file of an archive and each link to one before it, in order; directories are passed
/// over. Reads headers, through `window`, which is of the same file, and the zeros behind the end. DataError, naming
/// file, member and offset, for a header that does not fit its checksum, a size beyond the end of the file, an archive
/// without its end, something else than zeros, or more than 1 MiB of them, behind that, links to what is no file before
/// them, sparse members, devices, types that are not known, and names longer than any system's; for compressed
/// archives, with the remedy.
void scan_tar(const SourceFile& file, FileWindow& window, const std::function<void(const TarMember&)>& visit);

/// Writes an archive in the format of ustar, to PATH.part, which becomes PATH when all of it is on the disk. The same
/// members give the same bytes.
class TarWriter {
 public:
  /// FileError if the file cannot be made.
  explicit TarWriter(std::filesystem::path path) : file_(std::move(path)) {}
  /// UsageError for a name of more than 100 bytes or a member of 8 GiB; FileError if it cannot be written.
  void add(std::string_view name, std::span<const std::byte> bytes);
  void finish();

 private:
  PartFile file_;
};

}  // namespace hearth::data
