// SPDX-License-Identifier: Apache-2.0
// Whole documents of a token stream, several to a row.
#include <algorithm>
#include <utility>

#include "core/error.h"
#include "data/loading/batch_maker.h"
#include "data/loading/order.h"
#include "data/text/batches/masking.h"
#include "data/text/batches/packing.h"
#include "data/text/token_set.h"

namespace hearth::data {
namespace {

class PackedDocuments : public TokenDataset {
 public:
  PackedDocuments(TokenizerPointer tokenizer, TokensPointer tokens, std::int64_t first, std::int64_t last,
                  const WindowOptions& options)
      : TokenDataset(tokenizer, tokens->source()), tokens_(std::move(tokens)), options_(options) {
    const Tokens::Meaning& meaning = tokens_->meaning();
    HEARTH_CHECK(ConfigError, options.length >= 1 && options.length <= (1 << 24), source(), ": rows of ",
                 options.length, " ids");
    HEARTH_CHECK(DataError, meaning.vocabulary == tokenizer->size(), source(), ": ids of a vocabulary of ",
                 meaning.vocabulary, ", but the tokenizer has ", tokenizer->size(), " pieces");
    HEARTH_CHECK(IndexError, first >= 0 && first <= last && last <= tokens_->sequences(), source(), ": documents ",
                 first, " to ", last, " of ", tokens_->sequences());
    HEARTH_CHECK(DataError, options.mask_probability == 0 || tokenizer->special().mask >= 0, source(),
                 ": the tokenizer has no mask token, which a masked text needs");
    for (std::int64_t document = first; document < last; ++document) cut(document);
    HEARTH_CHECK(DataError, !begins_.empty(), source(), ": ", last - first, " documents; nothing to predict");
    packing_.emplace(lengths_, static_cast<std::int32_t>(options.length));
    for (const std::int32_t length : lengths_) predicted_ += length;
  }

  std::int64_t size() const override { return packing_->rows(); }
  std::int64_t longest() const override { return options_.length; }
  std::int64_t predicted_tokens() const override { return predicted_; }
  std::int64_t characters() const override { return 0; }  // those of the ids that are predicted nobody wrote down
  void verify() const override { tokens_->verify(); }
  std::unique_ptr<BatchMaker> batches(const Transforms&, const LoaderOptions& options) const override;

  const WindowOptions& options() const { return options_; }
  bool is_masked() const { return options_.mask_probability > 0; }
  const RowPacking& packing() const { return *packing_; }
  /// Positions that a piece of a document takes in a row, and its ids: one more where the next one is to be guessed.
  std::int32_t length_of(std::uint32_t piece) const { return lengths_[piece]; }
  void copy(std::uint32_t piece, std::int32_t* to) const {
    tokens_->copy(begins_[piece], lengths_[piece] + (is_masked() ? 0 : 1), to);
  }

 private:
  /// A document that is longer than a row is several pieces.
  void cut(std::int64_t document) {
    const std::int64_t end = tokens_->end(document) - (is_masked() ? 0 : 1);
    for (std::int64_t at = tokens_->begin(document); at < end; at += options_.length) {
      begins_.push_back(at);
      lengths_.push_back(static_cast<std::int32_t>(std::min(options_.length, end - at)));
    }
  }

  TokensPointer tokens_;
  WindowOptions options_;
  std::vector<std::int64_t> begins_;
  std::vector<std::int32_t> lengths_;
  std::optional<RowPacking> packing_;
  std::int64_t predicted_ = 0;
};

class DocumentBatches : public OrderedBatches {
 public:
  DocumentBatches(const PackedDocuments& set, const LoaderOptions& options)
      : OrderedBatches(set.size(), options, set.source(), join_text("rows of ", set.options().length, " ids").c_str()),
        set_(set) {}

  std::int64_t length_of(std::int64_t row) const override {
    std::int64_t tokens = 0;
    for (const std::uint32_t slot : set_.packing().row(row)) tokens += set_.length_of(set_.packing().by_length()[slot]);
    return tokens;
  }

