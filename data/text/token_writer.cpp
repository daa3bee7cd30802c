// SPDX-License-Identifier: Apache-2.0
#include "data/text/token_writer.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "core/error.h"
#include "core/io/checksum.h"
#include "data/source/checked_blocks.h"

namespace hearth::data {

TokenWriter::TokenWriter(std::string path, std::int64_t vocabulary, std::string digest)
    : path_(std::move(path)),
      file_(path_ + ".part", FileWriter::Mode::truncate),
      meaning_{vocabulary, 0, std::move(digest)} {
  const std::vector<std::byte> blank(Tokens::header_bytes);
  file_.append(blank);
}

TokenWriter::~TokenWriter() {
  if (finished_) return;
  std::error_code ignored;
  std::filesystem::remove(path_ + ".part", ignored);
}

void TokenWriter::append(std::span<const std::int32_t> ids) {
  const auto bytes_an_id = static_cast<std::size_t>(width());
  std::byte packed[1024 * sizeof(std::int32_t)];
  for (std::size_t first = 0; first < ids.size(); first += 1024) {
    const std::size_t count = std::min<std::size_t>(1024, ids.size() - first);
    for (std::size_t i = 0; i < count; ++i) std::memcpy(packed + i * bytes_an_id, &ids[first + i], bytes_an_id);
    put(std::span(packed).first(count * bytes_an_id));
  }
  size_ += ids.size();
}

void TokenWriter::put(std::span<const std::byte> bytes) {
  bytes_ += bytes.size();
  while (!bytes.empty()) {
    const std::size_t count = std::min<std::size_t>(bytes.size(), CheckedBlocks::block_bytes - block_.size());
    block_.insert(block_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
    bytes = bytes.subspan(count);
    if (block_.size() == CheckedBlocks::block_bytes) write_block();
  }
}

void TokenWriter::write_block() {
  checksums_.push_back(crc32c(block_));
  file_.append(block_);
  block_.clear();
}

void TokenWriter::finish() {
  const std::byte zeros[8]{};
  put(std::span(zeros).first((8 - bytes_ % 8) % 8));
  put(std::as_bytes(std::span(ends_)));
  if (!block_.empty()) write_block();
  file_.append(std::as_bytes(std::span(checksums_)));
  const std::string written = file_.path().string();
  file_.close();
  const std::vector<std::byte> header =
      Tokens::header_of(meaning_, size_, ends_.size(), crc32c(std::as_bytes(std::span(checksums_))));
  std::fstream front(written, std::ios::in | std::ios::out | std::ios::binary);
  front.write(reinterpret_cast<const char*>(header.data()), static_cast<std::streamsize>(header.size()));
  front.close();
  HEARTH_CHECK(FileError, !front.fail(), written, ": its header cannot be written");
  sync_file(written);
  std::error_code error;
  std::filesystem::rename(written, path_, error);
  HEARTH_CHECK(FileError, !error, written, ": cannot be renamed to ", path_, ": ", error.message());
  finished_ = true;
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  sync_directory(folder.empty() ? "." : folder);
}

}  // namespace hearth::data
