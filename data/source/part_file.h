// SPDX-License-Identifier: Apache-2.0
// A file that is written from its beginning to its end and has its name only when it is whole.
#pragma once

#include <filesystem>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "core/io/file.h"

namespace hearth::data {

class PartFile {
 public:
  /// Begins PATH.part. FileError if it cannot be made.
  explicit PartFile(std::filesystem::path path)
      : path_(std::move(path)), part_(path_.string() + ".part"), file_(part_, FileWriter::Mode::truncate) {}
  /// Removes PATH.part of a file that was not finished.
  ~PartFile() {
    std::error_code ignored;
    if (file_.is_open()) std::filesystem::remove(part_, ignored);
  }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  /// Held back until there is enough for a write. FileError if that fails.
  void append(std::span<const std::byte> bytes) {
    pending_.insert(pending_.end(), bytes.begin(), bytes.end());
    constexpr std::size_t enough = std::size_t{1} << 18;
    if (pending_.size() >= enough) flush();
  }
  /// Everything is made durable, and PATH.part becomes PATH.
  void finish() {
    flush();
    file_.sync();
    file_.close();
    std::error_code fault;
    std::filesystem::rename(part_, path_, fault);
    HEARTH_CHECK(FileError, !fault, path_.string(), ": writing failed: ", fault.message());
    sync_directory(path_.has_parent_path() ? path_.parent_path() : ".");
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  void flush() {
    file_.append(pending_);
    pending_.clear();
  }

  std::filesystem::path path_;
  std::filesystem::path part_;
  FileWriter file_;
  std::vector<std::byte> pending_;
};

}  // namespace hearth::data
