// SPDX-License-Identifier: Apache-2.0
#include "data/source/checked_blocks.h"

#include <algorithm>

#include "core/error.h"
#include "core/io/checksum.h"

namespace hearth::data {

std::vector<std::uint32_t> CheckedBlocks::checksums_of(std::span<const std::byte> bytes) {
  std::vector<std::uint32_t> checksums;
  for (std::uint64_t at = 0; at < bytes.size(); at += block_bytes)
    checksums.push_back(crc32c(bytes.subspan(at, std::min(block_bytes, bytes.size() - at))));
  return checksums;
}

CheckedBlocks::CheckedBlocks(SourceFilePointer file, std::uint64_t offset, std::uint64_t bytes,
                             std::vector<std::uint32_t> checksums)
    : file_(std::move(file)),
      offset_(offset),
      bytes_(bytes),
      checksums_(std::move(checksums)),
      is_checked_(checksums_.size()) {
  HEARTH_CHECK(InternalError, checksums_.size() == count_of(bytes), file_->name(), ": ", checksums_.size(),
               " checksums for ", count_of(bytes), " blocks");
}

std::uint64_t CheckedBlocks::size_of_block(std::uint64_t block) const {
  return std::min(block_bytes, bytes_ - block * block_bytes);
}

void CheckedBlocks::read_checked(std::uint64_t block, std::vector<std::byte>& content) const {
  const std::uint64_t offset = offset_ + block * block_bytes;
  content.resize(size_of_block(block));
  file_->read(offset, content);
  HEARTH_CHECK(DataError, crc32c(content) == checksums_[block], file_->name(), ": the ", content.size(),
               " bytes at offset ", offset, " are damaged: they do not fit their checksum; use another copy");
  is_checked_[block].store(true, std::memory_order_relaxed);
}

void CheckedBlocks::read(std::uint64_t at, std::span<std::byte> target) const {
  HEARTH_CHECK(InternalError, at <= bytes_ && target.size() <= bytes_ - at, file_->name(), ": bytes ", at, " to ",
               at + target.size(), " of ", bytes_);
  std::vector<std::byte> content;
  while (!target.empty()) {
    const std::uint64_t block = at / block_bytes, begin = at % block_bytes;
    const auto part = target.first(std::min<std::uint64_t>(target.size(), size_of_block(block) - begin));
    if (is_checked_[block].load(std::memory_order_relaxed)) {
      file_->read(offset_ + at, part);
    } else {
      // What was compared is what is handed out.
      read_checked(block, content);
      std::copy_n(content.data() + begin, part.size(), part.data());
    }
    at += part.size();
    target = target.subspan(part.size());
  }
}

void CheckedBlocks::verify() const {
  std::vector<std::byte> content;
  for (std::uint64_t block = 0; block < checksums_.size(); ++block) read_checked(block, content);
}

}  // namespace hearth::data
