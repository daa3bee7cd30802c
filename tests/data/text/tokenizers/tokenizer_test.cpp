// SPDX-License-Identifier: Apache-2.0
// Answers of HuggingFace's tokenizers, made by tests/golden/make_text.py.
#include "data/text/tokenizers/tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "core/io/file.h"
#include "core/random.h"
#include "data/text/tokenizers/bpe.h"
#include "data/text/tokenizers/pretokenize.h"
#include "data/text/tokenizers/special.h"
#include "data/text/tokenizers/tokenizer_files.h"
#include "data/text/tokenizers/tokenizer_registry.h"
#include "data/text/tokenizers/word_level.h"
#include "data/text/tokenizers/wordpiece.h"
#include "data/text/unicode.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::tokenizer_test {
namespace {

using test::contains;
using test::error_message;

std::string golden(const std::string& name) { return test::source_dir() + "/tests/golden/text/" + name; }

TokenizerPointer make(const std::string& node, std::vector<std::string_view> sequences = {}) {
  return tokenizers().make(parse_json(node, "run.json"), sequences);
}

std::vector<std::int32_t> ids_of(const Json& list) {
  std::vector<std::int32_t> ids;
  for (const Json& id : list.items()) ids.push_back(static_cast<std::int32_t>(id.as_integer()));
  return ids;
}

void expect_answers(const Tokenizer& tokenizer, const std::string& answers) {
  const Json all = read_json(golden(answers));
  for (const Json& answer : all.items()) {
    const std::string& text = answer.at("text").as_string();
    const std::vector<std::int32_t> ids = tokenizer.encode(text);
    EXPECT_EQ(ids, ids_of(answer.at("ids"))) << text;
    EXPECT_EQ(tokenizer.decode(ids), answer.at("decoded").as_string()) << text;
  }
}

/// Sequences of random code points of every plane, with runs of letters and blanks.
std::string random_text(std::uint64_t seed) {
  Random random(seed, 0);
  std::string text;
  const std::uint64_t length = random.below(200);
  for (std::uint64_t i = 0; i < length; ++i) {
    const std::uint64_t limits[] = {0x80, 0x80, 0x250, 0x3000, 0x10000, 0x110000};
    auto code = static_cast<char32_t>(random.below(limits[random.below(6)]));
    if (code >= 0xD800 && code <= 0xDFFF) code = ' ';
    unicode::append(text, code);
  }
  return text;
}

TEST(TokenizerTest, BytePairsGiveTheAnswersOfHuggingFace) {
  expect_answers(*read_tokenizer(golden("bpe.json")), "bpe_answers.json");
}

TEST(TokenizerTest, BytePairsAreLearnedAsByHuggingFace) {
  const std::string text = read_text(golden("sample.txt"));
  const auto own = make(R"({"type": "bpe", "vocabulary": 600, "min_count": 2})", {text});
  const auto other = read_tokenizer(golden("bpe.json"));
  ASSERT_EQ(own->size(), other->size());
  for (std::int32_t id = 0; id < own->size(); ++id) EXPECT_EQ(own->piece(id), other->piece(id));
  EXPECT_EQ(own->digest(), other->digest());
}

TEST(TokenizerTest, WordPiecesGiveTheAnswersOfHuggingFace) {
  expect_answers(*read_tokenizer(golden("wordpiece.json")), "wordpiece_answers.json");
  Json document = read_json(golden("wordpiece.json"));
  for (const char* key : {"clean_text", "handle_chinese_chars", "strip_accents", "lowercase"})
    document.find("normalizer")->set(key, false);
  expect_answers(*parse_tokenizer(document, "cased"), "wordpiece_cased_answers.json");
}

TEST(TokenizerTest, BytesComeBackWhateverTheText) {
  const auto tokenizer = read_tokenizer(golden("bpe.json"));
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const std::string text = random_text(seed);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text) << seed;
  }
}

TEST(TokenizerTest, KnownCharactersComeBack) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const std::string text = random_text(seed);
    const auto tokenizer = make(R"({"type": "characters"})", {text});
    const auto ids = tokenizer->encode(text);
    EXPECT_EQ(static_cast<std::int64_t>(ids.size()), unicode::count_characters(text));
    EXPECT_EQ(tokenizer->decode(ids), text) << seed;
  }
}

