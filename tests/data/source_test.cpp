// SPDX-License-Identifier: Apache-2.0
#include "data/source.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/build.h"
#include "core/error.h"
#include "data/pack_records.h"
#include "data/registry.h"
#include "data/source_bytes.h"
#include "data/text/tokens.h"
#include "tests/support/error_message.h"
#include "tests/support/memory_source.h"
#include "tests/support/temp_dir.h"

namespace hearth::data {
namespace {

using test::contains;
using test::error_message;
namespace fs = std::filesystem;

/// A source of its own for each test, by the name of the scheme.
std::shared_ptr<test::MemorySource> added(const std::string& scheme) {
  auto source = std::make_shared<test::MemorySource>();
  sources().add(scheme, source);
  return source;
}

std::vector<std::uint8_t> content(const std::string& name) {
  std::vector<std::uint8_t> bytes;
  read_bytes(name, bytes, small_file);
  return bytes;
}

TEST(SourceTest, APathIsReadAsAFile) {
  const test::TempDir folder;
  const std::string path = folder.write("a/b.txt", {'x', 'y', 'z'});
  folder.write("c.txt", {'1'});
  fs::create_symlink("nowhere", folder / "d");
  const SourceFilePointer file = open_source(path);
  EXPECT_EQ(file->name(), path);
  EXPECT_EQ(file->size(), 3u);
  std::byte two[2];
  file->read(1, two);
  EXPECT_EQ(two[1], std::byte{'z'});
  EXPECT_TRUE(contains(error_message<FileError>([&] { file->read(2, two); }), path + ": ends at offset 3"));
  const std::vector<SourceEntry> entries = list_source(folder.path());
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].name, "a");
  EXPECT_EQ(entries[0].kind, SourceEntry::Kind::folder);
  EXPECT_EQ(entries[1].bytes, 1u);
  EXPECT_EQ(entries[2].kind, SourceEntry::Kind::other) << "a link to nothing";
  EXPECT_EQ(find_source(path)->bytes, 3u);
  EXPECT_FALSE(find_source(folder / "nothing").has_value());
  const std::string before = file->version();
  folder.write("a/b.txt", {'x', 'y', 'w'});
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(2));
  EXPECT_NE(open_source(path)->version(), before);
}

TEST(SourceTest, ANameWithASchemeIsReadByItsSource) {
  const auto store = added("store-1");
  store->put("store-1://bucket/a/b", {'h', 'i'});
  store->put("store-1://bucket/c", {'o'});
  EXPECT_EQ(content("store-1://bucket/a/b"), (std::vector<std::uint8_t>{'h', 'i'}));
  const std::vector<SourceEntry> entries = list_source("store-1://bucket");
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].name, "a") << "sorted, in whatever order the source lists them";
  EXPECT_EQ(find_source("store-1://bucket/a")->kind, SourceEntry::Kind::folder);
  EXPECT_EQ(find_source("store-1://bucket/c")->bytes, 1u);
  EXPECT_FALSE(find_source("store-1://bucket/d").has_value());
  EXPECT_FALSE(find_source("store-1://nowhere/d").has_value());
  EXPECT_EQ(find_source("store-1://bucket")->kind, SourceEntry::Kind::folder);
  EXPECT_TRUE(contains(error_message<FileError>([] { open_source("store-1://bucket/d"); }), "no such file"));
}

TEST(SourceTest, SchemesAreCheckedAndUnknownOnesNamed) {
  added("known-scheme");
  EXPECT_THROW(added("known-scheme"), UsageError);
  EXPECT_THROW(added("s3://"), UsageError);
  EXPECT_THROW(added(""), UsageError);
  EXPECT_THROW(sources().add("nothing", nullptr), UsageError);
  const std::string message = error_message<FileError>([] { open_source("unknown-scheme://bucket/a"); });
  EXPECT_TRUE(contains(message, "unknown-scheme://bucket/a: no source reads \"unknown-scheme://\""));
  EXPECT_TRUE(contains(message, "known-scheme"));
  EXPECT_TRUE(is_path("a b://c")) << "no scheme has a space";
  EXPECT_FALSE(is_path("s3://c"));
  EXPECT_EQ(name_in("s3://c/", "d"), "s3://c/d");
  EXPECT_EQ(name_in("c", "d"), "c/d");
}

}  // namespace
}  // namespace hearth::data
