// SPDX-License-Identifier: Apache-2.0
// Sets that are packed into tar shards and TFRecord files, and streams of them.
#include "data/formats/shards.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "core/build.h"
#include "core/error.h"
#include "core/io/file.h"
#include "data/formats/records.h"
#include "data/packing/pack_records.h"
#include "data/source/file_opener.h"
#include "tests/data/formats/damaged_file.h"
#include "tests/data/formats/numbered_image.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::shards_test {
namespace {

using test::contains;
using test::error_message;
using test::flip;

namespace fs = std::filesystem;

using Bytes = std::vector<std::uint8_t>;

struct PackedShardsTest : testing::Test {
  test::TempDir folder;
  const std::string source = folder / "images";

  void SetUp() override {
    if (!HEARTH_HAS_PNG) GTEST_SKIP() << "this build lacks libpng";
    for (int i = 0; i < 30; ++i) put(join_text("images/", i % 3 == 0 ? "cat" : "dog", "/", 10 + i, ".png"), i);
  }
  void put(const std::string& name, int number) const { test::write_numbered_image(folder / name, number); }
  DataSplits data_of(const std::string& type, const std::string& path, const std::string& more = "") const {
    return make_data(parse_json(join_text(R"({"type": ")", type, R"(", "path": ")", path, R"(",
        "augment": {"image_size": 8, "random_resized_crop": true, "flip": true}, "workers": 0)",
                                          more, "}"),
                                "test"));
  }
  DataSplits folder_data(const std::string& more = "") const {
    return data_of("image_folder", source, R"(, "test_fraction": 0.3)" + more);
  }
  std::string packed(const DataSplits& data, PackFormat format, PackOptions options = {.records_per_file = 4}) const {
    const std::string path = folder / name_of(format);
    options.format = format;
    pack_records(data, path, options);
    return path;
  }
  static std::string text_of(const Batch& batch) {
    std::string all;
    for (const char* name : {"images", "labels"}) {
      const Tensor tensor = batch[name];
      all.append(reinterpret_cast<const char*>(tensor.bytes()), tensor.byte_size());
    }
    return all;
  }
  /// All bytes of two epochs of batches.
  static std::string batches(const DataSplits& data) {
    std::string all;
    Loader loader = data.train_loader(3, 7);
    for (std::int64_t i = 0; i < 2 * loader.batches_per_epoch(); ++i) all += text_of(loader.next());
    return all;
  }
};

TEST_F(PackedShardsTest, EveryFileIsOpenOnce) {
  const DataSplits from_folder = folder_data();
  const auto open_files_of = [](const std::string& path) {
    std::int64_t count = 0;
    for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      count += fs::read_symlink(entry.path(), gone).string().starts_with(path + "/") ? 1 : 0;
    }
    return count;
  };
  for (const PackFormat format : {PackFormat::records, PackFormat::webdataset, PackFormat::tfrecord}) {
    const std::string path = packed(from_folder, format);
    std::int64_t files = 0;
    for (const std::string& name : list_directory(path))
      files += name.find(".json") == name.npos && name.find("index") == name.npos ? 1 : 0;
    const DataSplits data = data_of(name_of(format), path);
    (void)batches(data);
    EXPECT_GE(files, 8) << name_of(format);
    EXPECT_EQ(open_files_of(fs::canonical(path)), files) << name_of(format);
  }
}

TEST_F(PackedShardsTest, BatchesHaveTheBitsOfTheFolder) {
  const DataSplits from_folder = folder_data();
  const std::string expected = batches(from_folder);
  for (const PackFormat format : {PackFormat::records, PackFormat::webdataset, PackFormat::tfrecord}) {
    const DataSplits data = data_of(name_of(format), packed(from_folder, format));
    EXPECT_EQ(batches(data), expected) << name_of(format);
    EXPECT_EQ(data.image_options.normalize.mean, from_folder.image_options.normalize.mean);
    EXPECT_EQ(data.train->class_names(), from_folder.train->class_names());
    ASSERT_EQ(data.test->size(), from_folder.test->size());
    for (std::int64_t i = 0; i < data.test->size(); ++i)
      EXPECT_EQ(data.test->images()->get(i).image, from_folder.test->images()->get(i).image);
  }
}

TEST_F(PackedShardsTest, HoldOutTheImagesOfTheFolder) {
  const DataSplits from_folder = folder_data();
  const std::string held = R"(, "valid_fraction": 0.2)";
  const DataSplits expected = folder_data(held);
  const auto names = [](const DataSplits& data) {
    std::vector<std::string> all;
    for (std::int64_t i = 0; i < data.valid->size(); ++i) all.push_back(data.valid->images()->sample_name(i));
    return all;
  };
  for (const PackFormat format : {PackFormat::records, PackFormat::webdataset, PackFormat::tfrecord}) {
    const std::string path = packed(from_folder, format);
    EXPECT_EQ(names(data_of(name_of(format), path, held)), names(expected)) << name_of(format);
  }
}