TEST(TokenizerTest, FilesGiveEqualTokenizers) {
  const test::TempDir folder;
  const std::string text = "To be, or not to be: that is the question. To BE!";
  const std::string path = (std::filesystem::path(folder.path()) / "tokenizer.json").string();
  for (const char* node :
       {R"({"type": "characters"})", R"({"type": "words"})",
        R"({"type": "words", "lower_case": true, "punctuation": true})", R"({"type": "bpe", "vocabulary": 280})"}) {
    const auto made = make(node, {text});
    write_tokenizer(*made, path);
    const auto read = read_tokenizer(folder.path());
    EXPECT_EQ(read->digest(), made->digest()) << node;
    EXPECT_EQ(read->encode("not to <pad> be?"), made->encode("not to <pad> be?")) << node;
    EXPECT_EQ(read->special(), made->special()) << node;
  }
  const auto words = read_tokenizer(golden("wordpiece.json"));
  write_tokenizer(*words, path);
  EXPECT_EQ(read_tokenizer(path)->digest(), words->digest());
}

TEST(TokenizerTest, WordsByFrequency) {
  const auto tokenizer = make(R"({"type": "words", "min_count": 2})", {"b a c b\nb  a d", "a a"});
  EXPECT_EQ(tokenizer->size(), 7);
  EXPECT_EQ(tokenizer->piece(5), "a");
  EXPECT_EQ(tokenizer->encode("a b z"), (std::vector<std::int32_t>{5, 6, 1}));
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{2, 5, 6, 1, 3, 0}), "a b <unk>");
  const auto signs = make(R"({"type": "words", "punctuation": true, "lower_case": true})", {"Don't STOP"});
  EXPECT_EQ(signs->encode("don't"), signs->encode("DON ' t"));
  EXPECT_EQ(signs->special(), (SpecialIds{0, 1, 2, 3, 4}));
}

/// A tokenizer.json of words with two pieces that could stand for unknown ones.
Json word_document(const Json& unknown, const std::string& behavior) {
  Json document = parse_json(R"({"model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "<unk>": 1, "oov": 2, "a": 3}},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Punctuation"}]}})",
                             "words");
  document.find("model")->set("unk_token", unknown);
  if (!behavior.empty()) document.find("pre_tokenizer")->find("pretokenizers")->items()[1].set("behavior", behavior);
  return document;
}

TEST(TokenizerTest, TheFileNamesTheUnknownWord) {
  for (const auto& [unknown, id] : {std::pair("oov", 2), {"<unk>", 1}, {"[UNK]", 0}}) {
    const auto tokenizer = parse_tokenizer(word_document(unknown, "Isolated"), "t.json");
    EXPECT_EQ(tokenizer->encode("a z"), (std::vector<std::int32_t>{3, id}));
    EXPECT_EQ(parse_tokenizer(tokenizer->to_json(), "again")->digest(), tokenizer->digest());
  }
  EXPECT_EQ(parse_tokenizer(word_document(nullptr, ""), "t.json")->special().unknown, 1);
  Json characters = word_document("oov", "");
  characters.set("pre_tokenizer", parse_json(R"({"type": "Split", "pattern": {"Regex": "[\\s\\S]"},
                                                 "behavior": "Isolated", "invert": false})",
                                             "split"));
  EXPECT_EQ(parse_tokenizer(characters, "t.json")->encode("az"), (std::vector<std::int32_t>{3, 2}));
  // One that is not there stands for nothing.
  for (const char* unknown : {"none", ""}) {
    const auto tokenizer = parse_tokenizer(word_document(unknown, ""), "t.json");
    EXPECT_TRUE(contains(error_message<DataError>([&] { (void)tokenizer->encode("a z"); }), "'z' is not in the"));
    EXPECT_EQ(parse_tokenizer(tokenizer->to_json(), "again")->special(), tokenizer->special());
  }
  EXPECT_EQ(error_message<DataError>([] { (void)parse_tokenizer(word_document("oov", "Removed"), "t.json"); }),
            "t.json/pre_tokenizer/pretokenizers/behavior: the string \"Removed\" is not supported");
}

