// SPDX-License-Identifier: Apache-2.0
// Pairs of lines in batches of about equal lengths. Each pair belongs to the bucket of its longer side; an epoch
// shuffles the pairs within buckets, sorts stretches of them by the shorter side, cuts them into batches, and shuffles
// the batches.
#include <algorithm>
#include <map>

#include "core/error.h"
#include "data/batch_maker.h"
#include "data/order.h"
#include "data/text/token_set.h"

namespace hearth::data {
namespace {

class TextPairs : public PairDataset {
 public:
  TextPairs(TokenizerPointer source_tokenizer, TokensPointer source_ids, TokenizerPointer target_tokenizer,
            TokensPointer target_ids, std::vector<std::int64_t> pairs, PairOptions options, bool skip_long)
      : PairDataset(target_tokenizer, target_ids->source()),
        source_tokenizer_(std::move(source_tokenizer)),
        source_ids_(std::move(source_ids)),
        target_ids_(std::move(target_ids)),
        options_(std::move(options)) {
    check(*target_tokenizer);
    for (const std::int64_t pair : pairs) {
      HEARTH_CHECK(IndexError, pair >= 0 && pair < target_ids_->sequences(), source(), ": pair ", pair, " of ",
                   target_ids_->sequences());
      HEARTH_CHECK(DataError, source_ids_->length(pair) >= 1 && target_ids_->length(pair) >= 1, source(), ": pair ",
                   pair + 1, " has a side without ids, not even an end");
      const std::int64_t longer = std::max(source_ids_->length(pair), target_ids_->length(pair));
      if (longer <= options_.longest) {
        pairs_.push_back(pair);
        predicted_ += target_ids_->length(pair);
        continue;
      }
      const std::string text = join_text(source_ids_->source(), ":", pair + 1, " with ", target_ids_->source(), ":",
                                         pair + 1, ": ", longer, " ids; the longest row may have ", options_.longest);
      HEARTH_CHECK(DataError, skip_long, text, "; raise \"longest\", or say \"on_long\": \"skip\"");
      warnings_.add(text);
    }
    HEARTH_CHECK(DataError, !pairs_.empty(), source(), ": no pairs");
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(pairs_.size()); }
  const Tokenizer& source_tokenizer() const override { return *source_tokenizer_; }
  std::int64_t longest() const override { return rounded_up(options_.longest, options_.multiple); }
  std::int64_t rows_by_tokens() const override {
    return options_.tokens_per_batch > 0 ? std::max<std::int64_t>(1, options_.tokens_per_batch / longest()) : 0;
  }
  std::int64_t predicted_tokens() const override { return predicted_; }
  std::int64_t characters() const override {
    // Those of a part nobody wrote down.
    return predicted_ == target_ids_->size() ? target_ids_->meaning().characters : 0;
  }
  std::vector<std::int32_t> target_ids(std::int64_t sample) const override {
    check_index(sample);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(target_length(sample)));
    copy_target(sample, ids.data());
    return ids;
  }
  std::vector<std::int32_t> source_ids(std::int64_t sample) const override {
    check_index(sample);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(source_length(sample)));
    copy_source(sample, ids.data());
    return ids;
  }
  void verify() const override {
    source_ids_->verify();
    target_ids_->verify();
  }
  Warnings warnings() const override { return warnings_; }
  std::unique_ptr<BatchMaker> batches(const Transforms&, const LoaderOptions& options) const override;

  const PairOptions& options() const { return options_; }
  std::int64_t source_length(std::int64_t sample) const { return source_ids_->length(pair(sample)); }
  std::int64_t target_length(std::int64_t sample) const { return target_ids_->length(pair(sample)); }
  void copy_source(std::int64_t sample, std::int32_t* to) const {
    source_ids_->copy(source_ids_->begin(pair(sample)), source_length(sample), to);
  }
  void copy_target(std::int64_t sample, std::int32_t* to) const {
    target_ids_->copy(target_ids_->begin(pair(sample)), target_length(sample), to);
  }

 private:
  std::int64_t pair(std::int64_t sample) const { return pairs_[static_cast<std::size_t>(sample)]; }