TEST_F(PackedShardsTest, ClassesMayBeCalledByNumbers) {
  fs::remove_all(source);
  for (int i = 0; i < 12; ++i)
    put(join_text("images/train/", i % 3 == 0 ? "1" : i % 3 == 1 ? "2" : "10", "/", 10 + i, ".png"), i);
  const DataSplits from_folder = data_of("image_folder", source);
  const std::vector<std::string> classes{"1", "10", "2"};
  ASSERT_EQ(from_folder.train->class_names(), classes);
  const std::string expected = batches(from_folder);
  for (const PackFormat format : {PackFormat::webdataset, PackFormat::tfrecord}) {
    const std::string path = packed(from_folder, format);
    const DataSplits data = data_of(name_of(format), path);
    EXPECT_EQ(data.train->class_names(), classes);
    EXPECT_EQ(batches(data), expected) << name_of(format);
    const auto with = [&](const char* names) { return data_of(name_of(format), path, names); };
    EXPECT_EQ(batches(with(R"(, "classes": ["1", "10", "2"])")), expected);
    EXPECT_TRUE(contains(error_message<ConfigError>([&] { with(R"(, "classes": ["2", "10", "1"])"); }),
                         "was packed with other classes"));
  }
}

TEST_F(PackedShardsTest, PixelsBecomePngWithTheSameBits) {
  const DataSplits digits = make_data(parse_json(R"({"type": "digits", "workers": 0})", "test"));
  const DataSplits shrunk = folder_data(R"(, "shrink_to": 9)");
  for (const PackFormat format : {PackFormat::webdataset, PackFormat::tfrecord}) {
    const std::string path = packed(digits, format, {.records_per_file = 400});
    const ImageSplits read =
        format == PackFormat::webdataset ? webdataset({{.path = path}}) : tfrecord({{.path = path}});
    EXPECT_EQ(read.train->image_shape(), (ImageShape{8, 8, 1}));
    for (const std::int64_t i : {0, 1, 555, 1400})
      EXPECT_EQ(read.train->get(i).image, digits.train->images()->get(i).image);
    fs::remove_all(path);
    const DataSplits data = data_of(name_of(format), packed(shrunk, format));
    EXPECT_EQ(batches(data), batches(shrunk));
    EXPECT_EQ(data.train->images()->shrinks_to(), 9);
  }
}

TEST_F(PackedShardsTest, QualityStoresJpegs) {
  if (!HEARTH_HAS_JPEG) GTEST_SKIP() << "this build lacks libjpeg";
  const DataSplits data = folder_data(R"(, "shrink_to": 9)");
  for (const PackFormat format : {PackFormat::records, PackFormat::webdataset}) {
    const DataSplits jpegs = data_of(name_of(format), packed(data, format, {.quality = 95}));
    Bytes file;
    ASSERT_TRUE(jpegs.train->images()->encoded(0, file));
    EXPECT_EQ(file[0], 0xff);
    EXPECT_EQ(file[1], 0xd8);
    const Image a = data.train->images()->get(0).image, b = jpegs.train->images()->get(0).image;
    EXPECT_EQ(a.height, b.height);
    EXPECT_EQ(a.width, b.width);
  }
  EXPECT_TRUE(
      contains(error_message<UsageError>([&] { packed(data, PackFormat::tfrecord, {.quality = 101}); }), "101"));
  const DataSplits digits = make_data(parse_json(R"({"type": "digits", "workers": 0})", "test"));
  pack_records(digits, folder / "grey", {.quality = 95});
  const ImageSplits grey = records(folder / "grey");
  Image image;
  Region region;
  const auto whole = [](int height, int width) {
    return Sizing{{0, 0, height, width}, height, width, {0, 0, height, width}, ResizeFilter::bilinear};
  };
  EXPECT_EQ(grey.train->image_shape(), (ImageShape{8, 8, 1}));
  EXPECT_EQ(grey.train->get(3).image.channels, 1);
  EXPECT_EQ(grey.train->try_read_region(3, whole, image, region), digits.train->images()->label(3));
  EXPECT_EQ(image, grey.train->get(3).image);
}

TEST_F(PackedShardsTest, AnInterruptedPackGoesOn) {
  struct Interrupted {};
  const DataSplits data = folder_data();
  const std::string path = folder / "tfrecord";
  const auto pack_until = [&](std::int64_t most) {
    pack_records(
        data, path,
        {.records_per_file = 4, .format = PackFormat::tfrecord, .progress = [&](std::int64_t done, std::int64_t) {
           if (done == most) throw Interrupted();
         }});
  };
  EXPECT_THROW(pack_until(3), Interrupted);
  const auto written = fs::last_write_time(path + "/train-00000.tfrecord");
  flip(path + "/train-00001.tfrecord", 8 * 100);
  pack_until(-1);
  EXPECT_EQ(fs::last_write_time(path + "/train-00000.tfrecord"), written) << "what was there is kept";
  EXPECT_EQ(batches(data_of("tfrecord", path)), batches(data));
  EXPECT_TRUE(contains(error_message<UsageError>([&] { pack_until(-1); }), "holds a packed set"));
}

