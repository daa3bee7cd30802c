// SPDX-License-Identifier: Apache-2.0
#include "data/source/source_bytes.h"

#include <gtest/gtest.h>

#include "core/build.h"
#include "tests/support/error_message.h"
#include "tests/support/gzip_of_zeros.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::source_bytes_test {
namespace {

using test::contains;
using test::error_message;
using test::gzip_of_zeros;

#if HEARTH_HAS_ZLIB
TEST(SourceBytes, ABombIsRefusedBeforeItTakesMemory) {
  const auto bomb = gzip_of_zeros(std::uint64_t{80} << 20);
  ASSERT_LT(bomb.size(), 600'000u);
  EXPECT_PRED2(contains, error_message<DataError>([&] {
                 (void)inflate_gzip(bomb, "x.gz", {UINT64_MAX, "sequences"});
               }),
               "x.gz: " + std::to_string(bomb.size()) + " bytes inflate to more than 67108864 bytes; unpack the file");
  EXPECT_PRED2(contains, error_message<DataError>([&] {
                 (void)inflate_gzip(bomb, "x.gz", {1000, "sequences"});
               }),
               "inflate to more than 1000 bytes");
}

TEST(SourceBytes, TheFrontOfAFile) {
  const test::TempDir folder;
  const auto zeros = gzip_of_zeros(100'000);
  EXPECT_EQ(read_front(folder.write("z.gz", zeros), 1000), std::vector<std::uint8_t>(1000));
  EXPECT_EQ(read_front(folder.write("plain", {1, 2, 3, 4}), 3), (std::vector<std::uint8_t>{1, 2, 3}));
  EXPECT_EQ(read_front(folder.write("plain", {1, 2}), 3), (std::vector<std::uint8_t>{1, 2}));
  EXPECT_EQ(read_front(folder.write("empty", {}), 3), std::vector<std::uint8_t>{});
  // "hearth" in two members.
  const std::vector<std::uint8_t> member{0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xcb, 0x48, 0x4d,
                                         0x2c, 0x2a, 0xc9, 0x00, 0x00, 0x69, 0xad, 0x62, 0xd8, 0x06, 0x00, 0x00, 0x00};
  auto twice = member;
  twice.insert(twice.end(), member.begin(), member.end());
  const std::string path = folder.write("twice.gz", twice);
  const auto front = read_front(path, 9), all = read_maybe_gzip(path, {100, "sequences"});
  EXPECT_EQ(std::string(front.begin(), front.end()), "hearthhea");
  EXPECT_EQ(std::string(all.begin(), all.end()), "hearthhearth");
  EXPECT_EQ(read_front(path, 100).size(), 12u);
  // The limit is that of the contents, of which a small file's gzip has more.
  EXPECT_EQ(read_maybe_gzip(path, {12, "sequences"}).size(), 12u);
  EXPECT_THROW((void)read_maybe_gzip(path, {11, "sequences"}), DataError);
}
#endif

}  // namespace
}  // namespace hearth::data::source_bytes_test
