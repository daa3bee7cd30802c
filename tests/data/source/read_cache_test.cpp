// SPDX-License-Identifier: Apache-2.0
#include "data/source/read_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "core/error.h"
#include "core/random.h"
#include "data/source/file_opener.h"
#include "tests/support/error_message.h"
#include "tests/support/memory_source.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::read_cache_test {
namespace {

using test::contains;
using test::error_message;
namespace fs = std::filesystem;

constexpr std::uint64_t block = ReadCache::block_bytes;

std::shared_ptr<test::MemorySource> slow_store() {
  static const auto store = [] {
    auto made = std::make_shared<test::MemorySource>();
    sources().add("slow", made);
    return made;
  }();
  return store;
}

struct ReadCacheTest : testing::Test {
  test::TempDir folder;
  std::shared_ptr<test::MemorySource> store = slow_store();
  std::vector<std::uint8_t> bytes = std::vector<std::uint8_t>(20 * block + 77);
  const std::string name = "slow://bucket/file";

  void SetUp() override {
    Random random(5, 0);
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random.next_u32());
    store->put(name, bytes);
    store->fail(name, false);
    store->clear_counts();
  }
  std::shared_ptr<ReadCache> cache(std::int64_t memory_mb, std::int64_t disk_mb = 0) const {
    return std::make_shared<ReadCache>(
        CacheOptions{memory_mb, disk_mb > 0 ? std::string(folder / "cache") : std::string(), disk_mb});
  }
  bool is_right(const SourceFile& file, std::uint64_t offset, std::size_t count) const {
    std::vector<std::uint8_t> found(count);
    file.read(offset, std::as_writable_bytes(std::span(found)));
    return std::equal(found.begin(), found.end(), bytes.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  std::vector<fs::path> blocks_on_disk() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder / "cache")) found.push_back(entry.path());
    std::sort(found.begin(), found.end());
    return found;
  }
};

TEST_F(ReadCacheTest, WhatWasReadIsNotAskedForAgain) {
  const auto kept = cache(64);
  const SourceFilePointer file = kept->open(name);
  EXPECT_EQ(file->size(), bytes.size());
  EXPECT_TRUE(is_right(*file, 10, 3 * block));
  EXPECT_EQ(store->bytes_read(), static_cast<std::int64_t>(4 * block));
  EXPECT_TRUE(is_right(*file, 0, 4 * block));
  EXPECT_TRUE(is_right(*kept->open(name), block - 1, 2));
  EXPECT_EQ(store->bytes_read(), static_cast<std::int64_t>(4 * block));
  EXPECT_TRUE(is_right(*file, bytes.size() - 5, 5)) << "the last block is shorter";
  EXPECT_TRUE(is_right(*file, bytes.size(), 0));
  EXPECT_EQ(store->bytes_read(), static_cast<std::int64_t>(4 * block + 77));
  EXPECT_TRUE(contains(error_message<FileError>([&] { is_right(*file, bytes.size() - 1, 2); }), name + ": ends at"));
}

TEST_F(ReadCacheTest, MemoryIsBoundedAndTheBlockUsedLastStays) {
  const auto kept = cache(1);  // four blocks
  const SourceFilePointer file = kept->open(name);
  for (std::uint64_t i = 0; i < 20; ++i) {
    EXPECT_TRUE(is_right(*file, i * block, block));
    EXPECT_TRUE(is_right(*file, 0, 10)) << "stays, as it is used";
    EXPECT_LE(kept->statistics().memory_bytes, std::uint64_t{1} << 20);
  }
  EXPECT_EQ(kept->statistics().from_source, 20);
  EXPECT_TRUE(is_right(*file, 2 * block, 10));
  EXPECT_EQ(kept->statistics().from_source, 21) << "was thrown out";
}

TEST_F(ReadCacheTest, TheDiskOutlivesTheProcess) {
  EXPECT_TRUE(is_right(*cache(0, 64)->open(name), 0, bytes.size()));
  store->clear_counts();
  const auto again = cache(0, 64);
  EXPECT_TRUE(is_right(*again->open(name), 0, bytes.size()));
  EXPECT_EQ(store->reads(), 0);
  EXPECT_EQ(store->opened(name), 1) << "for its size and version alone";
  EXPECT_EQ(again->statistics().from_disk, 21);
  // Another content under the name is another file.
  bytes[5] ^= 1;
  store->put(name, bytes);
  EXPECT_TRUE(is_right(*cache(0, 64)->open(name), 0, 10));
}

TEST_F(ReadCacheTest, TheDiskIsBoundedAndLosesWhatWasUsedLongestAgo) {
  {
    const auto kept = cache(0, 2);
    const SourceFilePointer file = kept->open(name);
    for (std::uint64_t i = 0; i < 20; ++i) {
      EXPECT_TRUE(is_right(*file, i * block, block));
      EXPECT_TRUE(is_right(*file, 0, 10)) << "stays, as it is used";
      std::uint64_t on_disk = 0;
      for (const fs::path& path : blocks_on_disk()) on_disk += fs::file_size(path);
      EXPECT_LE(on_disk, std::uint64_t{2} << 20);
    }
    EXPECT_EQ(kept->statistics().from_source, 20);
  }
  EXPECT_EQ(blocks_on_disk().size(), 7u) << "blocks with a checksum each: one fewer than 2 MiB has";
  (void)cache(0, 1);
  EXPECT_EQ(blocks_on_disk().size(), 3u) << "a smaller limit counts at once";
}