TEST_F(PackedShardsTest, ShardsThatAreNotThoseOfTheManifestAreNamed) {
  const std::string path = packed(folder_data(), PackFormat::webdataset), first = path + "/train-000000.tar";
  EXPECT_TRUE(verify_shards(path).empty());
  const SourceFilePointer opened = open_source(first);
  const SourceFile& file = *opened;
  std::vector<FoundSample> samples = webdataset_kind({})->scan(file);
  flip(first, 8 * (samples[2].offset + 20));
  const std::vector<std::string> faults = verify_shards(path);
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_TRUE(contains(faults[0], "train-000000.tar"));
  const std::string message = error_message<DataError>([&] { data_of("webdataset", path).train->images()->get(2); });
  EXPECT_TRUE(contains(message, join_text("train-000000.tar: record 2 (cat/25.png) at offset ", samples[2].offset)))
      << message;
  fs::resize_file(first, fs::file_size(first) - 512);
  EXPECT_TRUE(contains(error_message<DataError>([&] { data_of("webdataset", path); }), "was cut off or replaced"));
  fs::remove(first);
  EXPECT_TRUE(contains(error_message<FileError>([&] { data_of("webdataset", path); }), "train-000000.tar"));
}

TEST_F(PackedShardsTest, AShardThatShrinksWhileItIsOpenIsADataError) {
  const std::string path = packed(folder_data(), PackFormat::webdataset);
  const DataSplits data = data_of("webdataset", path);
  fs::resize_file(path + "/train-000001.tar", 700);
  EXPECT_TRUE(contains(error_message<DataError>([&] { data.train->images()->get(6); }), "train-000001.tar: record 2"));
}

TEST_F(PackedShardsTest, StreamsShuffleThroughABuffer) {
  const std::string path = packed(folder_data(), PackFormat::webdataset);
  const DataSplits data = data_of("webdataset", path, R"(, "stream": true, "shuffle_buffer": 5)");
  const ImageDataset& set = *data.train->images();
  const auto order = set.stream_order(1, 0);
  EXPECT_EQ(std::set<std::int64_t>(order.begin(), order.end()).size(), static_cast<std::size_t>(set.size()));
  EXPECT_EQ(order.size(), static_cast<std::size_t>(set.size()));
  EXPECT_EQ(set.stream_order(1, 0), order);
  EXPECT_NE(set.stream_order(1, 1), order);
  EXPECT_NE(set.stream_order(2, 0), order);
  // No sample leaves before it has come: with shards of 4 and a buffer of 5, only 9 samples have come before the 5th
  // leaves.
  std::set<std::int64_t> shards;
  for (std::size_t i = 0; i < 4; ++i) shards.insert(order[i] / 4);
  EXPECT_LE(shards.size(), 3u);
  EXPECT_TRUE(data_of("webdataset", path).train->images()->stream_order(1, 0).empty());
}

TEST_F(PackedShardsTest, StreamsResumeWithTheSameBatches) {
  const std::string path = packed(folder_data(), PackFormat::tfrecord);
  const DataSplits data = data_of("tfrecord", path, R"(, "stream": true, "shuffle_buffer": 7)");
  std::vector<std::string> all;
  std::multiset<std::int64_t> seen;
  Loader loader = data.train_loader(3, 9);
  const std::int64_t batches = loader.batches_per_epoch();
  for (std::int64_t i = 0; i < 2 * batches; ++i) {
    const Batch batch = loader.next();
    if (i < batches) seen.insert(batch.samples.begin(), batch.samples.end());
    all.push_back(text_of(batch));
  }
  EXPECT_EQ(std::set<std::int64_t>(seen.begin(), seen.end()).size(), seen.size()) << "each sample once an epoch";
  for (std::int64_t from = 0; from < 2 * batches; from += 3) {
    Loader resumed = data.train_loader(3, 9);
    resumed.seek(from / batches, from % batches);
    for (std::int64_t i = from; i < 2 * batches; ++i)
      EXPECT_EQ(text_of(resumed.next()), all[static_cast<std::size_t>(i)]);
  }
}

TEST_F(PackedShardsTest, APartOfAStreamKeepsItsOrder) {
  const std::string path = packed(folder_data(), PackFormat::webdataset);
  const DataSplits data =
      data_of("webdataset", path, R"(, "stream": true, "shuffle_buffer": 5, "valid_fraction": 0.4)");
  const auto order = data.train->images()->stream_order(3, 1);
  EXPECT_EQ(std::set<std::int64_t>(order.begin(), order.end()).size(), static_cast<std::size_t>(data.train->size()));
  EXPECT_EQ(order.size(), static_cast<std::size_t>(data.train->size()));
}

}  // namespace
}  // namespace hearth::data::shards_test
