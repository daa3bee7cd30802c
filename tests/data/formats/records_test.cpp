// SPDX-License-Identifier: Apache-2.0
// Record files: their layout, damage of every kind, and sets of images that are packed into them.
#include "data/formats/records.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/build.h"
#include "core/error.h"
#include "core/random.h"
#include "data/fingerprint.h"
#include "data/formats/image_folder.h"
#include "data/packing/pack_records.h"
#include "data/source/little_endian.h"
#include "data/source/record_file.h"
#include "tests/data/formats/damaged_file.h"
#include "tests/data/formats/numbered_image.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::records_test {
namespace {

using test::bytes_of_file;
using test::contains;
using test::error_message;
using test::flip;

namespace fs = std::filesystem;

using Bytes = std::vector<std::uint8_t>;

struct RecordFileTest : testing::Test {
  test::TempDir folder;
  fs::path path = folder / "a.ffr";

  void write(const std::vector<std::string>& records) const {
    RecordWriter writer(path, static_cast<std::int64_t>(records.size()));
    for (const std::string& record : records) writer.add({bytes_of(record)});
    writer.finish();
  }
  static std::string text(const RecordFile& file, std::int64_t record) {
    Bytes content;
    file.read(record, content);
    return {content.begin(), content.end()};
  }
  /// Opens the file and reads all of it.
  void read_all() const {
    const RecordFile file(path);
    for (std::int64_t i = 0; i < file.size(); ++i) text(file, i);
  }
  void write_samples() const {
    std::vector<std::string> records;
    for (std::size_t i = 0; i < 9; ++i) records.emplace_back(i * 7, static_cast<char>('a' + i));
    write(records);
  }
};

TEST_F(RecordFileTest, HasTheLayoutOfFfrecord) {
  write({"123456789", ""});
  const Bytes expected{0x50, 0x17, 0x8b, 0x4e,                    // of the header; see the next line
                       2,    0,    0,    0,    0,   0,   0,   0,  // two records
                       0x26, 0x39, 0xf4, 0xcb, 0,   0,   0,   0,  // their checksums
                       36,   0,    0,    0,    0,   0,   0,   0,   45, 0, 0, 0, 0, 0, 0, 0,  // their offsets
                       '1',  '2',  '3',  '4',  '5', '6', '7', '8', '9'};
  Bytes found = bytes_of_file(path);
  ASSERT_EQ(found.size(), expected.size());
  EXPECT_TRUE(std::equal(found.begin() + 4, found.end(), expected.begin() + 4));
  EXPECT_FALSE(fs::exists(path.string() + ".part"));
  const RecordFile file(path);
  ASSERT_EQ(file.size(), 2);
  EXPECT_EQ(text(file, 0), "123456789");
  EXPECT_EQ(text(file, 1), "");
  EXPECT_EQ(file.place(1), path.string() + ": record 1 at offset 45");
  EXPECT_THROW((void)text(file, 2), IndexError);
  write({});
  EXPECT_EQ(RecordFile(path).size(), 0);
}

TEST_F(RecordFileTest, WriterHoldsItsPromise) {
  {
    RecordWriter writer(path, 1);
    EXPECT_THROW(writer.finish(), UsageError);
    writer.add({bytes_of("a")});
    EXPECT_THROW(writer.add({bytes_of("b")}), UsageError);
  }
  EXPECT_TRUE(fs::is_empty(folder.path())) << "nothing stays of a file that was not finished";
  EXPECT_THROW(RecordWriter(folder / "nowhere/a.ffr", 1), FileError);
}

TEST_F(RecordFileTest, EveryFlippedBitIsFoundWithItsPlace) {
  write_samples();
  const std::uint64_t bits = 8 * fs::file_size(path), header_bits = 8 * (12 + 12 * 9);
  const RecordFile whole(path);
  Random random(1, 0);
  for (int trial = 0; trial < 10'000; ++trial) {
    const std::uint64_t bit = random.next_u32() % bits;
    flip(path, bit);
    try {
      read_all();
      ADD_FAILURE() << "bit " << bit << " went unnoticed";
    } catch (const DataError& error) {
      std::string place = "offset ";
      for (std::int64_t i = 0; bit >= header_bits && i < whole.size(); ++i)
        if (bit / 8 >= whole.offset(i) && bit / 8 < whole.offset(i) + whole.bytes(i)) place = whole.place(i);
      EXPECT_TRUE(contains(error.what(), path.string()) && contains(error.what(), place)) << bit << error.what();
    }
    flip(path, bit);
  }
  read_all();
}

TEST_F(RecordFileTest, TruncatedAndExtendedFilesAreFound) {
  write_samples();
  const Bytes whole = bytes_of_file(path);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    folder.write("a.ffr", Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)));
    EXPECT_TRUE(contains(error_message<DataError>([&] { read_all(); }), "offset")) << length;
  }
  for (const std::size_t more : {1, 100}) {
    Bytes longer = whole;
    longer.resize(whole.size() + more);
    folder.write("a.ffr", longer);
    EXPECT_TRUE(contains(error_message<DataError>([&] { read_all(); }), "record 8 at offset")) << more;
  }
  fs::remove(path);
  EXPECT_THROW(read_all(), FileError);
}

