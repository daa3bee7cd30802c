// SPDX-License-Identifier: Apache-2.0
#include "data/source/source.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/build.h"
#include "core/error.h"
#include "data/described.h"
#include "data/formats/cifar.h"
#include "data/formats/idx.h"
#include "data/images/codecs/image.h"
#include "data/packing/pack_text.h"
#include "data/source/file_opener.h"
#include "data/source/source_bytes.h"
#include "data/splits.h"
#include "data/text/text_data.h"
#include "data/text/tokenizers/tokenizer_files.h"
#include "tests/support/error_message.h"
#include "tests/support/memory_source.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::source_test {
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

/// Puts what a folder has into a source, and tells its name there.
std::string moved(const test::TempDir& folder, const std::string& scheme) {
  const std::string root = scheme + "://bucket/set";
  added(scheme)->put_folder(folder.path(), root);
  return root;
}

TEST(SourceTest, CifarIsReadByASource) {
  const test::TempDir folder;
  const auto record = [](int labels, std::uint8_t label) {
    return std::vector<std::uint8_t>(static_cast<std::size_t>(labels) + 3072, label);
  };
  for (std::uint8_t i = 1; i <= 5; ++i) folder.write("data_batch_" + std::to_string(i) + ".bin", record(1, i));
  folder.write("test_batch.bin", record(1, 9));
  folder.write("train.bin", record(2, 3));
  folder.write("test.bin", record(2, 4));
  const std::string names = "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n";
  folder.write("batches.meta.txt", {names.begin(), names.end()});
  const std::string root = moved(folder, "cifar");
  const Json ten = Json::object().set("type", "cifar10").set("path", root);
  const DataSplits data = make_data(ten);
  EXPECT_EQ(data.train->size(), 5);
  EXPECT_EQ(data.train->class_names()[9], "j");
  EXPECT_EQ(data.test->images()->get(0).image.pixels[0], 9);
  EXPECT_EQ(make_data(Json(ten).set("type", "cifar100")).test->images()->label(0), 4);
  EXPECT_EQ(evaluation_data(datasets().parse(ten), facts_of(data), root).test->size(), 1);
  EXPECT_PRED2(contains, error_message<DataError>([&] { (void)cifar10("cifar://bucket"); }),
               "cifar://bucket/data_batch_1.bin: is missing");
}

TEST(SourceTest, IdxIsReadByASource) {
  const test::TempDir folder;
  for (const std::string part : {"train", "t10k"}) {
    folder.write(part + "-images-idx3-ubyte", {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 50, 60});
    folder.write(part + "-labels-idx1-ubyte", {0, 0, 8, 1, 0, 0, 0, 2, 0, 1});
  }
  const std::string root = moved(folder, "idx");
  const Json config = Json::object().set("type", "idx").set("path", root);
  const DataSplits data = make_data(config);
  EXPECT_EQ(data.test->images()->get(1).image.pixels[0], 60);
  EXPECT_EQ(evaluation_data(datasets().parse(config), facts_of(data), root).test->size(), 2);
  EXPECT_PRED2(contains, error_message<DataError>([&] { (void)idx_folder("idx://bucket"); }),
               "idx://bucket: train-images-idx3-ubyte is missing");
}

TEST(SourceTest, FoldersOfClassesAreEvaluatedFromASource) {
  if (!HEARTH_HAS_PNG) GTEST_SKIP() << "this build lacks libpng";
  const test::TempDir folder;
  Image image;
  image.reshape(5, 6, 3);
  for (const char* name : {"train/a", "train/b", "val/a", "test/b"}) {
    fs::create_directories(folder / name);
    write_png(folder / (std::string(name) + "/0.png"), image);
  }
  const std::string root = moved(folder, "folders");
  const Json config = Json::object().set("type", "image_folder").set("path", root);
  const DataSplits data = make_data(config);
  const DataSplits found = evaluation_data(datasets().parse(config), facts_of(data), root);
  EXPECT_EQ(found.valid->images()->label(0), 0);
  EXPECT_EQ(found.test->images()->label(0), 1);
}

TEST(SourceTest, PackedSequencesAndTokenizersAreReadByASource) {
  const test::TempDir folder;
  const std::string text = "the quick brown fox jumps over the lazy dog\n";
  const std::string path = folder.write("fox.txt", {text.begin(), text.end()});
  const auto of = [](const std::string& key, const Json& value) {
    return Json::object().set("type", "text").set("length", 8).set(key, value);
  };
  const Json files = of("train", Json::array_of(std::vector{path})).set("test", Json::array_of(std::vector{path}));
  (void)pack_text(datasets().parse(files), folder / "packed");
  for (const char* name : {"vocab.json", "merges.txt", "vocab.txt"}) {
    const std::string content = name == std::string("vocab.json")   ? R"({"a": 0, "b": 1, "ab": 2})"
                                : name == std::string("merges.txt") ? "#version: 0.2\na b\n"
                                                                    : "[UNK]\na\n";
    folder.write((name == std::string("vocab.txt") ? "words/" : "pairs/") + std::string(name),
                 {content.begin(), content.end()});
  }
  const std::string root = moved(folder, "texts");
  const DataSplits online = make_data(files), data = make_data(of("packed", root + "/packed"));
  ASSERT_NE(data.test, nullptr);
  EXPECT_EQ(data.tokenizers()[0]->digest(), online.tokenizers()[0]->digest());
  EXPECT_EQ(data.train_loader(2, 1).next()["input"].to_doubles(),
            online.train_loader(2, 1).next()["input"].to_doubles());
  const Json tokenizer = Json::object().set("type", "characters").set("path", root + "/packed/tokenizer.json");
  EXPECT_EQ(make_data(Json(files).set("tokenizer", tokenizer)).tokenizers()[0]->digest(),
            online.tokenizers()[0]->digest());
  EXPECT_EQ(read_tokenizer(root + "/pairs")->encode("ab"), std::vector<std::int32_t>{2});
  EXPECT_EQ(read_tokenizer(root + "/words")->size(), 2);
  DataFacts facts = facts_of(online);
  facts.tokenizer = read_tokenizer(root + "/packed");
  EXPECT_EQ(evaluation_data(datasets().parse(files), facts, root + "/packed").test->size(), online.test->size());
  EXPECT_EQ(evaluation_data(datasets().parse(files), facts, root).test->size(), online.test->size());
  EXPECT_PRED2(contains, error_message<FileError>([&] { (void)read_tokenizer("texts://bucket"); }), "holds none of");
  EXPECT_PRED2(contains, error_message<FileError>([&] { (void)make_data(of("packed", root)); }),
               "has no tokenizer.json");
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
}  // namespace hearth::data::source_test
