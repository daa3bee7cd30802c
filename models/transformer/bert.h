// SPDX-License-Identifier: Apache-2.0
// The Transformer encoder that reads a text in both directions. Source: Devlin et al., "BERT: Pre-training of Deep
// Bidirectional Transformers for Language Understanding" (NAACL 2019); sentence embeddings: Reimers, Gurevych,
// "Sentence-BERT" (EMNLP 2019). Parameter names are those of the published weights ("embeddings.word_embeddings",
// "encoder.layer.0.attention.output.dense", ...) but for one: query, key and value are one matrix,
// "encoder.layer.0.attention.self.qkv" [3 width, width], which models/weights/weights.h joins and splits. RoBERTa (Liu
// et al., 2019) and DistilBERT (Sanh et al., 2019) are the same encoder with other options:
//
//   RoBERTa     .segments = 1, .norm_eps = 1e-5, .position_offset = 2
//   DistilBERT  .segments = 0, .pool_activation = PoolActivation::relu
#pragma once

#include <cstdint>
#include <memory>

#include "models/embedding_model.h"
#include "models/nn/nn.h"
#include "models/text/vocabulary_model.h"

namespace hearth::models {

enum class BertHead {
  masked_lm,       ///< scores of every token: a layer, GELU, a norm, and the token table
  classification,  ///< scores of the classes, from the whole text
  embedding,       ///< the sequence as one vector: the mean of the tokens, of length 1, unless told otherwise
};

enum class BertPool {
  first,  ///< a layer with an activation on the first token, as BERT's own classifiers have it
  mean,   ///< the mean of the tokens
};

/// What the head `embedding` makes of the tokens.
enum class EmbeddingPool { mean, first };
/// Of the layer on the first token: tanh for BERT and RoBERTa, ReLU for DistilBERT.
enum class PoolActivation { tanh, relu };

/// The sizes of BERT-base (110 million parameters) unless told otherwise.
struct BertOptions {
  std::int64_t vocabulary = 30522;
  std::int64_t context = 512;  ///< the longest sequence
  std::int64_t segments = 2;   ///< rows of the table of token types, of which sequences use the first; 0 for no table
  std::int64_t layers = 12;
  std::int64_t heads = 12;
  std::int64_t width = 768;
  std::int64_t hidden = 0;                   ///< of each layer's feed-forward network; 0: 4 times the width
  Activation activation = Activation::gelu;  ///< of each layer's feed-forward network, and of the head masked_lm
  double norm_eps = 1e-12;                   ///< added to the variance in every layer norm
  /// The row of the position table that the first token takes; the table has `context` rows from there on. RoBERTa's
  /// positions begin behind the id of its padding, at 2.
  std::int64_t position_offset = 0;
  double dropout = 0.1;  ///< of embeddings, attention weights, what each part adds, and what a classifier gets
  BertHead head = BertHead::masked_lm;
  BertPool pool = BertPool::first;  ///< what a classifier sees
  PoolActivation pool_activation = PoolActivation::tanh;
  EmbeddingPool embedding_pool = EmbeddingPool::mean;
  bool normalize = true;     ///< divide an embedding by its length
  std::int64_t classes = 2;  ///< of a classifier
  /// The id that fills rows up; -1 for none. No token sees padding.
  std::int64_t pad = -1;
  /// Keep only what goes into each layer and compute the rest of it again in the backward pass.
  bool recompute = false;
};

class HEARTH_API Bert : public nn::Module, public VocabularyModel, public EmbeddingModel {
 public:
  /// ShapeError for sizes below 1 and for heads that do not divide the width.
  explicit Bert(const BertOptions& options);
  /// ids [N, T] (i32 or i64), T <= context, to what the head gives: [N, T, vocabulary], [N, classes] or [N, width].
  /// ShapeError, DTypeError.
  Tensor forward(const Tensor& ids) override;
  /// The same of {ids, segments}, for masked_lm: rows that hold several sequences, segments i32 [N, T, 2] as
  /// attention() takes them. Positions begin anew in each sequence, which sees itself alone. UsageError for another
  /// number of inputs, and for the other heads, which make one result of a row.
  Tensor forward_inputs(const nn::Inputs& inputs) override;
  /// What the classifier sees of a text; of the head `embedding` the output itself. UsageError for masked_lm.
  Tensor embedding(const Tensor& ids) override;
  Tensor outputs_of(const Tensor& embedding) override;
  /// The encoder alone: [N, T, width]. With segments, lengths are left out: padding is segments of its own.
  Tensor encode(const Tensor& ids, const Tensor& lengths, const Tensor& segments = {});
  /// i32 [N]: tokens of each row before the padding at its end; undefined where there is no padding.
  Tensor lengths(const Tensor& ids) const;
  /// That of masked_lm.
  Head head() const override;
  /// Of masked_lm (UsageError).
  Tensor features(const nn::Inputs& inputs) override;

 private:
  class Predictions;
  class Layer;

  /// What head masked_lm makes of {ids} or {ids, segments} in front of the token table.
  Tensor predictions_of(const nn::Inputs& inputs);
  Tensor embed(const Tensor& ids, const Tensor& segments);
  Tensor first_token(const Tensor& y) const;
  Tensor mean_of_tokens(const Tensor& y, const Tensor& lengths) const;

  BertOptions options_;
  nn::ModuleList embeddings_;
  nn::Embedding& words_;
  nn::Embedding& positions_;
  nn::Embedding* segments_;  ///< null without token types
  nn::LayerNorm& norm_;
  nn::Dropout dropout_;
  nn::ModuleList encoder_;
  nn::ModuleList& layers_;
  nn::ModuleList pooler_;
  nn::ModuleList cls_;
  Predictions* predictions_ = nullptr;      ///< of masked_lm
  std::unique_ptr<nn::Linear> classifier_;  ///< of classification
};

}  // namespace hearth::models
