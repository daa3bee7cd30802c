// SPDX-License-Identifier: Apache-2.0
// Tar shards as WebDataset has them, and TFRecord files: damage of every kind, and sets that are packed into them.
#include "data/formats/shards.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "core/build.h"
#include "core/error.h"
#include "core/random.h"
#include "data/formats/example.h"
#include "data/formats/record_file.h"
#include "data/formats/tar.h"
#include "data/formats/tfrecord.h"
#include "data/pack_records.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::data {
namespace {

using test::contains;
using test::error_message;

namespace fs = std::filesystem;

using Bytes = std::vector<std::uint8_t>;

Bytes bytes_of_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void flip(const fs::path& path, std::uint64_t bit) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(bit / 8));
  const int byte = file.get() ^ (1 << (bit % 8));
  file.seekp(static_cast<std::streamoff>(bit / 8));
  file.put(static_cast<char>(byte));
}

struct TarTest : testing::Test {
  test::TempDir folder;
  fs::path path = folder / "train-0.tar";

  using Members = std::vector<std::pair<std::string, std::string>>;
  void write(const Members& members) const {
    TarWriter writer(path);
    for (const auto& [name, content] : members) writer.add(name, bytes_of(content));
    writer.finish();
  }
  std::vector<TarMember> scan() const {
    std::vector<TarMember> found;
    const SourceFilePointer opened = open_source(path);
    const SourceFile& file = *opened;
    FileWindow window(file);
    scan_tar(file, window, [&](const TarMember& member) { found.push_back(member); });
    return found;
  }
  ImageSplits open(const std::string& classes = "") const {
    WebdatasetOptions options;
    options.train = path.string();
    if (!classes.empty()) options.classes = {classes};
    return webdataset(options);
  }
  std::string fault() const {
    return error_message<DataError>([&] { open(); });
  }
  /// Puts a text into a header and makes its checksum fit.
  void change_header(std::uint64_t header, std::size_t at, const std::string& text) const {
    Bytes bytes = bytes_of_file(path);
    std::copy(text.begin(), text.end(), bytes.begin() + static_cast<std::ptrdiff_t>(header + at));
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(header) + 148, 8, ' ');
    unsigned sum = 0;
    for (std::size_t i = 0; i < 512; ++i) sum += bytes[header + i];
    char digits[8];
    std::snprintf(digits, sizeof digits, "%06o", sum);
    std::copy_n(digits, 7, bytes.begin() + static_cast<std::ptrdiff_t>(header) + 148);
    folder.write("train-0.tar", bytes);
  }
};

TEST_F(TarTest, FindsWhatWasWritten) {
  write({{"a.cls", "3"}, {"a.jpg", std::string(700, 'x')}, {"b.cls", ""}});
  const auto found = scan();
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[1].name, "a.jpg");
  EXPECT_EQ(found[1].header, 1024u);
  EXPECT_EQ(found[1].offset, 1536u);
  EXPECT_EQ(found[1].bytes, 700u);
  EXPECT_EQ(found[2].bytes, 0u);
  EXPECT_EQ(fs::file_size(path) % 512, 0u);
  EXPECT_FALSE(fs::exists(path.string() + ".part"));
  { TarWriter(folder / "unfinished.tar").add("a", {}); }
  EXPECT_FALSE(fs::exists(folder / "unfinished.tar.part"));
  EXPECT_THROW(TarWriter(folder / "b.tar").add(std::string(101, 'n'), {}), UsageError);
}

TEST_F(TarTest, EveryFlippedBitOfAHeaderIsFound) {
  write({{"a.cls", "0"}, {"a.jpg", std::string(100, 'x')}, {"b.cls", "1"}, {"b.jpg", "yy"}});
  const auto members = scan();
  for (const TarMember& member : members)
    for (std::uint64_t bit = 8 * member.header; bit < 8 * (member.header + 512); ++bit) {
      flip(path, bit);
      const std::string message = fault();
      EXPECT_TRUE(contains(message, path.string()) && contains(message, join_text("at offset ", member.header)))
          << bit << message;
      flip(path, bit);
    }
  open();
}