  /// A row has other documents in each shuffled epoch.
  bool samples_stay() const override { return !options().shuffle; }
  void plan(std::int64_t epoch) const override {
    OrderedBatches::plan(epoch);
    (void)pieces_at(epoch);
  }
  void keep_epochs(std::int64_t epochs) override {
    OrderedBatches::keep_epochs(epochs);
    orders_.keep(epochs);
  }
  bool fill(Batch& batch, Workspace& space, const std::function<bool()>& cancelled) const override {
    const std::int64_t length = set_.options().length, rows = batch.size();
    const Tensor input = Tensor::full({rows, length}, std::max(set_.tokenizer().special().pad, 0), DType::i32);
    const Tensor labels = Tensor::full({rows, length}, static_cast<double>(ignored_label), DType::i64);
    const Tensor segments = Tensor::empty({rows, length, 2}, DType::i32);
    batch.positions = rows * length;
    batch.counted = 0;
    const auto pieces = pieces_at(batch.epoch);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(length) + 1);
    for (std::int64_t row = 0; row < rows; ++row) {
      if (cancelled()) return false;
      space.clock.at(Stage::assemble, batch.samples[static_cast<std::size_t>(row)]);
      std::int32_t* const bounds = segments.data<std::int32_t>() + 2 * row * length;
      std::int64_t at = 0;
      for (const std::uint32_t slot : set_.packing().row(batch.samples[static_cast<std::size_t>(row)])) {
        const std::uint32_t piece = (*pieces)[slot];
        const std::int64_t end = at + set_.length_of(piece);
        set_.copy(piece, ids.data());
        batch.counted += put(ids.data(), batch.epoch, piece, input.data<std::int32_t>() + row * length + at,
                             labels.data<std::int64_t>() + row * length + at);
        for (; at < end; ++at) {
          bounds[2 * at] = static_cast<std::int32_t>(end - set_.length_of(piece));
          bounds[2 * at + 1] = static_cast<std::int32_t>(end);
        }
      }
      batch.tokens += at;
      // Padding is sequences of one id each: it sees nothing and costs next to nothing.
      for (; at < length; ++at) {
        bounds[2 * at] = static_cast<std::int32_t>(at);
        bounds[2 * at + 1] = static_cast<std::int32_t>(at + 1);
      }
    }
    batch.set("input", input);
    batch.set("labels", labels);
    batch.set("segments", segments);
    return true;
  }

 private:
  using Pieces = std::vector<std::uint32_t>;

  ByEpoch<Pieces>::Pointer pieces_at(std::int64_t epoch) const {
    return orders_.of(options().shuffle ? epoch : 0, [&] { return order_of(epoch); });
  }

  /// Which piece has which slot: those of one length exchange slots.
  Pieces order_of(std::int64_t epoch) const {
    Pieces pieces = set_.packing().by_length();
    if (!options().shuffle) return pieces;
    const std::vector<std::uint32_t>& classes = set_.packing().classes();
    Random random = random_of(options().seed, Purpose::windows, static_cast<std::uint64_t>(epoch));
    for (std::size_t c = 0; c + 1 < classes.size(); ++c)
      for (std::uint32_t i = classes[c + 1] - classes[c]; i > 1; --i)
        std::swap(pieces[classes[c] + i - 1], pieces[classes[c] + random.below(i)]);
    return pieces;
  }

  /// Writes a piece where it stands in a row; returns how many ids are to be guessed. In order, the masks are those of
  /// epoch 0.
  std::int64_t put(const std::int32_t* ids, std::int64_t epoch, std::uint32_t piece, std::int32_t* input,
                   std::int64_t* labels) const {
    const std::int64_t count = set_.length_of(piece);
    if (set_.is_masked())
      return mask_ids(
          set_.tokenizer(), set_.options().mask_probability,
          random_of(options().seed, Purpose::masks, options().shuffle ? static_cast<std::uint64_t>(epoch) : 0, piece),
          ids, count, input, labels);
    std::copy_n(ids, count, input);
    std::copy_n(ids + 1, count, labels);
    return count;
  }

  const PackedDocuments& set_;
  ByEpoch<Pieces> orders_;
};

std::unique_ptr<BatchMaker> PackedDocuments::batches(const Transforms&, const LoaderOptions& options) const {
  return std::make_unique<DocumentBatches>(*this, options);
}

}  // namespace

std::shared_ptr<const TokenDataset> packed_documents(TokenizerPointer tokenizer, TokensPointer tokens,
                                                     std::int64_t first, std::int64_t last, WindowOptions options) {
  return std::make_shared<PackedDocuments>(std::move(tokenizer), std::move(tokens), first, last, options);
}

}  // namespace hearth::data
