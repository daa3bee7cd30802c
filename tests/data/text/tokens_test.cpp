// SPDX-License-Identifier: Apache-2.0
// Files of tokens: damaged ones, those of the earlier version, and one that shrinks while it is read.
#include "data/text/tokens.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/io/checksum.h"
#include "core/io/file.h"
#include "data/packing/pack_text.h"
#include "data/splits.h"
#include "data/text/text_data.h"
#include "tests/data/text/write_tokens.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::tokens_test {
namespace {

using test::contains;
using test::error_message;
using test::TempDir;

const std::string sample_path = test::source_dir() + "/tests/golden/text/sample.txt";

std::string put(const TempDir& folder, const std::string& name, const std::string& text) {
  return folder.write(name, {text.begin(), text.end()});
}

Datasets::Component dataset(const std::string& text) { return datasets().parse(parse_json(text, "run.json")); }
std::string quoted(const std::string& text) { return to_text(Json(text)); }

TEST(TokensTest, DamagedFilesAreRefused) {
  const TempDir folder;
  const std::string path = folder / "t.tokens";
  const Tokens tokens({1, 2, 70000, 4}, {3, 4}, {70001, 9, std::string(64, 'a')}, "made");
  write_tokens(tokens, path);
  const TokensPointer read = Tokens::open(path);
  EXPECT_EQ(read->size(), 4);
  EXPECT_EQ(read->sequences(), 2);
  EXPECT_EQ(read->length(0), 3);
  EXPECT_EQ(read->meaning().characters, 9);
  std::vector<std::int32_t> ids(4);
  read->copy(0, 4, ids.data());
  EXPECT_EQ(ids, (std::vector<std::int32_t>{1, 2, 70000, 4}));
  EXPECT_THROW(read->copy(2, 3, ids.data()), IndexError);
  const std::vector<std::byte> good = read_file(path);
  // One bit anywhere, and every shorter file.
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::vector<std::byte> bad = good;
    bad[at] ^= std::byte{4};
    write_file_synced(folder / "bad.tokens", bad);
    EXPECT_THROW(Tokens::open(folder / "bad.tokens")->verify(), DataError) << at;
    EXPECT_THROW(Tokens::open(folder / "bad.tokens")->copy(0, 4, ids.data()), DataError) << at << ": was handed out";
    write_file_synced(folder / "bad.tokens", std::span(good).first(at));
    EXPECT_THROW((void)Tokens::open(folder / "bad.tokens"), Error) << at;
  }
  EXPECT_TRUE(contains(error_message<DataError>([&] {
                         Tokens({1, 9}, {2}, {5, 2, ""}, "made").copy(0, 2, ids.data());
                       }),
                       "made: id 9 at place 1 is outside the vocabulary of 5"));
  EXPECT_THROW(Tokens({1}, {2}, {5, 2, ""}, "made"), DataError);
}

// The header of an earlier version: another name, and one checksum for all.
TEST(TokensTest, FilesOfTheEarlierVersionAreRead) {
  const TempDir folder;
  const std::string path = folder / "t.tokens";
  write_tokens(Tokens({1, 2, 70000, 4}, {3, 4}, {70001, 9, std::string(64, 'a')}, "made"), path);
  std::vector<std::byte> file = read_file(path);
  file.resize(128 + 16 + 16);  // ids and ends
  file[7] = std::byte{'1'};
  const auto put = [&](std::size_t at, std::uint32_t value) { std::memcpy(file.data() + at, &value, sizeof value); };
  put(48, crc32c(std::span(file).subspan(128)));
  put(12, 0);
  put(12, crc32c(std::span(file).first(128)));
  write_file_synced(path, file);
  std::vector<std::int32_t> ids(4);
  const TokensPointer tokens = Tokens::open(path);
  tokens->copy(0, 4, ids.data());
  EXPECT_EQ(ids, (std::vector<std::int32_t>{1, 2, 70000, 4}));
  tokens->verify();
  file[130] ^= std::byte{4};
  write_file_synced(path, file);
  EXPECT_PRED2(contains, error_message<DataError>([&] { (void)Tokens::open(path); }),
               path + ": the 32 bytes at offset 128 are damaged");
}

// A mapping of it ended the process by SIGBUS.
TEST(TokensTest, AFileThatShrinksUnderALoaderIsAnError) {
  const TempDir folder;
  const std::string text = put(folder, "a.txt", std::string(400'000, 'a')), packed = folder / "packed";
  for (const char* workers : {"0", "2"}) {
    std::filesystem::remove_all(packed);
    (void)pack_text(dataset(R"({"type": "text", "train": [)" + quoted(text) + "]}"), packed);
    const DataSplits data = make_data(parse_json(R"({"type": "text", "packed": )" + quoted(packed) +
                                                     R"(, "length": 100, "prefetch": 2, "workers": )" + workers + "}",
                                                 "run.json"));
    Loader loader = data.train_loader(4, 1);
    (void)loader.next();
    std::filesystem::resize_file(packed + "/train.tokens", 1000);
    // A worker that reads just now may find other bytes instead of none.
    const std::string message = error_message<Error>([&] {
      for (int i = 0; i < 100; ++i) (void)loader.next();
    });
    EXPECT_PRED2(contains, message, packed + "/train.tokens: ");
  }
}

TEST(CorpusTest, ZeroBytesAreNoText) {
  const TempDir folder;
  const std::string path = put(folder, "a.txt", std::string("fine\nno\0t", 10));
  EXPECT_PRED2(contains, error_message<DataError>([&] { (void)read_corpus(path); }), path + ":2: a zero byte");
  put(folder, "a.txt", std::string(10'000, 'a') + '\0');
  EXPECT_PRED2(contains, error_message<DataError>([&] { (void)read_corpus(path); }), path + ":1: a zero byte");
}

}  // namespace
}  // namespace hearth::data::tokens_test
