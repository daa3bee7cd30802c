// SPDX-License-Identifier: Apache-2.0
// Tar shards as WebDataset has them: damage of every kind.
#include "data/formats/shards.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "data/images/hold_out.h"
#include "data/source/file_opener.h"
#include "data/source/tar.h"
#include "tests/data/formats/damaged_file.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::shard_files_test {
namespace {

using test::bytes_of_file;
using test::contains;
using test::error_message;
using test::flip;

namespace fs = std::filesystem;

using Bytes = std::vector<std::uint8_t>;

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
    std::vector<TarMember> members;
    const SourceFilePointer opened = open_source(path);
    const SourceFile& file = *opened;
    FileWindow window(file);
    scan_tar(file, window, [&](const TarMember& member) { members.push_back(member); });
    return members;
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
  const auto members = scan();
  ASSERT_EQ(members.size(), 3u);
  EXPECT_EQ(members[1].name, "a.jpg");
  EXPECT_EQ(members[1].header, 1024u);
  EXPECT_EQ(members[1].offset, 1536u);
  EXPECT_EQ(members[1].bytes, 700u);
  EXPECT_EQ(members[2].bytes, 0u);
  EXPECT_EQ(fs::file_size(path) % 512, 0u);
  EXPECT_FALSE(fs::exists(path.string() + ".part"));
  { TarWriter(folder / "unfinished.tar").add("a", {}); }
  EXPECT_FALSE(fs::exists(folder / "unfinished.tar.part"));
  EXPECT_THROW(TarWriter(folder / "b.tar").add(std::string(101, 'n'), {}), UsageError);
}

TEST_F(TarTest, EveryFlippedBitOfAHeaderIsFound) {
  write({{"a.cls", "0"}, {"a.jpg", std::string(100, 'x')}, {"b.cls", "1"}, {"b.jpg", "yy"}});
  for (const TarMember& member : scan())
    for (std::uint64_t at = 0; at < 8 * 512; ++at) {
      // Of the checksum itself, a bit that leaves the number as it is does no harm.
      const bool is_checksum = at / 8 >= 148 && at / 8 < 156;
      flip(path, 8 * member.header + at);
      try {
        EXPECT_EQ(open().train->size(), 2);
        EXPECT_TRUE(is_checksum) << at;
      } catch (const DataError& error) {
        EXPECT_TRUE(contains(error.what(), path.string() + ": at offset " + std::to_string(member.header))) << at;
      }
      flip(path, 8 * member.header + at);
    }
  open();
}

