// SPDX-License-Identifier: Apache-2.0
// Blocks of files in a directory of limited size: the part of a ReadCache that outlives the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hearth::data {

class DiskBlocks {
 public:
  /// FileError if the directory cannot be made or written to.
  DiskBlocks(std::filesystem::path directory, std::uint64_t limit);

  struct Found {
    std::optional<std::vector<std::byte>> block;  ///< of `bytes` bytes, or nothing
    bool is_damaged = false;                      ///< what lay there was not what put() had written; it is removed
  };
  /// The block that was put under the key: a text that names it, and its content, for ever.
  Found get(const std::string& key, std::size_t bytes);
  /// Writes the block to a file beside, which is renamed. What was used longest ago is removed where there is no
  /// more space. A fault of the disk ends the writing for good, and is told by fault().
  void put(const std::string& key, std::span<const std::byte> block);
  std::string fault() const;
  std::uint64_t bytes() const;

 private:
  struct File {
    std::string name;
    std::uint64_t bytes;
  };
  void scan();
  void note(const std::string& name, std::uint64_t bytes);
  void forget(const std::string& name);
  void make_space(std::uint64_t bytes);

  std::filesystem::path directory_;
  std::uint64_t limit_;
  mutable std::mutex mutex_;
  std::list<File> recent_;  // the one used last first
  std::map<std::string, std::list<File>::iterator> files_;
  std::uint64_t bytes_ = 0;
  std::uint64_t written_ = 0;  // since the directory was looked at
  std::string fault_;
};

}  // namespace hearth::data
