// SPDX-License-Identifier: Apache-2.0
// The encoder-decoder Transformer that translates. Source: Vaswani et al., "Attention Is All You Need" (NeurIPS 2017);
// norms before each part: Xiong et al., "On Layer Normalization in the Transformer Architecture" (ICML 2020).
#pragma once

#include <cstdint>
#include <memory>

#include "models/nn/nn.h"
#include "models/text/decoder.h"
#include "models/text/vocabulary_model.h"

namespace hearth::models {

enum class NormPosition {
  before,  ///< x + f(norm(x)), with a norm at the end of each stack: trains without a warm-up
  after,   ///< norm(x + f(x)), as in the paper
};

/// The paper's "base" unless told otherwise.
struct TransformerOptions {
  std::int64_t source_vocabulary = 32000;
  std::int64_t vocabulary = 32000;  ///< of the target
  std::int64_t context = 1024;      ///< the longest source or target
  std::int64_t layers = 6;          ///< of the encoder
  std::int64_t decoder_layers = 6;
  std::int64_t heads = 8;
  std::int64_t width = 512;
  std::int64_t hidden = 2048;
  double dropout = 0.1;  ///< of embeddings, attention weights and what each part adds
  NormPosition norm = NormPosition::before;
  /// One token table for source and target, whose vocabularies are then equal.
  bool share_tables = false;
  /// The id that fills sources up; -1 for none. Targets need no mark: no token sees those behind it.
  std::int64_t source_pad = -1;
  bool recompute = false;  ///< keep only what goes into each layer
};

/// The head's weight is the table of target tokens.
class HEARTH_API Transformer : public nn::Module, public TextModel, public VocabularyModel {
 public:
  /// ShapeError for sizes below 1, heads that do not divide the width, and shared tables of different sizes.
  explicit Transformer(const TransformerOptions& options);

  /// Of ids of the source [N, S] and of the target so far [N, T] (i32 or i64) logits [N, T, vocabulary] for the target
  /// token after each. UsageError unless there are two inputs; ShapeError, DTypeError.
  Tensor forward_inputs(const nn::Inputs& inputs) override;

  /// The source as the decoder sees it: [N, S, width]. `lengths` are source_lengths(source).
  Tensor encode(const Tensor& source, const Tensor& lengths);
  /// Logits, from encode(source) and the lengths of the sources.
  Tensor decode(const Tensor& memory, const Tensor& lengths, const Tensor& target);
  /// i32 [N]; undefined where sources have no padding.
  Tensor source_lengths(const Tensor& source) const;
  /// Of answers to sources, each of which is encoded once. Keeps the keys and values of each layer.
  std::unique_ptr<TextDecoder> make_decoder(const DecoderOptions& options) override;
  Head head() const override { return {tokens_.weight}; }
  Tensor features(const nn::Inputs& inputs) override;

 private:
  class Decoder;
  void check_inputs(const nn::Inputs& inputs) const;
  void check_ids(const Tensor& ids, const char* what) const;
  /// Of ids that stand behind `first` others.
  Tensor embed(nn::Embedding& table, const Tensor& ids, std::int64_t first);
  /// The decoder without its head.
  Tensor answer(const Tensor& memory, const Tensor& lengths, const Tensor& target);
  Tensor normed(const Tensor& y) { return decoder_norm_ ? (*decoder_norm_)(y) : y; }
  Tensor logits(const Tensor& y) const;

  TransformerOptions options_;
  std::unique_ptr<nn::Embedding> source_tokens_;  ///< none where tables are shared
  nn::Embedding tokens_;
  Tensor positions_;
  nn::Dropout dropout_;
  nn::ModuleList encoder_;
  nn::ModuleList decoder_;
  std::unique_ptr<nn::LayerNorm> encoder_norm_;  ///< none where norms come after each part
  std::unique_ptr<nn::LayerNorm> decoder_norm_;
};

}  // namespace hearth::models
