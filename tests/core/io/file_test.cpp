// SPDX-License-Identifier: Apache-2.0
// Whole reads, reads by position, replacing writes and appending writers, and what each of them says when it fails.
#include "core/io/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "core/io/descriptor.h"
#include "tests/support/error_message.h"
#include "tests/support/full_disk.h"
#include "tests/support/temp_dir.h"

namespace hearth::file_test {
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

/// Of a process of its own: opens files until there are `wanted`, where the soft limit is 100 and the hard one `hard`.
[[noreturn]] void open_many(const std::string& path, int wanted, rlim_t hard) {
  const rlimit limit{100, hard};
  ::setrlimit(RLIMIT_NOFILE, &limit);
  std::vector<FileReader> files;
  try {
    while (static_cast<int>(files.size()) < wanted) files.emplace_back(path);
    static_cast<void>(list_directory(std::filesystem::path(path).parent_path()));
    rlimit now{};
    ::getrlimit(RLIMIT_NOFILE, &now);
    std::fprintf(stderr, "all are open, limit %d", static_cast<int>(now.rlim_cur));
  } catch (const FileError& error) {
    files.clear();  // UndefinedBehaviorSanitizer opens a pipe to look at an object
    std::fprintf(stderr, "%s", error.what());
  }
  std::_Exit(0);
}

TEST(File, TheLimitOfOpenFilesIsRaisedAsFarAsItMayBe) {
  const TempDir directory;
  write_file_synced(directory / "f", std::string("x"));
  const std::string path = directory / "f";
  const auto ended = testing::ExitedWithCode(0);
  EXPECT_EXIT(open_many(path, 10, 300), ended, "all are open, limit 100") << "as long as that is far enough away";
  EXPECT_EXIT(open_many(path, 60, 300), ended, "all are open, limit 300") << "others open files too";
  EXPECT_EXIT(open_many(path, 200, 300), ended, "all are open, limit 300");
  EXPECT_EXIT(open_many(path, 400, 300), ended,
              "/f: opening failed: .*: this process may have 300 open at once; raise that limit .ulimit -n.");
}

TEST(File, ReadingAheadChangesNothing) {
  const TempDir directory;
  write_file_synced(directory / "f", std::string("0123456789"));
  const FileReader file(directory / "f");
  file.read_ahead(2, 3);
  file.read_ahead(100, 1000);
  std::byte two[2];
  file.read(3, two);
  EXPECT_EQ(two[0], std::byte{'3'});
}

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
           error_message<FileError>([&] { FileReader{absent}; }),
       }) {
    EXPECT_PRED2(contains, message, absent);
    EXPECT_PRED2(contains, message, "No such file");
  }
  EXPECT_PRED2(contains, error_message<FileError>([&] { read_file(directory.path()); }), "is a directory");
  EXPECT_PRED2(contains, error_message<FileError>([&] { FileReader{directory.path()}; }), "is a directory");
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

TEST(File, NobodyElseMayWriteWithoutAUmask) {
  const TempDir directory;
  const auto mode = [&](const char* name) {
    struct stat status {};
    ::stat((directory / name).c_str(), &status);
    return status.st_mode & 0777;
  };
  const mode_t before = ::umask(0);
  make_directories(directory / "wide/inner");
  write_file_synced(directory / "wide/f", "x");
  FileWriter(directory / "wide/log").append("x");
  ::umask(077);
  make_directories(directory / "narrow");
  write_file_synced(directory / "narrow/f", "x");
  ::umask(before);
  for (const char* folder : {"wide", "wide/inner"}) EXPECT_EQ(mode(folder), 0755u) << folder;
  for (const char* file : {"wide/f", "wide/log"}) EXPECT_EQ(mode(file), 0644u) << file;
  EXPECT_EQ(mode("narrow"), 0700u);
  EXPECT_EQ(mode("narrow/f"), 0600u);
}

