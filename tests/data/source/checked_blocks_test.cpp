// SPDX-License-Identifier: Apache-2.0
#include "data/source/checked_blocks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "core/error.h"
#include "core/io/file.h"
#include "data/source/file_opener.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::checked_blocks_test {
namespace {

using test::contains;
using test::error_message;

constexpr std::uint64_t block = CheckedBlocks::block_bytes;
constexpr std::uint64_t front = 100;  // bytes before the blocks

struct CheckedBlocksTest : testing::Test {
  CheckedBlocksTest() {
    for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<std::byte>(i * 2654435761u >> 24);
    put(content);
  }
  void put(const std::vector<std::byte>& bytes) {
    std::vector<std::byte> file(front);
    file.insert(file.end(), bytes.begin(), bytes.end());
    write_file_synced(path, file);
  }
  CheckedBlocks opened() const {
    return {open_source(path), front, content.size(), CheckedBlocks::checksums_of(content)};
  }
  bool is_read(const CheckedBlocks& blocks, std::uint64_t at, std::uint64_t count) const {
    std::vector<std::byte> found(count);
    blocks.read(at, found);
    return std::equal(found.begin(), found.end(), content.begin() + static_cast<std::ptrdiff_t>(at));
  }

  test::TempDir folder;
  std::filesystem::path path = folder / "f";
  std::vector<std::byte> content = std::vector<std::byte>(2 * block + 1000);
};

TEST_F(CheckedBlocksTest, ReadsWithinAndAcrossBlocks) {
  const CheckedBlocks blocks = opened();
  for (int round = 0; round < 2; ++round) {  // unread blocks, and known ones
    EXPECT_TRUE(is_read(blocks, 0, 10));
    EXPECT_TRUE(is_read(blocks, block - 5, 10));
    EXPECT_TRUE(is_read(blocks, 1, content.size() - 1));
    EXPECT_TRUE(is_read(blocks, content.size(), 0));
  }
  blocks.verify();
  EXPECT_THROW((void)is_read(blocks, content.size() - 1, 2), InternalError);
}

TEST_F(CheckedBlocksTest, DamageIsFoundWhereItIsReadFirst) {
  auto damaged = content;
  damaged[block + 7] ^= std::byte{1};
  put(damaged);
  const CheckedBlocks blocks = opened();
  EXPECT_TRUE(is_read(blocks, 0, block)) << "the block before is whole";
  EXPECT_TRUE(is_read(blocks, 2 * block, 1000)) << "and the one behind";
  for (int round = 0; round < 2; ++round)
    EXPECT_PRED2(contains, error_message<DataError>([&] { (void)is_read(blocks, 2 * block - 1, 1); }),
                 path.string() + ": the 262144 bytes at offset 262244 are damaged");
  EXPECT_THROW(blocks.verify(), DataError);
}

TEST_F(CheckedBlocksTest, AFileThatBecomesShorterIsAnError) {
  const CheckedBlocks blocks = opened();
  EXPECT_TRUE(is_read(blocks, 0, block));
  std::filesystem::resize_file(path, 1000);
  EXPECT_TRUE(is_read(blocks, 0, 900));
  for (const std::uint64_t at : {std::uint64_t{900}, block})  // of a known block, and of one that was not read yet
    EXPECT_PRED2(contains, error_message<FileError>([&] { (void)is_read(blocks, at, 10); }), "f: ends at offset ");
}

TEST_F(CheckedBlocksTest, ThreadsReadAtOnce) {
  const CheckedBlocks blocks = opened();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 200; ++i)
        wrong += !is_read(blocks, (t * 7919 + i * 104729) % (content.size() - 600), 600);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace hearth::data::checked_blocks_test
