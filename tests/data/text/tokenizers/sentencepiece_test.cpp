// SPDX-License-Identifier: Apache-2.0
// Answers of the package sentencepiece, made by tests/golden/make_text.py.
#include "data/text/tokenizers/sentencepiece.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "core/io/file.h"
#include "data/libraries.h"
#include "data/text/token_writer.h"
#include "data/text/tokenize_file.h"
#include "data/text/tokenizers/tokenizer_files.h"
#include "data/text/tokenizers/tokenizer_registry.h"
#include "data/text/tokens.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::sentencepiece_test {
namespace {

using test::contains;
using test::error_message;

const std::string folder = test::source_dir() + "/tests/golden/text/";
const std::string path = folder + "sentencepiece.model";

bool is_here() {
  const std::vector<FileLibrary> libraries = file_libraries();
  return std::any_of(libraries.begin(), libraries.end(), [](const FileLibrary& library) {
    return library.name == "SentencePiece" && !library.version.empty();
  });
}

class SentencePiece : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_here()) GTEST_SKIP() << "this build has no SentencePiece";
  }
};

TEST_F(SentencePiece, GivesTheAnswersOfItsPackage) {
  const TokenizerPointer tokenizer = read_tokenizer(path);
  const Json answers = read_json(folder + "sentencepiece_answers.json");
  ASSERT_GT(answers.size(), 10U);
  for (const Json& answer : answers.items()) {
    const std::string& text = answer.at("text").as_string();
    const std::vector<std::int32_t> ids = tokenizer->encode(text);
    std::vector<std::int32_t> expected;
    for (const Json& id : answer.at("ids").items()) expected.push_back(static_cast<std::int32_t>(id.as_integer()));
    EXPECT_EQ(ids, expected) << text;
    EXPECT_EQ(tokenizer->decode(ids), answer.at("decoded").as_string()) << text;
  }
}

TEST_F(SentencePiece, ALongTextIsCutAlikeInMemoryAndInAFile) {
  const TokenizerPointer tokenizer = read_tokenizer(path);
  const test::TempDir scratch;
  std::string text;
  for (int i = 0; text.size() < 400'000; ++i)
    text += join_text("the ", i * 7919 % 1000, "th of many words,", i % 9 == 8 ? '\n' : ' ');
  const std::string file = scratch.write("a.txt", {text.begin(), text.end()}), packed = scratch / "a.tokens";
  TokenWriter writer(packed, tokenizer->size(), tokenizer->digest());
  tokenize_file(*tokenizer, file, Documents::files, writer);
  writer.finish();
  const TokensPointer in_memory = tokenize(*tokenizer, std::vector<std::string_view>{text}, "a", Documents::files);
  const TokensPointer read = Tokens::open(packed);
  ASSERT_EQ(in_memory->size(), read->size());
  std::vector<std::int32_t> a(static_cast<std::size_t>(read->size())), b = a;
  in_memory->copy(0, read->size(), a.data());
  read->copy(0, read->size(), b.data());
  EXPECT_EQ(a, b);
  const std::vector<std::int32_t> first = tokenizer->encode(std::string_view(text).substr(0, text.find('\n')));
  EXPECT_TRUE(std::equal(first.begin(), first.end(), a.begin()));
}

TEST_F(SentencePiece, PiecesAndSpecialIds) {
  const TokenizerPointer tokenizer = read_tokenizer(path);
  EXPECT_EQ(tokenizer->size(), 300);
  EXPECT_EQ(tokenizer->special(), (SpecialIds{.pad = 3, .unknown = 0, .begin = 1, .end = 2, .mask = 4}));
  for (std::int32_t id = 0; id < tokenizer->size(); ++id) EXPECT_EQ(tokenizer->id_of(tokenizer->piece(id)), id);
  EXPECT_EQ(tokenizer->id_of("<unk>"), 0);
  EXPECT_EQ(tokenizer->id_of("no such piece"), std::nullopt);
  EXPECT_THROW((void)tokenizer->piece(300), IndexError);
}

TEST_F(SentencePiece, ATokenizerFileHoldsTheModel) {
  const TokenizerPointer tokenizer = tokenizers().make(
      parse_json(R"({"type": "sentencepiece", "path": ")" + path + "\"}", "run.json"), std::vector<std::string_view>{});
  const Json document = tokenizer->to_json();
  const TokenizerPointer again = parse_tokenizer(document, "tokenizer.json");
  EXPECT_EQ(again->digest(), tokenizer->digest());
  EXPECT_EQ(bytes_of_digits(document.at("model").at("bytes").as_string(), "test"), read_text(path));
}

TEST_F(SentencePiece, BadInput) {
  const TokenizerPointer tokenizer = read_tokenizer(path);
  EXPECT_TRUE(contains(error_message<DataError>([&] { (void)tokenizer->encode("a \xff"); }), "is not UTF-8"));
  EXPECT_TRUE(contains(error_message<IndexError>([&] {
                         (void)tokenizer->decode(std::vector<std::int32_t>{5, 300});
                       }),
                       "id 300 at position 1 of a vocabulary of 300"));
  EXPECT_THROW((void)tokenizer->decode(std::vector<std::int32_t>{-1}), IndexError);
  const std::string model = read_text(path);
  for (const std::string& bytes : {std::string(), std::string("no model"), model.substr(0, model.size() / 2)})
    EXPECT_TRUE(contains(error_message<DataError>([&] { (void)sentencepiece_tokenizer(bytes, "x.model"); }),
                         "x.model: not a SentencePiece model"));
}

TEST(SentencePieceDigits, AreRead) {
  EXPECT_EQ(bytes_of_digits("00ff1a", "test"), std::string("\0\xff\x1a", 3));
  EXPECT_TRUE(contains(error_message<DataError>([] { (void)bytes_of_digits("0", "t.json"); }), "t.json: 1 hex"));
  EXPECT_TRUE(contains(error_message<DataError>([] { (void)bytes_of_digits("0g", "t.json"); }), "'g' is no"));
}

TEST(SentencePieceAbsent, IsNamed) {
  if (is_here()) GTEST_SKIP() << "this build has SentencePiece";
  EXPECT_TRUE(contains(error_message<DataError>([] { (void)read_tokenizer(path); }), "has no SentencePiece"));
}

}  // namespace
}  // namespace hearth::data::sentencepiece_test
