// SPDX-License-Identifier: Apache-2.0
// Batches by a number of tokens, and how they divide among ranks.
#include "data/text/batches/length_buckets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "data/loading/loader.h"
#include "data/loading/order.h"
#include "data/text/labelled.h"
#include "data/text/tokenize_file.h"
#include "data/text/tokenizers/tokenizer_registry.h"
#include "tests/data/memory_requests.h"
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

using Batches = std::vector<std::vector<std::int64_t>>;

/// An epoch as it is defined, a vector for each bucket and batch.
Batches plain_plan(const std::vector<std::int64_t>& padded, const std::vector<std::int64_t>& sorted,
                   const BucketOptions& chosen, const LoaderOptions& options, std::uint64_t epoch) {
  const auto by_length = [&](std::int64_t a, std::int64_t b) {
    return sorted[static_cast<std::size_t>(a)] < sorted[static_cast<std::size_t>(b)];
  };
  std::map<std::int64_t, std::vector<std::int64_t>> buckets;
  for (std::size_t i = 0; i < padded.size(); ++i) {
    const auto named = std::lower_bound(chosen.buckets.begin(), chosen.buckets.end(), padded[i]);
    const std::int64_t length = rounded_up(named != chosen.buckets.end() ? *named : padded[i], chosen.multiple);
    buckets[chosen.tokens_per_batch > 0 ? length : 0].push_back(static_cast<std::int64_t>(i));
  }
  Batches batches;
  std::uint32_t number = 0;
  for (auto& [length, order] : buckets) {
    std::int64_t rows = options.batch_size;
    if (chosen.tokens_per_batch > 0) {
      rows = std::max<std::int64_t>(1, chosen.tokens_per_batch / length);
      if (rows > chosen.multiple) rows = rows / chosen.multiple * chosen.multiple;
      std::stable_sort(order.begin(), order.end(), by_length);
    }
    Random random = random_of(options.seed, Purpose::order, epoch, ++number);
    if (options.shuffle)
      for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    const auto all = static_cast<std::int64_t>(order.size());
    std::vector<std::int64_t> sizes;
    for (std::int64_t first = 0; first < all; first += rows) {
      std::int64_t size = std::min(rows, all - first);
      if (options.drop_last && size < rows && chosen.tokens_per_batch == 0) size = 0;
      if (options.drop_last && size < rows && !(first == 0 && size < chosen.multiple))
        size = size / chosen.multiple * chosen.multiple;
      if (size > 0) sizes.push_back(size);
    }
    std::int64_t in_batches = 0;
    for (const std::int64_t size : sizes) in_batches += size;
    if (options.shuffle && chosen.tokens_per_batch > 0)
      for (std::int64_t first = 0; first < in_batches; first += rows * batches_sorted)
        std::stable_sort(order.begin() + first, order.begin() + std::min(first + rows * batches_sorted, in_batches),
                         by_length);
    auto at = order.begin();
    for (const std::int64_t size : sizes) batches.emplace_back(at, at + size), at += size;
  }
  if (!options.shuffle) return batches;
  Batches shuffled;
  for (const std::int64_t batch : shuffled_order(static_cast<std::int64_t>(batches.size()), options.seed, epoch))
    shuffled.push_back(batches[static_cast<std::size_t>(batch)]);
  return shuffled;
}

LengthOf lookup(const std::vector<std::int64_t>& lengths) {
  return [&lengths](std::int64_t sample) { return lengths[static_cast<std::size_t>(sample)]; };
}