TEST_F(RecordFileTest, AFileThatShrinksWhileItIsOpenIsADataError) {
  write_samples();
  const RecordFile file(path);
  fs::resize_file(path, file.offset(5) + 3);
  EXPECT_EQ(text(file, 4).size(), 28u);
  EXPECT_TRUE(contains(error_message<DataError>([&] { (void)text(file, 5); }), file.place(5)));
  EXPECT_TRUE(contains(error_message<DataError>([&] { (void)text(file, 8); }), file.place(8)));
}

TEST_F(RecordFileTest, HeadersAreBoundedBeforeMemoryIsTaken) {
  const auto with_count = [&](std::uint64_t count) {
    Bytes bytes(64);
    std::memcpy(bytes.data() + 4, &count, 8);
    folder.write("a.ffr", bytes);
  };
  for (const std::uint64_t count :
       {std::uint64_t{5}, std::uint64_t{1} << 40, std::uint64_t{1} << 61, ~std::uint64_t{0}}) {
    with_count(count);
    EXPECT_TRUE(contains(error_message<DataError>([&] { read_all(); }), "can hold")) << count;
  }
  // A sparse file whose header is whole, with a record of 3 GiB.
  write({"a"});
  fs::resize_file(path, std::uint64_t{3} << 30);
  EXPECT_TRUE(contains(error_message<DataError>([&] { read_all(); }), "at most"));
}

struct RecordsTest : testing::Test {
  test::TempDir folder;
  const std::string source = folder / "images", packed = folder / "packed";

  void SetUp() override {
    if (!HEARTH_HAS_PNG) GTEST_SKIP() << "this build lacks libpng";
    for (int i = 0; i < 20; ++i) put(join_text("images/", i % 2 == 0 ? "cat" : "dog", "/", 10 + i, ".png"), i);
  }
  void put(const std::string& name, int number) const { test::write_numbered_image(folder / name, number); }
  DataSplits folder_data(int workers = 0, const std::string& more = "") const {
    return make_data(parse_json(join_text(R"({"type": "image_folder", "path": ")", source, R"(", "test_fraction": 0.3,
        "augment": {"image_size": 8, "random_resized_crop": true, "flip": true}, "workers": )",
                                          workers, more, "}"),
                                "test"));
  }
  DataSplits packed_data(int workers = 0) const {
    return make_data(parse_json(join_text(R"({"type": "records", "path": ")", packed, R"(",
        "augment": {"image_size": 8, "random_resized_crop": true, "flip": true}, "workers": )",
                                          workers, "}"),
                                "test"));
  }
  /// All bytes of two epochs of batches.
  static std::string batches(const DataSplits& data) {
    std::string all;
    Loader loader = data.train_loader(3, 7);
    for (std::int64_t i = 0; i < 2 * loader.batches_per_epoch(); ++i) {
      const Batch batch = loader.next();
      for (const char* name : {"images", "labels"}) {
        const Tensor tensor = batch[name];
        all.append(reinterpret_cast<const char*>(tensor.bytes()), tensor.byte_size());
      }
    }
    return all;
  }
  static void expect_same(const Dataset& a, const Dataset& b) {
    ASSERT_EQ(a.size(), b.size());
    EXPECT_EQ(a.class_names(), b.class_names());
    for (std::int64_t i = 0; i < a.size(); ++i) {
      const Sample expected = a.images()->get(i), found = b.images()->get(i);
      EXPECT_EQ(expected.image, found.image) << i;
      EXPECT_EQ(expected.label, found.label) << i;
      EXPECT_EQ(a.images()->label(i), b.images()->label(i)) << i;
      EXPECT_EQ(a.images()->sample_name(i), b.images()->sample_name(i)) << i;
    }
  }
};

