// SPDX-License-Identifier: Apache-2.0
// Source of the format: PKWARE's APPNOTE.TXT, 4.3 and 4.5.3.
#include "models/weights/stored_zip.h"

#include <algorithm>
#include <array>

#include "core/error.h"

namespace hearth::models {
namespace {

constexpr std::uint64_t end_size = 22, end64_size = 56, locator_size = 20, central_size = 46, local_size = 30;
constexpr std::uint64_t max_comment = 65535, max_entries = 1 << 20;
constexpr std::uint32_t local_mark = 0x04034b50, central_mark = 0x02014b50, end_mark = 0x06054b50,
                        end64_mark = 0x06064b50, locator_mark = 0x07064b50;
constexpr std::uint32_t in_extra = 0xffffffff;

/// The polynomial of zip, reflected.
std::uint32_t crc32(std::span<const std::byte> bytes) {
  static const std::array<std::uint32_t, 256> table = [] {
    std::array<std::uint32_t, 256> result{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0xedb88320 : 0);
      result[i] = value;
    }
    return result;
  }();
  std::uint32_t crc = 0xffffffff;
  for (const std::byte byte : bytes) crc = table[(crc ^ std::to_integer<std::uint32_t>(byte)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

}  // namespace

StoredZip::StoredZip(const std::filesystem::path& path) : file_(path) { read_directory(); }

bool StoredZip::is_zip(std::span<const std::byte> bytes) {
  static constexpr std::array<std::byte, 4> mark{std::byte{'P'}, std::byte{'K'}, std::byte{3}, std::byte{4}};
  return bytes.size() >= mark.size() && std::equal(mark.begin(), mark.end(), bytes.begin());
}

void StoredZip::fail(const std::string& what) const {
  throw FileError(join_text(path().string(), ": the archive ", what));
}

void StoredZip::require_bytes(std::uint64_t at, std::uint64_t count) const {
  if (at > size() || count > size() - at) fail(join_text("ends before byte ", at, " + ", count));
}

std::vector<std::byte> StoredZip::bytes_at(std::uint64_t at, std::uint64_t count) const {
  require_bytes(at, count);
  std::vector<std::byte> bytes(count);
  file_.read(at, bytes);
  return bytes;
}

/// Little-endian.
std::uint64_t StoredZip::number(std::uint64_t at, int bytes) const {
  const auto count = static_cast<std::uint64_t>(bytes);
  require_bytes(at, count);
  std::array<std::byte, 8> from;
  file_.read(at, std::span(from).first(count));
  std::uint64_t value = 0;
  for (int i = bytes; i-- > 0;) value = value << 8 | std::to_integer<std::uint64_t>(from[static_cast<std::size_t>(i)]);
  return value;
}

void StoredZip::read_directory() {
  const std::uint64_t total = size();
  if (total < end_size) fail("is too short");
  std::uint64_t end = total - end_size;
  const std::uint64_t first = end > max_comment ? end - max_comment : 0;
  while (number(end, 4) != end_mark || end + end_size + number(end + 20, 2) != total) {
    if (end == first) fail("has no directory at its end; it is damaged or was not written to the end");
    --end;
  }
  std::uint64_t count = number(end + 10, 2), at = number(end + 16, 4);
  if (end >= locator_size && number(end - locator_size, 4) == locator_mark) {
    const std::uint64_t end64 = number(end - locator_size + 8, 8);
    require_bytes(end64, end64_size);
    if (number(end64, 4) != end64_mark) fail("has a damaged zip64 directory");
    count = number(end64 + 32, 8);
    at = number(end64 + 48, 8);
  }
  if (count > max_entries) fail(join_text("claims ", count, " entries"));
  for (std::uint64_t i = 0; i < count; ++i) at = read_entry(at);
  std::uint64_t all = 0;
  for (const auto& [name, entry] : entries_) all += entry.size;  // each within the file, and not too many to add up
  if (all > total) fail("has entries that overlap");
}

/// Returns where the next one begins.
std::uint64_t StoredZip::read_entry(std::uint64_t at) {
  require_bytes(at, central_size);
  if (number(at, 4) != central_mark) fail(join_text("has no entry of its directory at byte ", at));
  const std::uint64_t flags = number(at + 8, 2), method = number(at + 10, 2);
  const std::uint64_t name_size = number(at + 28, 2), extra_size = number(at + 30, 2), comment = number(at + 32, 2);
  const std::vector<std::byte> text = bytes_at(at + central_size, name_size);
  const std::string name(reinterpret_cast<const char*>(text.data()), text.size());
  std::uint64_t packed = number(at + 20, 4), plain = number(at + 24, 4), local = number(at + 42, 4);
  // What does not fit 32 bits stands in the extra field 1, in this order.
  for (std::uint64_t extra = at + central_size + name_size, stop = extra + extra_size; extra + 4 <= stop;) {
    const std::uint64_t kind = number(extra, 2), length = number(extra + 2, 2);
    std::uint64_t next = extra + 4;
    for (std::uint64_t* const value : {&plain, &packed, &local})
      if (kind == 1 && *value == in_extra && next + 8 <= extra + 4 + length) *value = number(next, 8), next += 8;
    extra += 4 + length;
  }
  if ((flags & 1) != 0) fail("is encrypted");
  if (method != 0 || packed != plain) fail("is compressed; PyTorch stores tensors as they are");
  if (number(local, 4) != local_mark) fail(join_text("has no entry at byte ", local));
  const std::uint64_t data = local + local_size + number(local + 26, 2) + number(local + 28, 2);
  require_bytes(data, plain);
  const Entry entry{data, plain, static_cast<std::uint32_t>(number(at + 16, 4))};
  if (!entries_.emplace(name, entry).second) fail("has two entries of one name");
  return at + central_size + name_size + extra_size + comment;
}

std::vector<std::byte> StoredZip::read(const std::string& name, ReadLimit limit) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) fail(join_text("has no entry \"", name, "\""));
  require_readable_size(path().string() + ": " + name, found->second.size, limit);
  std::vector<std::byte> bytes = bytes_at(found->second.begin, found->second.size);
  if (crc32(bytes) != found->second.crc32) fail(join_text("is damaged in the entry \"", name, "\""));
  return bytes;
}

}  // namespace hearth::models
