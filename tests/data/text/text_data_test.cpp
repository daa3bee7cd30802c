// SPDX-License-Identifier: Apache-2.0
#include "data/text/text_data.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

#include "core/error.h"
#include "core/io/file.h"
#include "data/packing/pack_text.h"
#include "data/splits.h"
#include "data/text/tokenize_file.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::text_data_test {
namespace {

using test::contains;
using test::error_message;
using test::TempDir;

const std::string sample_path = test::source_dir() + "/tests/golden/text/sample.txt";

std::string put(const TempDir& folder, const std::string& name, const std::string& text) {
  return folder.write(name, {text.begin(), text.end()});
}

Json node(const std::string& text) { return parse_json(text, "run.json"); }
Datasets::Component dataset(const std::string& text) { return datasets().parse(node(text)); }
std::string quoted(const std::string& text) { return to_text(Json(text)); }

template <class T>
std::vector<T> values(const Tensor& tensor) {
  return {tensor.data<T>(), tensor.data<T>() + tensor.size()};
}

/// Everything of a batch that depends on the order.
std::vector<double> contents(const Batch& batch) {
  std::vector<double> all(batch.samples.begin(), batch.samples.end());
  for (const Tensor& part : {batch.find("input"), batch.find("source"), batch.find("target"), batch["labels"]})
    if (part.defined())
      for (const double value : part.to_doubles()) all.push_back(value);
  return all;
}

/// 200 pairs of words of 1 to 60 letters and their reversals, as one file of two columns.
std::string pair_lines() {
  std::string lines;
  for (int i = 0; i < 200; ++i) {
    std::string word;
    for (int j = 0; j <= i * 7 % 60; ++j) word += static_cast<char>('a' + (i + j) % 26);
    lines += word + "\t" + std::string(word.rbegin(), word.rend()) + "\n";
  }
  return lines;
}

TEST(TextDataTest, RowsInOrderAreTheText) {
  const TempDir folder;
  const std::string path = put(folder, "a.txt", "abcdefghij");
  const DataSplits data =
      make_data(node(R"({"type": "text", "train": [)" + quoted(path) + R"(], "length": 4, "workers": 0})"));
  EXPECT_EQ(data.train->size(), 3);
  EXPECT_EQ(data.classes(), 15);
  Loader loader = data.eval_loader(data.train, 2);
  ASSERT_EQ(loader.batches_per_epoch(), 2);
  EXPECT_EQ(loader.samples_per_epoch(), 3);
  const Batch first = loader.next(), second = loader.next();
  EXPECT_EQ(values<std::int32_t>(first["input"]), (std::vector<std::int32_t>{5, 6, 7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(values<std::int64_t>(first["labels"]), (std::vector<std::int64_t>{6, 7, 8, 9, 10, 11, 12, 13}));
  // The last letter and the end of the text; the rest is padding.
  EXPECT_EQ(values<std::int32_t>(second["input"]), (std::vector<std::int32_t>{13, 14, 0, 0}));
  EXPECT_EQ(values<std::int64_t>(second["labels"]), (std::vector<std::int64_t>{14, 3, -100, -100}));
  EXPECT_EQ(second.tokens, 2);
  EXPECT_EQ(second.positions, 4);
  EXPECT_EQ(data.train->tokens()->predicted_tokens(), 10);
  EXPECT_EQ(data.train->tokens()->characters(), 10);
  const Padding padding = data.train->tokens()->padding({.batch_size = 2});
  EXPECT_EQ(padding.tokens, 10);
  EXPECT_EQ(padding.positions, 12);
}

TEST(TextDataTest, EveryEpochCutsTheTextElsewhere) {
  const DataSplits data =
      make_data(node(R"({"type": "text", "train": [)" + quoted(sample_path) + R"(], "length": 64})"));
  Loader loader = data.train_loader(8, 5);
  std::set<std::int64_t> starts;
  const std::int64_t batches = loader.batches_per_epoch();
  for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
    std::set<std::int64_t> windows;
    for (std::int64_t i = 0; i < batches; ++i) {
      const Batch batch = loader.next();
      EXPECT_EQ(batch["input"].shape(), (Shape{8, 64}));
      EXPECT_EQ(batch.tokens, batch.positions);
      windows.insert(batch.samples.begin(), batch.samples.end());
      const auto input = values<std::int32_t>(batch["input"]);
      const auto labels = values<std::int64_t>(batch["labels"]);
      for (std::size_t place = 0; place + 1 < 64; ++place) EXPECT_EQ(labels[place], input[place + 1]);
      const auto first = std::find(batch.samples.begin(), batch.samples.end(), 0);
      if (first != batch.samples.end())
        starts.insert(input[static_cast<std::size_t>(first - batch.samples.begin()) * 64]);
    }
    EXPECT_EQ(static_cast<std::int64_t>(windows.size()), batches * 8);
  }
  EXPECT_GE(starts.size(), 2u);
}

TEST(TextDataTest, BatchesAreAFunctionOfTheirNumber) {
  const TempDir folder;
  const std::string path = put(folder, "pairs.tsv", pair_lines());
  for (const std::string& text :
       {R"({"type": "text", "train": [)" + quoted(sample_path) +
            R"(], "length": 32, "mask_probability": 0.15, "workers": )",
        R"({"type": "parallel_text", "train": [)" + quoted(path) + R"(], "tokens_per_batch": 256, "workers": )"}) {
    const DataSplits one = make_data(node(text + "0}")), three = make_data(node(text + "3}"));
    Loader a = one.train_loader(4, 11), b = three.train_loader(4, 11);
    std::vector<std::vector<double>> all;
    const std::int64_t batches = a.batches_per_epoch();
    for (std::int64_t i = 0; i < 2 * batches; ++i) {
      all.push_back(contents(a.next()));
      EXPECT_EQ(contents(b.next()), all.back());
    }
    EXPECT_NE(all[0], all[static_cast<std::size_t>(batches)]);
    // From the middle of the second epoch, as a resumed run goes on.
    Loader resumed = three.train_loader(4, 11);
    resumed.seek(1, batches / 2);
    for (std::int64_t i = batches + batches / 2; i < 2 * batches; ++i)
      EXPECT_EQ(contents(resumed.next()), all[static_cast<std::size_t>(i)]);
    Loader other = one.train_loader(4, 12);
    EXPECT_NE(contents(other.next()), all[0]);
  }
}

TEST(TextDataTest, MaskedIdsAreToBeGuessed) {
  const DataSplits data = make_data(
      node(R"({"type": "text", "train": [)" + quoted(sample_path) + R"(], "length": 128, "mask_probability": 0.2})"));
  Loader loader = data.eval_loader(data.train, 16);
  const TokensPointer plain =
      tokenize(data.train->tokens()->tokenizer(), std::vector<std::string_view>{read_corpus(sample_path)}, "x");
  double guessed = 0, masked = 0, kept = 0, places = 0;
  for (std::int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
    const Batch batch = loader.next();
    const auto input = values<std::int32_t>(batch["input"]);
    const auto labels = values<std::int64_t>(batch["labels"]);
    for (std::size_t place = 0; place < input.size(); ++place) {
      const std::int64_t at = batch.samples[place / 128] * 128 + static_cast<std::int64_t>(place % 128);
      if (at >= plain->size()) continue;
      ++places;
      std::int32_t truth = 0;
      plain->copy(at, 1, &truth);
      if (labels[place] == ignored_label) {
        EXPECT_EQ(input[place], truth);
        continue;
      }
      EXPECT_EQ(labels[place], truth);
      ++guessed;
      masked += input[place] == 4;
      kept += input[place] == truth;
    }
  }
  EXPECT_NEAR(guessed / places, 0.2, 0.01);
  EXPECT_NEAR(masked / guessed, 0.8, 0.02);
  EXPECT_NEAR(kept / guessed, 0.1, 0.02);
}

TEST(TextDataTest, PairsAreShiftedAndPadded) {
  const TempDir folder;
  const std::string path = put(folder, "pairs.tsv", "ab\tcde\nc\tb\n");
  const DataSplits data =
      make_data(node(R"({"type": "parallel_text", "train": [)" + quoted(path) + R"(], "multiple": 4})"));
  const Tokenizer& tokenizer = data.train->tokens()->tokenizer();
  const auto id = [&](const char* piece) { return *tokenizer.id_of(piece); };
  Loader loader = data.eval_loader(data.train, 2);
  const Batch batch = loader.next();
  EXPECT_EQ(values<std::int32_t>(batch["source"]),
            (std::vector<std::int32_t>{id("a"), id("b"), 3, 0, id("c"), 3, 0, 0}));
  EXPECT_EQ(values<std::int32_t>(batch["target"]),
            (std::vector<std::int32_t>{2, id("c"), id("d"), id("e"), 2, id("b"), 0, 0}));
  EXPECT_EQ(values<std::int64_t>(batch["labels"]),
            (std::vector<std::int64_t>{id("c"), id("d"), id("e"), 3, id("b"), 3, -100, -100}));
  EXPECT_EQ(batch.tokens, 3 + 4 + 2 + 2);
  EXPECT_EQ(batch.positions, 16);
}

TEST(TextDataTest, BatchesByTokensWasteLittle) {
  const TempDir folder;
  const std::string path = put(folder, "pairs.tsv", pair_lines());
  const std::string text = R"({"type": "parallel_text", "train": [)" + quoted(path) + R"(])";
  const DataSplits data = make_data(node(text + R"(, "tokens_per_batch": 512})"));
  Loader loader = data.eval_loader(data.train, 1);
  std::multiset<std::int64_t> seen;
  std::set<std::int64_t> lengths, trained;
  for (std::int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
    const Batch batch = loader.next();
    lengths.insert(std::max(batch["source"].dim(1), batch["target"].dim(1)));
    seen.insert(batch.samples.begin(), batch.samples.end());
    EXPECT_LE(batch["target"].size(), 512);
    EXPECT_EQ(batch["target"].dim(1) % 8, 0);
    EXPECT_EQ(batch["source"].dim(1) % 8, 0);
  }
  EXPECT_EQ(seen.size(), 200u);
  EXPECT_EQ(std::set<std::int64_t>(seen.begin(), seen.end()).size(), 200u);
  // In training the numbers of rows are multiples of 8, but for lengths that there are fewer of; none is left out.
  Loader training = data.train_loader(1, 3);
  for (std::int64_t i = 0; i < training.batches_per_epoch(); ++i) {
    const Batch batch = training.next();
    trained.insert(std::max(batch["source"].dim(1), batch["target"].dim(1)));
    EXPECT_TRUE(batch.size() % 8 == 0 || batch.size() < 8) << batch.size();
  }
  EXPECT_EQ(trained, lengths);
  EXPECT_GE(training.samples_per_epoch(), 150);
  const double share = data.train->tokens()->padding({.batch_size = 8}).fraction();
  const DataSplits plain = make_data(node(text + "}"));
  EXPECT_LT(share, 0.15);
  EXPECT_GT(plain.train->tokens()->padding({.batch_size = 8}).fraction(), 2 * share);
  // Given bounds put more lengths together.
  const DataSplits two = make_data(node(text + R"(, "tokens_per_batch": 512, "buckets": [32, 64]})"));
  EXPECT_LT(two.eval_loader(two.train, 1).batches_per_epoch(), loader.batches_per_epoch());
}

TEST(TextDataTest, ShorterSidesMeetTheirLike) {
  const TempDir folder;
  std::string lines;
  // All sources have 30 letters, translations 1 to 30.
  for (int i = 0; i < 640; ++i)
    lines += std::string(30, 'a') + "\t" + std::string(static_cast<std::size_t>(1 + i * 7 % 30), 'b') + "\n";
  const std::string path = put(folder, "pairs.tsv", lines);
  const DataSplits data =
      make_data(node(R"({"type": "parallel_text", "train": [)" + quoted(path) + R"(], "tokens_per_batch": 256})"));
  Loader loader = data.train_loader(1, 3);
  double tokens = 0, places = 0;
  std::set<std::int64_t> lengths;
  for (std::int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
    const Batch batch = loader.next();
    tokens += static_cast<double>(batch.tokens);
    places += static_cast<double>(batch.positions);
    lengths.insert(batch["target"].dim(1));
  }
  EXPECT_LT(1 - tokens / places, 0.15);
  EXPECT_EQ(lengths, (std::set<std::int64_t>{8, 16, 24, 32}));
}

TEST(TextDataTest, PackedIsTheSame) {
  const TempDir folder;
  const std::string pairs = put(folder, "pairs.tsv", pair_lines());
  const std::string text = quoted(sample_path);
  struct Case {
    std::string online, packed;
  };
  const std::string out = folder / "packed";
  for (const Case& c : {Case{R"({"type": "text", "train": [)" + text + R"(], "test": [)" + text +
                                 R"(], "length": 32, "tokenizer": {"type": "bpe", "vocabulary": 400}})",
                             R"({"type": "text", "length": 32, "packed": )" + quoted(out + "1") + "}"},
                        Case{R"({"type": "parallel_text", "train": [)" + quoted(pairs) +
                                 R"(], "source_tokenizer": {"type": "bpe", "vocabulary": 300}})",
                             R"({"type": "parallel_text", "packed": )" + quoted(out + "2") + "}"}}) {
    const bool is_text = contains(c.online, "bpe\", \"vocabulary\": 400");
    const auto files = pack_text(dataset(c.online), out + (is_text ? "1" : "2"));
    EXPECT_EQ(files.size(), 2u);
    EXPECT_EQ(files[0].bytes_an_id, 2);
    const DataSplits online = make_data(node(c.online)), packed = make_data(node(c.packed));
    EXPECT_EQ(online.test != nullptr, packed.test != nullptr);
    EXPECT_EQ(online.classes(), packed.classes());
    Loader a = online.train_loader(4, 1), b = packed.train_loader(4, 1);
    ASSERT_EQ(a.batches_per_epoch(), b.batches_per_epoch());
    for (std::int64_t i = 0; i < a.batches_per_epoch(); ++i) EXPECT_EQ(contents(a.next()), contents(b.next()));
    packed.train->tokens()->verify();
    EXPECT_EQ(packed.train->tokens()->characters(), online.train->tokens()->characters());
  }
}

TEST(TextDataTest, PackedHasTheSplitsOfTheRun) {
  const TempDir folder;
  const std::string pairs = put(folder, "pairs.tsv", pair_lines()), once = folder / "once", out = folder / "packed";
  const std::string text = R"({"type": "text", "length": 32, "documents": "lines", )";
  const std::string from = R"("train": [)" + quoted(sample_path) + "]", held = R"(, "valid_fraction": 0.3)";
  const std::string pair = R"({"type": "parallel_text", )", pairs_from = R"("train": [)" + quoted(pairs) + "]";
  (void)pack_text(dataset(text + from + "}"), once);
  struct Case {
    std::string begin, from, more;
  };
  for (const Case& c : {Case{text, from, ""},
                        {text, R"("packed": )" + quoted(once), ""},
                        {text, from, R"(, "packing": true)"},
                        {pair, pairs_from, R"(, "split_seed": 3)"}}) {
    SCOPED_TRACE(c.begin + c.from + c.more);
    std::filesystem::remove_all(out);
    const auto files = pack_text(dataset(c.begin + c.from + c.more + held + "}"), out);
    EXPECT_EQ(files.size(), c.begin == pair ? 4u : 2u);
    EXPECT_FALSE(std::filesystem::exists(out + "/whole.tokens"));
    const DataSplits online = make_data(node(c.begin + c.from + c.more + held + "}")),
                     packed = make_data(node(c.begin + R"("packed": )" + quoted(out) + c.more + "}"));
    ASSERT_NE(packed.valid, nullptr);
    Loader a = online.train_loader(4, 1), b = packed.train_loader(4, 1);
    ASSERT_EQ(a.batches_per_epoch(), b.batches_per_epoch());
    for (std::int64_t i = 0; i < a.batches_per_epoch(); ++i) EXPECT_EQ(contents(a.next()), contents(b.next()));
    Loader c_valid = online.eval_loader(online.valid, 4), d_valid = packed.eval_loader(packed.valid, 4);
    ASSERT_EQ(c_valid.batches_per_epoch(), d_valid.batches_per_epoch());
    for (std::int64_t i = 0; i < c_valid.batches_per_epoch(); ++i)
      EXPECT_EQ(contents(c_valid.next()), contents(d_valid.next()));
    for (const auto& [one, other] : {std::pair{online.train, packed.train}, {online.valid, packed.valid}}) {
      EXPECT_EQ(one->tokens()->predicted_tokens(), other->tokens()->predicted_tokens());
      EXPECT_EQ(one->tokens()->characters(), other->tokens()->characters());
      other->tokens()->verify();
    }
  }
}

// What a run leaves out of pairs, `hearth data pack` leaves out, and tells.
TEST(TextDataTest, PackedPairsAreTheOnesThatTheRunTakes) {
  const TempDir folder;
  const std::string test_pairs = put(folder, "test.tsv", "ab\tabcdef\nabc\tabc\n");
  const std::string pairs = put(folder, "pairs.tsv", pair_lines() + "abcdefghijkl\ta\nab\tabcdefgh\nabc\tabcdefgh\n");
  const std::string limits = R"(, "longest": 40, "on_long": "skip", "max_ratio": 3)";
  const std::string from = R"({"type": "parallel_text", "train": [)" + quoted(pairs) + R"(], "test": [)" +
                           quoted(test_pairs) + R"(], "tokens_per_batch": 200)";
  for (const std::string& more : {std::string(), std::string(R"(, "valid_fraction": 0.3, "split_seed": 3)")}) {
    SCOPED_TRACE(more);
    const std::string out = folder / ("packed" + std::to_string(more.size())), again = out + "again";
    const std::string packed_text = R"({"type": "parallel_text", "tokens_per_batch": 200, "packed": )";
    const auto files = pack_text(dataset(from + limits + more + "}"), out);
    (void)pack_text(dataset(packed_text + quoted(out) + limits + "}"), again);
    const DataSplits online = make_data(node(from + limits + more + "}"));
    for (const std::string& place : {out, again}) {
      const DataSplits packed = make_data(node(packed_text + quoted(place) + "}"));
      const auto& text = *online.train->tokens()->pairs();
      ASSERT_EQ(packed.train->size(), text.size());
      EXPECT_LT(text.size(), more.empty() ? 203 : 142);
      for (std::int64_t i = 0; i < text.size(); ++i) {
        EXPECT_EQ(packed.train->tokens()->pairs()->source_ids(i), text.source_ids(i));
        EXPECT_EQ(packed.train->tokens()->pairs()->target_ids(i), text.target_ids(i));
      }
      Loader a = online.train_loader(4, 1), b = packed.train_loader(4, 1);
      for (std::int64_t i = 0; i < a.batches_per_epoch(); ++i) EXPECT_EQ(contents(a.next()), contents(b.next()));
      for (const auto& [text_part, packed_part] :
           {std::pair{online.train, packed.train}, {online.valid, packed.valid}, {online.test, packed.test}}) {
        ASSERT_EQ(text_part == nullptr, packed_part == nullptr);
        if (!text_part) continue;
        EXPECT_EQ(packed_part->warnings().count, text_part->warnings().count);
        EXPECT_EQ(packed_part->warnings().first, text_part->warnings().first);
        EXPECT_EQ(packed_part->tokens()->characters(), text_part->tokens()->characters());
      }
    }
    EXPECT_EQ(online.test->size(), 2) << "an end is an id: 7 of 3 is within the ratio";
    for (const PackedFile& file : files) {
      if (contains(file.path, "/train.")) {
        EXPECT_EQ(file.left_out.count, online.train->warnings().count);
      }
    }
  }
}

TEST(TextDataTest, PackRefusesPairsAsTheRunDoes) {
  const TempDir folder;
  const std::string longer = put(folder, "long.tsv", "a\tb\nc\tddddddddddddddddddddd\n"), out = folder / "packed";
  const std::string text = R"({"type": "parallel_text", "train": [)" + quoted(longer) + "], \"longest\": ";
  const auto refusal = [&](const std::string& more) {
    return error_message<DataError>([&] { (void)pack_text(dataset(text + more + "}"), out); });
  };
  EXPECT_PRED2(contains, refusal("8"), "long.tsv:2: 22 ids; the longest row may have 8");
  EXPECT_PRED2(contains,
               refusal(R"(22, "max_ratio": 1, "on_long": "skip", "valid": [)" +
                       quoted(put(folder, "one.tsv", "a\tbbb\n")) + "]"),
               "one.tsv: no pairs within the limits");
  EXPECT_THROW((void)make_data(node(R"({"type": "parallel_text", "packed": )" + quoted(out) + "}")), FileError);
  EXPECT_EQ(pack_text(dataset(text + R"(8, "on_long": "skip"})"), out)[0].sequences, 1);
  EXPECT_EQ(error_message<ConfigError>([&] { (void)dataset(text + R"(8, "max_ratio": 0.5})"); }).empty(), false);
  // A file of what was left out that is damaged is named.
  put(folder, "packed/left_out.json", R"({"train": {"count": "two"}})");
  EXPECT_PRED2(contains, error_message<DataError>([&] {
                 (void)make_data(node(R"({"type": "parallel_text", "packed": )" + quoted(out) + "}"));
               }),
               "left_out.json");
}

TEST(TextDataTest, HeldOut) {
  const TempDir folder;
  const std::string path = put(folder, "pairs.tsv", pair_lines());
  const DataSplits text =
      make_data(node(R"({"type": "text", "train": [)" + quoted(sample_path) + R"(], "valid_fraction": 0.1})"));
  ASSERT_NE(text.valid, nullptr);
  const double held = static_cast<double>(text.valid->tokens()->predicted_tokens());
  EXPECT_NEAR(held / (held + static_cast<double>(text.train->tokens()->predicted_tokens())), 0.1, 0.001);
  const DataSplits pairs =
      make_data(node(R"({"type": "parallel_text", "train": [)" + quoted(path) + R"(], "valid_fraction": 0.25})"));
  EXPECT_EQ(pairs.train->size(), 150);
  EXPECT_EQ(pairs.valid->size(), 50);
}

TEST(TextDataTest, AFractionOfNothingIsRefused) {
  const TempDir folder;
  const std::string path = put(folder, "three.tsv", "a\tb\nc\td\na\tf\n");
  for (const char* type : {"parallel_text", "labelled_text"}) {
    const std::string text = join_text(R"({"type": ")", type, R"(", "train": [)", quoted(path), "]");
    EXPECT_EQ(error_message<DataError>([&] { (void)make_data(node(text + R"(, "valid_fraction": 0.3})")); }),
              path + ": holding out 0.3 of 3 sequences leaves one split empty; give another valid_fraction, or 0");
    EXPECT_EQ(make_data(node(text + R"(, "valid_fraction": 0.4})")).valid->size(), 1);
    EXPECT_EQ(make_data(node(text + R"(, "valid_fraction": 0})")).valid, nullptr);
  }
}

/// While it lives, no file grows beyond so many bytes.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    rlimit lower = before_;
    lower.rlim_cur = bytes;
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &lower), 0);
  }
  ~FileSizeLimit() {
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before_), 0);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST(TextDataTest, WhatIsHalfPackedIsRefused) {
  const TempDir folder;
  std::string lines;
  for (int i = 0; i < 20'000; ++i) lines += "b\ta\n";
  const std::string small = put(folder, "small.tsv", "a\tb\nb\ta\n"), large = put(folder, "large.tsv", lines);
  for (const char* type : {"text", "parallel_text"}) {
    const std::string out = folder / type, begin = join_text(R"({"type": ")", type, R"(", )"),
                      packed = begin + R"("packed": )" + quoted(out) + "}";
    const auto pack = [&](const std::string& test_part) {
      (void)pack_text(dataset(begin + R"("train": [)" + quoted(small) + R"(], "test": [)" + quoted(test_part) + "]}"),
                      out);
    };
    pack(small);
    EXPECT_NE(make_data(node(packed)).test, nullptr);
    std::string message;
    std::filesystem::remove_all(out);
    {
      const FileSizeLimit limit(16'384);
      message = error_message<FileError>([&] { pack(large); });
    }
    EXPECT_TRUE(contains(message, "/test.")) << message;
    EXPECT_TRUE(contains(error_message<FileError>([&] { (void)make_data(node(packed)); }), ": has no train.")) << type;
    // What cannot be removed is no bug, but a file to be named.
    std::filesystem::create_directories(out + "/valid.tokens/x");
    EXPECT_TRUE(contains(error_message<FileError>([&] { pack(small); }), "/valid.tokens: cannot be removed"));
  }
}

TEST(TextDataTest, TextsAsFilesHaveThem) {
  const TempDir folder;
  EXPECT_EQ(read_corpus(put(folder, "dos.txt", "\xef\xbb\xbfone\r\ntwo\rthree")), "one\ntwo\rthree");
  EXPECT_TRUE(contains(error_message<DataError>([&] { (void)read_corpus(put(folder, "empty.txt", "")); }),
                       "empty.txt: no text in it"));
  EXPECT_TRUE(contains(error_message<DataError>([&] { (void)read_corpus(put(folder, "bad.txt", "a\nb\nc\xc3(")); }),
                       "bad.txt:3: byte 5"));
  EXPECT_THROW((void)read_corpus(folder / "absent.txt"), FileError);
}

TEST(TextDataTest, BadInputIsNamed) {
  const TempDir folder;
  const auto refusal = [&](const std::string& text) {
    return error_message<Error>([&] { (void)make_data(node(text)); });
  };
  const std::string three = put(folder, "three.txt", "a\nb\nc\n"), two = put(folder, "two.txt", "a\nb\n");
  EXPECT_TRUE(contains(refusal(R"({"type": "parallel_text", "train": [)" + quoted(three) + "," + quoted(two) + "]}"),
                       "three.txt: 3 lines, but " + two + " has 2"));
  EXPECT_TRUE(contains(refusal(R"({"type": "parallel_text", "train": [)" + quoted(two) + "]}"), "two.txt:1: 0 tabs"));
  const std::string longer = put(folder, "long.tsv", "a\tb\nc\tddddddddddddddddddddd\n");
  const std::string text = R"({"type": "parallel_text", "longest": 8, "train": [)" + quoted(longer) + "]";
  EXPECT_TRUE(contains(refusal(text + "}"), "long.tsv:2: 22 ids; the longest row may have 8"));
  const DataSplits skipped = make_data(node(text + R"(, "on_long": "skip"})"));
  EXPECT_EQ(skipped.train->size(), 1);
  EXPECT_EQ(skipped.train->warnings().count, 1);
  EXPECT_TRUE(contains(refusal(R"({"type": "text"})"), "either train, files of text, or packed"));
  EXPECT_TRUE(contains(refusal(R"({"type": "text", "train": ["x.txt"], "lenght": 3})"), "did you mean \"length\"?"));
  EXPECT_TRUE(
      contains(refusal(R"({"type": "text", "packed": )" + quoted(folder.path()) + "}"), "has no tokenizer.json"));
  const DataSplits small = make_data(node(R"({"type": "text", "train": [)" + quoted(two) + "]}"));
  EXPECT_TRUE(contains(error_message<DataError>([&] { (void)small.train_loader(1, 1); }), "give no window of 256"));
  EXPECT_EQ(small.train->images(), nullptr);
}

}  // namespace
}  // namespace hearth::data::text_data_test
