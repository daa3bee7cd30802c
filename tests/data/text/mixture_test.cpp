// SPDX-License-Identifier: Apache-2.0
#include "data/text/mixture.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "data/splits.h"
#include "data/text/tokenizers/tokenizer_files.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::mixture_test {
namespace {

using test::contains;
using test::error_message;
using test::TempDir;

/// Three texts of one letter each, of 100, 300 and 50 rows of 8 ids, and a tokenizer that knows all of them.
class MixtureTest : public testing::Test {
 protected:
  MixtureTest() {
    put("letters.txt", "abcdefgh");
    for (const auto& [name, rows] : {std::pair{"a", 100}, {"b", 300}, {"c", 50}})
      put(join_text(name, ".txt"), std::string(static_cast<std::size_t>(rows) * 8, name[0]));
    const DataSplits letters = make_data(source("letters", R"("tokenizer": {"type": "characters"})"));
    write_tokenizer(letters.train->tokens()->tokenizer(), path("tokenizer.json"));
  }

  void put(const std::string& name, const std::string& text) const { folder_.write(name, {text.begin(), text.end()}); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string known() const {
    return R"("tokenizer": {"type": "characters", "path": ")" + path("tokenizer.json") + "\"}";
  }
  std::string source_text(const std::string& name, const std::string& more) const {
    return R"({"type": "text", "length": 8, "train": [")" + path(name + ".txt") + "\"], " + more + "}";
  }
  Json source(const std::string& name, const std::string& more) const {
    return parse_json(source_text(name, more), "run.json");
  }
  DataSplits mixed(const std::string& weights, int workers = 0) const {
    std::string sources;
    for (const char* name : {"a", "b", "c"}) sources += (sources.empty() ? "" : ", ") + source_text(name, known());
    return make_data(parse_json(join_text(R"({"type": "mixture", "sources": [)", sources, R"(], "weights": )", weights,
                                          R"(, "workers": )", workers, "}"),
                                "run.json"));
  }

 private:
  TempDir folder_;
};

/// How many rows are of each letter.
std::map<double, std::int64_t> counted(Loader& loader, std::int64_t batches) {
  std::map<double, std::int64_t> rows;
  for (std::int64_t i = 0; i < batches; ++i) {
    const Batch batch = loader.next();
    EXPECT_EQ(batch["input"].shape(), (Shape{batch.size(), 8}));
    const std::vector<double> ids = batch["input"].to_doubles();
    for (std::size_t row = 0; row < ids.size() / 8; ++row) ++rows[ids[8 * row]];
  }
  return rows;
}

TEST_F(MixtureTest, AnEpochHasOfEachSourceWhatItsWeightSays) {
  const DataSplits data = mixed("[0.5, 0.2, 0.3]");
  const std::vector<TokenDataset::Share> shares = data.train->tokens()->shares();
  ASSERT_EQ(shares.size(), 3u);
  const std::int64_t all = shares[0].rows + shares[1].rows + shares[2].rows;
  EXPECT_EQ(shares[0].rows_an_epoch + shares[1].rows_an_epoch + shares[2].rows_an_epoch, all);
  EXPECT_NEAR(static_cast<double>(shares[0].rows_an_epoch), 0.5 * static_cast<double>(all), 1);
  Loader loader(data.train, {.batch_size = 1, .shuffle = true, .seed = 4});
  ASSERT_EQ(loader.batches_per_epoch(), all);
  for (int epoch = 0; epoch < 3; ++epoch) {
    const auto rows = counted(loader, all);
    EXPECT_EQ(rows.at(5), shares[0].rows_an_epoch);
    EXPECT_EQ(rows.at(6), shares[1].rows_an_epoch);
    EXPECT_EQ(rows.at(7), shares[2].rows_an_epoch);
  }
}

TEST_F(MixtureTest, SourcesAreMixedWithinAnEpoch) {
  const DataSplits data = mixed("[1, 1, 1]");
  Loader loader(data.train, {.batch_size = 32, .shuffle = true});
  for (int i = 0; i < 10; ++i) {
    const auto rows = counted(loader, 1);
    EXPECT_EQ(rows.size(), 3u);
    for (const auto& [letter, count] : rows) EXPECT_LT(count, 24);
  }
}

TEST_F(MixtureTest, InOrderEveryRowIsThereOnce) {
  const DataSplits data = mixed("[0.9, 0.05, 0.05]");
  Loader loader(data.train, {.batch_size = 10});
  const auto rows = counted(loader, loader.batches_per_epoch());
  EXPECT_EQ(rows.at(5), 100);
  EXPECT_EQ(rows.at(6), 300);
  EXPECT_EQ(rows.at(7), 50);
}