  void check(const Tokenizer& target_tokenizer) const {
    HEARTH_CHECK(DataError, source_ids_->sequences() == target_ids_->sequences(), source_ids_->source(), ": ",
                 source_ids_->sequences(), " lines, but ", target_ids_->source(), " has ", target_ids_->sequences(),
                 "; each line needs its translation");
    HEARTH_CHECK(DataError, source_ids_->meaning().vocabulary == source_tokenizer_->size(), source_ids_->source(),
                 ": ids of a vocabulary of ", source_ids_->meaning().vocabulary, ", but the tokenizer has ",
                 source_tokenizer_->size(), " pieces");
    HEARTH_CHECK(DataError, target_ids_->meaning().vocabulary == target_tokenizer.size(), target_ids_->source(),
                 ": ids of a vocabulary of ", target_ids_->meaning().vocabulary, ", but the tokenizer has ",
                 target_tokenizer.size(), " pieces");
    const SpecialIds& special = target_tokenizer.special();
    HEARTH_CHECK(DataError,
                 special.pad >= 0 && special.begin >= 0 && special.end >= 0 && source_tokenizer_->special().pad >= 0 &&
                     source_tokenizer_->special().end >= 0,
                 target_ids_->source(), ": pairs need tokenizers with ids for padding, begin and end");
    HEARTH_CHECK(ConfigError, options_.multiple >= 1 && options_.longest >= 1 && options_.tokens_per_batch >= 0,
                 "pairs: multiple ", options_.multiple, ", longest ", options_.longest, ", tokens_per_batch ",
                 options_.tokens_per_batch, " cannot be");
    HEARTH_CHECK(ConfigError, std::is_sorted(options_.buckets.begin(), options_.buckets.end()),
                 "pairs: the buckets are not in order");
  }

  TokenizerPointer source_tokenizer_;
  TokensPointer source_ids_, target_ids_;
  std::vector<std::int64_t> pairs_;
  PairOptions options_;
  std::int64_t predicted_ = 0;
  Warnings warnings_;
};

/// Samples that are padded alike.
struct Bucket {
  std::vector<std::int64_t> samples{};
  std::int64_t rows = 0;   ///< of its batches, but for the last
  std::int64_t taken = 0;  ///< rows of an epoch
};

/// Which samples a batch has: a stretch of a bucket's order.
struct Cut {
  std::size_t bucket;
  std::int64_t first, rows;
};

struct EpochPlan {
  std::vector<Cut> cuts;
  std::vector<std::vector<std::int64_t>> orders;  // of each bucket
};

