// SPDX-License-Identifier: Apache-2.0
// Files that lie in memory, as a source of a program's own would have them elsewhere: it counts what is asked of it,
// and fails where it is told to.
#pragma once

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "data/source/source.h"

namespace hearth::test {

class MemorySource : public data::Source {
 public:
  using Bytes = std::vector<std::uint8_t>;

  /// Files by whole name; `folder` and all below it, as files below the name `root`.
  void put(const std::string& name, Bytes bytes) {
    const std::lock_guard lock(mutex_);
    files_[name] = std::make_shared<const Bytes>(std::move(bytes));
    ++versions_[name];
  }
  void put_folder(const std::filesystem::path& folder, const std::string& root) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file()) continue;
      std::ifstream in(entry.path(), std::ios::binary);
      put(root + "/" + entry.path().lexically_relative(folder).string(), Bytes(std::istreambuf_iterator<char>(in), {}));
    }
  }
  /// Reads of this file fail from now on, or do so no more.
  void fail(const std::string& name, bool fails = true) {
    const std::lock_guard lock(mutex_);
    fails ? static_cast<void>(failing_.insert(name)) : static_cast<void>(failing_.erase(name));
  }

  data::SourceFilePointer open(const std::string& name) const override {
    const std::lock_guard lock(mutex_);
    ++opened_[name];
    const auto found = files_.find(name);
    HEARTH_CHECK(FileError, found != files_.end(), name, ": no such file");
    return std::make_unique<const File>(*this, name, found->second, std::to_string(versions_.at(name)));
  }
  std::vector<data::SourceEntry> list(const std::string& folder) const override {
    const std::string front = folder.ends_with('/') ? folder : folder + "/";
    std::map<std::string, data::SourceEntry> entries;
    const std::lock_guard lock(mutex_);
    for (const auto& [name, bytes] : files_) {
      if (!name.starts_with(front)) continue;
      const std::string rest = name.substr(front.size()), first = rest.substr(0, rest.find('/'));
      if (first == rest)
        entries[first] = {first, data::SourceEntry::Kind::file, bytes->size()};
      else
        entries[first] = {first, data::SourceEntry::Kind::folder};
    }
    HEARTH_CHECK(FileError, !entries.empty(), folder, ": no such folder");
    std::vector<data::SourceEntry> all;
    // In no order, as a source may.
    for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) all.push_back(entry->second);
    return all;
  }

  std::int64_t reads() const { return reads_; }
  std::int64_t bytes_read() const { return bytes_read_; }
  /// How often a file was opened, and read from.
  std::int64_t opened(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    return opened_[name];
  }
  std::int64_t reads_of(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    return reads_of_[name];
  }
  /// Every read since the counts were cleared: the file and the offset.
  std::vector<std::pair<std::string, std::uint64_t>> log() const {
    const std::lock_guard lock(mutex_);
    return log_;
  }
  void clear_counts() {
    const std::lock_guard lock(mutex_);
    log_.clear();
    reads_ = bytes_read_ = 0;
    opened_.clear();
    reads_of_.clear();
  }

 private:
  class File : public data::SourceFile {
   public:
    File(const MemorySource& source, std::string name, std::shared_ptr<const Bytes> bytes, std::string version)
        : source_(source), name_(std::move(name)), bytes_(std::move(bytes)), version_(std::move(version)) {}
    const std::string& name() const override { return name_; }
    std::uint64_t size() const override { return bytes_->size(); }
    std::string version() const override { return version_; }
    void read(std::uint64_t offset, std::span<std::byte> target) const override {
      {
        const std::lock_guard lock(source_.mutex_);
        HEARTH_CHECK(FileError, source_.failing_.count(name_) == 0, name_, ": reading ", target.size(),
                     " bytes at offset ", offset, ": the store does not answer");
        ++source_.reads_of_[name_];
        source_.log_.emplace_back(name_, offset);
      }
      HEARTH_CHECK(FileError, offset + target.size() <= bytes_->size(), name_, ": ends at offset ", bytes_->size());
      ++source_.reads_;
      source_.bytes_read_ += static_cast<std::int64_t>(target.size());
      std::copy_n(reinterpret_cast<const std::byte*>(bytes_->data()) + offset, target.size(), target.data());
    }

   private:
    const MemorySource& source_;
    std::string name_;
    std::shared_ptr<const Bytes> bytes_;
    std::string version_;
  };

  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Bytes>> files_;
  std::map<std::string, int> versions_;
  std::set<std::string> failing_;
  mutable std::map<std::string, std::int64_t> opened_, reads_of_;
  mutable std::vector<std::pair<std::string, std::uint64_t>> log_;
  mutable std::atomic<std::int64_t> reads_{0}, bytes_read_{0};
};

}  // namespace hearth::test