TEST_F(TarTest, TruncatedFilesAreFound) {
  write({{"a.cls", "0"}, {"a.jpg", std::string(600, 'x')}});
  const Bytes whole = bytes_of_file(path);
  const std::size_t end = whole.size() - 1024;
  for (std::size_t length = 0; length < end; length += 37) {
    folder.write("train-0.tar", Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)));
    EXPECT_TRUE(contains(fault(), "offset")) << length;
  }
  folder.write("train-0.tar", Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(end)));
  EXPECT_TRUE(contains(fault(), "the archive ends here without the blocks of zeros"));
}

TEST_F(TarTest, HostileHeadersAreRefusedWithTheirPlace) {
  const Members sample{{"a.cls", "0"}, {"a.jpg", "xx"}};
  write(sample);
  change_header(1024, 124, "77777777777");
  EXPECT_TRUE(contains(fault(), "member \"a.jpg\" of 8589934591 bytes goes beyond the end"));
  write(sample);
  change_header(1024, 124, std::string("\x80\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12));
  EXPECT_TRUE(contains(fault(), "size that is no number"));
  write(sample);
  change_header(1024, 124, "9");
  EXPECT_TRUE(contains(fault(), "size that is no number"));
  write(sample);
  change_header(1024, 156, "S");
  EXPECT_TRUE(contains(fault(), "sparse"));
  write({{"long", std::string(70'000, 'n')}, {"a.jpg", "xx"}});
  change_header(0, 156, "L");
  EXPECT_TRUE(contains(fault(), "an extended header of 70000 bytes"));
  for (const char* records : {"12 path=a", "9999 path=a.jpg\n", "x path=a\n", "5 a=\n", "10 patha..\n", ""}) {
    write({{"pax", records}, {"a.jpg", "xx"}});
    change_header(0, 156, "x");
    const std::string message = fault();
    EXPECT_TRUE(contains(message, *records == 0 ? "has no label" : "extended header (pax)")) << records << message;
  }
  folder.write("train-0.tar", Bytes{0x1f, 0x8b, 8, 0, 1, 2, 3});
  fs::resize_file(path, 2048);
  EXPECT_TRUE(contains(fault(), "a compressed archive"));
  folder.write("train-0.tar", Bytes(2048, 7));
  EXPECT_TRUE(contains(fault(), "no tar archive"));
}

TEST_F(TarTest, LongNamesAreThoseOfTheNextMember) {
  write({{"x", std::string("some/long.name.jpg") + '\0'}, {"short", "xx"}, {"some/long.cls", "0"}});
  change_header(0, 156, "L");
  EXPECT_EQ(open().train->images()->sample_name(0), "some/long.name.jpg");
  write({{"x", "24 path=other/long.jpg\n\n"}, {"short", "xx"}, {"other/long.cls", "0"}});
  EXPECT_EQ(scan().size(), 3u);
  write({{"x", "23 path=other/long.jpg\n"}, {"short", "xx"}, {"other/long.cls", "0"}});
  change_header(0, 156, "x");
  EXPECT_EQ(open().train->images()->sample_name(0), "other/long.jpg");
}

TEST_F(TarTest, SamplesNeedAnImageAndALabel) {
  const auto message = [&](const Members& members) {
    write(members);
    return fault();
  };
  EXPECT_TRUE(
      contains(message({{"a.cls", "0"}, {"b.jpg", "x"}, {"b.cls", "0"}}), "sample a at offset 0: has no image"));
  EXPECT_TRUE(
      contains(message({{"a.jpg", "x"}, {"b.jpg", "x"}, {"b.cls", "0"}}), "sample a at offset 0: has no label"));
  EXPECT_TRUE(contains(message({{"a.jpg", "x"}, {"a.png", "x"}, {"a.cls", "0"}}), "a second image of the sample a"));
  EXPECT_TRUE(contains(message({{"a.jpg", "x"}, {"a.cls", " \n"}}), "a.cls at offset 1024: an empty label"));
  EXPECT_TRUE(contains(message({{"a.jpg", "x"}, {"a.json", "{\"label\": 1"}}), "a.json at offset 1024"));
  EXPECT_TRUE(contains(message({{"a.jpg", "x"}, {"a.json", "{}"}}), "label"));
  write({{"a.jpg", "x"}, {"a.cls", "dog"}});
  EXPECT_TRUE(contains(error_message<DataError>([&] { open("cat"); }), "the label \"dog\" is none of the 1 classes"));
}

TEST_F(TarTest, LabelsAreNumbersOrNames) {
  write({{"a.jpg", "x"},
         {"a.cls", "2\n"},
         {"b.PNG", "x"},
         {"b.json", R"({"label": 0})"},
         {".hidden", ""},
         {"README", ""}});
  const ImageSplits numbers = open();
  EXPECT_EQ(numbers.train->class_names(), (std::vector<std::string>{"0", "1", "2"}));
  EXPECT_EQ(numbers.train->label(0), 2);
  EXPECT_EQ(numbers.train->label(1), 0);
  write({{"a.jpg", "x"}, {"a.cls", "dog"}, {"b.jpg", "x"}, {"b.cls", "cat"}});
  const ImageSplits names = open();
  EXPECT_EQ(names.train->class_names(), (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(names.train->label(0), 1);
}

TEST(ShardNames, ArePatterns) {
  const test::TempDir folder;
  for (const char* name : {"b-1.tar", "b-0.tar", "c.txt"}) folder.write(name, Bytes{});
  using Names = std::vector<std::string>;
  EXPECT_EQ(expand_shards("", "a-{08..11}.tar"), (Names{"a-08.tar", "a-09.tar", "a-10.tar", "a-11.tar"}));
  EXPECT_EQ(expand_shards("d", "{x,y}-{0..1}"), (Names{"d/x-0", "d/x-1", "d/y-0", "d/y-1"}));
  EXPECT_EQ(expand_shards(folder.path(), "b-*.tar"), (Names{folder / "b-0.tar", folder / "b-1.tar"}));
  EXPECT_THROW(expand_shards(folder.path(), "z*.tar"), FileError);
  for (const char* bad : {"{0..", "{5..1}", "{0..999999999}", "{a}"})
    EXPECT_THROW(expand_shards("", bad), ConfigError) << bad;
}

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
  for (int trial = 0; trial < 3000; ++trial) {
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
  EXPECT_GT(refused, 1000);
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

struct PackedShardsTest : testing::Test {
  test::TempDir folder;
  const std::string source = folder / "images";

  void SetUp() override {
    if (!HEARTH_HAS_PNG) GTEST_SKIP() << "this build lacks libpng";
    for (int i = 0; i < 30; ++i) put(join_text("images/", i % 3 == 0 ? "cat" : "dog", "/", 10 + i, ".png"), i);
  }
  void put(const std::string& name, int number) const {
    fs::create_directories((folder / name).parent_path());
    Image image;
    image.reshape(9 + number % 5, 12, 3);
    for (std::size_t k = 0; k < image.pixels.size(); ++k)
      image.pixels[k] = static_cast<std::uint8_t>(k * 7 + static_cast<std::size_t>(number) * 13);
    write_png(folder / name, image);
  }
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

TEST_F(PackedShardsTest, BatchesHaveTheBitsOfTheFolder) {
  const DataSplits from_folder = folder_data();
  const std::string expected = batches(from_folder);
  for (const PackFormat format : {PackFormat::records, PackFormat::webdataset, PackFormat::tfrecord}) {
    const DataSplits data = data_of(name_of(format), packed(from_folder, format));
    EXPECT_EQ(batches(data), expected) << name_of(format);
    EXPECT_EQ(data.options.normalize.mean, from_folder.options.normalize.mean);
    EXPECT_EQ(data.train->class_names(), from_folder.train->class_names());
    ASSERT_EQ(data.test->size(), from_folder.test->size());
    for (std::int64_t i = 0; i < data.test->size(); ++i)
      EXPECT_EQ(data.test->images()->get(i).image, from_folder.test->images()->get(i).image);
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
  EXPECT_TRUE(contains(message, join_text("train-000000.tar: record 2 (000000002.png) at offset ", samples[2].offset)))
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
}  // namespace hearth::data
