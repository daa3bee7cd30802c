// SPDX-License-Identifier: Apache-2.0
// TFRecord files: layout, and damage of every kind.
#include "data/formats/shards.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "core/random.h"
#include "data/formats/example.h"
#include "data/source/file_opener.h"
#include "data/source/tfrecord.h"
#include "tests/data/formats/damaged_file.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::tfrecord_test {
namespace {

using test::bytes_of_file;
using test::contains;
using test::error_message;
using test::flip;

namespace fs = std::filesystem;

using Bytes = std::vector<std::uint8_t>;

struct TfRecordTest : testing::Test {
  test::TempDir folder;
  fs::path path = folder / "train-0.tfrecord";

  static std::string example(const std::string& image, std::int64_t label) {
    ExampleBuilder builder;
    builder.add("image/format", bytes_of("png"));
    builder.add("image/class/label", label);
    builder.add("image/encoded", bytes_of(image));
    return builder.message();
  }
  void write(const std::vector<std::string>& records) const {
    TfRecordWriter writer(path);
    for (const std::string& record : records) writer.add(bytes_of(record));
    writer.finish();
  }
  ImageDatasetPointer open() const {
    TfRecordOptions options;
    options.train = path.string();
    return tfrecord(options).train;
  }
  std::string fault() const {
    return error_message<DataError>([&] {
      const ImageDatasetPointer set = open();
      Bytes file;
      for (std::int64_t i = 0; i < set->size(); ++i) set->encoded(i, file);
    });
  }
};

TEST_F(TfRecordTest, HasTheKnownLayout) {
  write({"hello"});
  // Made with another implementation of the checksum, from the description of the format.
  const Bytes expected{5, 0, 0, 0, 0, 0, 0, 0, 0xea, 0xb2, 0x04, 0x3e, 'h', 'e', 'l', 'l', 'o', 0xbb, 0x1f, 0x1c, 0x19};
  EXPECT_EQ(bytes_of_file(path), expected);
}

TEST_F(TfRecordTest, EveryFlippedBitIsFoundWithItsPlace) {
  write({example("some image", 0), example("another", 1), example(std::string(90, 'i'), 2)});
  std::vector<TfRecord> records;
  {
    const SourceFilePointer opened = open_source(path);
    const SourceFile& file = *opened;
    FileWindow window(file);
    scan_tfrecord(file, window, [&](const TfRecord& record) { records.push_back(record); });
  }
  ASSERT_EQ(records.size(), 3u);
  for (std::uint64_t bit = 0; bit < 8 * fs::file_size(path); ++bit) {
    flip(path, bit);
    std::size_t at = records.size() - 1;
    while (bit / 8 < records[at].offset) --at;
    const std::string message = fault();
    EXPECT_TRUE(contains(message, path.string()) && contains(message, join_text("record ", at)) &&
                contains(message, join_text("at offset ", records[at].offset)))
        << bit << message;
    flip(path, bit);
  }
  EXPECT_EQ(open()->size(), 3);
}

TEST_F(TfRecordTest, TruncatedAndExtendedFilesAreFound) {
  write({example("some image", 0), example("another", 1)});
  const Bytes whole = bytes_of_file(path);
  const SourceFilePointer opened = open_source(path);
  const SourceFile& file = *opened;
  std::uint64_t second = 0;
  FileWindow window(file);
  scan_tfrecord(file, window, [&](const TfRecord& record) { second = record.offset; });
  for (std::size_t length = 1; length < whole.size(); ++length) {
    if (length == second) continue;  // a whole file of one record
    folder.write("train-0.tfrecord", Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)));
    EXPECT_TRUE(contains(fault(), length < second ? "record 0 at offset 0" : "record 1 at offset")) << length;
  }
  Bytes longer = whole;
  longer.push_back(0);
  folder.write("train-0.tfrecord", longer);
  EXPECT_TRUE(contains(fault(), "record 2 at offset"));
}

TEST_F(TfRecordTest, MessagesOfAnyBytesAreDataErrors) {
  const std::string whole = example(std::string(40, 'i'), 5);
  Random random(2, 0);
  int refused = 0;
  for (int trial = 0; trial < 300; ++trial) {
    std::string damaged = whole;
    for (int i = 0; i < 3; ++i) damaged[random.below(damaged.size())] = static_cast<char>(random.next_u32());
    if (trial % 4 == 0) damaged.resize(random.below(damaged.size()));
    write({damaged});
    try {
      Bytes file;
      open()->encoded(0, file);
    } catch (const DataError& error) {
      ++refused;
      EXPECT_TRUE(contains(error.what(), "offset 0")) << error.what();
    }
  }
  EXPECT_GT(refused, 100);
}

TEST_F(TfRecordTest, FeaturesAreNamedAndOfSeveralKinds) {
  ExampleBuilder builder;
  builder.add("jpeg", bytes_of("an image"));
  builder.add("species", bytes_of("cat"));
  write({builder.message()});
  EXPECT_TRUE(contains(fault(), "record 0 at offset 0: has no feature \"image/encoded\""));
  TfRecordOptions options;
  options.train = path.string();
  options.image = "jpeg", options.label = "species";
  const ImageDatasetPointer set = tfrecord(options).train;
  EXPECT_EQ(set->class_names(), (std::vector<std::string>{"cat"}));
  Bytes file;
  set->encoded(0, file);
  EXPECT_EQ(std::string(file.begin(), file.end()), "an image");
  // A float, not packed: field 1 of wire type 5 in a float list.
  const std::string label("\x0a\x11\x0a\x01y\x12\x0c\x12\x0a\x0a\x08\x00\x00\x40\x40\x00\x00\x40\x40", 19);
  const std::string one("\x0a\x0c\x0a\x01y\x12\x07\x12\x05\x0d\x00\x00\x40\x40", 14);
  const auto value = [&](std::string map) {
    const std::string message = '\x0a' + std::string(1, static_cast<char>(map.size())) + map;
    const BytesAt at = [&](std::uint64_t offset, std::size_t count) {
      return bytes_of(message).subspan(offset, count);
    };
    const std::vector<std::string> names{"y"};
    return one_value(at, find_features(at, 0, message.size(), names, "test")[0], "test");
  };
  EXPECT_EQ(value(one), "3");
  EXPECT_EQ(value(label), std::nullopt) << "two values";
}

}  // namespace
}  // namespace hearth::data::tfrecord_test
