// SPDX-License-Identifier: Apache-2.0
// Datasets of sequences: windows of a token stream, pairs of lines, lines with a label.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "data/dataset.h"
#include "data/loading/loader_options.h"
#include "data/text/tokenizers/tokenizer.h"
#include "data/text/tokens.h"

namespace hearth::data {

class BatchMaker;
class LabelledText;
class PairDataset;

/// How much of a set's batches is padding, in an epoch in order.
struct Padding {
  std::int64_t tokens = 0;
  std::int64_t positions = 0;
  double fraction() const {
    return positions > 0 ? 1 - static_cast<double>(tokens) / static_cast<double>(positions) : 0;
  }
};

class HEARTH_API TokenDataset : public Dataset {
 public:
  /// `tokenizer` made the ids that are to be predicted.
  TokenDataset(TokenizerPointer tokenizer, std::string source);

  /// The tokenizer of `input`, or of `target`.
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const TokenizerPointer& shared_tokenizer() const { return tokenizer_; }
  /// The most ids a row may have.
  virtual std::int64_t longest() const = 0;
  /// Rows of a batch of the longest where batches are filled up to a number of ids; 0 where the loader's options say
  /// how many rows there are.
  virtual std::int64_t rows_by_tokens() const { return 0; }
  /// Ids to be predicted in an epoch in order, and the characters that they are; 0 where these are not known.
  virtual std::int64_t predicted_tokens() const = 0;
  virtual std::int64_t characters() const = 0;
  /// DataError if what the ids are read from is damaged.
  virtual void verify() const = 0;
  /// This set if its rows have one label each; otherwise null: each id is to be predicted.
  virtual const LabelledText* labelled() const { return nullptr; }
  /// This set if its samples are pairs of sequences; otherwise null.
  virtual const PairDataset* pairs() const { return nullptr; }

  /// What a set that is made of others takes of each.
  struct Share {
    std::string source;
    double weight = 0;
    std::int64_t rows = 0;  ///< that the source has in an epoch of its own
    std::int64_t rows_an_epoch = 0;
  };
  /// Empty for a set that is made of none.
  virtual std::vector<Share> shares() const { return {}; }

  /// Of the batches that a loader with these options makes.
  Padding padding(LoaderOptions options) const;

  const char* unit() const final { return "tokens"; }
  const TokenDataset* tokens() const final { return this; }
  /// The pieces that are to be predicted, or the classes of sequences.
  const std::vector<std::string>& class_names() const override { return pieces_; }
  const std::string& source() const final { return source_; }

 private:
  TokenizerPointer tokenizer_;
  std::vector<std::string> pieces_;
  std::string source_;
};

/// Sequences and what each is translated to.
class HEARTH_API PairDataset : public TokenDataset {
 public:
  using TokenDataset::TokenDataset;
  /// The tokenizer of `source`.
  virtual const Tokenizer& source_tokenizer() const = 0;
  /// The ids of a translation, and of what it translates, each with its end. IndexError.
  virtual std::vector<std::int32_t> target_ids(std::int64_t sample) const = 0;
  virtual std::vector<std::int32_t> source_ids(std::int64_t sample) const = 0;
  const PairDataset* pairs() const final { return this; }
};

/// i32 [rows, T]: ids, each row filled up with `pad` to the longest.
HEARTH_API Tensor padded_rows(const std::vector<std::vector<std::int32_t>>& rows, std::int32_t pad);

/// What is to be guessed in a window.
struct WindowOptions {
  std::int64_t length = 256;  ///< ids in a row
  /// Above 0: the probability of an id to be one of those guessed from all others; 80 % of them are replaced by the
  /// mask, 10 % by random ids, 10 % stay (Devlin et al., 2019). 0: the next id is to be guessed everywhere.
  double mask_probability = 0;
};

/// A token stream in windows of equal length. In training windows begin at another position in each epoch; in order
/// they follow each other from the first id on, and the last one is padded. Ids first..last - 1 of `tokens` are the
/// text. DataError if there is no id to guess, or if masks are wanted and the tokenizer has none.
HEARTH_API std::shared_ptr<const TokenDataset> text_windows(TokenizerPointer tokenizer, TokensPointer tokens,
                                                            std::int64_t first, std::int64_t last,
                                                            WindowOptions options);

/// The same of whole documents, the sequences first..last - 1 of `tokens`: several share a row, and none goes on in
/// another row unless it is longer than one. Batches have "segments" too, which keep the documents of a row apart.
/// Where the next id is to be guessed, the first of a document is not. Which documents share a row is drawn anew in
/// each epoch, among those of one length.
HEARTH_API std::shared_ptr<const TokenDataset> packed_documents(TokenizerPointer tokenizer, TokensPointer tokens,
                                                                std::int64_t first, std::int64_t last,
                                                                WindowOptions options);

struct PairOptions {
  /// Rows of a batch have about equal lengths: a batch is filled up to so many positions, source and target each. 0:
  /// batches have as many rows as the loader's options say.
  std::int64_t tokens_per_batch = 0;
  /// Lengths up to which rows are put together, in order. Empty: the multiples of `multiple`.
  std::vector<std::int64_t> buckets{};
  std::int64_t multiple = 8;   ///< lengths, and rows of batches where there are that many, are multiples of it
  std::int64_t longest = 256;  ///< ids in a row, with what begins and ends it
  double max_ratio =
      0;  ///< above 0: pairs whose longer side has more than so many times the ids of the other are left out
};

/// Lines and their translations: `source` and `target` have as many sequences (DataError), each ending with an end id,
/// and pairs with one longer than `longest` are passed over where `skip_long` says so (otherwise DataError with the
/// line). `pairs` are those of the set. DataError if the target's tokenizer lacks pad, begin or end. `before`: pairs
/// that were left out before these sequences were written.
HEARTH_API std::shared_ptr<const TokenDataset> text_pairs(TokenizerPointer source_tokenizer, TokensPointer source,
                                                          TokenizerPointer target_tokenizer, TokensPointer target,
                                                          std::vector<std::int64_t> pairs, PairOptions options,
                                                          bool skip_long, Warnings before = {});

}  // namespace hearth::data
