// SPDX-License-Identifier: Apache-2.0
// The directory at the end of the archive says where members are.
#include "data/table/zip.h"

#include <algorithm>
#include <optional>
#include <span>

#include "core/build.h"
#include "core/error.h"
#include "core/io/checksum.h"
#include "data/source/little_endian.h"

#if HEARTH_HAS_ZLIB
#include <zlib.h>
#endif

namespace hearth::data {
namespace {

constexpr std::uint32_t end_mark = 0x06054b50, end64_mark = 0x06064b50, entry_mark = 0x02014b50,
                        local_mark = 0x04034b50;
constexpr ReadLimit directory_limit{std::uint64_t{64} << 20, "directories of archives"};

using Bytes = std::vector<std::byte>;

struct Entry {
  std::string name;
  std::uint16_t flags = 0, method = 0;
  std::uint32_t checksum = 0;
  std::uint64_t packed = 0, bytes = 0, offset = 0;
};

class Archive {
 public:
  explicit Archive(const std::string& path) : file_(path), path_(path) { read_directory(); }

  const std::vector<Entry>& entries() const { return entries_; }

  /// The bytes of an entry as they are packed.
  Bytes packed(const Entry& entry) const {
    const Bytes local = part(entry.offset, 30);
    require(from_little_endian<std::uint32_t>(local, 0) == local_mark, entry.offset);
    const std::uint64_t begin =
        entry.offset + 30 + from_little_endian<std::uint16_t>(local, 26) + from_little_endian<std::uint16_t>(local, 28);
    return part(begin, entry.packed);
  }

 private:
  void require(bool sound, std::uint64_t offset) const {
    HEARTH_CHECK(DataError, sound, path_, ": at offset ", offset, ": a damaged ZIP archive, or none");
  }
  Bytes part(std::uint64_t offset, std::uint64_t count) const {
    require(offset <= file_.size() && count <= file_.size() - offset, offset);
    Bytes bytes(count);
    file_.read(offset, bytes);
    return bytes;
  }

  void read_directory() {
    // Behind the end there may be a comment of up to 64 KiB.
    const std::uint64_t tail = std::min<std::uint64_t>(file_.size(), 22 + 65535);
    const Bytes last = part(file_.size() - tail, tail);
    std::optional<std::size_t> found;
    for (std::size_t at = last.size() >= 22 ? last.size() - 22 + 1 : 0; at-- > 0 && !found;)
      if (from_little_endian<std::uint32_t>(last, at) == end_mark) found = at;
    require(found.has_value(), file_.size());
    const std::uint64_t end = file_.size() - tail + *found;
    std::uint64_t count = from_little_endian<std::uint16_t>(last, *found + 10);
    std::uint64_t bytes = from_little_endian<std::uint32_t>(last, *found + 12);
    std::uint64_t offset = from_little_endian<std::uint32_t>(last, *found + 16);
    if (count == 0xffff || bytes == 0xffffffff || offset == 0xffffffff) {
      require(end >= 20, end);
      const Bytes locator = part(end - 20, 20);
      const Bytes large = part(from_little_endian<std::uint64_t>(locator, 8), 56);
      require(from_little_endian<std::uint32_t>(large, 0) == end64_mark, end);
      count = from_little_endian<std::uint64_t>(large, 32);
      bytes = from_little_endian<std::uint64_t>(large, 40);
      offset = from_little_endian<std::uint64_t>(large, 48);
    }
    require_readable_size(path_, bytes, directory_limit);
    const Bytes directory = part(offset, bytes);
    std::size_t at = 0;
    for (std::uint64_t i = 0; i < count; ++i) at = read_entry(directory, at, offset);
  }

  std::size_t read_entry(const Bytes& directory, std::size_t at, std::uint64_t offset) {
    require(directory.size() - at >= 46 && from_little_endian<std::uint32_t>(directory, at) == entry_mark, offset + at);
    const auto u16 = [&](std::size_t i) { return from_little_endian<std::uint16_t>(directory, at + i); };
    const auto u32 = [&](std::size_t i) { return from_little_endian<std::uint32_t>(directory, at + i); };
    const std::size_t name = u16(28), extra = u16(30), comment = u16(32), length = 46 + name + extra + comment;
    require(directory.size() - at >= length, offset + at);
    Entry entry{{}, u16(8), u16(10), u32(16), u32(20), u32(24), u32(42)};
    entry.name.assign(reinterpret_cast<const char*>(directory.data()) + at + 46, name);
    widen(entry, std::span(directory).subspan(at + 46 + name, extra), offset + at);
    entries_.push_back(std::move(entry));
    return at + length;
  }

