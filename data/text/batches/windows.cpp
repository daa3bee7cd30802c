// SPDX-License-Identifier: Apache-2.0
// Windows of a token stream.
#include <algorithm>

#include "core/error.h"
#include "data/loading/batch_maker.h"
#include "data/loading/order.h"
#include "data/text/batches/masking.h"
#include "data/text/token_set.h"

namespace hearth::data {
namespace {

class TextWindows : public TokenDataset {
 public:
  TextWindows(TokenizerPointer tokenizer, TokensPointer tokens, std::int64_t first, std::int64_t last,
              WindowOptions options)
      : TokenDataset(tokenizer, tokens->source()),
        tokens_(std::move(tokens)),
        first_(first),
        last_(last),
        options_(options) {
    const Tokens::Meaning& meaning = tokens_->meaning();
    HEARTH_CHECK(ConfigError, options.length >= 1 && options.length <= (1 << 24), source(), ": windows of ",
                 options.length, " ids");
    HEARTH_CHECK(DataError, meaning.vocabulary == tokenizer->size(), source(), ": ids of a vocabulary of ",
                 meaning.vocabulary, ", but the tokenizer has ", tokenizer->size(), " pieces");
    HEARTH_CHECK(IndexError, first >= 0 && first <= last && last <= tokens_->size(), source(), ": ids ", first, " to ",
                 last, " of ", tokens_->size());
    HEARTH_CHECK(DataError, guesses() >= 1, source(), ": ", last - first, " ids; nothing to predict");
    HEARTH_CHECK(DataError, options.mask_probability == 0 || tokenizer->special().mask >= 0, source(),
                 ": the tokenizer has no mask token, which a masked text needs");
  }

  std::int64_t size() const override { return (guesses() + options_.length - 1) / options_.length; }
  std::int64_t longest() const override { return options_.length; }
  std::int64_t predicted_tokens() const override { return guesses(); }
  std::int64_t characters() const override {
    // Those of a part nobody wrote down.
    return first_ == 0 && last_ == tokens_->size() ? tokens_->meaning().characters : 0;
  }
  void verify() const override { tokens_->verify(); }
  std::unique_ptr<BatchMaker> batches(const Transforms&, const LoaderOptions& options) const override;

  bool is_masked() const { return options_.mask_probability > 0; }
  const WindowOptions& options() const { return options_; }
  /// Ids that can be predicted: each from the one before it, or masked ones from all others.
  std::int64_t guesses() const { return last_ - first_ - (is_masked() ? 0 : 1); }
  /// How many of `count` ids from `place` within the text on there are; writes them.
  std::int64_t copy(std::int64_t place, std::int64_t count, std::int32_t* target) const {
    const std::int64_t there = std::min(count, last_ - first_ - place);
    tokens_->copy(first_ + place, there, target);
    return there;
  }

 private:
  TokensPointer tokens_;
  std::int64_t first_, last_;
  WindowOptions options_;
};

/// Windows of an epoch. In training one fewer than fits: that leaves room to begin anywhere within the first, and to
/// end with the text.
std::int64_t windows_of(const TextWindows& set, const LoaderOptions& options) {
  if (!options.shuffle) return set.size();
  const std::int64_t length = set.options().length, whole = set.guesses() / length;
  HEARTH_CHECK(DataError, whole >= 1, set.source(), ": ", set.guesses(), " ids give no window of ", length,
               "; use a smaller length");
  return std::max<std::int64_t>(1, whole - 1);
}

class WindowBatches : public OrderedBatches {
 public:
  WindowBatches(const TextWindows& set, const LoaderOptions& options)
      : OrderedBatches(windows_of(set, options), options, set.source(),
                       join_text("windows of ", set.options().length, " ids").c_str()),
        set_(set) {
    if (options.shuffle) starts_ = set.guesses() - windows_of(set, options) * set.options().length + 1;
  }

  /// Shuffled windows begin elsewhere in each epoch.
  bool samples_stay() const override { return !options().shuffle; }
  bool fill(Batch& batch, Workspace& space, const std::function<bool()>& cancelled) const override {
    const auto epoch = static_cast<std::uint64_t>(batch.epoch);
    const std::int64_t length = set_.options().length;
    const std::int64_t rows = batch.size();
    std::int64_t start = 0;
    if (options().shuffle) {
      Random random = random_of(options().seed, Purpose::windows, epoch);
      start = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(starts_)));
    }
    batch.set("input", Tensor::empty({rows, length}, DType::i32));
    batch.set("labels", Tensor::empty({rows, length}, DType::i64));
    batch.positions = rows * length;
    batch.counted = 0;
    std::vector<std::int32_t> ids(static_cast<std::size_t>(length) + 1);
    for (std::int64_t row = 0; row < rows; ++row) {
      if (cancelled()) return false;
      const std::int64_t window = batch.samples[static_cast<std::size_t>(row)];
      space.clock.at(Stage::assemble, window);
      std::int32_t* const input = batch["input"].data<std::int32_t>() + row * length;
      std::int64_t* const labels = batch["labels"].data<std::int64_t>() + row * length;
      const std::int64_t there = set_.copy(start + window * length, length + 1, ids.data());
      if (set_.is_masked()) {
        batch.tokens += std::min(there, length);
        batch.counted += mask(ids.data(), std::min(there, length), epoch, window, input, labels);
      } else {
        batch.tokens += there - 1;
        batch.counted += there - 1;
        shift(ids.data(), there - 1, input, labels);
      }
    }
    return true;
  }

 private:
  std::int32_t filler() const { return std::max(set_.tokenizer().special().pad, 0); }

  void shift(const std::int32_t* ids, std::int64_t count, std::int32_t* input, std::int64_t* labels) const {
    const std::int64_t length = set_.options().length;
    for (std::int64_t i = 0; i < length; ++i) {
      input[i] = i < count ? ids[i] : filler();
      labels[i] = i < count ? ids[i + 1] : ignored_label;
    }
  }

  // Returns how many ids are to be guessed. In order, the masks are those of epoch 0.
  std::int64_t mask(const std::int32_t* ids, std::int64_t count, std::uint64_t epoch, std::int64_t window,
                    std::int32_t* input, std::int64_t* labels) const {
    const WindowOptions& chosen = set_.options();
    std::fill_n(input + count, chosen.length - count, filler());
    std::fill_n(labels + count, chosen.length - count, ignored_label);
    return mask_ids(
        set_.tokenizer(), chosen.mask_probability,
        random_of(options().seed, Purpose::masks, options().shuffle ? epoch : 0, static_cast<std::uint32_t>(window)),
        ids, count, input, labels);
  }

  const TextWindows& set_;
  std::int64_t starts_ = 1;  // where the first window may begin
};

std::unique_ptr<BatchMaker> TextWindows::batches(const Transforms&, const LoaderOptions& options) const {
  return std::make_unique<WindowBatches>(*this, options);
}

}  // namespace

std::shared_ptr<const TokenDataset> text_windows(TokenizerPointer tokenizer, TokensPointer tokens, std::int64_t first,
                                                 std::int64_t last, WindowOptions options) {
  return std::make_shared<TextWindows>(std::move(tokenizer), std::move(tokens), first, last, options);
}

}  // namespace hearth::data
