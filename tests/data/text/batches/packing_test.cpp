// SPDX-License-Identifier: Apache-2.0
// Sequences of many lengths in rows of one: how they share rows, and the batches of whole documents.
#include "data/text/batches/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "core/error.h"
#include "core/random.h"
#include "data/packing/pack_text.h"
#include "data/splits.h"
#include "data/text/text_data.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::packing_test {
namespace {

using test::contains;
using test::error_message;
using test::TempDir;

std::vector<std::int32_t> drawn_lengths(std::size_t count, std::int32_t room, std::uint64_t seed) {
  Random random(seed, 1);
  std::vector<std::int32_t> lengths(count);
  for (std::int32_t& length : lengths) {
    const double u = random.uniform();
    length = std::clamp(static_cast<std::int32_t>(u * u * room), 1, room);
  }
  return lengths;
}

TEST(RowPackingTest, EachSequenceIsOnceInARowWithRoomForAll) {
  for (const std::int32_t room : {1, 7, 256}) {
    const std::vector<std::int32_t> lengths = drawn_lengths(3000, room, 3);
    const RowPacking packing(lengths, room);
    std::vector<int> seen(lengths.size());
    std::int64_t filled = 0;
    for (std::int64_t row = 0; row < packing.rows(); ++row) {
      ASSERT_FALSE(packing.row(row).empty());
      std::int32_t sum = 0;
      for (const std::uint32_t slot : packing.row(row)) {
        ++seen[packing.by_length()[slot]];
        sum += lengths[packing.by_length()[slot]];
      }
      EXPECT_LE(sum, room);
      filled += sum;
    }
    EXPECT_EQ(seen, std::vector<int>(lengths.size(), 1));
    EXPECT_EQ(filled, std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}));
    EXPECT_GT(static_cast<double>(filled), 0.99 * static_cast<double>(packing.rows() * room));
  }
}

TEST(RowPackingTest, TheLongestGoWhereTheyFitBest) {
  // 6 | 5 3 | 4 4, where first fit in this order takes a row more.
  const std::vector<std::int32_t> lengths{3, 4, 6, 5, 4};
  const RowPacking packing(lengths, 8);
  ASSERT_EQ(packing.rows(), 3);
  EXPECT_EQ(packing.by_length(), (std::vector<std::uint32_t>{2, 3, 1, 4, 0}));
  EXPECT_EQ(packing.classes(), (std::vector<std::uint32_t>{0, 1, 2, 4, 5}));
  EXPECT_EQ(std::vector(packing.row(1).begin(), packing.row(1).end()), (std::vector<std::uint32_t>{1, 4}));
  EXPECT_EQ(std::vector(packing.row(2).begin(), packing.row(2).end()), (std::vector<std::uint32_t>{2, 3}));
}

TEST(RowPackingTest, RefusesWhatFitsNoRow) {
  EXPECT_THROW(RowPacking(std::vector<std::int32_t>{3, 9}, 8), UsageError);
  EXPECT_THROW(RowPacking(std::vector<std::int32_t>{0}, 8), UsageError);
}

/// Lines of 1 to 30 letters, each with letters of its own order.
std::string lines_of_letters(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    for (int j = 0; j <= i * 7 % 30; ++j) lines += static_cast<char>('a' + (i * i + 3 * i * j + j) % 26);
    lines += i % 9 == 8 ? "\n\n" : "\n";
  }
  return lines;
}

Json node(const TempDir& folder, const std::string& more, const std::string& documents = "lines") {
  return parse_json(join_text(R"({"type": "text", "packing": true, "documents": ")", documents,
                              R"(", "length": 32, "train": [")", (folder / "a.txt").string(), "\"]", more, "}"),
                    "run.json");
}

/// The documents of a batch, as text, and what else there is to find in it.
struct Found {
  std::multiset<std::string> documents{};
  std::int64_t tokens = 0, predicted = 0;
};