TEST(File, MessagesEscapeControlCharacters) {
  EXPECT_PRED2(contains, error_message<FileError>([] { read_file("no\n\x1b[31m"); }), "no\\n\\x1b[31m: opening failed");
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

TEST(FileReader, ReadsByPosition) {
  const TempDir directory;
  write_file_synced(directory / "f", "by position");
  FileReader first(directory / "f");
  const FileReader file = std::move(first);
  EXPECT_EQ(file.size(), 11u);
  write_file_synced(directory / "f", "replaced");
  std::string text(8, ' ');
  file.read(3, std::as_writable_bytes(std::span(text)));
  EXPECT_EQ(text, "position") << "the file that was opened, whatever has its name now";
  file.read(11, {});
  write_file_synced(directory / "empty", "");
  EXPECT_EQ(FileReader(directory / "empty").size(), 0u);
}

// A mapping ends the process by SIGBUS.
TEST(FileReader, AFileThatBecomesShorterIsAnError) {
  const TempDir directory;
  write_file_synced(directory / "f", std::string(100'000, 'x'));
  const FileReader file(directory / "f");
  std::filesystem::resize_file(directory / "f", 50'000);
  std::vector<std::byte> bytes(10'000);
  file.read(40'000, bytes);
  const std::string message = error_message<FileError>([&] { file.read(45'000, bytes); });
  EXPECT_PRED2(contains, message, (directory / "f").string() + ": ends at offset 50000, where 5000 more bytes");
}

TEST(File, OnlyRegularFilesAreRead) {
  const TempDir directory;
  ASSERT_EQ(mkfifo((directory / "pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", directory / "link");
  alarm(20);  // a pipe without a writer is waited for
  for (const char* name : {"pipe", "link"}) {
    const std::filesystem::path path = directory / name;
    const std::string expected = std::string(name) == "pipe" ? "is a pipe" : "is a device";
    EXPECT_PRED2(contains, error_message<FileError>([&] { (void)read_text(path, small_file); }), expected);
    EXPECT_PRED2(contains, error_message<FileError>([&] { (void)read_file(path, small_file); }), expected);
    EXPECT_PRED2(contains, error_message<FileError>([&] { FileReader{path}; }), expected);
    EXPECT_PRED2(contains, error_message<FileError>([&] { sync_file(path); }), expected);
    EXPECT_PRED2(contains, error_message<FileError>([&] { (void)size_of_file(path); }), expected);
  }
  EXPECT_THROW(FileWriter(directory / "pipe"), FileError);
  alarm(0);
}

TEST(File, NoMoreIsReadThanTheLimit) {
  const TempDir directory;
  write_file_synced(directory / "f", std::string(100, 'x'));
  EXPECT_EQ(read_text(directory / "f", {100, "strings"}).size(), 100u);
  EXPECT_PRED2(contains, error_message<FileError>([&] {
                 (void)read_text(directory / "f", {99, "strings"});
               }),
               "f: 100 bytes; strings may have at most 99");
  // Of a size that no memory has, without a byte on the disk.
  std::filesystem::resize_file(directory / "f", std::uintmax_t{1} << 42);
  EXPECT_PRED2(contains, error_message<OutOfMemory>([&] {
                 (void)read_file(directory / "f", {UINT64_MAX, "strings"});
               }),
               "f: 4398046511104 bytes are to be held in memory, of which ");
  std::istringstream stream(std::string(100, 'y'));
  EXPECT_EQ(read_stream(stream, "the input", {100, "strings"}).size(), 100u);
  std::istringstream more(std::string(1'000'000, 'y'));
  EXPECT_PRED2(contains, error_message<FileError>([&] {
                 (void)read_stream(more, "the input", {100, "strings"});
               }),
               "the input: more than 100 bytes, which is the most that strings may have");
}

TEST(StandardStreams, ThatAreClosedAreNoFiles) {
  const TempDir folder;
  folder.write("a", {1, 2, 3});
  const int standard_input = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  ::close(STDIN_FILENO);
  {
    const FileReader reader(folder / "a");
    const FileWriter writer(folder / "b");
    EXPECT_EQ(::fcntl(STDIN_FILENO, F_GETFD), -1) << "the lowest number that is free is none of a file's";
  }
  open_standard_streams();
  char byte = 0;
  EXPECT_GE(::fcntl(STDIN_FILENO, F_GETFD), 0);
  EXPECT_EQ(::read(STDIN_FILENO, &byte, 1), -1);
  ::dup2(standard_input, STDIN_FILENO);
  ::close(standard_input);
}

}  // namespace
}  // namespace hearth::file_test