// 25 of 40 rows come from a source of 10: after 2 epochs each of these was there 5 times.
TEST_F(MixtureTest, ASmallSourceBeginsAnewWhereItEnds) {
  const auto lines = [](int count, int step) {
    std::string text;
    for (int i = 0; i < count; ++i) {
      for (int bit = 0; bit < 8; ++bit) text += static_cast<char>('a' + (i >> bit & 1) + step);
      text += '\n';
    }
    return text;
  };
  put("a.txt", lines(30, 0));
  put("b.txt", lines(10, 2));
  const auto packed = [&](const char* name) {
    return source_text(name, known() + R"(, "packing": true, "documents": "lines")");
  };
  const DataSplits data = make_data(parse_json(
      join_text(R"({"type": "mixture", "weights": [3, 5], "sources": [)", packed("a"), ", ", packed("b"), "]}"),
      "run.json"));
  Loader loader(data.train, {.batch_size = 8, .shuffle = true});
  ASSERT_EQ(loader.batches_per_epoch(), 5);
  std::map<std::vector<double>, int> seen;
  for (int i = 0; i < 10; ++i) {
    const std::vector<double> ids = loader.next()["input"].to_doubles();
    for (auto row = ids.begin(); row != ids.end(); row += 8) ++seen[{row, row + 8}];
  }
  EXPECT_EQ(seen.size(), 40u);
  for (const auto& [row, count] : seen) EXPECT_EQ(count, row[7] == 7.0 ? 5 : 1);
}

std::vector<double> contents(const Batch& batch) {
  std::vector<double> all(batch.samples.begin(), batch.samples.end());
  for (const char* name : {"input", "labels"})
    for (const double value : batch[name].to_doubles()) all.push_back(value);
  all.push_back(static_cast<double>(batch.tokens));
  all.push_back(static_cast<double>(batch.count()));
  return all;
}

TEST_F(MixtureTest, BatchesAreAFunctionOfTheirNumber) {
  put("a.txt", "abcdefghgfedcbaabcdefghhgfedcbadcbhaefdbcahebfdahcebafhcdbeahfbcdae");
  std::vector<std::vector<double>> all;
  for (const int workers : {0, 1, 3}) {
    const DataSplits data = mixed("[3, 1, 1]", workers);
    Loader loader = data.train_loader(6, 9);
    const std::int64_t batches = 3 * loader.batches_per_epoch();
    for (std::int64_t i = 0; i < batches; ++i) {
      const std::vector<double> found = contents(loader.next());
      if (workers == 0)
        all.push_back(found);
      else
        EXPECT_EQ(found, all[static_cast<std::size_t>(i)]);
    }
    loader.seek(2, 5);
    EXPECT_EQ(contents(loader.next()), all[static_cast<std::size_t>(batches / 3 * 2 + 5)]);
  }
}

TEST_F(MixtureTest, SourcesAgreeOnTokenizerAndRows) {
  const auto fault = [&](const std::string& second) {
    return error_message<Error>([&] {
      (void)make_data(parse_json(
          R"({"type": "mixture", "weights": [1, 1], "sources": [)" + source_text("a", known()) + ", " + second + "]}",
          "run.json"));
    });
  };
  const std::string other = fault(source_text("b", R"("tokenizer": {"type": "characters"})"));
  EXPECT_PRED2(contains, other, path("a.txt"));
  EXPECT_PRED2(contains, other, path("b.txt"));
  EXPECT_PRED2(contains, other, "one tokenizer");
  EXPECT_PRED2(contains,
               fault(R"({"type": "text", "length": 16, "train": [")" + path("b.txt") + "\"], " + known() + "}"),
               "the same length");
  EXPECT_PRED2(contains, fault(source_text("b", known() + R"(, "packing": true)")), "the same length and packing");
  EXPECT_PRED2(contains, fault(R"({"type": "digits"})"), "is no token stream");
  EXPECT_PRED2(contains, fault(source_text("b", known() + R"(, "cache": {"memory_mb": 1})")),
               "/data/sources/1/cache: a mixture has one cache for all");
  EXPECT_PRED2(contains, fault(source_text("b", known() + R"(, "bad_samples": "skip")")),
               "/data/sources/1/bad_samples");
  EXPECT_PRED2(contains, error_message<ConfigError>([&] { (void)mixed("[1, 2]"); }), "each source needs one weight");
  EXPECT_PRED2(contains, error_message<ConfigError>([&] { (void)mixed("[1, 2, 0]"); }), "weights");
}

TEST(RowsByWeight, AddUp) {
  EXPECT_EQ(rows_by_weight({0.7, 0.3}, 10), (std::vector<std::int64_t>{7, 3}));
  EXPECT_EQ(rows_by_weight({1, 1, 1}, 10), (std::vector<std::int64_t>{4, 3, 3}));
  EXPECT_EQ(rows_by_weight({1, 2, 3}, 1), (std::vector<std::int64_t>{0, 0, 1}));
  EXPECT_EQ(rows_by_weight({5}, 0), (std::vector<std::int64_t>{0}));
}

}  // namespace
}  // namespace hearth::data::mixture_test
