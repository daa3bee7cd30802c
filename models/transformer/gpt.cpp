// SPDX-License-Identifier: Apache-2.0
#include "models/transformer/gpt.h"

#include <cmath>
#include <optional>

#include "models/initial.h"
#include "models/text/attention_cache.h"
#include "ops/ops.h"

namespace hearth::models {
namespace {

/// Parts that add to the residual start smaller, so that its variance does not grow with the depth.
nn::LinearOptions adding(const GptOptions& options) {
  return {.weight_init = nn::init::normal(initial_deviation / std::sqrt(2.0 * static_cast<double>(options.layers))),
          .bias_init = nn::init::zeros()};
}

/// What scores of a block are multiplied by; nothing for the usual factor.
std::optional<double> scale_of(const GptOptions& options, std::int64_t block) {
  if (options.scale_attention && !options.scale_by_layer) return std::nullopt;
  const double of_head =
      options.scale_attention ? 1 / std::sqrt(static_cast<double>(options.width / options.heads)) : 1.0;
  return options.scale_by_layer ? of_head / static_cast<double>(block + 1) : of_head;
}

/// Each token looks at itself and those before it. x and y [N, T, width].
class CausalAttention : public nn::Module {
 public:
  CausalAttention(const GptOptions& options, std::int64_t block)
      : heads_(options.heads),
        scale_(scale_of(options, block)),
        dropout_(options.dropout),
        rotates_(options.positions == GptPositions::rotary),
        in_(options.width, checked_mul(3, options.width, "gpt width"), initial_linear()),
        out_(options.width, options.width, adding(options)) {
    register_module("c_attn", in_);
    register_module("c_proj", out_);
  }
  Tensor forward(const Tensor& x) override { return attend(x, {}); }
  Tensor operator()(const Tensor& x, const Tensor& segments) {
    return observed([&] { return attend(x, segments); });
  }
  /// x stands behind the `length` tokens that the cache holds.
  Tensor extend(const Tensor& x, AttentionCache& cache, std::int64_t length) {
    return observed([&] { return out_(cache.attend(project(x, length), heads_, length, scale_)); });
  }

 private:
  Tensor attend(const Tensor& x, const Tensor& segments) {
    const double dropout = is_training() ? dropout_ : 0.0;
    return out_(self_attention(project(x, 0, segments), heads_,
                               {.causal = true, .scale = scale_, .dropout = dropout, .segments = segments}));
  }
  /// Queries, keys and values of tokens that stand from `first` on.
  Tensor project(const Tensor& x, std::int64_t first, const Tensor& segments = {}) {
    const Tensor qkv = in_(x);
    return rotates_ ? rotary_of_qkv(qkv, heads_, {.first_position = first, .segments = segments}) : qkv;
  }

  std::int64_t heads_;
  std::optional<double> scale_;
  double dropout_;
  bool rotates_;
  nn::Linear in_;
  nn::Linear out_;
};

class FeedForward : public nn::Module {
 public:
  FeedForward(const GptOptions& options, std::int64_t hidden)
      : in_(options.width, hidden, initial_linear(options.activation)), out_(hidden, options.width, adding(options)) {
    register_module("c_fc", in_);
    register_module("c_proj", out_);
  }
  Tensor forward(const Tensor& x) override { return nn::feed_forward(in_, out_, x); }

 private:
  nn::Linear in_;
  nn::Linear out_;
};

class GptBlock : public nn::Module {
 public:
  GptBlock(const GptOptions& options, std::int64_t hidden, std::int64_t block)
      : norm1_(options.width, options.norm_eps, true),
        attention_(options, block),
        norm2_(options.width, options.norm_eps, true),
        mlp_(options, hidden),
        dropout_(options.dropout) {
    register_module("ln_1", norm1_);
    register_module("attn", attention_);
    register_module("ln_2", norm2_);
    register_module("mlp", mlp_);
    register_module("drop", dropout_);
  }
  Tensor forward(const Tensor& x) override { return (*this)(x, {}); }
  Tensor operator()(const Tensor& x, const Tensor& segments) {
    return observed([&] { return around(x, [&](const Tensor& y) { return attention_(y, segments); }); });
  }
  Tensor extend(const Tensor& x, AttentionCache& cache, std::int64_t length) {
    return observed([&] { return around(x, [&](const Tensor& y) { return attention_.extend(y, cache, length); }); });
  }

 private:
  template <class F>
  Tensor around(const Tensor& x, const F& attend) {
    const auto [sum, y] = norm2_(x, attend(norm1_(x)), dropout_.rate());
    return sum + dropout_(mlp_(y));
  }

