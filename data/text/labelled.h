// SPDX-License-Identifier: Apache-2.0
// Sequences with a label each: what a classifier learns from.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/token_set.h"

namespace hearth::data {

struct LabelledOptions {
  std::int64_t length = 256;  ///< ids in a row at most, with what begins and ends it; the rest of a text is cut off
  std::int64_t multiple = 8;  ///< rows of a batch are filled up to a multiple of this
  /// Above 0: rows of about equal length are put together up to so many positions; rows are multiples of `multiple`
  /// where there are that many.
  std::int64_t tokens_per_batch = 0;
};

/// A row is the tokenizer's begin id, the ids of the text and its end id, as far as it has these. Rows of a batch are
/// filled up to the longest of them. An epoch in training shuffles the sequences, sorts stretches of 16 batches by
/// length, and shuffles the batches.
class HEARTH_API LabelledText : public TokenDataset {
 public:
  /// Sequences as tokenize() gives them, a label each, of which there are names. DataError, naming the tokens' source,
  /// if the numbers differ, a label has no name, a row would be empty, or the tokenizer has no id for padding.
  LabelledText(TokenizerPointer tokenizer, TokensPointer tokens, std::vector<std::int64_t> labels,
               std::vector<std::string> names, LabelledOptions options);

  /// The row that a text makes. DataError for one without ids.
  std::vector<std::int32_t> input_of(std::string_view text) const;
  /// Some of the sequences, in that order.
  std::shared_ptr<const LabelledText> subset(std::vector<std::int64_t> samples) const;

  const LabelledText* labelled() const override { return this; }
  const std::vector<std::string>& class_names() const override { return names_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(samples_.size()); }
  std::int64_t longest() const override;
  std::int64_t rows_by_tokens() const override;
  std::int64_t predicted_tokens() const override { return 0; }
  std::int64_t characters() const override { return 0; }
  void verify() const override { tokens_->verify(); }
  std::unique_ptr<BatchMaker> batches(const Transforms&, const LoaderOptions& options) const override;

  std::int64_t label_of(std::int64_t sample) const;
  /// Ids of a sample's row, and the row written.
  std::int64_t length_of(std::int64_t sample) const;
  void copy(std::int64_t sample, std::int32_t* to) const;
  const LabelledOptions& options() const { return options_; }

 private:
  std::int64_t sequence_of(std::int64_t sample) const;
  /// Ids of a text of `count` ids that stand between begin and end.
  std::int64_t kept(std::int64_t count) const;

  TokensPointer tokens_;
  std::vector<std::int64_t> labels_;  // of all sequences
  std::vector<std::string> names_;
  std::vector<std::int64_t> samples_;  // numbers of sequences
  LabelledOptions options_;
};

}  // namespace hearth::data