class PairBatches : public BatchMaker {
 public:
  PairBatches(const TextPairs& set, const LoaderOptions& options) : set_(set), options_(options) {
    HEARTH_CHECK(ConfigError, options.batch_size >= 1, "loader: batch_size ", options.batch_size, " is below 1");
    HEARTH_CHECK(DataError, set.size() < (std::int64_t{1} << 32), set.source(), ": ", set.size(),
                 " pairs; at most 2^32 - 1 can be addressed");
    fill_buckets();
    const std::int64_t multiple = set.options().multiple;
    const bool by_tokens = set.options().tokens_per_batch > 0;
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      const auto all = static_cast<std::int64_t>(buckets_[b].samples.size());
      for (std::int64_t first = 0; first < all; first += buckets_[b].rows) {
        std::int64_t rows = std::min(buckets_[b].rows, all - first);
        // What an epoch leaves out here is drawn anew in each; a bucket that gives no batch otherwise is one.
        const bool is_part = options_.drop_last && rows < buckets_[b].rows;
        if (is_part && !(by_tokens && first == 0 && rows < multiple)) rows = by_tokens ? rows / multiple * multiple : 0;
        if (rows == 0) continue;
        cuts_.push_back({b, first, rows});
        buckets_[b].taken += rows;
        samples_ += rows;
      }
    }
    HEARTH_CHECK(DataError, !cuts_.empty(), set.source(), ": ", set.size(),
                 " pairs give no whole batch; use a smaller batch");
  }

  std::int64_t per_epoch() const override { return static_cast<std::int64_t>(cuts_.size()); }
  std::int64_t samples_per_epoch() const override { return samples_; }
  void plan(std::int64_t epoch) const override {
    if (options_.shuffle) (void)plan_at(epoch);
  }

  std::vector<std::int64_t> samples_of(std::int64_t epoch, std::int64_t index) const override {
    const auto number = static_cast<std::size_t>(index);
    if (!options_.shuffle) return samples_of(buckets_[cuts_[number].bucket].samples, cuts_[number]);
    const auto plan = plan_at(epoch);
    const Cut& cut = plan->cuts[number];
    return samples_of(plan->orders[cut.bucket], cut);
  }
  std::int64_t length_of(std::int64_t sample) const override {
    return set_.source_length(sample) + set_.target_length(sample);
  }

  bool fill(Batch& batch, Workspace& space, const std::function<bool()>&) const override {
    const std::int64_t rows = batch.size(), multiple = set_.options().multiple;
    std::int64_t source_length = 1, target_length = 1;
    for (const std::int64_t sample : batch.samples) {
      source_length = std::max(source_length, set_.source_length(sample));
      target_length = std::max(target_length, set_.target_length(sample));
    }
    source_length = rounded_up(source_length, multiple);
    target_length = rounded_up(target_length, multiple);
    const SpecialIds& special = set_.tokenizer().special();
    batch.set("source", Tensor::full({rows, source_length}, set_.source_tokenizer().special().pad, DType::i32));
    batch.set("target", Tensor::full({rows, target_length}, special.pad, DType::i32));
    batch.set("labels", Tensor::full({rows, target_length}, static_cast<double>(ignored_label), DType::i64));
    batch.positions = rows * (source_length + target_length);
    batch.counted = 0;
    std::vector<std::int32_t> ids(static_cast<std::size_t>(target_length));
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t sample = batch.samples[static_cast<std::size_t>(row)];
      space.clock.at(Stage::assemble, sample);
      set_.copy_source(sample, batch["source"].data<std::int32_t>() + row * source_length);
      set_.copy_target(sample, ids.data());
      const std::int64_t count = set_.target_length(sample);
      std::int32_t* const target = batch["target"].data<std::int32_t>() + row * target_length;
      std::int64_t* const labels = batch["labels"].data<std::int64_t>() + row * target_length;
      target[0] = special.begin;
      std::copy_n(ids.data(), count - 1, target + 1);
      std::copy_n(ids.data(), count, labels);
      batch.tokens += set_.source_length(sample) + count;
      batch.counted += count;
    }
    return true;
  }

 private:
  static std::vector<std::int64_t> samples_of(const std::vector<std::int64_t>& order, const Cut& cut) {
    const auto first = order.begin() + static_cast<std::ptrdiff_t>(cut.first);
    return {first, first + static_cast<std::ptrdiff_t>(cut.rows)};
  }

  void fill_buckets() {
    const PairOptions& chosen = set_.options();
    std::map<std::int64_t, Bucket> by_length;
    for (std::int64_t sample = 0; sample < set_.size(); ++sample) {
      const std::int64_t longer = std::max(set_.source_length(sample), set_.target_length(sample));
      const auto named = std::lower_bound(chosen.buckets.begin(), chosen.buckets.end(), longer);
      const std::int64_t length = rounded_up(named != chosen.buckets.end() ? *named : longer, chosen.multiple);
      by_length[length].samples.push_back(sample);
    }
    if (chosen.tokens_per_batch == 0) {
      Bucket all;
      for (std::int64_t sample = 0; sample < set_.size(); ++sample) all.samples.push_back(sample);
      all.rows = options_.batch_size;
      buckets_.push_back(std::move(all));
      return;
    }
    for (auto& [length, bucket] : by_length) {
      bucket.rows = std::max<std::int64_t>(1, chosen.tokens_per_batch / length);
      if (bucket.rows > chosen.multiple) bucket.rows = bucket.rows / chosen.multiple * chosen.multiple;
      sort_by_shorter(bucket.samples, 0, static_cast<std::int64_t>(bucket.samples.size()));
      buckets_.push_back(std::move(bucket));
    }
  }

  void sort_by_shorter(std::vector<std::int64_t>& order, std::int64_t first, std::int64_t count) const {
    const auto shorter = [this](std::int64_t sample) {
      return std::min(set_.source_length(sample), set_.target_length(sample));
    };
    const auto begin = order.begin() + static_cast<std::ptrdiff_t>(first);
    std::stable_sort(begin, begin + static_cast<std::ptrdiff_t>(count),
                     [&](std::int64_t a, std::int64_t b) { return shorter(a) < shorter(b); });
  }

  ByEpoch<EpochPlan>::Pointer plan_at(std::int64_t epoch) const {
    return plans_.of(epoch, [&] { return plan_of(static_cast<std::uint64_t>(epoch)); });
  }

  EpochPlan plan_of(std::uint64_t epoch) const {
    EpochPlan plan;
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      std::vector<std::int64_t> order = buckets_[b].samples;
      Random random = random_of(options_.seed, Purpose::order, epoch, static_cast<std::uint32_t>(b) + 1);
      for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
      if (set_.options().tokens_per_batch > 0) {
        const std::int64_t taken = buckets_[b].taken, chunk = buckets_[b].rows * batches_sorted;
        for (std::int64_t first = 0; first < taken; first += chunk)
          sort_by_shorter(order, first, std::min(chunk, taken - first));
      }
      plan.orders.push_back(std::move(order));
    }
    for (const std::int64_t cut : shuffled_order(per_epoch(), options_.seed, epoch))
      plan.cuts.push_back(cuts_[static_cast<std::size_t>(cut)]);
    return plan;
  }

  const TextPairs& set_;
  const LoaderOptions& options_;
  std::vector<Bucket> buckets_;
  std::vector<Cut> cuts_;  // in order
  std::int64_t samples_ = 0;
  ByEpoch<EpochPlan> plans_;
};

std::unique_ptr<BatchMaker> TextPairs::batches(const Transforms&, const LoaderOptions& options) const {
  return std::make_unique<PairBatches>(*this, options);
}

}  // namespace

std::shared_ptr<const TokenDataset> text_pairs(TokenizerPointer source_tokenizer, TokensPointer source,
                                               TokenizerPointer target_tokenizer, TokensPointer target,
                                               std::vector<std::int64_t> pairs, PairOptions options, bool skip_long) {
  return std::make_shared<TextPairs>(std::move(source_tokenizer), std::move(source), std::move(target_tokenizer),
                                     std::move(target), std::move(pairs), std::move(options), skip_long);
}

}  // namespace hearth::data
