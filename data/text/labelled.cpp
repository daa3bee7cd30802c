// SPDX-License-Identifier: Apache-2.0
#include "data/text/labelled.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "data/loading/batch_maker.h"
#include "data/loading/order.h"
#include "data/text/batches/length_buckets.h"

namespace hearth::data {
namespace {

/// With a number of tokens in the buckets of their lengths. Otherwise batch_size rows each: an epoch shuffles the
/// sequences, sorts stretches by length, and shuffles the batches.
class LabelledBatches : public BatchMaker {
 public:
  LabelledBatches(const LabelledText& set, const LoaderOptions& options) : set_(set), options_(options) {
    const auto length = [&set](std::int64_t sample) { return set.length_of(sample); };
    if (set.options().tokens_per_batch > 0) {
      buckets_.emplace(set.size(), length, length,
                       BucketOptions{set.options().tokens_per_batch, {}, set.options().multiple}, options, set.source(),
                       "sequences");
      return;
    }
    HEARTH_CHECK(ConfigError, options.batch_size >= 1, "loader: batch_size ", options.batch_size, " is below 1");
    HEARTH_CHECK(DataError, set.size() < (std::int64_t{1} << 32), set.source(), ": ", set.size(),
                 " sequences; at most 2^32 - 1 can be addressed");
    const std::int64_t whole = set.size() / options.batch_size;
    per_epoch_ = whole + (!options.drop_last && set.size() % options.batch_size != 0 ? 1 : 0);
    HEARTH_CHECK(DataError, per_epoch_ >= 1, set.source(), ": ", set.size(), " sequences give no batch of ",
                 options.batch_size, "; use a smaller batch");
  }

  std::int64_t per_epoch() const override { return buckets_ ? buckets_->per_epoch() : per_epoch_; }
  std::int64_t samples_per_epoch() const override {
    return buckets_ ? buckets_->samples_per_epoch() : std::min(per_epoch_ * options_.batch_size, set_.size());
  }

  void plan(std::int64_t epoch) const override {
    if (buckets_) return buckets_->plan(epoch);
    if (options_.shuffle) (void)plan_at(epoch);
  }
  std::vector<std::int64_t> samples_of(std::int64_t epoch, std::int64_t index) const override {
    if (buckets_) return buckets_->samples_of(epoch, index);
    const auto plan = options_.shuffle ? plan_at(epoch) : nullptr;
    const std::int64_t first = options_.batch_size * (plan ? plan->batches[static_cast<std::size_t>(index)] : index);
    std::vector<std::int64_t> samples(static_cast<std::size_t>(std::min(options_.batch_size, set_.size() - first)));
    if (plan)
      std::copy_n(plan->order.begin() + first, samples.size(), samples.begin());
    else
      std::iota(samples.begin(), samples.end(), first);
    return samples;
  }
  std::int64_t length_of(std::int64_t sample) const override { return set_.length_of(sample); }

  bool fill(Batch& batch, Workspace& space, const std::function<bool()>&) const override {
    std::int64_t length = 1;
    for (const std::int64_t sample : batch.samples) length = std::max(length, set_.length_of(sample));
    length = rounded_up(length, set_.options().multiple);
    batch.set("input", Tensor::full({batch.size(), length}, set_.tokenizer().special().pad, DType::i32));
    batch.set("labels", Tensor::empty({batch.size()}, DType::i64));
    batch.positions = batch.size() * length;
    for (std::int64_t row = 0; row < batch.size(); ++row) {
      const std::int64_t sample = batch.samples[static_cast<std::size_t>(row)];
      space.clock.at(Stage::assemble, sample);
      set_.copy(sample, batch["input"].data<std::int32_t>() + row * length);
      batch["labels"].data<std::int64_t>()[row] = set_.label_of(sample);
      batch.tokens += set_.length_of(sample);
    }
    return true;
  }

 private:
  struct Plan {
    std::vector<std::int64_t> order;    // of all samples
    std::vector<std::int64_t> batches;  // which stretch of `order` each batch is
  };

  ByEpoch<Plan>::Pointer plan_at(std::int64_t epoch) const {
    return plans_.of(epoch, [&] { return plan_of(static_cast<std::uint64_t>(epoch)); });
  }

  Plan plan_of(std::uint64_t epoch) const {
    Plan plan{shuffled_order(set_.size(), options_.seed, epoch), shuffled_order(per_epoch_, options_.seed + 1, epoch)};
    const LengthOf length = [&](std::int64_t sample) { return set_.length_of(sample); };
    LengthSort sort(length);
    const std::span order(plan.order.data(), static_cast<std::size_t>(samples_per_epoch()));
    const auto stretch = static_cast<std::size_t>(options_.batch_size * batches_sorted);
    for (std::size_t first = 0; first < order.size(); first += stretch)
      sort(order.subspan(first, std::min(stretch, order.size() - first)));
    return plan;
  }

