// SPDX-License-Identifier: Apache-2.0
// Record files, both ways with a reader and a writer that share nothing with ours: ffrecord.py, made from the public
// description of the format.
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>

#include "core/error.h"
#include "core/io/checksum.h"
#include "core/random.h"
#include "data/source/record_file.h"
#include "tests/support/places.h"
#include "tests/support/run_program.h"

namespace hearth::data::ffrecord_test {
namespace {

const char* const python = "/usr/bin/python3";

struct Ffrecord : testing::Test {
  test::TempDir folder;
  const std::string path = folder / "a.ffr";

  void SetUp() override {
    if (access(python, X_OK) != 0) GTEST_SKIP() << "there is no " << python;
  }
  test::ProgramResult script(std::vector<std::string> words) const {
    words.insert(words.begin(), {python, test::source_dir() + "/tests/data/source/ffrecord.py"});
    return test::run_program(std::move(words), folder.path());
  }
  /// As the script prints records.
  static std::string shown(const RecordFile& file) {
    std::string text;
    std::vector<std::uint8_t> content;
    for (std::int64_t i = 0; i < file.size(); ++i) {
      file.read(i, content);
      text += join_text(content.size(), ' ', crc32(std::as_bytes(std::span(content))), '\n');
    }
    return text;
  }
};

TEST_F(Ffrecord, FilesOfTheOtherWriterAreRead) {
  for (const int count : {0, 1, 2, 100}) {
    const std::string number = std::to_string(count);
    const test::ProgramResult written = script({"write", path, "5", number});
    ASSERT_EQ(written.exit_code, 0) << written.err;
    const RecordFile file(path);
    EXPECT_EQ(file.size(), count);
    EXPECT_EQ(shown(file), script({"digest", "5", number}).out);
  }
}

TEST_F(Ffrecord, TheOtherReaderReadsOurs) {
  for (const std::int64_t count : {0, 1, 2, 100}) {
    RecordWriter writer(path, count);
    Random random(8, 0);
    for (std::int64_t i = 0; i < count; ++i) {
      std::vector<std::byte> record(random.below(5) == 0 ? 0 : random.below(50'000));
      for (std::byte& byte : record) byte = static_cast<std::byte>(random.next_u32());
      const auto half = std::span(record).first(record.size() / 2);
      writer.add({half, std::span(record).subspan(half.size())});
    }
    writer.finish();
    const test::ProgramResult read = script({"read", path});
    EXPECT_EQ(read.exit_code, 0) << read.err;
    EXPECT_EQ(read.out, shown(RecordFile(path)));
  }
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_NE(script({"read", path}).exit_code, 0) << "it looks at checksums";
}

}  // namespace
}  // namespace hearth::data::ffrecord_test
