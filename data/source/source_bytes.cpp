// SPDX-License-Identifier: Apache-2.0
// Reading and inflating files.
#include "data/source/source_bytes.h"

#include <algorithm>

#include "core/build.h"
#include "core/error.h"
#include "data/source/file_opener.h"

#if HEARTH_HAS_ZLIB
#include <zlib.h>
#endif

namespace hearth::data {

namespace {
bool is_gzip(std::span<const std::uint8_t> bytes) { return bytes.size() > 2 && bytes[0] == 0x1f && bytes[1] == 0x8b; }

/// The first bytes of a file, at most `count`.
std::vector<std::uint8_t> front_of(const SourceFile& file, std::uint64_t count) {
  std::vector<std::uint8_t> bytes(std::min(file.size(), count));
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}
}  // namespace

void read_bytes(const SourceFile& file, std::vector<std::uint8_t>& bytes, ReadLimit limit) {
  require_readable_size(file.name(), file.size(), limit);
  bytes.resize(file.size());
  file.read(0, std::as_writable_bytes(std::span(bytes)));
}

void read_bytes(const std::string& name, std::vector<std::uint8_t>& bytes, ReadLimit limit) {
  read_bytes(*open_source(name), bytes, limit);
}

std::string read_source_text(const std::string& name, ReadLimit limit) {
  const SourceFilePointer file = open_source(name);
  require_readable_size(name, file->size(), limit);
  std::string text(file->size(), '\0');
  file->read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

Json read_manifest_json(const std::string& name) {
  return parse_json(read_source_text(name, {std::uint64_t{1} << 26, "manifests"}), name);
}

#if HEARTH_HAS_ZLIB
namespace {
struct Inflater {
  z_stream stream{};
  // 16 asks zlib for the gzip wrapper, whose checksum it then verifies.
  explicit Inflater(const std::string& name) {
    HEARTH_CHECK(DataError, inflateInit2(&stream, 16 + MAX_WBITS) == Z_OK, name, ": zlib cannot start");
  }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
};

/// Inflates the members of `bytes` one after the other; `next(done)` gives memory for what follows the first `done`
/// bytes, or none to stop. Returns how many bytes there are; DataError if they are more than `most`.
template <class Next>
std::uint64_t inflate_members(std::span<const std::uint8_t> bytes, const std::string& name, std::uint64_t most,
                              Next&& next) {
  HEARTH_CHECK(DataError, bytes.size() <= UINT32_MAX, name, ": compressed files above 4 GiB are not read: unpack it");
  Inflater inflater(name);
  z_stream& stream = inflater.stream;
  stream.next_in = const_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::uint64_t done = 0;
  while (true) {
    const std::span<std::uint8_t> room = next(done);
    if (room.empty()) return done;
    const auto given = static_cast<uInt>(std::min<std::size_t>(room.size(), UINT32_MAX));
    stream.next_out = room.data();
    stream.avail_out = given;
    const int status = inflate(&stream, Z_NO_FLUSH);
    done += given - stream.avail_out;
    HEARTH_CHECK(DataError, done <= most, name, ": ", bytes.size(), " bytes inflate to more than ", most,
                 " bytes; unpack the file if that is no mistake");
    if (status == Z_STREAM_END) {
      // Zeros fill the last block of a tape or a disk, as gzip has it too.
      const std::span rest(stream.next_in, stream.avail_in);
      if (std::ranges::all_of(rest, [](Bytef byte) { return byte == 0; })) return done;
      HEARTH_CHECK(DataError, inflateReset(&stream) == Z_OK, name, ": zlib cannot continue");
      continue;
    }
    HEARTH_CHECK(DataError, status == Z_OK || (status == Z_BUF_ERROR && stream.avail_out == 0), name,
                 ": damaged gzip data after ", stream.total_out,
                 " bytes: ", stream.msg != nullptr ? stream.msg : "the file ends in the middle of the stream");
  }
}

std::vector<std::uint8_t> inflate_front(std::span<const std::uint8_t> bytes, const std::string& name,
                                        std::size_t count) {
  std::vector<std::uint8_t> front(count);
  front.resize(inflate_members(bytes, name, count, [&](std::uint64_t done) { return std::span(front).subspan(done); }));
  return front;
}
}  // namespace

std::vector<std::uint8_t> inflate_gzip(std::span<const std::uint8_t> bytes, const std::string& name, ReadLimit limit) {
  // Few datasets shrink to a hundredth; what was made to fill a memory does.
  constexpr std::uint64_t unsuspicious = std::uint64_t{64} << 20, max_ratio = 100;
  const std::uint64_t most = std::min(limit.bytes, std::max(unsuspicious, max_ratio * bytes.size()));
  std::vector<std::uint8_t> result(std::size_t{1} << 16);
  const std::uint64_t size = inflate_members(bytes, name, most, [&](std::uint64_t) { return std::span(result); });
  require_readable_size(name, size, limit);
  result.resize(size + 1);  // the end is told when there is still room
  inflate_members(bytes, name, size, [&](std::uint64_t done) { return std::span(result).subspan(done); });
  result.resize(size);
  return result;
}
#else
namespace {
std::vector<std::uint8_t> inflate_front(std::span<const std::uint8_t> bytes, const std::string& name, std::size_t) {
  return inflate_gzip(bytes, name, small_file);
}
}  // namespace

std::vector<std::uint8_t> inflate_gzip(std::span<const std::uint8_t>, const std::string& name, ReadLimit) {
  throw DataError(name + ": this build of Hearth has no zlib: unpack the file, or install zlib1g-dev and build again");
}
#endif

std::vector<std::uint8_t> read_front(const std::string& path, std::size_t count) {
  // Of a header with a long file name, too, enough to inflate something of what follows.
  std::vector<std::uint8_t> bytes = front_of(*open_source(path), count + (std::size_t{1} << 16));
  if (is_gzip(bytes)) return inflate_front(bytes, path, count);
  bytes.resize(std::min(bytes.size(), count));
  return bytes;
}

std::vector<std::uint8_t> read_maybe_gzip(const std::string& path, ReadLimit limit) {
  const SourceFilePointer file = open_source(path);
  const bool packed = is_gzip(front_of(*file, 3));
  std::vector<std::uint8_t> bytes;
  // What does not shrink grows by a little, and by a header with a name.
  read_bytes(*file, bytes, packed ? ReadLimit{limit.bytes + limit.bytes / 1000 + (1 << 16), limit.what} : limit);
  return packed ? inflate_gzip(bytes, path, limit) : bytes;
}

}  // namespace hearth::data