  const LabelledText& set_;
  const LoaderOptions& options_;
  std::optional<LengthBuckets> buckets_;
  std::int64_t per_epoch_ = 0;
  ByEpoch<Plan> plans_;
};

}  // namespace

LabelledText::LabelledText(TokenizerPointer tokenizer, TokensPointer tokens, std::vector<std::int64_t> labels,
                           std::vector<std::string> names, LabelledOptions options)
    : TokenDataset(tokenizer, tokens->source()),
      tokens_(std::move(tokens)),
      labels_(std::move(labels)),
      names_(std::move(names)),
      samples_(labels_.size()),
      options_(options) {
  std::iota(samples_.begin(), samples_.end(), std::int64_t{0});
  HEARTH_CHECK(
      ConfigError,
      options.length >= 3 && options.length <= (1 << 24) && options.multiple >= 1 && options.tokens_per_batch >= 0,
      source(), ": rows of ", options.length, " ids, multiples of ", options.multiple, "; a row has at least 3");
  HEARTH_CHECK(DataError, tokenizer->special().pad >= 0, source(),
               ": the tokenizer has no id for padding, which sequences of unequal length need");
  HEARTH_CHECK(DataError, tokens_->sequences() == static_cast<std::int64_t>(labels_.size()), source(), ": ",
               tokens_->sequences(), " sequences and ", labels_.size(), " labels");
  for (std::size_t i = 0; i < labels_.size(); ++i) {
    HEARTH_CHECK(DataError, labels_[i] >= 0 && labels_[i] < static_cast<std::int64_t>(names_.size()), source(),
                 ": text ", i + 1, ": label ", labels_[i], " of ", names_.size(), " classes");
    HEARTH_CHECK(DataError, length_of(static_cast<std::int64_t>(i)) >= 1, source(), ": text ", i + 1,
                 " is without ids, and the tokenizer has none to begin or end it");
  }
}

std::shared_ptr<const LabelledText> LabelledText::subset(std::vector<std::int64_t> samples) const {
  auto result = std::make_shared<LabelledText>(*this);
  for (std::int64_t& sample : samples) sample = sequence_of(sample);
  result->samples_ = std::move(samples);
  return result;
}

std::int64_t LabelledText::longest() const { return rounded_up(options_.length, options_.multiple); }

std::int64_t LabelledText::rows_by_tokens() const {
  return options_.tokens_per_batch > 0 ? std::max<std::int64_t>(1, options_.tokens_per_batch / longest()) : 0;
}

std::int64_t LabelledText::sequence_of(std::int64_t sample) const {
  HEARTH_CHECK(IndexError, sample >= 0 && sample < size(), source(), ": text ", sample, " of ", size());
  return samples_[static_cast<std::size_t>(sample)];
}

std::int64_t LabelledText::kept(std::int64_t count) const {
  const SpecialIds& special = tokenizer().special();
  return std::min(count, options_.length - (special.begin >= 0 ? 1 : 0) - (special.end >= 0 ? 1 : 0));
}

std::int64_t LabelledText::label_of(std::int64_t sample) const {
  return labels_[static_cast<std::size_t>(sequence_of(sample))];
}

std::int64_t LabelledText::length_of(std::int64_t sample) const {
  const SpecialIds& special = tokenizer().special();
  const int end = special.end >= 0 ? 1 : 0;  // of the sequence too
  return (special.begin >= 0 ? 1 : 0) + kept(tokens_->length(sequence_of(sample)) - end) + end;
}

void LabelledText::copy(std::int64_t sample, std::int32_t* to) const {
  const SpecialIds& special = tokenizer().special();
  const std::int64_t sequence = sequence_of(sample);
  const std::int64_t count = kept(tokens_->length(sequence) - (special.end >= 0 ? 1 : 0));
  if (special.begin >= 0) *to++ = special.begin;
  tokens_->copy(tokens_->begin(sequence), count, to);
  if (special.end >= 0) to[count] = special.end;
}

std::vector<std::int32_t> LabelledText::input_of(std::string_view text) const {
  const SpecialIds& special = tokenizer().special();
  std::vector<std::int32_t> ids = tokenizer().encode(text);
  ids.resize(static_cast<std::size_t>(kept(static_cast<std::int64_t>(ids.size()))));
  if (special.begin >= 0) ids.insert(ids.begin(), special.begin);
  if (special.end >= 0) ids.push_back(special.end);
  HEARTH_CHECK(DataError, !ids.empty(), "the text has no ids");
  return ids;
}

std::unique_ptr<BatchMaker> LabelledText::batches(const Transforms&, const LoaderOptions& options) const {
  return std::make_unique<LabelledBatches>(*this, options);
}

}  // namespace hearth::data