TEST(TokenizerTest, VocabularyAndMergesBesideIt) {
  const test::TempDir folder;
  const std::filesystem::path path = folder.path();
  const Json document = read_json(golden("bpe.json"));
  write_file_synced(path / "vocab.json", to_text(document.at("model").at("vocab")));
  std::string merges = "#version: 0.2\n";
  for (const Json& merge : document.at("model").at("merges").items())
    merges += merge.at(0).as_string() + " " + merge.at(1).as_string() + "\n";
  write_file_synced(path / "merges.txt", merges);
  // A mask takes the blank before it where the files do not say otherwise.
  write_file_synced(path / "special_tokens_map.json", R"({"mask_token": {"content": "<mask>", "lstrip": false}})");
  expect_answers(*read_tokenizer(folder.path()), "bpe_answers.json");
  write_file_synced(path / "merges.txt", merges + "lonely\n");
  EXPECT_TRUE(contains(error_message<DataError>([&] { (void)read_tokenizer(folder.path()); }), ":341: 'lonely'"))
      << error_message<DataError>([&] { (void)read_tokenizer(folder.path()); });
}

TEST(TokenizerTest, ListsOfWordPieces) {
  const test::TempDir folder;
  const std::string path = (std::filesystem::path(folder.path()) / "vocab.txt").string();
  write_file_synced(path, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##aff\n##able\n!\n");
  const auto tokenizer = make(R"({"type": "wordpiece", "path": ")" + path + "\"}");
  EXPECT_EQ(tokenizer->encode("Unaffable! [MASK] unaffine"), (std::vector<std::int32_t>{5, 6, 7, 8, 4, 1}));
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{2, 5, 6, 7, 8, 3}), "unaffable!");
  EXPECT_EQ(tokenizer->special(), (SpecialIds{0, 1, 2, 3, 4}));
  // A byte order mark is no part of the first piece.
  write_file_synced(path, "\xef\xbb\xbf" + read_text(path));
  EXPECT_EQ(read_tokenizer(path)->special(), (SpecialIds{0, 1, 2, 3, 4}));
  write_file_synced(path, "[UNK]\na\nb\na\n");
  EXPECT_TRUE(contains(error_message<DataError>([&] { (void)read_tokenizer(path); }),
                       "vocab.txt:4: the piece 'a' is already in line 2"));
  write_file_synced(path, "a\nb\n");
  EXPECT_TRUE(contains(error_message<DataError>([&] { (void)read_tokenizer(path); }), "lacks '[UNK]'"));
}

TEST(TokenizerTest, WhatAListOfWordPiecesDoesNotTellIsBesideIt) {
  const test::TempDir folder;
  const std::string path = (std::filesystem::path(folder.path()) / "vocab.txt").string();
  write_file_synced(path, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nunder\nUnder\nÜnder\nünder\n中\n##中\n");
  const auto ids = [&](const std::string& config, const std::string& more = "") {
    write_file_synced(std::filesystem::path(folder.path()) / "tokenizer_config.json", config);
    const auto tokenizer = make(R"({"type": "wordpiece", "path": ")" + path + "\"" + more + "}");
    EXPECT_EQ(read_tokenizer(folder.path())->encode("Ünder"), read_tokenizer(path)->encode("Ünder"));
    return tokenizer->encode("Under Ünder 中中");
  };
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(ids(R"({"tokenizer_class": "BertTokenizer"})"), (Ids{5, 5, 9, 9}));
  EXPECT_EQ(ids(R"({"do_lower_case": true, "strip_accents": null})"), (Ids{5, 5, 9, 9}));
  EXPECT_EQ(ids(R"({"do_lower_case": false})"), (Ids{6, 7, 9, 9}));
  EXPECT_EQ(ids(R"({"do_lower_case": true, "strip_accents": false})"), (Ids{5, 8, 9, 9}));
  EXPECT_EQ(ids(R"({"do_lower_case": false, "tokenize_chinese_chars": false})"), (Ids{6, 7, 9, 10}));
  // What a configuration says counts more.
  EXPECT_EQ(ids(R"({"do_lower_case": false})", R"(, "lower_case": true)"), (Ids{5, 5, 9, 9}));
  EXPECT_EQ(ids(R"({"do_lower_case": true})", R"(, "lower_case": false)"), (Ids{6, 7, 9, 9}));
  EXPECT_EQ(ids(R"({"do_lower_case": false})", R"(, "lower_case": null)"), (Ids{6, 7, 9, 9}));
  write_file_synced(std::filesystem::path(folder.path()) / "tokenizer_config.json", R"({"do_lower_case": "no"})");
  EXPECT_TRUE(
      contains(error_message<DataError>([&] { (void)read_tokenizer(path); }), "tokenizer_config.json/do_lower_case"));
}

