// SPDX-License-Identifier: Apache-2.0
// Whole reads, replacing writes, appending writers and mappings, and what each of them says when it fails.
#include "hearth/core/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>

#include "support/error_message.h"
#include "support/full_disk.h"
#include "support/temp_dir.h"

namespace hearth {
namespace {

using test::contains;
using test::error_message;
using test::FullDisk;
using test::TempDir;

/// Files larger than `bytes` fail with EFBIG while this lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    previous_ = std::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, previous_);
  }

 private:
  rlimit before_{};
  void (*previous_)(int);
};

TEST(File, WritesAndReadsBack) {
  const TempDir directory;
  for (const std::string& text : {std::string(), std::string("a\0b\n", 4), std::string(100000, 'x')}) {
    write_file_synced(directory / "f", text);
    EXPECT_EQ(read_text(directory / "f"), text);
    const std::vector<std::byte> bytes = read_file(directory / "f");
    EXPECT_TRUE(std::ranges::equal(bytes, bytes_of(text)));
    EXPECT_EQ(size_of_file(directory / "f"), text.size());
  }
  EXPECT_EQ(list_directory(directory.path()), std::vector<std::string>{"f"});
}

TEST(File, JoinsPartsInOrder) {
  const TempDir directory;
  const std::span<const std::byte> parts[] = {bytes_of("ab"), {}, bytes_of("c")};
  write_file_synced(directory / "f", parts);
  EXPECT_EQ(read_text(directory / "f"), "abc");
}

TEST(File, ReadErrorsNameThePathAndTheReason) {
  const TempDir directory;
  const std::string absent = (directory / "absent").string();
  for (const std::string& message : {
           error_message<FileError>([&] { read_file(absent); }),
           error_message<FileError>([&] { read_text(absent); }),
           error_message<FileError>([&] { size_of_file(absent); }),
           error_message<FileError>([&] { sync_file(absent); }),
           error_message<FileError>([&] { sync_directory(absent); }),
           error_message<FileError>([&] { list_directory(absent); }),
           error_message<FileError>([&] { MappedFile{absent}; }),
       }) {
    EXPECT_PRED2(contains, message, absent);
    EXPECT_PRED2(contains, message, "No such file");
  }
  EXPECT_PRED2(contains, error_message<FileError>([&] { read_file(directory.path()); }), "is a directory");
  EXPECT_PRED2(contains, error_message<FileError>([&] { MappedFile{directory.path()}; }), "is a directory");
}

TEST(File, AFailedWriteLeavesTheOldBytesAndNoSibling) {
  const TempDir directory;
  write_file_synced(directory / "f", "old");
  const std::string large(1 << 20, 'x');
  std::string message;
  {
    const FileSizeLimit limit(65536);
    message = error_message<FileError>([&] { write_file_synced(directory / "f", large); });
  }
  EXPECT_PRED2(contains, message, (directory / "f").string());
  EXPECT_PRED2(contains, message, "1048576 bytes");
  EXPECT_PRED2(contains, message, "File too large: no file of this process may exceed 65536 bytes");
  EXPECT_PRED2(contains, message, "ulimit -f");
  EXPECT_EQ(read_text(directory / "f"), "old");
  EXPECT_EQ(list_directory(directory.path()), std::vector<std::string>{"f"});
  EXPECT_THROW(write_file_synced(directory / "absent/f", "x"), FileError);
  EXPECT_THROW(write_file_synced("", "x"), FileError);
}

TEST(File, AFullDiskIsNamedWithTheBytesNeededAndFree) {
  const FullDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "a tmpfs cannot be mounted here";
  write_file_synced(disk.path() / "f", std::string(700000, 'o'));
  const std::string message =
      error_message<FileError>([&] { write_file_synced(disk.path() / "f", std::string(600000, 'n')); });
  EXPECT_PRED2(contains, message, (disk.path() / "f").string());
  EXPECT_PRED2(contains, message, "No space left");
  EXPECT_PRED2(contains, message, "600000 bytes needed");
  EXPECT_PRED2(contains, message, std::to_string(1048576 - 700416) + " bytes free");
  EXPECT_EQ(read_text(disk.path() / "f"), std::string(700000, 'o'));
  EXPECT_EQ(list_directory(disk.path()), std::vector<std::string>{"f"});
}

TEST(File, ReplacesALinkByTheFile) {
  const TempDir directory;
  write_file_synced(directory / "target", "t");
  std::filesystem::create_symlink("target", directory / "link");
  write_file_synced(directory / "link", "new");
  EXPECT_EQ(read_text(directory / "target"), "t");
  EXPECT_EQ(read_text(directory / "link"), "new");
}

TEST(File, ListsSortedAndTellsWhatExists) {
  const TempDir directory;
  make_directories(directory / "b/c");
  write_file_synced(directory / "a", "");
  EXPECT_EQ(list_directory(directory.path()), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(file_exists(directory / "a"));
  EXPECT_TRUE(file_exists(directory / "b"));
  EXPECT_FALSE(file_exists(directory / "d"));
  EXPECT_THROW(make_directories(directory / "a/under"), FileError);
}

TEST(FileWriter, AppendsToWhatIsThereOrStartsAnew) {
  const TempDir directory;
  {
    FileWriter writer(directory / "log");
    writer.append("one\n");
    EXPECT_EQ(read_text(directory / "log"), "one\n");
    writer.sync();
    writer.close();
    EXPECT_FALSE(writer.is_open());
    writer.close();
    EXPECT_THROW(writer.append("x"), UsageError);
    EXPECT_THROW(writer.sync(), UsageError);
  }
  FileWriter writer(directory / "log");
  EXPECT_EQ(writer.size(), 4u);
  FileWriter moved = std::move(writer);
  moved.append("two\n");
  EXPECT_EQ(moved.size(), 8u);
  EXPECT_EQ(read_text(directory / "log"), "one\ntwo\n");
  moved = FileWriter(directory / "log", FileWriter::Mode::truncate);
  EXPECT_EQ(read_text(directory / "log"), "");
  EXPECT_THROW(FileWriter(directory / "absent/log"), FileError);
  EXPECT_THROW(FileWriter{directory.path()}, FileError);
}

TEST(FileWriter, ARecordThatDoesNotFitIsTakenBack) {
  const TempDir directory;
  FileWriter writer(directory / "log");
  writer.append("first\n");
  {
    const FileSizeLimit limit(1000);
    EXPECT_THROW(writer.append(std::string(2000, 'x')), FileError);
  }
  EXPECT_EQ(read_text(directory / "log"), "first\n");
  writer.append("second\n");
  EXPECT_EQ(read_text(directory / "log"), "first\nsecond\n");
}

TEST(MappedFile, ShowsTheBytes) {
  const TempDir directory;
  write_file_synced(directory / "f", "mapped");
  MappedFile first(directory / "f");
  EXPECT_TRUE(std::ranges::equal(first.bytes(), bytes_of("mapped")));
  const MappedFile moved = std::move(first);
  EXPECT_TRUE(first.bytes().empty());
  write_file_synced(directory / "f", "replaced");
  EXPECT_TRUE(std::ranges::equal(moved.bytes(), bytes_of("mapped")));
  write_file_synced(directory / "empty", "");
  EXPECT_TRUE(MappedFile(directory / "empty").bytes().empty());
}

}  // namespace
}  // namespace hearth
