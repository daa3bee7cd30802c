// SPDX-License-Identifier: Apache-2.0
#include "data/source/tfrecord.h"

#include "core/error.h"
#include "core/io/checksum.h"
#include "core/io/file.h"
#include "data/source/little_endian.h"

namespace hearth::data {
namespace {

constexpr ReadLimit tfrecord_limit{std::uint64_t{1} << 30, "records"};

std::uint32_t masked(std::uint32_t checksum) { return (checksum >> 15 | checksum << 17) + 0xa282ead8u; }

}  // namespace

void scan_tfrecord(const SourceFile& file, FileWindow& window, const std::function<void(const TfRecord&)>& visit) {
  std::uint64_t at = 0;
  for (std::int64_t number = 0; at < file.size(); ++number) {
    const auto place = [&] { return join_text(file.name(), ": record ", number, " at offset ", at, ": "); };
    const std::uint64_t left = file.size() - at;
    HEARTH_CHECK(DataError, left >= TfRecord::header_bytes, place(), "the last ", left,
                 " bytes are too few for a record: the file was cut off");
    const auto header = window.at(at, TfRecord::header_bytes);
    const auto bytes = from_little_endian<std::uint64_t>(header, 0);
    const bool is_sound = masked(crc32c(header.first(8))) == from_little_endian<std::uint32_t>(header, 8);
    const bool is_gzip = at == 0 && header[0] == std::byte{0x1f} && header[1] == std::byte{0x8b};
    HEARTH_CHECK(DataError, is_sound || !is_gzip, file.name(),
                 ": a compressed file: its records cannot be found without reading all of it; unpack it by gunzip");
    HEARTH_CHECK(DataError, is_sound, place(),
                 "its length does not fit its checksum: the file is damaged, or no TFRecord file");
    HEARTH_CHECK(DataError, bytes <= tfrecord_limit.bytes, place(), bytes, " bytes; at most ", tfrecord_limit.bytes,
                 " are read");
    HEARTH_CHECK(DataError, bytes + TfRecord::header_bytes + 4 <= left, place(), bytes,
                 " bytes go beyond the end of the file at ", file.size(), ": the file was cut off");
    TfRecord record{at, bytes, 0};
    record.checksum = from_little_endian<std::uint32_t>(window.at(record.begin() + bytes, 4), 0);
    visit(record);
    at = record.begin() + bytes + 4;
  }
}

void read_tfrecord(const SourceFile& file, const TfRecord& record, const std::string& place,
                   std::vector<std::uint8_t>& content) {
  require_readable_size(file.name(), record.bytes, tfrecord_limit);
  content.resize(record.bytes);
  const auto target = std::as_writable_bytes(std::span(content));
  try {
    file.read(record.begin(), target);
  } catch (const FileError& error) {
    throw DataError(join_text(place, ": ", error.what()));
  }
  HEARTH_CHECK(DataError, masked(crc32c(target)) == record.checksum, place, ": its ", content.size(),
               " bytes do not fit their checksum: the file is damaged");
}

void TfRecordWriter::add(std::span<const std::byte> record) {
  const std::uint64_t length[] = {record.size()};
  const auto front = little_endian(length);
  const std::uint32_t of_length[] = {masked(crc32c(front))}, of_record[] = {masked(crc32c(record))};
  file_.append(front);
  file_.append(little_endian(of_length));
  file_.append(record);
  file_.append(little_endian(of_record));
}

}  // namespace hearth::data