/// A folder with a vocabulary and what transformers writes beside it.
struct CompanionsTest : testing::Test {
  const test::TempDir folder;

  void write(const char* name, const std::string& text) const {
    write_file_synced(std::filesystem::path(folder.path()) / name, text);
  }
  std::vector<std::int32_t> ids(const std::string& text) const { return read_tokenizer(folder.path())->encode(text); }
  std::string fault() const {
    return error_message<DataError>([&] { (void)read_tokenizer(folder.path()); });
  }
};

using Ids = std::vector<std::int32_t>;

TEST_F(CompanionsTest, AddedTokensOfAListOfWordPiecesStandWhole) {
  write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n<\n>\ndrug\n");
  EXPECT_EQ(ids("a <drug>"), (Ids{5, 6, 8, 7}));
  write("added_tokens.json", R"({"<drug>": 9, "<dose>": 10})");
  EXPECT_EQ(ids("a <drug> a <dose>"), (Ids{5, 9, 5, 10}));
  write("special_tokens_map.json", R"({"mask_token": "[MASK]", "additional_special_tokens": ["<dose>"]})");
  EXPECT_EQ(read_tokenizer(folder.path())->decode(Ids{5, 9, 10}), "a <drug>") << "<dose> is special";
  write("tokenizer_config.json", R"({"added_tokens_decoder":
      {"4": {"content": "[MASK]", "lstrip": true, "special": true}, "9": {"content": "<drug>", "rstrip": true}}})");
  EXPECT_EQ(ids("a [MASK] <drug> a"), (Ids{5, 4, 9, 5}));
  // What they say and is not done is refused.
  write("special_tokens_map.json", R"({"mask_token": "<blank>"})");
  EXPECT_TRUE(contains(fault(), "special_tokens_map.json/mask_token: '<blank>' is in neither the vocabulary"))
      << fault();
  write("special_tokens_map.json", "{}");
  write("added_tokens.json", R"({"<Drug>": 9})");
  write("tokenizer_config.json", "{}");
  EXPECT_TRUE(contains(fault(), "added_tokens.json/<Drug>: '<Drug>' is looked for in the normalised text")) << fault();
  write("tokenizer_config.json", R"({"do_lower_case": false})");
  EXPECT_EQ(ids("a <Drug>"), (Ids{5, 9}));
  write("added_tokens.json", R"({"<drug>": 12})");
  EXPECT_TRUE(contains(fault(), "'<drug>' has id 12 where the vocabulary gives 9")) << fault();
  write("added_tokens.json", R"({"<drug>": "x"})");
  EXPECT_TRUE(contains(fault(), "added_tokens.json/<drug>")) << fault();
  write("added_tokens.json", R"({"a": 3})");
  EXPECT_TRUE(contains(fault(), "'a'")) << fault();
  write("added_tokens.json", "{}");
  write("tokenizer_config.json", R"({"never_split": ["x"]})");
  EXPECT_TRUE(contains(fault(), "tokenizer_config.json/never_split")) << fault();
  write("tokenizer_config.json", R"({"do_basic_tokenize": false})");
  EXPECT_TRUE(contains(fault(), "tokenizer_config.json/do_basic_tokenize: false is not supported")) << fault();
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"9": {"content": "x", "single_word": true}}})");
  EXPECT_TRUE(contains(fault(), "single_word")) << fault();
}

TEST_F(CompanionsTest, BytePairsTakeBlanksAsTheirConfigurationSays) {
  write("vocab.json", R"({"a": 0, "\u0120": 1, "\u0120a": 2, "<mask>": 3})");
  write("merges.txt", "\u0120 a\n");
  EXPECT_EQ(ids("a a"), (Ids{0, 2}));
  EXPECT_EQ(ids("a <mask>"), (Ids{0, 3})) << "the blank is the mask's";
  write("tokenizer_config.json", R"({"add_prefix_space": true, "mask_token": {"content": "<mask>", "lstrip": false}})");
  EXPECT_EQ(ids("a a"), (Ids{2, 2}));
  EXPECT_EQ(ids("a <mask>"), (Ids{2, 1, 3}));
}

