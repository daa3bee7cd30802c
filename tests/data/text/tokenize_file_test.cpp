// SPDX-License-Identifier: Apache-2.0
// Texts in pieces give the ids that they give as a whole, in a memory that does not grow with them.
#include "data/text/tokenize_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "core/cpu/parallel.h"
#include "core/error.h"
#include "core/io/file.h"
#include "core/tensor.h"
#include "data/packing/pack_text.h"
#include "data/splits.h"
#include "data/text/text_parts.h"
#include "data/text/tokenizers/tokenizer_files.h"
#include "data/text/tokenizers/tokenizer_registry.h"
#include "tests/data/text/write_tokens.h"
#include "tests/support/error_message.h"
#include "tests/support/kept_threads.h"
#include "tests/support/places.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::tokenize_file_test {
namespace {

using test::contains;
using test::error_message;
using test::TempDir;

std::string put(const TempDir& folder, const std::string& name, const std::string& text) {
  return folder.write(name, {text.begin(), text.end()});
}

/// Paragraphs of words of several scripts, special tokens, signs and blanks, with what editors leave.
std::string mixed_text() {
  const char* const words[] = {"the", "don't",  "Größe",  "<s>",      "naïve",     "1234567", "  two",
                               "(x,", "日本語", "<mask>", "end.</s>", "übermäßig", "\tTab",   "–dash–"};
  std::string text = "\xef\xbb\xbf";
  for (int i = 0; i < 4000; ++i) {
    text += words[(i * i + i / 7) % 14];
    text += i % 31 == 30 ? "\r\n\r\n\r\n" : i % 11 == 10 ? "\r\n" : i % 13 == 12 ? "\n" : " ";
  }
  return text;
}

TokenizerPointer tokenizer_for(const char* node, const std::string& path) {
  const std::vector<std::string> files{read_corpus(path)};
  return tokenizers().make(parse_json(node, "test"), text_parts::documents_of(files, Documents::files));
}

std::vector<std::byte> bytes_of_file(const std::string& path) { return read_file(path, {1 << 24, "token files"}); }

TEST(TokenizeFileTest, PiecesGiveTheIdsOfTheWhole) {
  const TempDir folder;
  const std::string mixed = put(folder, "mixed.txt", mixed_text());
  const std::string sample = test::source_dir() + "/tests/golden/text/sample.txt";
  for (const std::string& path : {mixed, sample})
    for (const char* node : {R"({"type": "characters"})", R"({"type": "words", "punctuation": true})",
                             R"({"type": "bpe", "vocabulary": 420})"})
      for (const Documents documents : {Documents::files, Documents::lines, Documents::paragraphs}) {
        const TokenizerPointer tokenizer = tokenizer_for(node, path);
        const std::vector<std::string> files{read_corpus(path)};
        const std::string whole = folder / "whole.tokens", pieces = folder / "pieces.tokens";
        const auto sequences = text_parts::documents_of(files, documents);
        write_tokens(*tokenize(*tokenizer, sequences, path, documents, SIZE_MAX), whole);
        for (const std::size_t block : {300u, 1000u, 4096u, 1u << 20}) {
          SCOPED_TRACE(testing::Message() << path << " " << node << " " << static_cast<int>(documents) << " " << block);
          TokenWriter writer(pieces, tokenizer->size(), tokenizer->digest());
          tokenize_file(*tokenizer, path, documents, writer, block);
          writer.finish();
          EXPECT_EQ(bytes_of_file(pieces), bytes_of_file(whole));
          write_tokens(*tokenize(*tokenizer, sequences, path, documents, block), pieces);
          EXPECT_EQ(bytes_of_file(pieces), bytes_of_file(whole)) << "in memory";
        }
      }
}

TEST(TokenizeFileTest, ThreadsChangeNothing) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer does not see what OpenMP's threads wait for";
#endif
  const TempDir folder;
  const std::string path = put(folder, "mixed.txt", mixed_text()), to = folder / "a.tokens";
  const TokenizerPointer tokenizer = tokenizer_for(R"({"type": "bpe", "vocabulary": 420})", path);
  const test::KeptThreads kept;
  std::vector<std::vector<std::byte>> found;
  for (const int threads : {1, 3}) {
    cpu::set_threads(threads);
    TokenWriter writer(to, tokenizer->size(), tokenizer->digest());
    tokenize_file(*tokenizer, path, Documents::lines, writer, 500);
    writer.finish();
    found.push_back(bytes_of_file(to));
  }
  EXPECT_EQ(found[0], found[1]);
}

