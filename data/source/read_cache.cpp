// SPDX-License-Identifier: Apache-2.0
#include "data/source/read_cache.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "data/source/disk_blocks.h"

namespace hearth::data {
namespace {

std::shared_ptr<ReadCache>& cache_of_thread() {
  thread_local std::shared_ptr<ReadCache> cache;
  return cache;
}

}  // namespace

/// What the source said of a file when it was first opened.
struct ReadCache::Known {
  std::int64_t number;
  std::string name;
  std::string version;
  std::uint64_t size;

  std::size_t bytes_of_block(std::uint64_t block) const { return std::min(block_bytes, size - block * block_bytes); }
  /// What names a block on disk.
  std::string key_of(std::uint64_t block) const { return join_text(name, '\n', size, '\n', version, '\n', block); }
  /// The file once more. FileError if it is another one by now.
  SourceFilePointer open() const {
    SourceFilePointer file = sources().of(name).open(name);
    HEARTH_CHECK(FileError, file->size() == size && file->version() == version, name,
                 ": was changed while it was in use: it had ", size, " bytes (version \"", version, "\") and has ",
                 file->size(), " (\"", file->version(), "\"); start the command again");
    return file;
  }
};

class ReadCache::CachedFile final : public SourceFile {
 public:
  CachedFile(std::shared_ptr<ReadCache> cache, std::shared_ptr<const Known> known)
      : cache_(std::move(cache)), known_(std::move(known)) {}
  const std::string& name() const override { return known_->name; }
  std::uint64_t size() const override { return known_->size; }
  void read(std::uint64_t offset, std::span<std::byte> target) const override { cache_->read(*known_, offset, target); }
  std::string version() const override { return known_->version; }

 private:
  std::shared_ptr<ReadCache> cache_;
  std::shared_ptr<const Known> known_;
};

ReadCache::ReadCache(const CacheOptions& options) : memory_limit_(static_cast<std::uint64_t>(options.memory_mb) << 20) {
  if (!options.disk.empty())
    disk_ = std::make_unique<DiskBlocks>(options.disk, static_cast<std::uint64_t>(options.disk_mb) << 20);
}

ReadCache::~ReadCache() = default;

SourceFilePointer ReadCache::open(const std::string& name) {
  std::shared_ptr<const Known> known;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = files_.find(name); found != files_.end()) known = found->second;
  }
  if (!known) {
    const SourceFilePointer file = sources().of(name).open(name);
    const std::string version = file->version();
    const std::lock_guard lock(mutex_);
    const auto number = static_cast<std::int64_t>(files_.size());
    // Where another thread was first, its answer counts.
    known =
        files_.emplace(name, std::make_shared<const Known>(Known{number, name, version, file->size()})).first->second;
  }
  return std::make_unique<const CachedFile>(shared_from_this(), std::move(known));
}

void ReadCache::read(const Known& file, std::uint64_t offset, std::span<std::byte> target) {
  HEARTH_CHECK(FileError, offset <= file.size && target.size() <= file.size - offset, file.name, ": ends at offset ",
               file.size, ", and ", target.size(), " bytes from offset ", offset, " on are wanted");
  while (!target.empty()) {
    const std::uint64_t number = offset / block_bytes, begin = offset % block_bytes;
    const Block content = block(file, number);
    const std::size_t count = std::min(target.size(), content->size() - begin);
    std::memcpy(target.data(), content->data() + begin, count);
    offset += count;
    target = target.subspan(count);
  }
}

ReadCache::Block ReadCache::block(const Known& file, std::uint64_t number) {
  const Key key{file.number, number};
  std::unique_lock lock(mutex_);
  while (true) {
    if (const auto found = kept_.find(key); found != kept_.end()) {
      ++statistics_.from_memory;
      recent_.splice(recent_.begin(), recent_, found->second);
      return found->second->block;
    }
    // Threads that want the same block wait for the one that fetches it.
    if (fetching_.insert(key).second) break;
    fetched_.wait(lock);
  }
  lock.unlock();
  const auto done = [&] {
    fetching_.erase(key);
    fetched_.notify_all();
  };
  Block content;
  try {
    content = fetch(file, number);
    lock.lock();
    keep(key, content);
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    done();
    throw;
  }
  done();
  return content;
}

ReadCache::Block ReadCache::fetch(const Known& file, std::uint64_t number) {
  const std::size_t bytes = file.bytes_of_block(number);
  const std::string key = disk_ ? file.key_of(number) : std::string();
  if (disk_) {
    DiskBlocks::Found found = disk_->get(key, bytes);
    const std::lock_guard lock(mutex_);
    statistics_.damaged += found.is_damaged ? 1 : 0;
    if (found.block) {
      ++statistics_.from_disk;
      return std::make_shared<const std::vector<std::byte>>(std::move(*found.block));
    }
  }
  std::vector<std::byte> content(bytes);
  file.open()->read(number * block_bytes, content);
  if (disk_) disk_->put(key, content);
  const std::lock_guard lock(mutex_);
  ++statistics_.from_source;
  return std::make_shared<const std::vector<std::byte>>(std::move(content));
}

void ReadCache::keep(const Key& key, const Block& block) {
  if (block->size() > memory_limit_) return;
  while (statistics_.memory_bytes + block->size() > memory_limit_) {
    statistics_.memory_bytes -= recent_.back().block->size();
    kept_.erase(recent_.back().key);
    recent_.pop_back();
  }
  recent_.push_front({key, block});
  statistics_.memory_bytes += block->size();
  kept_[key] = recent_.begin();
}

ReadCache::Statistics ReadCache::statistics() const {
  const std::lock_guard lock(mutex_);
  Statistics now = statistics_;
  if (disk_) now.disk_fault = disk_->fault(), now.disk_bytes = disk_->bytes();
  return now;
}

CacheScope::CacheScope(std::shared_ptr<ReadCache> cache)
    : before_(std::exchange(cache_of_thread(), std::move(cache))) {}

CacheScope::~CacheScope() { cache_of_thread() = std::move(before_); }

const std::shared_ptr<ReadCache>& CacheScope::current() { return cache_of_thread(); }

}  // namespace hearth::data