TEST(TokenizerTest, AddedTokensTakeWhiteSpaceWhereTheySaySo) {
  Json document = read_json(golden("bpe.json"));
  document.find("added_tokens")->items()[4].set("lstrip", true).set("rstrip", true);
  const auto tokenizer = parse_tokenizer(document, "test");
  const auto ids = tokenizer->encode("a \n<mask>\t b");
  EXPECT_EQ(ids, (std::vector<std::int32_t>{*tokenizer->id_of("a"), 4, *tokenizer->id_of("b")}));
}

TEST(TokenizerTest, WhatIsNotSupportedIsNamed) {
  const auto refusal = [](auto&& change) {
    Json document = read_json(golden("bpe.json"));
    change(document);
    return error_message<DataError>([&] { (void)parse_tokenizer(document, "t.json"); });
  };
  EXPECT_TRUE(contains(refusal([](Json& d) { d.find("model")->set("type", "Unigram"); }),
                       "t.json/model/type: the model 'Unigram'"));
  EXPECT_TRUE(contains(refusal([](Json& d) { d.set("pre_tokenizer", Json::object().set("type", "Metaspace")); }),
                       "t.json/pre_tokenizer: Metaspace is not supported"));
  EXPECT_TRUE(contains(refusal([](Json& d) { d.set("normalizer", Json::object().set("type", "NFKC")); }), "NFKC"));
  EXPECT_TRUE(contains(refusal([](Json& d) { d.find("model")->set("byte_fallback", true); }), "byte_fallback"));
  EXPECT_TRUE(contains(refusal([](Json& d) { d.find("model")->find("merges")->push_back("x q"); }),
                       "names a piece that the vocabulary lacks"));
  EXPECT_TRUE(contains(refusal([](Json& d) { d.find("model")->find("vocab")->set("a", 3); }), "have the id 3"));
  EXPECT_TRUE(
      contains(refusal([](Json& d) { d.find("added_tokens")->items()[2].set("single_word", true); }), "single_word"));
  EXPECT_TRUE(contains(refusal([](Json& d) { d.find("model")->set("vocab", "none"); }), "must be an object"));
}

TEST(TokenizerTest, BytesThatAVocabularyLacksAreTheUnknownPieceOrRefused) {
  const auto made = [](const Json& unknown, bool fuse) {
    Json document = read_json(golden("bpe.json"));
    Json& model = *document.find("model");
    Json vocabulary = Json::object();
    for (const char* piece : {"<pad>", "<unk>", "a", "b", "<oov>"})
      vocabulary.set(piece, static_cast<std::int64_t>(vocabulary.size()));
    model.set("vocab", std::move(vocabulary)).set("merges", Json::array());
    model.set("unk_token", unknown).set("fuse_unk", fuse);
    document.set("added_tokens", Json::array());
    return parse_tokenizer(document, "t.json");
  };
  const auto tokenizer = made("<oov>", false);
  EXPECT_EQ(tokenizer->encode("axb"), (std::vector<std::int32_t>{2, 4, 3}));
  EXPECT_EQ(parse_tokenizer(tokenizer->to_json(), "again")->encode("axb"), tokenizer->encode("axb"));
  EXPECT_TRUE(contains(error_message<DataError>([&] { (void)made(nullptr, false)->encode("axb"); }), "the byte 120"));
  EXPECT_TRUE(contains(error_message<DataError>([&] { (void)made("<none>", false); }), "unk_token \"<none>\""));
  EXPECT_TRUE(contains(error_message<DataError>([&] { (void)made("<unk>", true); }), "fuse_unk"));
}

TEST(TokenizerTest, BadInput) {
  const auto tokenizer = read_tokenizer(golden("bpe.json"));
  const std::string text = "good\nbad \xff here";
  EXPECT_TRUE(contains(error_message<DataError>([&] { (void)tokenizer->encode(text); }),
                       ":2: byte 9 of the text is not UTF-8"));
  EXPECT_TRUE(contains(error_message<IndexError>([&] {
                         (void)tokenizer->decode(std::vector<std::int32_t>{5, 600});
                       }),
                       "id 600 is outside the vocabulary of 600 pieces"));
  EXPECT_THROW((void)tokenizer->decode(std::vector<std::int32_t>{-1}), IndexError);
  EXPECT_THROW((void)make(R"({"type": "characters"})", {"\xc3"}), DataError);
  EXPECT_THROW((void)make(R"({"type": "words"})", {"a \xed\xa0\x80"}), DataError);
  EXPECT_TRUE(contains(
      error_message<DataError>([&] { (void)make(R"({"type": "bpe", "path": ")" + golden("wordpiece.json") + "\"}"); }),
      "not a tokenizer of the type bpe"));
  EXPECT_THROW((void)read_tokenizer("/nonexistent/tokenizer.json"), FileError);
  EXPECT_THROW((void)read_tokenizer(std::string(300, 'a')), FileError) << "longer than names may be";
  EXPECT_THROW((void)make(R"({"type": "bpe", "vocabulary": 200})"), ConfigError);
}