TEST_F(RecordsTest, BatchesHaveTheBitsOfTheFolder) {
  const DataSplits from_folder = folder_data();
  pack_records(from_folder, packed, {.records_per_file = 4});
  EXPECT_TRUE(fs::exists(packed + "/train-00001.ffr"));
  const std::string expected = batches(from_folder);
  for (const int workers : {0, 1, 2, 4}) EXPECT_EQ(batches(packed_data(workers)), expected) << workers;
  const DataSplits data = packed_data();
  expect_same(*from_folder.train, *data.train);
  expect_same(*from_folder.test, *data.test);
  EXPECT_EQ(data.valid, nullptr);
  EXPECT_EQ(data.image_options.normalize.mean, from_folder.image_options.normalize.mean);
  Bytes content;
  RecordFile(packed + "/train-00000.ffr").read(0, content);
  const std::string name = from_folder.train->images()->sample_name(0);
  EXPECT_EQ(Bytes(content.begin() + 16, content.end()), bytes_of_file(source + "/" + name))
      << "files are kept as they are";
}

TEST_F(RecordsTest, ShrunkImagesAndImagesInMemoryArePackedAsPixels) {
  const DataSplits shrunk = folder_data(0, R"(, "shrink_to": 9)");
  pack_records(shrunk, packed);
  expect_same(*shrunk.train, *packed_data().train);
  EXPECT_EQ(packed_data().train->images()->shrinks_to(), 9);
  const DataSplits digits = make_data(parse_json(R"({"type": "digits"})", "test"));
  pack_records(digits, folder / "digits");
  const ImageSplits read = records(folder / "digits");
  expect_same(*digits.train, *read.train);
  EXPECT_EQ(read.train->image_shape(), (ImageShape{8, 8, 1}));
  EXPECT_EQ(read.statistics.mean, digits.image_options.normalize.mean);
}

TEST_F(RecordsTest, TheImageThatStandsInForABrokenOneIsPacked) {
  folder.write("images/cat/10.png", {'n', 'o'});
  EXPECT_TRUE(contains(error_message<DataError>([&] { pack_records(folder_data(), packed); }), "cat/10.png"));
  fs::remove_all(packed);
  const DataSplits data = folder_data(0, R"(, "on_error": "skip")");
  pack_records(data, packed);
  expect_same(*data.train, *packed_data().train);
  expect_same(*data.test, *packed_data().test);
}

TEST_F(RecordsTest, MoreBrokenImagesThanMayBeEndAPack) {
  folder.write("images/cat/10.png", {'n', 'o'});
  const auto data = [&](const char* budget) {
    return folder_data(0, join_text(R"(, "bad_samples": {"policy": "skip", "budget": )", budget, "}"));
  };
  const std::string message =
      error_message<DataError>([&] { pack_records(data("0"), packed, {.records_per_file = 1}); });
  EXPECT_TRUE(contains(message, " split are bad, and 0 of")) << message;
  EXPECT_TRUE(contains(message, "cat/10.png"));
  EXPECT_THROW(pack_records(data("0"), packed, {.records_per_file = 1}), DataError) << "the second time too";
  fs::remove_all(packed);
  const DataSplits allowed = data("1");
  pack_records(allowed, packed);
  std::int64_t bad = 0;
  for (const auto& quarantine : allowed.quarantines) bad += quarantine ? quarantine->count() : 0;
  EXPECT_EQ(bad, 1);
}