TEST(LengthBucketsTest, BatchesAreThoseOfThePlainPlan) {
  const std::vector<std::int64_t> padded = zipf_lengths(3'001, 90);
  std::vector<std::int64_t> sorted;
  for (std::size_t i = 0; i < padded.size(); ++i) sorted.push_back(1 + (padded[i] * static_cast<std::int64_t>(i)) % 7);
  for (const BucketOptions& chosen : {BucketOptions{.tokens_per_batch = 512}, BucketOptions{.multiple = 8},
                                      BucketOptions{.tokens_per_batch = 300, .buckets = {10, 40}, .multiple = 4}})
    for (const bool shuffle : {false, true})
      for (const bool drop_last : {false, true}) {
        const LoaderOptions options{.batch_size = 7, .shuffle = shuffle, .drop_last = drop_last, .seed = 9};
        const LengthBuckets buckets(3'001, lookup(padded), lookup(sorted), chosen, options, "test", "sequences");
        for (const std::int64_t epoch : {0, 1, 5}) {
          Batches planned;
          for (std::int64_t i = 0; i < buckets.per_epoch(); ++i) planned.push_back(buckets.samples_of(epoch, i));
          EXPECT_EQ(planned, plain_plan(padded, sorted, chosen, options, static_cast<std::uint64_t>(epoch)))
              << chosen.tokens_per_batch << shuffle << drop_last << epoch;
        }
      }
}

/// Memory requests of the plan of epoch 1.
long requests_of_plan(const BatchMaker& maker) {
  maker.plan(0);
  const long before = test::memory_requests();
  maker.plan(1);
  return test::memory_requests() - before;
}

TEST(LengthBucketsTest, APlanAsksForMemoryHoweverManyBatchesAFewTimes) {
  if (!test::counts_memory_requests) GTEST_SKIP() << "a sanitizer has an allocator of its own";
  const std::vector<std::int64_t> lengths = zipf_lengths(20'000, 60);
  for (const std::int64_t tokens : {0, 64, 640}) {
    const auto set = labelled_lines(lengths, {.length = 64, .tokens_per_batch = tokens});
    const LoaderOptions options{.batch_size = 2, .shuffle = true};
    const auto maker = set->batches(no_transforms(), options);
    EXPECT_GT(maker->per_epoch(), 500);
    const long requests = requests_of_plan(*maker);
    EXPECT_GE(requests, 2) << "the counter counts";
    EXPECT_LE(requests, 20) << tokens << ": " << maker->per_epoch() << " batches";
  }
}

/// Sequences whose lengths note which threads sort by them.
class WatchedLengths : public Dataset {
 public:
  explicit WatchedLengths(std::vector<std::int64_t> lengths) : lengths_(std::move(lengths)) {}
  std::int64_t size() const override { return static_cast<std::int64_t>(lengths_.size()); }
  const std::string& source() const override {
    static const std::string name = "watched";
    return name;
  }
  std::unique_ptr<BatchMaker> batches(const Transforms&, const LoaderOptions& options) const override {
    return std::make_unique<Maker>(*this, options);
  }
  std::set<std::thread::id> threads() const {
    const std::lock_guard lock(mutex_);
    return threads_;
  }

 private:
  class Maker : public BatchMaker {
   public:
    Maker(const WatchedLengths& set, const LoaderOptions& options)
        : buckets_(
              set.size(), lookup(set.lengths_),
              [&set](std::int64_t sample) {
                const std::lock_guard lock(set.mutex_);
                set.threads_.insert(std::this_thread::get_id());
                return set.lengths_[static_cast<std::size_t>(sample)];
              },
              {.tokens_per_batch = 256}, options, set.source(), "sequences") {}
    std::int64_t per_epoch() const override { return buckets_.per_epoch(); }
    std::int64_t samples_per_epoch() const override { return buckets_.samples_per_epoch(); }
    void plan(std::int64_t epoch) const override { buckets_.plan(epoch); }
    std::vector<std::int64_t> samples_of(std::int64_t epoch, std::int64_t index) const override {
      return buckets_.samples_of(epoch, index);
    }
    bool fill(Batch& batch, Workspace&, const std::function<bool()>&) const override {
      batch.set("x", Tensor::zeros({batch.size()}, DType::i64));
      return true;
    }

   private:
    LengthBuckets buckets_;
  };

  std::vector<std::int64_t> lengths_;
  mutable std::mutex mutex_;
  mutable std::set<std::thread::id> threads_;
};

TEST(LengthBucketsTest, TheThreadThatTakesBatchesSortsNothing) {
  for (const bool shuffle : {false, true}) {
    const auto set = std::make_shared<WatchedLengths>(zipf_lengths(2'000, 60));
    Loader loader(set, {.workers = 2, .shuffle = shuffle});
    for (std::int64_t i = 0; i < 3 * loader.batches_per_epoch(); ++i) (void)loader.next();
    const std::set<std::thread::id> threads = set->threads();
    EXPECT_FALSE(threads.empty());
    EXPECT_FALSE(threads.contains(std::this_thread::get_id())) << shuffle;
  }
}

}  // namespace
}  // namespace hearth::data::length_buckets_test
