// SPDX-License-Identifier: Apache-2.0
// The Transformer encoder that reads a text in both directions. Source: Devlin et al., "BERT: Pre-training of Deep
// Bidirectional Transformers for Language Understanding" (NAACL 2019); sentence embeddings: Reimers, Gurevych,
// "Sentence-BERT" (EMNLP 2019). Parameter names are those of the published weights ("embeddings.word_embeddings",
// "encoder.layer.0.attention.output.dense", ...) but for one: query, key and value are one matrix,
// "encoder.layer.0.attention.self.qkv" [3 width, width], which models/weights.h joins and splits.
#pragma once

#include <cstdint>
#include <memory>

#include "hearth/models/embedding_network.h"
#include "hearth/models/nn/nn.h"
#include "hearth/models/text/vocabulary_network.h"

namespace hearth::models {

enum class BertHead {
  masked_lm,       ///< scores of every token: a layer, GELU, a norm, and the token table
  classification,  ///< scores of the classes, from the whole text
  embedding,       ///< the mean of the tokens, of length 1
};

enum class BertPool {
  first,  ///< a layer with tanh on the first token, as BERT's own classifiers have it
  mean,   ///< the mean of the tokens
};

/// The sizes of BERT-base (110 million parameters) unless told otherwise.
struct BertOptions {
  std::int64_t vocabulary = 30522;
  std::int64_t context = 512;  ///< the longest sequence
  std::int64_t segments = 2;   ///< rows of the table of token types, of which texts use the first
  std::int64_t layers = 12;
  std::int64_t heads = 12;
  std::int64_t width = 768;
  std::int64_t hidden = 0;  ///< of each layer's two-layer part; 0: 4 times the width
  double dropout = 0.1;     ///< of embeddings, attention weights, what each part adds, and what a classifier gets
  BertHead head = BertHead::masked_lm;
  BertPool pool = BertPool::first;  ///< what a classifier sees
  std::int64_t classes = 2;         ///< of a classifier
  /// The id that fills rows up; -1 for none. No token sees padding.
  std::int64_t pad = -1;
  /// Keep only what goes into each layer and compute the rest of it again in the backward pass.
  bool recompute = false;
};

class Bert : public nn::Module, public VocabularyNetwork, public EmbeddingNetwork {
 public:
  /// ShapeError for sizes below 1 and for heads that do not divide the width.
  explicit Bert(const BertOptions& options);
  /// ids [N, T] (i32 or i64), T <= context, to what the head gives: [N, T, vocabulary], [N, classes] or [N, width].
  /// ShapeError, DTypeError.
  Tensor forward(const Tensor& ids) override;
  /// What the classifier sees of a text; of the head `embedding` the output itself. UsageError for masked_lm.
  Tensor embedding(const Tensor& ids) override;
  Tensor outputs_of(const Tensor& embedding) override;
  /// The encoder alone: [N, T, width].
  Tensor encode(const Tensor& ids, const Tensor& lengths);
  /// i32 [N]: tokens of each row before the padding at its end; undefined where there is no padding.
  Tensor lengths(const Tensor& ids) const;
  /// That of masked_lm.
  Head head() const override;
  /// Of masked_lm (UsageError).
  Tensor features(const Tensor& ids) override;

 private:
  class Predictions;
  class Layer;

  Tensor embed(const Tensor& ids);
  Tensor mean_of_tokens(const Tensor& y, const Tensor& lengths) const;

  BertOptions options_;
  nn::ModuleList embeddings_;
  nn::Embedding& words_;
  nn::Embedding& positions_;
  nn::Embedding& segments_;
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
