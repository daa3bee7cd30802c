// SPDX-License-Identifier: Apache-2.0
// The decoder-only Transformer that predicts the next token, as GPT-2 has it: norms before each part, learned or
// rotary positions, a head that shares the token table. Source: Radford et al., "Language Models are Unsupervised
// Multitask Learners" (2019). Parameter names are those of its published weights ("wte", "h.0.attn.c_attn", ...).
#pragma once

#include <cstdint>
#include <memory>

#include "models/nn/nn.h"
#include "models/text/decoder.h"
#include "models/text/vocabulary_model.h"

namespace hearth::models {

enum class GptPositions {
  learned,  ///< a table of so many rows as the context, added to the tokens (GPT-2)
  rotary,   ///< rotary position embedding of queries and keys (Su et al., "RoFormer", 2021); no weights
};

/// The sizes of GPT-2's smallest model (124 million parameters) unless told otherwise.
struct GptOptions {
  std::int64_t vocabulary = 50257;
  std::int64_t context = 1024;  ///< the longest sequence
  std::int64_t layers = 12;
  std::int64_t heads = 12;
  std::int64_t width = 768;
  std::int64_t hidden = 0;                        ///< of each block's feed-forward network; 0: 4 times the width
  Activation activation = Activation::gelu_tanh;  ///< of each block's feed-forward network
  double norm_eps = 1e-5;                         ///< added to the variance in every layer norm
  bool scale_attention = true;                    ///< divide scores by the root of a head's channels
  bool scale_by_layer = false;                    ///< divide scores by the block's number too, counted from 1
  double dropout = 0.1;                           ///< of embeddings, attention weights and what each part adds
  GptPositions positions = GptPositions::learned;
  bool tie_head = true;  ///< the head's weight is the token table
  /// Keep only what goes into each block and compute the rest of it again in the backward pass.
  bool recompute = false;
};

class HEARTH_API Gpt : public nn::Module, public TextModel, public VocabularyModel {
 public:
  /// ShapeError for sizes below 1, heads that do not divide the width, and rotary positions of odd heads.
  explicit Gpt(const GptOptions& options);
  /// ids [N, T] (i32 or i64), T <= context, to logits [N, T, vocabulary] for the token after each.
  /// ShapeError, DTypeError.
  Tensor forward(const Tensor& ids) override;
  /// The same of {ids, segments}: rows that hold several sequences, segments i32 [N, T, 2] as attention() takes them.
  /// Positions begin anew in each sequence, which sees itself alone. UsageError for another number of inputs.
  Tensor forward_inputs(const nn::Inputs& inputs) override;
  /// Of sequences without a source. Keeps the keys and values of each layer.
  std::unique_ptr<TextDecoder> make_decoder(const DecoderOptions& options) override;
  Head head() const override;
  Tensor features(const nn::Inputs& inputs) override;

 private:
  class Decoder;
  /// Of ids that stand behind `first` others.
  Tensor embed(const Tensor& ids, std::int64_t first, const Tensor& segments = {});
  /// What is added to the tokens of `length` that stand behind `first` others, or of segments.
  Tensor positions(std::int64_t first, std::int64_t length, const Tensor& segments);
  /// Of one text a row, or of segments.
  Tensor trunk(const Tensor& ids, const Tensor& segments = {});
  Tensor logits(const Tensor& y);

  std::int64_t context_;
  bool recompute_;
  nn::Embedding tokens_;
  std::unique_ptr<nn::Embedding> positions_;  ///< none where they are rotary
  nn::Dropout dropout_;
  nn::ModuleList blocks_;
  nn::LayerNorm norm_;
  std::unique_ptr<nn::Linear> head_;  ///< none where it is tied
};

}  // namespace hearth::models