TEST_F(TarTest, LabelsAreNamesOrNumbersOfAWholeSet) {
  const auto labels = [&](const Members& members, std::vector<std::string> classes, const char* label = "") {
    write(members);
    WebdatasetOptions options;
    options.label = label;
    options.train = path.string();
    options.classes = std::move(classes);
    const ImageSplits splits = webdataset(options);
    std::vector<std::int64_t> read_labels;
    for (std::int64_t i = 0; i < splits.train->size(); ++i) read_labels.push_back(splits.train->label(i));
    return read_labels;
  };
  const auto two = [](const char* a, const char* b) {
    return Members{{"a.cls", a}, {"a.jpg", "x"}, {"b.cls", b}, {"b.jpg", "y"}};
  };
  EXPECT_EQ(labels(two("1", "2"), {"1", "2"}), (std::vector<std::int64_t>{0, 1})) << "names";
  EXPECT_EQ(labels(two("0", "1"), {"1", "2"}), (std::vector<std::int64_t>{0, 1})) << "numbers, as 0 is no name";
  EXPECT_EQ(labels(two("0", "1"), {"b", "a"}), (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(labels(two("b", "a"), {"b", "a"}), (std::vector<std::int64_t>{0, 1}));
  EXPECT_TRUE(contains(error_message<DataError>([&] {
                         labels(two("b", "1"), {"b", "a"});
                       }),
                       "the label \"1\" is none"));
  const Members named{{"a.name", "b"}, {"a.jpg", "x"}, {"b.name", "a"}, {"b.jpg", "y"}};
  EXPECT_EQ(labels(named, {"b", "a"}, "name"), (std::vector<std::int64_t>{0, 1})) << "where that is the label";
  EXPECT_EQ(labels({{"a.cls", "0"}, {"a.name", std::string(100'000, 'n')}, {"a.jpg", "x"}}, {"b", "a"}),
            (std::vector<std::int64_t>{0}))
      << "too long for a name";
  const Members json{{"a.json", R"({"label": 1})"}, {"a.jpg", "x"}, {"b.json", R"({"label": 1})"}, {"b.jpg", "y"}};
  EXPECT_EQ(labels(json, {"1", "2"}), (std::vector<std::int64_t>{1, 1})) << "a number is never a name";
}

TEST_F(TarTest, HoldingOutDrawsByNamesThatAreApart) {
  const auto hold = [&](const std::vector<Members>& shards) {
    for (std::size_t i = 0; i < shards.size(); ++i) {
      TarWriter writer(folder / join_text("train-", i, ".tar"));
      for (const auto& [name, content] : shards[i]) writer.add(name, bytes_of(content));
      writer.finish();
    }
    WebdatasetOptions options;
    options.path = folder.path().string();
    return hold_out(webdataset(options).train, 0.2, 0, "valid").held_out->size();
  };
  std::vector<Members> same(20);
  for (Members& shard : same)
    for (const char* name : {"0", "1", "2", "3", "4"}) {
      shard.emplace_back(std::string(name) + ".cls", "0");
      shard.emplace_back(std::string(name) + ".jpg", "x");
    }
  const std::int64_t of_100 = hold(same);
  EXPECT_GT(of_100, 10);
  EXPECT_LT(of_100, 30);
  EXPECT_NE(of_100 % 20, 0) << "one of every shard";
}

TEST_F(TarTest, TruncatedFilesAreFound) {
  write({{"a.cls", "0"}, {"a.jpg", std::string(600, 'x')}});
  const Bytes archive = bytes_of_file(path);
  const std::size_t end = archive.size() - 1024;
  for (std::size_t length = 0; length < end; length += 37) {
    folder.write("train-0.tar", Bytes(archive.begin(), archive.begin() + static_cast<std::ptrdiff_t>(length)));
    EXPECT_TRUE(contains(fault(), "offset")) << length;
  }
  folder.write("train-0.tar", Bytes(archive.begin(), archive.begin() + static_cast<std::ptrdiff_t>(end)));
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
  for (const char* records : {"12 path=a", "9999 path=a.jpg\n", "x path=a\n", "4 a=\n", "10 patha..\n", ""}) {
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

TEST_F(TarTest, ZerosAloneFollowTheEnd) {
  const Members sample{{"a.cls", "0"}, {"a.jpg", "xx"}};
  write(sample);
  const Bytes archive = bytes_of_file(path);
  // Another archive behind, what a later write left, a header that was not fetched.
  Bytes joined = archive;
  joined.insert(joined.end(), archive.begin(), archive.end());
  folder.write("train-0.tar", joined);
  EXPECT_TRUE(
      contains(fault(), "the archive ends at offset 2048, and something else than zeros follows at offset 3072"));
  Bytes dirty = archive;
  dirty.resize(archive.size() + 9000);
  folder.write("train-0.tar", dirty);
  EXPECT_EQ(open().train->size(), 1) << "a record that is filled";
  dirty.back() = 1;
  folder.write("train-0.tar", dirty);
  EXPECT_TRUE(contains(fault(), "follows at offset 12071"));
  write({{"a.cls", "0"}, {"a.jpg", "xx"}, {"b.cls", "0"}, {"b.jpg", "xx"}});
  Bytes hole = bytes_of_file(path);
  std::fill_n(hole.begin() + 2048, 512, std::uint8_t{0});
  folder.write("train-0.tar", hole);
  EXPECT_TRUE(
      contains(fault(), "the archive ends at offset 2048, and something else than zeros follows at offset 2560"));
  // The place for a file that was not fetched to its end.
  write(sample);
  fs::resize_file(path, 4 << 20);
  EXPECT_TRUE(contains(fault(), "4192256 bytes before the end of the file: a download that was not finished"));
}

TEST_F(TarTest, LinksAreTheFilesThatTheyName) {
  const auto link = [&](const char* type, const std::string& target) {
    write({{"set/a.jpg", "picture"}, {"set/a.cls", "0"}, {"set/b.jpg", ""}, {"set/b.cls", "0"}});
    const std::uint64_t header = scan()[2].header;
    change_header(header, 157, target);
    change_header(header, 156, type);
  };
  for (const auto& [type, target] :
       {std::pair{"1", "set/a.jpg"}, {"1", "./set/a.jpg"}, {"2", "a.jpg"}, {"2", "../set/a.jpg"}}) {
    link(type, target);
    const auto members = scan();
    ASSERT_EQ(members.size(), 4u);
    EXPECT_EQ(members[2].name, "set/b.jpg");
    EXPECT_EQ(members[2].offset, members[0].offset) << target;
    EXPECT_EQ(members[2].bytes, 7u);
    EXPECT_EQ(open().train->size(), 2);
  }
  for (const auto& [type, target] :
       {std::pair{"1", "set/c.jpg"}, {"1", "a.jpg"}, {"2", "set/a.jpg"}, {"2", "/set/a.jpg"}}) {
    link(type, target);
    EXPECT_TRUE(contains(fault(), join_text("link to \"", target, "\", which is no file before it"))) << fault();
  }
  // A long target has a member of its own.
  write({{"set/a.jpg", "picture"}, {"x", std::string("set/a.jpg") + '\0'}, {"set/b.jpg", ""}});
  change_header(1024, 156, "K");
  change_header(2048, 156, "1");
  EXPECT_EQ(scan().back().bytes, 7u);
}

TEST_F(TarTest, WhatIsNoFileIsNamed) {
  const Members sample{{"a.cls", "0"}, {"a.jpg", "xx"}, {"b", ""}};
  for (const char* type : {"3", "4", "6"}) {
    write(sample);
    change_header(2048, 156, type);
    EXPECT_TRUE(contains(fault(), "at offset 2048: member \"b\" is a device or a pipe"));
  }
  for (const char* type : {"M", "N", "8"}) {
    write(sample);
    change_header(2048, 156, type);
    EXPECT_TRUE(contains(fault(), join_text("has the type '", type, "', which is not read")));
  }
  for (const char* type : {"5", "D", "V"}) {
    write(sample);
    change_header(2048, 156, type);
    EXPECT_EQ(open().train->size(), 1);
  }
  write({{"pax", "14 path=b.jpg\n"}, {"a.jpg", "xx"}, {"a.cls", "0"}});
  change_header(0, 156, "g");
  EXPECT_TRUE(contains(fault(), "gives all members that follow one path"));
}

TEST_F(TarTest, LongNamesAreThoseOfTheNextMember) {
  write({{"x", std::string("some/long.jpg") + '\0'}, {"short", "xx"}, {"some/long.cls", "0"}});
  change_header(0, 156, "L");
  EXPECT_EQ(open().train->images()->sample_name(0), "some/long.jpg");
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
  // Numbers that count no classes, and numbers among names.
  for (const auto& [a, b] : {std::pair{"0", "-1"}, {"1.0", "0"}, {"99999999999", "1"}, {"dog", "1"}, {"1e2", "cat"}}) {
    write({{"a.jpg", "x"}, {"a.cls", a}, {"b.jpg", "x"}, {"b.cls", b}});
    EXPECT_PRED2(test::contains, test::error_message<DataError>([&] { (void)open(); }), "is none that counts classes");
  }
  write({{"a.jpg", "x"}, {"a.cls", "dog"}, {"b.jpg", "x"}, {"b.cls", "Dog"}});
  EXPECT_PRED2(test::contains, test::error_message<DataError>([&] { (void)open(); }), "differ in blanks or case only");
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

TEST(ShardNames, PatternsTakeTheTimeAndMemoryOfTheirLength) {
  const test::TempDir folder;
  using Names = std::vector<std::string>;
  const std::string name = std::string(200, 'a') + ".tar", other = std::string(200, 'a') + "xb.tar";
  folder.write(name, Bytes{});
  folder.write(other, Bytes{});
  std::string stars;
  for (int i = 0; i < 40; ++i) stars += "*a";
  EXPECT_EQ(expand_shards(folder.path(), stars + "*b.tar"), Names{folder / other});
  EXPECT_EQ(expand_shards(folder.path(), "*a.tar*"), Names{folder / name});
  EXPECT_EQ(expand_shards(folder.path(), "***x*b*"), Names{folder / other});
  EXPECT_THROW(expand_shards(folder.path(), stars + "*c.tar"), FileError);
  const auto repeated = [](const std::string& part, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += part;
    return text;
  };
  EXPECT_EQ(expand_shards("", repeated("{0..0}", 2000)), Names{std::string(2000, '0')});
  const auto refusal = [](const std::string& pattern) {
    return test::error_message<ConfigError>([&] { (void)expand_shards("", pattern); });
  };
  EXPECT_PRED2(test::contains, refusal(repeated("{0..0}", 1'000'000)), "characters; at most");
  EXPECT_PRED2(test::contains, refusal(repeated("{0..1}", 40)), "a pattern of more than 100000 files");
  EXPECT_PRED2(test::contains, refusal(std::string(5000, 'a') + "{0..99999}"), "names of more than 4096 characters");
}

}  // namespace
}  // namespace hearth::data::shard_files_test