TEST(TokenizeFileTest, CutsOnlyWhereIdsStayWhatTheyAre) {
  const TempDir folder;
  const std::string path = put(folder, "a.txt", "ab cd\nef");
  const TokenizerPointer tokenizer = tokenizer_for(R"({"type": "bpe", "vocabulary": 270})", path);
  EXPECT_EQ(safe_cut(*tokenizer, "ab cd\nef", true), 5u);
  EXPECT_EQ(safe_cut(*tokenizer, "ab cd\nef", false), 2u);
  EXPECT_EQ(safe_cut(*tokenizer, "abcdef", true), 0u);
  EXPECT_EQ(safe_cut(*tokenizer, " abcdef", true), 0u) << "nothing would be in front";
  EXPECT_EQ(safe_cut(*tokenizer, "ab  cd", true), 2u) << "blanks stay together";
}

TEST(TokenizeFileTest, FaultsAreNamedByTheirLine) {
  const TempDir folder;
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "a line\r\n";
  const std::string whole = put(folder, "whole.txt", text);
  const TokenizerPointer tokenizer = tokenizer_for(R"({"type": "characters"})", whole);
  const auto fault = [&](const std::string& bytes) {
    const std::string path = put(folder, "a.txt", bytes);
    TokenWriter writer(folder / "a.tokens", tokenizer->size(), tokenizer->digest());
    return error_message<DataError>([&] { tokenize_file(*tokenizer, path, Documents::files, writer, 300); });
  };
  EXPECT_PRED2(contains, fault(text + "bad \xff"), "a.txt:1001: byte 8004 of the text is not UTF-8");
  EXPECT_PRED2(contains, fault(text + "\xc3"), "a.txt:1001: byte 8000 of the text is not UTF-8");
  EXPECT_PRED2(contains, fault(text + std::string("no\0t", 4)), "a.txt:1001: a zero byte");
  EXPECT_PRED2(contains, fault(""), "a.txt: no text in it");
  EXPECT_FALSE(file_exists(folder / "a.tokens.part")) << "what is not finished is removed";
  EXPECT_FALSE(file_exists(folder / "a.tokens"));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
std::uint64_t address_space() {
  std::ifstream in("/proc/self/statm");
  std::uint64_t pages = 0;
  in >> pages;
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// 48 MiB of text, and the 96 MiB of their ids, in 32 MiB; then rows of them.
TEST(TokenizeFileTest, ALargeTextNeedsLittleMemory) {
  const TempDir folder;
  const std::string path = folder / "large.txt", packed = folder / "packed";
  {
    std::string line;
    for (int i = 0; i < 1 << 12; ++i) line += i % 64 == 63 ? '\n' : i % 6 == 5 ? ' ' : static_cast<char>('a' + i % 23);
    std::ofstream out(path, std::ios::binary);
    for (int i = 0; i < 48 << 8; ++i) out << line;
  }
  const std::string vocabulary = put(folder, "small.txt", "abcdefghijklmnopqrstuvw \n");
  write_tokenizer(*tokenizer_for(R"({"type": "characters"})", vocabulary), folder / "tokenizer.json");
  const pid_t child = ::fork();
  if (child == 0) {
    // The pool's first region is not memory that the text takes.
    const Tensor ids = Tensor::zeros({16, 1000}, DType::i32);
    const rlim_t most = address_space() + (rlim_t{32} << 20);
    const rlimit limit{most, most};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) ::_exit(2);
    cpu::set_threads(1);
    try {
      const std::string node = R"({"type": "text", "train": [")" + path +
                               R"("], "tokenizer": {"type": "characters", "path": ")" +
                               (folder / "tokenizer.json").string() + "\"}}";
      (void)pack_text(datasets().parse(parse_json(node, "test")), packed);
      const DataSplits data = make_data(
          parse_json(R"({"type": "text", "workers": 0, "length": 1000, "packed": ")" + packed + "\"}", "test"));
      Loader loader = data.train_loader(16, 3);
      for (int i = 0; i < 50; ++i)
        if (loader.next().tokens != 16'000) ::_exit(3);
      ::_exit(0);
    } catch (const std::exception& error) {
      std::cerr << error.what() << std::endl;
      ::_exit(1);
    }
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(Tokens::open(packed + "/train.tokens")->size(), (std::int64_t{48} << 20) + 1);
}
#endif

}  // namespace
}  // namespace hearth::data::tokenize_file_test