void read_rows(const Batch& batch, const Tokenizer& tokenizer, Found& found) {
  const std::int64_t length = batch["input"].dim(1);
  ASSERT_EQ(batch["segments"].shape(), (Shape{batch.size(), length, 2}));
  for (std::int64_t row = 0; row < batch.size(); ++row) {
    const std::int32_t* const ids = batch["input"].data<std::int32_t>() + row * length;
    const std::int64_t* const labels = batch["labels"].data<std::int64_t>() + row * length;
    const std::int32_t* const bounds = batch["segments"].data<std::int32_t>() + 2 * row * length;
    for (std::int64_t first = 0; first < length;) {
      const std::int64_t end = bounds[2 * first + 1];
      ASSERT_GT(end, first);
      ASSERT_LE(end, length);
      for (std::int64_t i = first; i < end; ++i) {
        ASSERT_EQ(bounds[2 * i], first);
        ASSERT_EQ(bounds[2 * i + 1], end);
      }
      if (labels[first] == ignored_label) {
        ASSERT_EQ(end, first + 1) << "padding is segments of one position";
        ASSERT_EQ(ids[first], tokenizer.special().pad);
      } else {
        std::vector<std::int32_t> document(ids + first, ids + end);
        for (std::int64_t i = first; i + 1 < end; ++i) ASSERT_EQ(labels[i], ids[i + 1]);
        ASSERT_EQ(labels[end - 1], tokenizer.special().end);
        found.documents.insert(tokenizer.decode(document));
        found.tokens += end - first;
        found.predicted += end - first;
      }
      first = end;
    }
  }
}

TEST(PackedDocumentsTest, AnEpochHasEveryDocumentOnceAndWhole) {
  const TempDir folder;
  const std::string text = lines_of_letters(300);
  folder.write("a.txt", {text.begin(), text.end()});
  std::multiset<std::string> wanted;
  for (const std::string_view line : lines_of(text))
    if (!line.empty()) wanted.emplace(line);
  const DataSplits data = make_data(node(folder, ""));
  for (const bool shuffled : {false, true}) {
    Loader loader(data.train, {.batch_size = 4, .shuffle = shuffled, .seed = 5});
    for (int epoch = 0; epoch < 2; ++epoch) {
      Found found;
      std::int64_t tokens = 0, positions = 0, counted = 0;
      for (std::int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
        const Batch batch = loader.next();
        read_rows(batch, data.train->tokens()->tokenizer(), found);
        tokens += batch.tokens, positions += batch.positions, counted += batch.count();
      }
      EXPECT_EQ(found.documents, wanted);
      EXPECT_EQ(tokens, found.tokens);
      EXPECT_EQ(counted, found.predicted);
      EXPECT_EQ(counted, data.train->tokens()->predicted_tokens());
      EXPECT_EQ(positions, data.train->size() * 32);
      EXPECT_LT(static_cast<double>(positions), 1.02 * static_cast<double>(tokens));
    }
  }
}

/// Everything of a batch.
std::vector<double> contents(const Batch& batch) {
  std::vector<double> all(batch.samples.begin(), batch.samples.end());
  for (const char* name : {"input", "labels", "segments"})
    for (const double value : batch[name].to_doubles()) all.push_back(value);
  return all;
}

TEST(PackedDocumentsTest, BatchesAreAFunctionOfTheirNumber) {
  const TempDir folder;
  const std::string text = lines_of_letters(300);
  folder.write("a.txt", {text.begin(), text.end()});
  for (const char* masked : {"", R"(, "mask_probability": 0.2)"}) {
    std::vector<std::vector<double>> all;
    for (const int workers : {0, 1, 3}) {
      const DataSplits data = make_data(node(folder, join_text(masked, ", \"workers\": ", workers)));
      Loader loader = data.train_loader(4, 7);
      const std::int64_t batches = 2 * loader.batches_per_epoch();
      for (std::int64_t i = 0; i < batches; ++i) {
        const std::vector<double> found = contents(loader.next());
        if (workers == 0)
          all.push_back(found);
        else
          EXPECT_EQ(found, all[static_cast<std::size_t>(i)]);
      }
      loader.seek(1, 2);
      EXPECT_EQ(contents(loader.next()), all[static_cast<std::size_t>(batches / 2 + 2)]);
    }
    EXPECT_EQ(std::set(all.begin(), all.end()).size(), all.size());
  }
}

// Which documents are neighbours changes from epoch to epoch.
TEST(PackedDocumentsTest, RowsAreDrawnAnewInEachEpoch) {
  const TempDir folder;
  const std::string text = lines_of_letters(300);
  folder.write("a.txt", {text.begin(), text.end()});
  const DataSplits data = make_data(node(folder, ""));
  std::map<std::int64_t, std::vector<double>> first;
  Loader loader(data.train, {.batch_size = 1, .shuffle = true});
  int kept = 0;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (std::int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
      const Batch batch = loader.next();
      const auto [known, is_new] = first.emplace(batch.samples[0], batch["input"].to_doubles());
      kept += !is_new && known->second == batch["input"].to_doubles() ? 1 : 0;
    }
  EXPECT_LT(kept, static_cast<int>(data.train->size()) / 4);
}