TEST_F(RecordsTest, WhatAnInterruptedStartLeftIsRemoved) {
  for (const char* name : {".packing.json.tmp-123-1", ".records.json.tmp-123-2"})
    folder.write(std::string("packed/") + name, {'{'});
  pack_records(folder_data(), packed);
  for (const std::string& name : list_directory(packed)) EXPECT_EQ(name.find(".tmp-"), name.npos) << name;
}

TEST_F(RecordsTest, AnInterruptedPackGoesOn) {
  struct Interrupted {};
  const DataSplits data = folder_data();
  const auto interrupt = [&](std::int64_t after) {
    pack_records(data, packed, {.records_per_file = 4, .progress = [&](std::int64_t done, std::int64_t) {
                                  if (done == after) throw Interrupted();
                                }});
  };
  EXPECT_THROW(interrupt(2), Interrupted);
  EXPECT_THROW(packed_data(), FileError) << "there is no manifest yet";
  const auto written = fs::last_write_time(packed + "/train-00000.ffr");
  flip(packed + "/train-00001.ffr", 8 * 100);
  EXPECT_TRUE(contains(error_message<UsageError>([&] { pack_records(data, packed, {.records_per_file = 5}); }),
                       "unfinished pack of other data"));
  pack_records(data, packed, {.records_per_file = 4});
  EXPECT_EQ(fs::last_write_time(packed + "/train-00000.ffr"), written) << "what was there is kept";
  expect_same(*data.train, *packed_data().train);
  EXPECT_TRUE(contains(error_message<UsageError>([&] { pack_records(data, packed); }), "holds a packed set"));
  EXPECT_TRUE(contains(error_message<UsageError>([&] { pack_records(data, source); }), "is not empty"));
}

TEST_F(RecordsTest, FilesThatAreNotThoseOfTheManifestAreRefused) {
  pack_records(folder_data(), packed, {.records_per_file = 4});
  const std::string first = packed + "/train-00000.ffr", second = packed + "/train-00001.ffr";
  const Bytes whole = bytes_of_file(first);
  fs::resize_file(first, whole.size() + 5);
  EXPECT_TRUE(contains(error_message<DataError>([&] { packed_data(); }), "train-00000.ffr: 4 records in"));
  fs::remove(first);
  EXPECT_TRUE(contains(error_message<FileError>([&] { packed_data(); }), "train-00000.ffr"));
  folder.write("packed/train-00000.ffr", whole);
  {
    RecordWriter other(first, 4);  // as long, with other content
    const RecordFile before(first);
    for (std::int64_t i = 0; i < 4; ++i) other.add({std::vector<std::byte>(before.bytes(i))});
    other.finish();
  }
  EXPECT_TRUE(contains(error_message<DataError>([&] { packed_data(); }), "one of them was replaced"));
  folder.write("packed/train-00000.ffr", whole);
  const Json before = fingerprint(packed_data());
  flip(second, 8 * (fs::file_size(second) - 1));
  const DataSplits data = packed_data();
  EXPECT_EQ(fingerprint(data), before) << "the headers are whole";
  EXPECT_TRUE(contains(error_message<DataError>([&] { batches(data); }), "train-00001.ffr: record 3 at offset"));
}

TEST_F(RecordsTest, CountsOfTheManifestThatAreNotThoseOfTheFilesAreRefused) {
  pack_records(folder_data(), packed);
  const std::string path = packed + "/records.json";
  const Json manifest = parse_json(read_text(path), path);
  const auto refusal = [&](const char* key, const Json& value) {
    Json train = manifest.at("splits").at("train"), splits = manifest.at("splits"), changed = manifest;
    changed.set("splits", splits.set("train", train.set(key, value)));
    write_file_synced(path, to_text(changed));
    return error_message<DataError>([&] { records(packed); });
  };
  EXPECT_TRUE(contains(refusal("samples", 7), "says 7 of the samples"));
  EXPECT_TRUE(
      contains(refusal("samples_by_class", Json::array_of(std::vector<int>{1, 2})), "of classes [1,2], and there"));
  write_file_synced(path, to_text(manifest));
  EXPECT_NO_THROW(records(packed));
}