TEST_F(ReadCacheTest, FilesOfOtherProgramsInTheDirectoryStay) {
  const std::string digits(63, 'a');
  // What a cache left behind, and names that are none of a cache's.
  const std::string left = "cache/" + digits + "a.block-17-0.part";
  const std::string others[] = {"minecraft.block",          "download.iso.part",         digits + ".block",
                                digits + "g.block",         digits + "A.block",          digits + "a.block.part",
                                digits + "a.block-1.part",  digits + "a.block-x-0.part", "probe-1-0.part",
                                digits + "a.block-17-.part"};
  fs::create_directory(folder / "cache");
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(3);
  const auto write_old = [&](const std::string& file) {
    folder.write(file, std::vector<std::uint8_t>(std::size_t{2} << 20));
    fs::last_write_time(folder / file, long_ago);
  };
  for (const std::string& file : others) write_old("cache/" + file);
  write_old(left);
  const auto kept = cache(0, 1);
  EXPECT_EQ(kept->statistics().disk_bytes, 0u) << "only blocks count";
  EXPECT_TRUE(is_right(*kept->open(name), 0, 10 * block));
  for (const std::string& file : others) EXPECT_TRUE(fs::exists(folder / ("cache/" + file))) << file;
  EXPECT_FALSE(fs::exists(folder / left));
}

TEST_F(ReadCacheTest, DamagedBlocksAreReadAnew) {
  EXPECT_TRUE(is_right(*cache(0, 64)->open(name), 0, 4 * block));
  const std::vector<fs::path> paths = blocks_on_disk();
  ASSERT_EQ(paths.size(), 4u);
  {
    std::fstream file(paths[0], std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(1000);
    file.put('x');
    file.put('y');
  }
  fs::resize_file(paths[1], 17);
  fs::remove(paths[2]);
  fs::copy_file(paths[3], paths[2]);  // whole, but of another block
  const auto kept = cache(0, 64);
  EXPECT_TRUE(is_right(*kept->open(name), 0, 4 * block));
  EXPECT_EQ(kept->statistics().damaged, 3);
  EXPECT_EQ(kept->statistics().from_source, 3);
  EXPECT_EQ(kept->statistics().from_disk, 1);
  const auto repaired = cache(0, 64);
  EXPECT_TRUE(is_right(*repaired->open(name), 0, 4 * block));
  EXPECT_EQ(repaired->statistics().from_disk, 4);
}

TEST_F(ReadCacheTest, ADiskThatFailsStopsNoReading) {
  const auto kept = cache(0, 64);
  const SourceFilePointer file = kept->open(name);
  EXPECT_TRUE(is_right(*file, 0, block));
  fs::remove_all(folder / "cache");
  EXPECT_TRUE(is_right(*file, 0, 3 * block));
  EXPECT_TRUE(contains(kept->statistics().disk_fault, (folder / "cache").string()));
  folder.write("taken", {});
  EXPECT_THROW(ReadCache({0, folder / "taken", 10}), FileError);
}

TEST_F(ReadCacheTest, FaultsOfTheSourceAreThrownAndForgotten) {
  const auto kept = cache(4);
  const SourceFilePointer file = kept->open(name);
  store->fail(name);
  EXPECT_TRUE(contains(error_message<FileError>([&] { is_right(*file, 0, 10); }), "does not answer"));
  store->fail(name, false);
  EXPECT_TRUE(is_right(*file, 0, 10));
  // A file that changes under the run is told, where it is read.
  bytes.push_back(0);
  store->put(name, bytes);
  EXPECT_TRUE(is_right(*file, 0, 10)) << "what is known stays";
  EXPECT_TRUE(contains(error_message<FileError>([&] { is_right(*file, 9 * block, 10); }), "was changed while"));
  EXPECT_THROW(kept->open("slow://bucket/none"), FileError);
}

TEST_F(ReadCacheTest, ThreadsThatWantOneBlockFetchItOnce) {
  const auto kept = cache(64, 64);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (std::uint32_t t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      const SourceFilePointer file = kept->open(name);
      Random random(9, t);
      for (int i = 0; i < 200; ++i) wrong += is_right(*file, random.below(20 * block), 1 + random.below(77)) ? 0 : 1;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(kept->statistics().from_source, 21);
  EXPECT_EQ(kept->statistics().from_disk, 0);
}

TEST_F(ReadCacheTest, ThreadsShareASmallCache) {
  const auto kept = cache(1, 1);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (std::uint32_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const SourceFilePointer file = kept->open(name);
      Random random(10, t);
      for (int i = 0; i < 100; ++i)
        wrong += is_right(*file, random.below(18 * block), 1 + random.below(2 * block)) ? 0 : 1;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(kept->statistics().memory_bytes, std::uint64_t{1} << 20);
}

TEST_F(ReadCacheTest, ADatasetReadsThroughTheCacheInForceWhenItWasOpened) {
  const auto kept = cache(64);
  std::optional<FileOpener> files;
  {
    const CacheScope scope(kept);
    files.emplace();
    EXPECT_TRUE(is_right(*open_source(name), 0, 10));
  }
  EXPECT_EQ(CacheScope::current(), nullptr);
  EXPECT_TRUE(is_right(*files->open(name), 0, 10));
  EXPECT_EQ(store->reads(), 1);
  EXPECT_TRUE(is_right(*open_source(name), 0, 10));
  EXPECT_EQ(store->reads(), 2);
}

}  // namespace
}  // namespace hearth::data::read_cache_test
