// SPDX-License-Identifier: Apache-2.0
#include "data/source/record_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/io/checksum.h"
#include "core/io/descriptor.h"
#include "core/io/file.h"
#include "data/source/file_opener.h"
#include "data/source/little_endian.h"

namespace hearth::data {
namespace {

constexpr std::uint64_t fixed_bytes = 12;       // checksum and number of records
constexpr std::uint64_t bytes_per_record = 12;  // checksum and offset
constexpr ReadLimit record_limit{std::uint64_t{1} << 30, "records"};
constexpr ReadLimit header_limit{std::uint64_t{1} << 32, "headers of record files"};

std::uint64_t header_bytes(std::uint64_t records) { return fixed_bytes + bytes_per_record * records; }

/// All of the header behind its checksum.
std::vector<std::byte> header_of(std::span<const std::uint32_t> checksums, std::span<const std::uint64_t> offsets) {
  const std::int64_t count[] = {static_cast<std::int64_t>(checksums.size())};
  std::vector<std::byte> header = little_endian(count);
  for (const auto& part : {little_endian(checksums), little_endian(offsets)})
    header.insert(header.end(), part.begin(), part.end());
  return header;
}

[[noreturn]] void fail_write(const std::filesystem::path& path, int error) {
  throw FileError(join_text(path.string(), ": writing failed: ", std::generic_category().message(error)));
}

}  // namespace

RecordWriter::RecordWriter(std::filesystem::path path, std::int64_t records)
    : path_(std::move(path)),
      part_(path_.string() + ".part"),
      records_(records),
      end_(header_bytes(static_cast<std::uint64_t>(records))) {
  HEARTH_CHECK(UsageError, records >= 0, path_.string(), ": a file of ", records, " records; give 0 or more");
  descriptor_ = above_standard_streams(::open(part_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (descriptor_ < 0) fail_write(part_, errno);
}

RecordWriter::~RecordWriter() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(part_.c_str());
}

void RecordWriter::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail_write(part_, done < 0 ? errno : ENOSPC);
    offset += static_cast<std::uint64_t>(done);
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
}

void RecordWriter::add(std::initializer_list<std::span<const std::byte>> pieces) {
  HEARTH_CHECK(UsageError, static_cast<std::int64_t>(offsets_.size()) < records_, path_.string(), ": more than the ",
               records_, " records that were promised");
  offsets_.push_back(end_);
  std::uint32_t checksum = 0;
  for (const std::span<const std::byte> piece : pieces) {
    checksum = crc32(piece, checksum);
    write(end_, piece);
    end_ += piece.size();
  }
  checksums_.push_back(checksum);
}

void RecordWriter::finish() {
  HEARTH_CHECK(UsageError, static_cast<std::int64_t>(offsets_.size()) == records_, path_.string(), ": ",
               offsets_.size(), " records were added, ", records_, " were promised");
  const std::vector<std::byte> header = header_of(checksums_, offsets_);
  const std::uint32_t checksum[] = {crc32(header)};
  write(0, little_endian(checksum));
  write(sizeof(checksum), header);
  if (::fsync(descriptor_) != 0) fail_write(part_, errno);
  ::close(std::exchange(descriptor_, -1));
  if (::rename(part_.c_str(), path_.c_str()) != 0) fail_write(path_, errno);
  sync_directory(path_.has_parent_path() ? path_.parent_path() : ".");
}

RecordFile::RecordFile(const std::string& name) : file_(open_source(name)) {
  HEARTH_CHECK(DataError, file_->size() >= fixed_bytes, name, ": ", file_->size(),
               " bytes at offset 0; a record file has ", fixed_bytes, " at least");
  std::vector<std::byte> front(fixed_bytes);
  file_->read(0, front);
  const auto records = from_little_endian<std::uint64_t>(front, 4);
  HEARTH_CHECK(DataError, records <= (file_->size() - fixed_bytes) / bytes_per_record, name,
               ": the header at offset 4 ", "promises ", records, " records, more than ", file_->size(),
               " bytes can hold");
  require_readable_size(name, header_bytes(records), header_limit);
  std::vector<std::byte> header(header_bytes(records));
  file_->read(0, header);
  HEARTH_CHECK(DataError, crc32(std::span(header).subspan(4)) == from_little_endian<std::uint32_t>(header, 0), name,
               ": the header at offset 0 does not fit its checksum: the file is damaged, or no record file");
  for (std::size_t i = 0; i < records; ++i) {
    checksums_.push_back(from_little_endian<std::uint32_t>(header, fixed_bytes + 4 * i));
    offsets_.push_back(from_little_endian<std::uint64_t>(header, fixed_bytes + 4 * records + 8 * i));
  }
  offsets_.push_back(file_->size());
  HEARTH_CHECK(DataError, offsets_[0] == header.size(), name, ": ", records == 0 ? "the end" : "record 0",
               " is at offset ", offsets_[0], ", and the header ends at ", header.size());
  for (std::size_t i = 0; i < records; ++i)
    HEARTH_CHECK(DataError, offsets_[i] <= offsets_[i + 1], name, ": record ", i, " at offset ", offsets_[i],
                 " lies behind ", i + 1 < records ? "the next one" : "the end of the file", " at ", offsets_[i + 1]);
}

std::string RecordFile::place(std::int64_t record) const {
  return join_text(file_->name(), ": record ", record, " at offset ", offset(record));
}

void RecordFile::read(std::int64_t record, std::vector<std::uint8_t>& content) const {
  HEARTH_CHECK(IndexError, record >= 0 && record < size(), file_->name(), ": record ", record, " of ", size());
  HEARTH_CHECK(DataError, bytes(record) <= record_limit.bytes, place(record), ": ", bytes(record), " bytes; at most ",
               record_limit.bytes, " are read");
  require_readable_size(file_->name(), bytes(record), record_limit);
  content.resize(bytes(record));
  const std::span<std::byte> target = std::as_writable_bytes(std::span(content));
  try {
    file_->read(offset(record), target);
  } catch (const FileError& error) {
    throw DataError(join_text(place(record), ": ", error.what()));
  }
  HEARTH_CHECK(DataError, crc32(target) == checksum(record), place(record), ": its ", content.size(),
               " bytes do not fit their checksum: the file is damaged; pack it again");
}

void RecordFile::identify(Sha256& digest) const {
  digest.update(header_of(checksums_, std::span(offsets_).first(checksums_.size())));
}

}  // namespace hearth::data