TEST_F(RecordsTest, OtherContentIsAnotherFingerprint) {
  pack_records(folder_data(), packed);
  const Json before = fingerprint(packed_data());
  put("images/cat/12.png", 99);
  fs::remove_all(packed);
  pack_records(folder_data(), packed);
  EXPECT_FALSE(fingerprint_changes(before, fingerprint(packed_data()), {"cat", "dog"}).empty());
}

TEST_F(RecordsTest, RecordsThatAreNoImagesOfTheSetAreRefused) {
  pack_records(make_data(parse_json(
                   R"({"type": "synthetic", "train_size": 1, "test_size": 1, "height": 2, "width": 2})", "test")),
               packed);
  const std::string manifest = read_text(packed + "/records.json");
  const auto read_first = [&](const std::vector<std::uint32_t>& header, std::size_t pixels) {
    const std::string file = packed + "/train-00000.ffr";
    RecordWriter writer(file, 1);
    writer.add({little_endian(header), std::vector<std::byte>(pixels)});
    writer.finish();
    Json changed = parse_json(manifest, "test");
    changed.at("splits");
    changed.find("splits")->find("train")->find("files")->items()[0].set("bytes", size_of_file(file));
    return [&, changed]() mutable {
      write_file_synced(packed + "/records.json", to_text(changed));
      const std::string message = error_message<DataError>([&] { (void)records(packed); });
      // The message has the hash that the manifest should have.
      changed.set("sha256", message.substr(message.find("the content ") + 12, 64));
      write_file_synced(packed + "/records.json", to_text(changed));
      Image image;
      return error_message<DataError>([&] { records(packed).train->read(0, image); });
    }();
  };
  const std::uint32_t label = static_cast<std::uint32_t>(records(packed).train->label(0));
  const std::string place = "record 0 at offset 24: ";
  EXPECT_TRUE(contains(read_first({label, 3, 3, 3}, 27), place + "an image of 3 x 3 x 3 in a set of 2 x 2 x 3"));
  EXPECT_TRUE(contains(read_first({label, 2, 2, 3}, 11), place + "11 bytes for an image of 2 x 2 x 3"));
  EXPECT_TRUE(contains(read_first({label, 2, 0, 3}, 0), place + "an image of 2 x 0 x 3"));
  EXPECT_TRUE(contains(read_first({label, ~0u, ~0u, 3}, 0), place + "an image of 4294967295 x 4294967295 x 3"));
  EXPECT_TRUE(contains(read_first({label + 1, 2, 2, 3}, 12), place + "label"));
  EXPECT_TRUE(contains(read_first({label, 0, 0}, 0), place + "12 bytes are too few"));
  EXPECT_TRUE(contains(read_first({label, 0, 0, 0}, 5), place + "neither JPEG"));
}

TEST_F(RecordsTest, ADamagedManifestIsAnErrorOfData) {
  pack_records(folder_data(), packed);
  const std::string path = packed + "/records.json", whole = read_text(path);
  Random random(3, 0);
  for (int trial = 0; trial < 300; ++trial) {
    std::string damaged = whole;
    damaged[random.next_u32() % damaged.size()] ^= static_cast<char>(1 << random.next_u32() % 8);
    if (trial % 3 == 0) damaged.resize(random.next_u32() % damaged.size());
    std::ofstream(path, std::ios::binary) << damaged;
    try {
      const ImageSplits splits = records(packed);  // of a number of the statistics, say, the damage is not told
      Image image;
      if (splits.train) splits.train->read(0, image);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 3) << error.what();
    }
  }
  std::string outside = whole;
  outside.replace(outside.find("train-00000.ffr"), 15, "../../etc/hosts");
  std::ofstream(path, std::ios::binary) << outside;
  EXPECT_TRUE(contains(error_message<DataError>([&] { records(packed); }), "no name of a file in this folder"));
}

}  // namespace
}  // namespace hearth::data::records_test
