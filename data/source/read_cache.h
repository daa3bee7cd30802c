// SPDX-License-Identifier: Apache-2.0
// What was read of slow sources, kept in memory and then on a local disk. Files are kept in blocks; what was used last
// goes last. A block on disk is checked when it is read: a damaged one is read from the source again.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/export.h"
#include "data/source/source.h"

namespace hearth::data {

/// "cache": {...} of a dataset.
struct CacheOptions {
  std::int64_t memory_mb = 0;
  std::string disk{};  ///< a directory; empty for none
  std::int64_t disk_mb = 10'240;
  bool is_used() const { return memory_mb > 0 || !disk.empty(); }
};

class DiskBlocks;

/// Shared by all threads, and on disk by several processes.
class HEARTH_API ReadCache : public std::enable_shared_from_this<ReadCache> {
 public:
  static constexpr std::uint64_t block_bytes = std::uint64_t{1} << 18;

  /// Makes the directory. FileError if that cannot be made or written to.
  explicit ReadCache(const CacheOptions& options);
  ~ReadCache();
  ReadCache(const ReadCache&) = delete;
  ReadCache& operator=(const ReadCache&) = delete;

  /// The file, read through this cache. Its source is asked once for size and version; it is opened again where
  /// blocks are missing. Errors as of Source::open().
  SourceFilePointer open(const std::string& name);

  /// How many blocks came from where, since the beginning.
  struct Statistics {
    std::int64_t from_memory = 0;
    std::int64_t from_disk = 0;
    std::int64_t from_source = 0;
    std::int64_t damaged = 0;        ///< blocks on disk that were not what had been written
    std::string disk_fault{};        ///< why blocks are no longer written to the disk; empty while they are
    std::uint64_t memory_bytes = 0;  ///< now
    std::uint64_t disk_bytes = 0;    ///< now, as far as this process knows
  };
  Statistics statistics() const;

 private:
  class CachedFile;
  struct Known;
  using Block = std::shared_ptr<const std::vector<std::byte>>;
  using Key = std::pair<std::int64_t, std::uint64_t>;  // number of the file, number of the block

  void read(const Known& file, std::uint64_t offset, std::span<std::byte> target);
  Block block(const Known& file, std::uint64_t number);
  Block fetch(const Known& file, std::uint64_t number);
  void keep(const Key& key, const Block& block);

  mutable std::mutex mutex_;  // of all but what lies on disk
  std::condition_variable fetched_;
  std::map<std::string, std::shared_ptr<const Known>> files_;
  std::set<Key> fetching_;
  struct Used {
    Key key;
    Block block;
  };
  std::list<Used> recent_;  // the one used last first
  std::map<Key, std::list<Used>::iterator> kept_;
  std::uint64_t memory_limit_;
  Statistics statistics_;
  std::unique_ptr<DiskBlocks> disk_;
};

/// While it lives, datasets that this thread opens read through the cache; null for none.
class HEARTH_API CacheScope {
 public:
  explicit CacheScope(std::shared_ptr<ReadCache> cache);
  ~CacheScope();
  CacheScope(const CacheScope&) = delete;
  CacheScope& operator=(const CacheScope&) = delete;
  static const std::shared_ptr<ReadCache>& current();

 private:
  std::shared_ptr<ReadCache> before_;
};

}  // namespace hearth::data