TEST(TokenizerTest, OfEqualPairsTheLeftmostIsJoinedFirst) {
  const BytePairTokenizer tokenizer(Vocabulary({"a", "b", "aa", "aab"}, "test"), {{"a", "a"}, {"aa", "b"}}, {}, {},
                                    "test");
  EXPECT_EQ(tokenizer.encode("aaa"), (std::vector<std::int32_t>{2, 0}));
  EXPECT_EQ(tokenizer.encode("aaab"), (std::vector<std::int32_t>{2, 0, 1}));
  EXPECT_EQ(tokenizer.encode("aab"), (std::vector<std::int32_t>{3}));
  EXPECT_THROW((void)tokenizer.encode("c"), DataError);
}

// As HuggingFace's ByteLevel cuts it.
TEST(PretokenizeTest, CutsOfGpt2) {
  std::vector<std::string_view> cuts;
  split_gpt2("It's they've I'm she'll we'd you're can't IT'S 12ab!?  x\n\n y \t", cuts);
  const std::vector<std::string_view> expected{"It", "'s",   " they", "'ve",  " I",   "'m",  " she", "'ll", " we",
                                               "'d", " you", "'re",   " can", "'t",   " IT", "'",    "S",   " 12",
                                               "ab", "!?",   " ",     " x",   "\n\n", " y",  " \t"};
  EXPECT_EQ(cuts, expected);
}

TEST(UnicodeTest, LowerCaseAndAccents) {
  std::string text;
  for (const char32_t code : U"ÀΣЁİẞǅ") {
    if (code != 0) unicode::append_lower(text, code);
  }
  EXPECT_EQ(text, "àσёi\xcc\x87ßǆ");
  text.clear();
  for (const char32_t code : U"éǖ각ñй\u0301Å") {
    if (code != 0) unicode::append_without_accents(text, code);
  }
  EXPECT_EQ(text, "eu\u1100\u1161\u11a8nиA");
  // Several marks at once, marks that take up space and stay, a letter that decomposes twice.
  text.clear();
  for (const char32_t code : std::u32string_view(U"ᾂொǕ\u0344")) unicode::append_without_accents(text, code);
  EXPECT_EQ(text, "α\u0bc6\u0bbeU");
}

// Of characters that Unicode 14 has, so that every version of the library knows them.
TEST(UnicodeTest, Kinds) {
  using unicode::Kind;
  const std::vector<std::pair<Kind, std::vector<char32_t>>> kinds{
      {Kind::letter, {U'a', U'ª', U'ǅ', U'ʰ', U'я', U'中', 0xAC00, 0x10400, 0x1E900}},
      {Kind::number, {U'0', U'²', U'½', U'٣', U'Ⅷ', 0x1D7D8}},
      {Kind::space,
       {U'\t', U'\n', U'\v', U'\f', U'\r', U' ', 0x85, 0xA0, 0x1680, 0x2000, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F,
        0x3000}},
      {Kind::punctuation, {U'!', U'_', U'(', U'«', U'»', U'¿', 0x3001, 0x1E95E}},
      {Kind::mark, {0x300, 0x36F, 0x5BF, 0x94D, 0x20D0, 0xFE0F, 0xE0100}},
      {Kind::control,
       {0, 0x1C, 0x1F, 0x7F, 0x84, 0xAD, 0x180E, 0x200B, 0x200D, 0xFEFF, 0xD800, 0xDFFF, 0xE000, 0x10FFFD}},
      // Spacing and enclosing marks, symbols, what is not assigned and never will be.
      {Kind::other, {0x903, 0x488, U'$', U'+', U'^', U'`', U'°', U'€', 0x1F600, 0xFFFE, 0xFDD0, 0x10FFFF}}};
  for (const auto& [kind, codes] : kinds)
    for (const char32_t code : codes) EXPECT_EQ(unicode::kind_of(code), kind) << std::hex << std::uint32_t{code};
}

}  // namespace
}  // namespace hearth::data::tokenizer_test