TEST(PackedDocumentsTest, LongDocumentsAreCut) {
  const TempDir folder;
  const std::string text = "abc\n" + std::string(70, 'd') + "\n";
  folder.write("a.txt", {text.begin(), text.end()});
  const DataSplits data = make_data(node(folder, ""));
  // Of 70 letters and the end 70 are guessed: 32, 32 and 6, the latter beside the 3 of the other line.
  EXPECT_EQ(data.train->size(), 3);
  EXPECT_EQ(data.train->tokens()->predicted_tokens(), 73);
  const Batch batch = data.eval_loader(data.train, 3).next();
  EXPECT_EQ(batch.tokens, 73);
}

TEST(PackedDocumentsTest, MasksLeaveNoDocumentOut) {
  const TempDir folder;
  const std::string text = lines_of_letters(300);
  folder.write("a.txt", {text.begin(), text.end()});
  const DataSplits data = make_data(node(folder, R"(, "mask_probability": 0.25)"));
  Loader loader(data.train, {.batch_size = 5});
  const std::int32_t end = data.train->tokens()->tokenizer().special().end;
  std::int64_t tokens = 0, guessed = 0, counted = 0, kept_ends = 0;
  for (std::int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
    const Batch batch = loader.next();
    tokens += batch.tokens, counted += batch.count();
    const std::vector<double> input = batch["input"].to_doubles(), labels = batch["labels"].to_doubles();
    for (std::size_t place = 0; place < labels.size(); ++place) {
      guessed += labels[place] >= 0 ? 1 : 0;
      kept_ends += input[place] == end && labels[place] < 0 ? 1 : 0;
      EXPECT_NE(labels[place], end) << "where a document ends is not to be guessed";
    }
  }
  EXPECT_GE(kept_ends, 300);
  EXPECT_EQ(tokens, data.train->tokens()->predicted_tokens());
  EXPECT_EQ(guessed, counted);
  EXPECT_NEAR(static_cast<double>(guessed) / static_cast<double>(tokens - kept_ends), 0.25, 0.02);
}

TEST(PackedDocumentsTest, ParagraphsEndAtEmptyLines) {
  const TempDir folder;
  const std::string text = "\nab\ncd\n\n\nef\ngh\n\nij";
  folder.write("a.txt", {text.begin(), text.end()});
  const DataSplits data = make_data(node(folder, "", "paragraphs"));
  Found found;
  read_rows(data.eval_loader(data.train, 1).next(), data.train->tokens()->tokenizer(), found);
  EXPECT_EQ(found.documents, (std::multiset<std::string>{"ab\ncd", "ef\ngh", "ij"}));
}

TEST(PackedDocumentsTest, AreReadFromTokenFiles) {
  const TempDir folder;
  const std::string text = lines_of_letters(100);
  folder.write("a.txt", {text.begin(), text.end()});
  const std::string packed = (folder / "packed").string();
  pack_text(datasets().parse(node(folder, "")), packed);
  EXPECT_FALSE(file_exists(packed + "/unfinished-pack"));
  for (const std::string& full : {packed, folder.path().string()})
    EXPECT_PRED2(test::contains,
                 test::error_message<UsageError>([&] { pack_text(datasets().parse(node(folder, "")), full); }),
                 "is not empty");
  const DataSplits one = make_data(node(folder, "")),
                   other = make_data(parse_json(
                       R"({"type": "text", "packing": true, "length": 32, "packed": ")" + packed + "\"}", "run.json"));
  Loader a = one.train_loader(3, 7), b = other.train_loader(3, 7);
  for (std::int64_t i = 0; i < a.batches_per_epoch(); ++i) EXPECT_EQ(contents(a.next()), contents(b.next()));
}

TEST(PackedDocumentsTest, ValidationBeginsAtADocument) {
  const TempDir folder;
  const std::string text = lines_of_letters(100);
  folder.write("a.txt", {text.begin(), text.end()});
  const DataSplits whole = make_data(node(folder, "")), cut = make_data(node(folder, R"(, "valid_fraction": 0.2)"));
  const std::int64_t all = whole.train->tokens()->predicted_tokens(), held = cut.valid->tokens()->predicted_tokens();
  EXPECT_EQ(cut.train->tokens()->predicted_tokens() + held, all);
  EXPECT_NEAR(static_cast<double>(held) / static_cast<double>(all), 0.2, 0.03);
  EXPECT_TRUE(
      contains(error_message<DataError>([&] { make_data(node(folder, R"(, "valid_fraction": 0.2)", "files")); }),
               "1 documents do not divide"));
}

}  // namespace
}  // namespace hearth::data::packing_test