  // Of what products alone read.
  nn::LayerNorm norm1_;
  CausalAttention attention_;
  nn::LayerNorm norm2_;
  FeedForward mlp_;
  nn::Dropout dropout_;
};

const GptOptions& checked(const GptOptions& options) {
  HEARTH_CHECK(ShapeError,
               options.vocabulary >= 1 && options.context >= 1 && options.layers >= 1 && options.hidden >= 0,
               "gpt: vocabulary ", options.vocabulary, ", context ", options.context, ", layers ", options.layers,
               ", hidden ", options.hidden, "; all are at least 1 (hidden 0 is 4 times the width)");
  HEARTH_CHECK(ShapeError, options.width >= 1 && options.heads >= 1 && options.width % options.heads == 0,
               "gpt: a width of ", options.width, " does not divide into ", options.heads, " heads");
  HEARTH_CHECK(ShapeError, options.positions == GptPositions::learned || options.width / options.heads % 2 == 0,
               "gpt: rotary positions turn channels in pairs; a head has ", options.width / options.heads, " channels");
  return options;
}

}  // namespace

Gpt::Gpt(const GptOptions& options)
    : context_(checked(options).context),
      recompute_(options.recompute),
      tokens_(options.vocabulary, options.width, nn::init::normal(initial_deviation)),
      dropout_(options.dropout),
      norm_(options.width, options.norm_eps, true) {
  const std::int64_t hidden = options.hidden ? options.hidden : checked_mul(4, options.width, "gpt width");
  register_module("wte", tokens_);
  if (options.positions == GptPositions::learned) {
    positions_ = std::make_unique<nn::Embedding>(options.context, options.width, nn::init::normal(initial_deviation));
    register_module("wpe", *positions_);
  }
  register_module("drop", dropout_);
  for (std::int64_t i = 0; i < options.layers; ++i) blocks_.add<GptBlock>(options, hidden, i);
  register_module("h", blocks_);
  register_module("ln_f", norm_);
  if (options.tie_head) return;
  nn::LinearOptions head = initial_linear();
  head.bias = false;
  head_ = std::make_unique<nn::Linear>(options.width, options.vocabulary, head);
  register_module("lm_head", *head_);
}

Tensor Gpt::positions(std::int64_t first, std::int64_t length, const Tensor& segments) {
  if (segments.defined()) return (*positions_)(segment_positions(segments));
  return slice(positions_->weight, 0, first, first + length);
}

Tensor Gpt::embed(const Tensor& ids, std::int64_t first, const Tensor& segments) {
  const Tensor y = tokens_(ids);
  return dropout_(positions_ ? y + positions(first, ids.dim(1), segments) : y);
}

Tensor Gpt::logits(const Tensor& y) { return head_ ? (*head_)(y) : linear(y, tokens_.weight, {}); }

Tensor Gpt::trunk(const Tensor& ids, const Tensor& segments) {
  HEARTH_CHECK(ShapeError, ids.rank() == 2 && ids.dim(1) >= 1 && ids.dim(1) <= context_, "gpt: token ids ",
               describe(ids), "; they are [N, T] with T from 1 to the context of ", context_);
  Tensor y = embed(ids, 0, segments);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    auto& block = static_cast<GptBlock&>(blocks_[i]);
    const auto call = [&block, segments](std::span<const Tensor> x) { return block(x[0], segments); };
    y = recompute_ ? nn::recomputed(block, call, {y}) : block(y, segments);
  }
  return norm_(y);
}

Tensor Gpt::forward(const Tensor& ids) { return logits(trunk(ids)); }

Tensor Gpt::forward_inputs(const nn::Inputs& inputs) {
  HEARTH_CHECK(UsageError, inputs.size() == 2, "gpt: ", inputs.size(),
               " inputs; it takes ids, or ids and the segments of packed rows");
  return logits(trunk(inputs[0], inputs[1]));
}

VocabularyModel::Head Gpt::head() const { return {head_ ? head_->weight : tokens_.weight}; }

Tensor Gpt::features(const nn::Inputs& inputs) {
  HEARTH_CHECK(UsageError, inputs.size() == 1 || inputs.size() == 2, "gpt: features: ", inputs.size(),
               " inputs; it takes ids, or ids and the segments of packed rows");
  return observed([&] { return trunk(inputs[0], inputs.size() == 2 ? inputs[1] : Tensor()); });
}

class Gpt::Decoder : public CachedDecoder {
 public:
  Decoder(Gpt& model, const DecoderOptions& options)
      : CachedDecoder("gpt", model, options, model.context_, model.blocks_.size(), model.tokens_.weight.device()),
        model_(model) {
    HEARTH_CHECK(UsageError, !options.source.defined(), "gpt: continues sequences; it does not answer a source");
  }

 private:
  Tensor logits(const Tensor& ids) override {
    Tensor y = model_.embed(ids, length());
    for (std::size_t i = 0; i < caches_.size(); ++i)
      y = static_cast<GptBlock&>(model_.blocks_[i]).extend(y, caches_[i], length());
    return model_.logits(model_.norm_(reshape(slice(y, 1, y.dim(1) - 1, y.dim(1)), {y.dim(0), y.dim(2)})));
  }

  Gpt& model_;
};

std::unique_ptr<TextDecoder> Gpt::make_decoder(const DecoderOptions& options) {
  return std::make_unique<Decoder>(*this, options);
}

}  // namespace hearth::models
