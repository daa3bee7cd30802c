// SPDX-License-Identifier: Apache-2.0
// Batches by a number of tokens, and how they divide among ranks.
#include "data/text/batches/length_buckets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "data/loading/loader.h"
#include "data/text/labelled.h"
#include "data/text/tokenize_file.h"
#include "data/text/tokenizers/tokenizer_registry.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::length_buckets_test {
namespace {

/// Lengths of which n occurs with a probability like 1 / n (Zipf's law), up to `most`.
std::vector<std::int64_t> zipf_lengths(std::size_t count, std::int64_t most) {
  std::vector<double> up_to;
  double sum = 0;
  for (std::int64_t n = 1; n <= most; ++n) up_to.push_back(sum += 1.0 / static_cast<double>(n));
  Random random(11, 3);
  std::vector<std::int64_t> lengths(count);
  for (std::int64_t& length : lengths)
    length = 1 + (std::lower_bound(up_to.begin(), up_to.end(), random.uniform() * sum) - up_to.begin());
  return lengths;
}

std::shared_ptr<const LabelledText> labelled_lines(const std::vector<std::int64_t>& lengths, LabelledOptions options) {
  std::vector<std::string> lines;
  for (const std::int64_t length : lengths) lines.emplace_back(static_cast<std::size_t>(length), 'a');
  const std::vector<std::string_view> views(lines.begin(), lines.end());
  const TokenizerPointer tokenizer =
      tokenizers().make(parse_json(R"({"type": "characters"})", "test"), std::vector<std::string_view>{"a"});
  return std::make_shared<LabelledText>(tokenizer, tokenize(*tokenizer, views, "zipf"),
                                        std::vector<std::int64_t>(lines.size(), 0), std::vector<std::string>{"only"},
                                        options);
}

/// How much more than its part the rank has that has the most, of tokens and of positions with padding.
struct Imbalance {
  double tokens = 0, positions = 0;
  bool same_rows = true;
};

Imbalance imbalance_of(const DatasetPointer& set, std::int64_t ranks, std::int64_t batch_size) {
  std::vector<std::unique_ptr<Loader>> loaders;
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    loaders.push_back(
        std::make_unique<Loader>(set, LoaderOptions{.batch_size = batch_size,
                                                    .workers = 0,
                                                    .shuffle = true,
                                                    .drop_last = true,
                                                    .part = {.cuts = ranks, .of = ranks, .first = rank}}));
  double most = 0, all = 0, most_positions = 0, all_positions = 0;
  Imbalance result;
  for (std::int64_t i = 0; i < loaders[0]->batches_per_epoch(); ++i) {
    std::int64_t tokens = 0, positions = 0, rows = -1;
    for (const auto& loader : loaders) {
      const Batch batch = loader->next();
      result.same_rows = result.same_rows && (rows < 0 || rows == batch.size());
      rows = batch.size();
      tokens = std::max(tokens, batch.tokens), positions = std::max(positions, batch.positions);
      all += static_cast<double>(batch.tokens), all_positions += static_cast<double>(batch.positions);
    }
    most += static_cast<double>(tokens), most_positions += static_cast<double>(positions);
  }
  result.tokens = most * static_cast<double>(ranks) / all - 1;
  result.positions = most_positions * static_cast<double>(ranks) / all_positions - 1;
  return result;
}

TEST(LengthBucketsTest, RanksHaveEquallyManyRowsAndTokens) {
  const auto set = labelled_lines(zipf_lengths(20'000, 510), {.length = 512, .tokens_per_batch = 8192});
  for (const std::int64_t ranks : {2, 4, 8}) {
    const Imbalance found = imbalance_of(set, ranks, 1);
    EXPECT_LE(found.tokens, 0.02) << ranks;
    EXPECT_LE(found.positions, 0.02) << ranks;
    EXPECT_TRUE(found.same_rows) << ranks;
    RecordProperty("tokens_" + std::to_string(ranks), std::to_string(found.tokens));
    RecordProperty("positions_" + std::to_string(ranks), std::to_string(found.positions));
  }
}

TEST(LengthBucketsTest, BatchesHaveTheirSizes) {
  const auto set = labelled_lines(zipf_lengths(20'000, 510), {.length = 512, .tokens_per_batch = 4096});
  EXPECT_EQ(set->rows_by_tokens(), 8);
  Loader loader(set, {.batch_size = 3, .shuffle = true, .drop_last = true, .seed = 2});
  std::vector<int> seen(20'000);
  std::int64_t tokens = 0, positions = 0;
  for (std::int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
    const Batch batch = loader.next();
    EXPECT_EQ(batch["input"].dim(1) % 8, 0);
    EXPECT_LE(batch.positions, 4096);
    EXPECT_EQ(batch.size() % 8, 0);
    tokens += batch.tokens, positions += batch.positions;
    for (const std::int64_t sample : batch.samples) ++seen[static_cast<std::size_t>(sample)];
  }
  EXPECT_EQ(*std::max_element(seen.begin(), seen.end()), 1);
  EXPECT_GT(std::count(seen.begin(), seen.end(), 1), 19'000);
  EXPECT_LT(1 - static_cast<double>(tokens) / static_cast<double>(positions), 0.05);
  // In order nothing is left out.
  Loader ordered(set, {.batch_size = 3});
  std::int64_t rows = 0;
  for (std::int64_t i = 0; i < ordered.batches_per_epoch(); ++i) rows += ordered.next().size();
  EXPECT_EQ(rows, 20'000);
}

// A loader with workers plans while it gives batches; nothing of the order depends on it.
TEST(LengthBucketsTest, PlansMadeAheadChangeNothing) {
  const auto set = labelled_lines(zipf_lengths(2'000, 60), {.length = 64, .tokens_per_batch = 512});
  Loader alone(set, {.workers = 0, .shuffle = true, .seed = 5}), ahead(set, {.workers = 3, .shuffle = true, .seed = 5});
  for (std::int64_t i = 0; i < 4 * alone.batches_per_epoch(); ++i)
    EXPECT_EQ(alone.next().samples, ahead.next().samples);
}

}  // namespace
}  // namespace hearth::data::length_buckets_test
