// SPDX-License-Identifier: Apache-2.0
// Reading and inflating files.
#include "hearth/data/source_bytes.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "hearth/core/build.h"
#include "hearth/core/error.h"

#if HEARTH_HAS_ZLIB
#include <zlib.h>
#endif

namespace hearth::data {

void read_bytes(const std::string& path, std::vector<std::uint8_t>& bytes) {
  const auto close = [](std::FILE* open) { std::fclose(open); };
  const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "rb"), close);
  HEARTH_CHECK(FileError, file != nullptr, path, ": cannot be opened: ", std::strerror(errno));
  bytes.clear();
  std::size_t used = 0;
  bytes.resize(std::size_t{1} << 16);
  while (true) {
    const std::size_t got = std::fread(bytes.data() + used, 1, bytes.size() - used, file.get());
    used += got;
    if (got == 0) break;
    if (used == bytes.size()) bytes.resize(bytes.size() * 2);
  }
  HEARTH_CHECK(FileError, std::ferror(file.get()) == 0, path, ": cannot be read: ", std::strerror(errno));
  bytes.resize(used);
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
}  // namespace

std::vector<std::uint8_t> inflate_gzip(std::span<const std::uint8_t> bytes, const std::string& name,
                                       std::uint64_t max_bytes) {
  HEARTH_CHECK(DataError, bytes.size() <= UINT32_MAX, name, ": compressed files above 4 GiB are not read: unpack it");
  Inflater inflater(name);
  z_stream& stream = inflater.stream;
  stream.next_in = const_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::vector<std::uint8_t> result;
  std::size_t used = 0;
  while (true) {
    if (used == result.size()) {
      HEARTH_CHECK(DataError, used < max_bytes, name, ": inflates to more than ", max_bytes, " bytes");
      const std::size_t grown = std::max<std::size_t>(result.size() * 2, std::size_t{1} << 20);
      result.resize(std::min<std::uint64_t>(grown, max_bytes));
    }
    const std::size_t room = std::min<std::size_t>(result.size() - used, UINT32_MAX);
    stream.next_out = result.data() + used;
    stream.avail_out = static_cast<uInt>(room);
    const int status = inflate(&stream, Z_NO_FLUSH);
    used += room - stream.avail_out;
    if (status == Z_STREAM_END) {
      if (stream.avail_in == 0) break;
      HEARTH_CHECK(DataError, inflateReset(&stream) == Z_OK, name, ": zlib cannot continue");
      continue;
    }
    HEARTH_CHECK(DataError, status == Z_OK || (status == Z_BUF_ERROR && stream.avail_out == 0), name,
                 ": damaged gzip data after ", stream.total_out,
                 " bytes: ", stream.msg != nullptr ? stream.msg : "the file ends in the middle of the stream");
  }
  result.resize(used);
  return result;
}
#else
std::vector<std::uint8_t> inflate_gzip(std::span<const std::uint8_t>, const std::string& name, std::uint64_t) {
  throw DataError(name + ": this build of Hearth has no zlib: unpack the file, or install zlib1g-dev and build again");
}
#endif

std::vector<std::uint8_t> read_maybe_gzip(const std::string& path, std::uint64_t max_bytes) {
  std::vector<std::uint8_t> bytes;
  read_bytes(path, bytes);
  const bool is_gzip = bytes.size() > 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
  return is_gzip ? inflate_gzip(bytes, path, max_bytes) : bytes;
}

}  // namespace hearth::data
