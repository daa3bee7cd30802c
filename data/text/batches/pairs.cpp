// SPDX-License-Identifier: Apache-2.0
// Pairs of lines in batches of about equal lengths: in the buckets of their longer sides, sorted by the shorter ones.
#include <algorithm>

#include "core/error.h"
#include "data/loading/batch_maker.h"
#include "data/text/batches/length_buckets.h"
#include "data/text/batches/pair_limits.h"
#include "data/text/token_set.h"

namespace hearth::data {
namespace {

class TextPairs : public PairDataset {
 public:
  TextPairs(TokenizerPointer source_tokenizer, TokensPointer source_ids, TokenizerPointer target_tokenizer,
            TokensPointer target_ids, const std::vector<std::int64_t>& pairs, PairOptions options, bool skip_long,
            Warnings before)
      : PairDataset(target_tokenizer, target_ids->source()),
        source_tokenizer_(std::move(source_tokenizer)),
        source_ids_(std::move(source_ids)),
        target_ids_(std::move(target_ids)),
        options_(std::move(options)),
        warnings_(std::move(before)) {
    check(*target_tokenizer);
    PairsWithin within = pairs_within(*source_ids_, *target_ids_, pairs, options_, skip_long);
    pairs_ = std::move(within.pairs);
    warnings_.add(within.left_out);
    for (const std::int64_t pair : pairs_) predicted_ += target_ids_->length(pair);
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
    HEARTH_CHECK(ConfigError,
                 options_.multiple >= 1 && options_.longest >= 1 && options_.tokens_per_batch >= 0 &&
                     (options_.max_ratio == 0 || options_.max_ratio >= 1),
                 "pairs: multiple ", options_.multiple, ", longest ", options_.longest, ", tokens_per_batch ",
                 options_.tokens_per_batch, ", max_ratio ", options_.max_ratio, " cannot be");
  }

  TokenizerPointer source_tokenizer_;
  TokensPointer source_ids_, target_ids_;
  std::vector<std::int64_t> pairs_;
  PairOptions options_;
  std::int64_t predicted_ = 0;
  Warnings warnings_;
};

class PairBatches : public BatchMaker {
 public:
  PairBatches(const TextPairs& set, const LoaderOptions& options)
      : set_(set),
        buckets_(
            set.size(), [&set](std::int64_t i) { return std::max(set.source_length(i), set.target_length(i)); },
            [&set](std::int64_t i) { return std::min(set.source_length(i), set.target_length(i)); },
            {set.options().tokens_per_batch, set.options().buckets, set.options().multiple}, options, set.source(),
            "pairs") {}

  std::int64_t per_epoch() const override { return buckets_.per_epoch(); }
  std::int64_t samples_per_epoch() const override { return buckets_.samples_per_epoch(); }
  void plan(std::int64_t epoch) const override { buckets_.plan(epoch); }
  std::vector<std::int64_t> samples_of(std::int64_t epoch, std::int64_t index) const override {
    return buckets_.samples_of(epoch, index);
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
  const TextPairs& set_;
  LengthBuckets buckets_;
};

std::unique_ptr<BatchMaker> TextPairs::batches(const Transforms&, const LoaderOptions& options) const {
  return std::make_unique<PairBatches>(*this, options);
}

}  // namespace

std::shared_ptr<const TokenDataset> text_pairs(TokenizerPointer source_tokenizer, TokensPointer source,
                                               TokenizerPointer target_tokenizer, TokensPointer target,
                                               std::vector<std::int64_t> pairs, PairOptions options, bool skip_long,
                                               Warnings before) {
  return std::make_shared<TextPairs>(std::move(source_tokenizer), std::move(source), std::move(target_tokenizer),
                                     std::move(target), pairs, std::move(options), skip_long, std::move(before));
}

}  // namespace hearth::data