  /// Sizes that do not fit into 32 bits are in the extra field 1, those that need it in this order.
  void widen(Entry& entry, std::span<const std::byte> extra, std::uint64_t offset) const {
    while (extra.size() >= 4) {
      const std::size_t length = from_little_endian<std::uint16_t>(extra, 2);
      require(length + 4 <= extra.size(), offset);
      if (from_little_endian<std::uint16_t>(extra, 0) == 1) {
        std::size_t at = 4;
        for (std::uint64_t* const value : {&entry.bytes, &entry.packed, &entry.offset}) {
          if (*value != 0xffffffff) continue;
          require(at + 8 <= length + 4, offset);
          *value = from_little_endian<std::uint64_t>(extra, at);
          at += 8;
        }
      }
      extra = extra.subspan(length + 4);
    }
  }

  FileReader file_;
  const std::string& path_;
  std::vector<Entry> entries_;
};

#if HEARTH_HAS_ZLIB
void inflate_into(const Bytes& packed, std::vector<std::uint8_t>& bytes, const std::string& place) {
  z_stream stream{};
  HEARTH_CHECK(DataError, inflateInit2(&stream, -MAX_WBITS) == Z_OK, place, ": zlib cannot start");
  struct Release {
    z_stream* stream;
    ~Release() { inflateEnd(stream); }
  } release{&stream};
  // In pieces, since zlib counts in 32 bits.
  constexpr std::size_t piece = std::size_t{1} << 30;
  std::size_t given = 0, taken = 0;
  int status = Z_OK;
  while (status == Z_OK) {
    const std::size_t in = std::min(piece, packed.size() - given), out = std::min(piece, bytes.size() - taken);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data())) + given;
    stream.avail_in = static_cast<uInt>(in);
    stream.next_out = bytes.data() + taken;
    stream.avail_out = static_cast<uInt>(out);
    status = inflate(&stream, Z_NO_FLUSH);
    given += in - stream.avail_in, taken += out - stream.avail_out;
    if (in == stream.avail_in && out == stream.avail_out) break;
  }
  HEARTH_CHECK(DataError, status == Z_STREAM_END && taken == bytes.size(), place, ": damaged deflate data");
}
#else
void inflate_into(const Bytes&, std::vector<std::uint8_t>&, const std::string& place) {
  throw DataError(place + ": this build of Hearth has no zlib: save it by numpy.savez, which does not compress");
}
#endif

}  // namespace

std::vector<std::string> zip_members(const std::string& path) {
  std::vector<std::string> names;
  const Archive archive(path);
  for (const Entry& entry : archive.entries()) names.push_back(entry.name);
  return names;
}

std::vector<std::uint8_t> read_zip_member(const std::string& path, const std::string& member, ReadLimit limit) {
  const Archive archive(path);
  const auto& entries = archive.entries();
  const auto found = std::ranges::find(entries, member, &Entry::name);
  if (found == entries.end()) {
    std::string known;
    for (const Entry& entry : entries) known += (known.empty() ? "" : ", ") + entry.name;
    throw DataError(join_text(path, ": has no \"", member, "\"; it has ", known));
  }
  const std::string place = join_text(path, ": ", member);
  HEARTH_CHECK(DataError, (found->flags & 1) == 0, place, ": is encrypted");
  HEARTH_CHECK(DataError, found->method == 0 || found->method == 8, place, ": compressed by method ", found->method,
               "; stored and deflated members are read");
  // Deflate makes at most 1,032 bytes of one.
  HEARTH_CHECK(DataError, found->bytes / 1032 <= found->packed, place, ": ", found->packed, " bytes cannot be packed ",
               found->bytes);
  require_readable_size(path, found->bytes, limit);
  const Bytes packed = archive.packed(*found);
  std::vector<std::uint8_t> bytes(found->bytes);
  if (found->method == 8) {
    inflate_into(packed, bytes, place);
  } else {
    HEARTH_CHECK(DataError, packed.size() == bytes.size(), place, ": two sizes of one stored member");
    std::ranges::transform(packed, bytes.begin(), [](std::byte byte) { return std::to_integer<std::uint8_t>(byte); });
  }
  HEARTH_CHECK(DataError, crc32(std::as_bytes(std::span(bytes))) == found->checksum, place,
               ": its bytes do not fit their checksum: the archive is damaged");
  return bytes;
}

}  // namespace hearth::data
