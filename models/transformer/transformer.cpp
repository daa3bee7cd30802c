// SPDX-License-Identifier: Apache-2.0
#include "models/transformer/transformer.h"

#include <cmath>

#include "autograd/grad_mode.h"
#include "models/text/attention_cache.h"
#include "ops/ops.h"

namespace hearth::models {
namespace {

constexpr double norm_eps = 1e-5;

nn::LinearOptions xavier(Activation activation = Activation::none) {
  return {.activation = activation, .weight_init = nn::init::xavier_uniform(), .bias_init = nn::init::zeros()};
}

/// Of a sequence to itself. x and y [N, T, width].
class SelfAttention : public nn::Module {
 public:
  SelfAttention(const TransformerOptions& options, bool causal)
      : heads_(options.heads),
        dropout_(options.dropout),
        causal_(causal),
        in_(options.width, checked_mul(3, options.width, "transformer width"), xavier()),
        out_(options.width, options.width, xavier()) {
    register_module("in_proj", in_);
    register_module("out_proj", out_);
  }
  Tensor forward(const Tensor& x) override { return (*this)(x, {}); }
  Tensor operator()(const Tensor& x, const Tensor& lengths) {
    return observed([&] {
      const double dropout = is_training() ? dropout_ : 0.0;
      return out_(self_attention(in_(x), heads_, {.causal = causal_, .dropout = dropout, .key_lengths = lengths}));
    });
  }
  /// x stands behind the `length` tokens that the cache holds.
  Tensor extend(const Tensor& x, AttentionCache& cache, std::int64_t length) {
    return observed([&] { return out_(cache.attend(in_(x), heads_, length)); });
  }

 private:
  std::int64_t heads_;
  double dropout_;
  bool causal_;
  nn::Linear in_;
  nn::Linear out_;
};

/// Of the target to the encoded source.
class CrossAttention : public nn::Module {
 public:
  explicit CrossAttention(const TransformerOptions& options)
      : heads_(options.heads),
        dropout_(options.dropout),
        query_(options.width, options.width, xavier()),
        memory_(options.width, checked_mul(2, options.width, "transformer width"), xavier()),
        out_(options.width, options.width, xavier()) {
    register_module("q_proj", query_);
    register_module("kv_proj", memory_);
    register_module("out_proj", out_);
  }
  Tensor forward(const Tensor& x) override { return (*this)(x, x, {}); }
  Tensor operator()(const Tensor& x, const Tensor& memory, const Tensor& lengths) {
    return observed([&] {
      const double dropout = is_training() ? dropout_ : 0.0;
      return out_(cross_attention(query_(x), memory_(memory), heads_, {.dropout = dropout, .key_lengths = lengths}));
    });
  }
  Tensor keys_and_values(const Tensor& memory) { return memory_(memory); }
  /// x [N, T, width] answers fewer sources, keys and values of which are kv [M, S, 2 width]: no order among the targets
  /// matters here, so that those of one source are taken as one.
  Tensor extend(const Tensor& x, const Tensor& kv, const Tensor& lengths) {
    return observed([&] {
      const Tensor q = reshape(query_(x), {kv.dim(0), -1, x.dim(2)});
      return out_(reshape(cross_attention(q, kv, heads_, {.key_lengths = lengths}), x.shape()));
    });
  }

 private:
  std::int64_t heads_;
  double dropout_;
  nn::Linear query_;
  nn::Linear memory_;
  nn::Linear out_;
};

/// Whether products alone read what a norm within a layer gives: not where it is the next part's residual.
bool feeds_products(const TransformerOptions& options) { return options.norm == NormPosition::before; }

/// What both kinds of layer share: norm, dropout and residual between their parts, and the feed-forward network.
class Layer : public nn::Module {
 protected:
  explicit Layer(const TransformerOptions& options)
      : norm_position_(options.norm),
        in_(options.width, options.hidden, xavier(Activation::relu)),
        out_(options.hidden, options.width, xavier()),
        dropout_(options.dropout) {}

  void register_shared() {
    register_module("linear1", in_);
    register_module("linear2", out_);
    register_module("dropout", dropout_);
  }
  /// What the first part, of this norm, takes (y), and what its result is added to (sum).
  SumAndNorm start(nn::LayerNorm& own, const Tensor& x) {
    return {x, norm_position_ == NormPosition::before ? own(x) : x};
  }
  /// The same for the part of norm `next`, behind a part of norm `own` that made f.
  SumAndNorm between(const SumAndNorm& at, const Tensor& f, nn::LayerNorm& own, nn::LayerNorm& next) {
    if (norm_position_ == NormPosition::before) return next(at.sum, f, dropout_.rate());
    const Tensor y = own(at.sum, f, dropout_.rate()).y;
    return {y, y};
  }
  /// The result of the layer, whose last part of norm `own` is the feed-forward network.
  Tensor fed_forward(const SumAndNorm& at, nn::LayerNorm& own) {
    const Tensor f = out_(in_(at.y));
    if (norm_position_ == NormPosition::before) return at.sum + dropout_(f);
    return own(at.sum, f, dropout_.rate()).y;
  }

 private:
  NormPosition norm_position_;
  nn::Linear in_;
  nn::Linear out_;
  nn::Dropout dropout_;
};

class EncoderLayer : public Layer {
 public:
  explicit EncoderLayer(const TransformerOptions& options)
      : Layer(options),
        attention_(options, false),
        norm1_(options.width, norm_eps, feeds_products(options)),
        norm2_(options.width, norm_eps, feeds_products(options)) {
    register_module("self_attn", attention_);
    register_shared();
    register_module("norm1", norm1_);
    register_module("norm2", norm2_);
  }
  Tensor forward(const Tensor& x) override { return (*this)(x, {}); }
  Tensor operator()(const Tensor& x, const Tensor& lengths) {
    return observed([&] {
      const SumAndNorm at = start(norm1_, x);
      return fed_forward(between(at, attention_(at.y, lengths), norm1_, norm2_), norm2_);
    });
  }

 private:
  SelfAttention attention_;
  nn::LayerNorm norm1_;
  nn::LayerNorm norm2_;
};

class DecoderLayer : public Layer {
 public:
  explicit DecoderLayer(const TransformerOptions& options)
      : Layer(options),
        attention_(options, true),
        cross_(options),
        norm1_(options.width, norm_eps, feeds_products(options)),
        norm2_(options.width, norm_eps, feeds_products(options)),
        norm3_(options.width, norm_eps, feeds_products(options)) {
    register_module("self_attn", attention_);
    register_module("multihead_attn", cross_);
    register_shared();
    register_module("norm1", norm1_);
    register_module("norm2", norm2_);
    register_module("norm3", norm3_);
  }
  Tensor forward(const Tensor& x) override { return (*this)(x, x, {}); }
  Tensor operator()(const Tensor& x, const Tensor& memory, const Tensor& lengths) {
    return around(
        x, [&](const Tensor& z) { return attention_(z, {}); },
        [&](const Tensor& z) { return cross_(z, memory, lengths); });
  }
  Tensor keys_and_values(const Tensor& memory) { return cross_.keys_and_values(memory); }
  /// x stands behind the `length` tokens that the cache holds.
  Tensor extend(const Tensor& x, AttentionCache& cache, std::int64_t length, const Tensor& kv, const Tensor& lengths) {
    return around(
        x, [&](const Tensor& z) { return attention_.extend(z, cache, length); },
        [&](const Tensor& z) { return cross_.extend(z, kv, lengths); });
  }

 private:
  template <class Self, class Cross>
  Tensor around(const Tensor& x, const Self& attend, const Cross& attend_memory) {
    return observed([&] {
      SumAndNorm at = start(norm1_, x);
      at = between(at, attend(at.y), norm1_, norm2_);
      at = between(at, attend_memory(at.y), norm2_, norm3_);
      return fed_forward(at, norm3_);
    });
  }

  SelfAttention attention_;
  CrossAttention cross_;
  nn::LayerNorm norm1_;
  nn::LayerNorm norm2_;
  nn::LayerNorm norm3_;
};

/// [length, width]: sines of geometrically falling frequencies in the even columns, cosines in the odd ones.
Tensor sinusoids(std::int64_t length, std::int64_t width) {
  const Tensor table = Tensor::empty({length, width});
  float* const values = table.data<float>();
  for (std::int64_t c = 0; c < width; ++c) {
    const double frequency = std::pow(10000.0, -static_cast<double>(c - c % 2) / static_cast<double>(width));
    for (std::int64_t t = 0; t < length; ++t) {
      const double angle = static_cast<double>(t) * frequency;
      values[t * width + c] = static_cast<float>(c % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  }
  return table;
}

const TransformerOptions& checked(const TransformerOptions& o) {
  HEARTH_CHECK(ShapeError,
               o.source_vocabulary >= 1 && o.vocabulary >= 1 && o.context >= 1 && o.layers >= 1 &&
                   o.decoder_layers >= 1 && o.hidden >= 1,
               "transformer: vocabularies ", o.source_vocabulary, " and ", o.vocabulary, ", context ", o.context,
               ", layers ", o.layers, " and ", o.decoder_layers, ", hidden ", o.hidden, "; all are at least 1");
  HEARTH_CHECK(ShapeError, o.width >= 1 && o.heads >= 1 && o.width % o.heads == 0, "transformer: a width of ", o.width,
               " does not divide into ", o.heads, " heads");
  HEARTH_CHECK(ShapeError, !o.share_tables || o.source_vocabulary == o.vocabulary,
               "transformer: a shared table needs one vocabulary; the source has ", o.source_vocabulary,
               " tokens, the target ", o.vocabulary);
  return o;
}

nn::Init table_init(const TransformerOptions& options) {
  return nn::init::normal(1.0 / std::sqrt(static_cast<double>(options.width)));
}

}  // namespace

Transformer::Transformer(const TransformerOptions& options)
    : options_(checked(options)),
      tokens_(options.vocabulary, options.width, table_init(options)),
      positions_(sinusoids(options.context, options.width)),
      dropout_(options.dropout) {
  if (!options.share_tables) {
    source_tokens_ = std::make_unique<nn::Embedding>(options.source_vocabulary, options.width, table_init(options));
    register_module("source_tokens", *source_tokens_);
  }
  register_module("tokens", tokens_);
  buffer("positions", positions_);
  register_module("dropout", dropout_);
  for (std::int64_t i = 0; i < options.layers; ++i) encoder_.add<EncoderLayer>(options);
  for (std::int64_t i = 0; i < options.decoder_layers; ++i) decoder_.add<DecoderLayer>(options);
  register_module("encoder", encoder_);
  register_module("decoder", decoder_);
  if (options.norm == NormPosition::after) return;
  encoder_norm_ = std::make_unique<nn::LayerNorm>(options.width);
  decoder_norm_ = std::make_unique<nn::LayerNorm>(options.width, norm_eps, true);
  register_module("encoder_norm", *encoder_norm_);
  register_module("decoder_norm", *decoder_norm_);
}

Tensor Transformer::forward_inputs(const nn::Inputs& inputs) {
  check_inputs(inputs);
  const Tensor lengths = source_lengths(inputs[0]);
  return decode(encode(inputs[0], lengths), lengths, inputs[1]);
}

void Transformer::check_inputs(const nn::Inputs& inputs) const {
  HEARTH_CHECK(UsageError, inputs.size() == 2, "transformer: ", inputs.size(),
               " inputs; it takes two, a source and the target so far");
}

Tensor Transformer::source_lengths(const Tensor& source) const {
  return options_.source_pad < 0 ? Tensor{} : row_lengths(source, options_.source_pad);
}

void Transformer::check_ids(const Tensor& ids, const char* what) const {
  HEARTH_CHECK(ShapeError, ids.rank() == 2 && ids.dim(1) >= 1 && ids.dim(1) <= options_.context, "transformer: ", what,
               " ids ", describe(ids), "; they are [N, T] with T from 1 to the context of ", options_.context);
}

Tensor Transformer::embed(nn::Embedding& table, const Tensor& ids, std::int64_t first) {
  const Tensor y = table(ids) * std::sqrt(static_cast<double>(options_.width));
  return dropout_(y + cast(slice(positions_, 0, first, first + ids.dim(1)), y.dtype()));
}

Tensor Transformer::encode(const Tensor& source, const Tensor& lengths) {
  check_ids(source, "source");
  Tensor y = embed(source_tokens_ ? *source_tokens_ : tokens_, source, 0);
  for (std::size_t i = 0; i < encoder_.size(); ++i) {
    auto& layer = static_cast<EncoderLayer&>(encoder_[i]);
    const auto call = [&layer, lengths](std::span<const Tensor> x) { return layer(x[0], lengths); };
    y = options_.recompute ? nn::recomputed(layer, call, {y}) : layer(y, lengths);
  }
  return encoder_norm_ ? (*encoder_norm_)(y) : y;
}

Tensor Transformer::answer(const Tensor& memory, const Tensor& lengths, const Tensor& target) {
  check_ids(target, "target");
  Tensor y = embed(tokens_, target, 0);
  for (std::size_t i = 0; i < decoder_.size(); ++i) {
    auto& layer = static_cast<DecoderLayer&>(decoder_[i]);
    const auto call = [&layer, lengths](std::span<const Tensor> x) { return layer(x[0], x[1], lengths); };
    y = options_.recompute ? nn::recomputed(layer, call, {y, memory}) : layer(y, memory, lengths);
  }
  return normed(y);
}

Tensor Transformer::decode(const Tensor& memory, const Tensor& lengths, const Tensor& target) {
  return logits(answer(memory, lengths, target));
}

Tensor Transformer::features(const nn::Inputs& inputs) {
  check_inputs(inputs);
  return observed([&] {
    const Tensor lengths = source_lengths(inputs[0]);
    return answer(encode(inputs[0], lengths), lengths, inputs[1]);
  });
}

Tensor Transformer::logits(const Tensor& y) const { return linear(y, tokens_.weight, {}); }

class Transformer::Decoder : public CachedDecoder {
 public:
  Decoder(Transformer& model, const DecoderOptions& options)
      : CachedDecoder("transformer", model, options, model.options_.context, model.decoder_.size(),
                      model.tokens_.weight.device()),
        model_(model) {
    HEARTH_CHECK(UsageError, options.source.defined(), "transformer: answers sources; there is none");
    const NoGrad no_grad;
    const Tensor source = options.source.to(device_);
    sources_ = source.dim(0);
    lengths_ = model.source_lengths(source);
    const Tensor memory = model.encode(source, lengths_);
    for (std::size_t i = 0; i < caches_.size(); ++i) memories_.push_back(layer(i).keys_and_values(memory));
  }

 private:
  DecoderLayer& layer(std::size_t i) { return static_cast<DecoderLayer&>(model_.decoder_[i]); }

  Tensor logits(const Tensor& ids) override {
    Tensor y = model_.embed(model_.tokens_, ids, length());
    for (std::size_t i = 0; i < caches_.size(); ++i)
      y = layer(i).extend(y, caches_[i], length(), memories_[i], lengths_);
    return model_.logits(model_.normed(reshape(slice(y, 1, y.dim(1) - 1, y.dim(1)), {y.dim(0), y.dim(2)})));
  }

  void select_sources(std::span<const std::int64_t> from) override {
    const std::int64_t each = sequences() / sources_, count = static_cast<std::int64_t>(from.size());
    std::vector<std::int64_t> chosen;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t source = from[static_cast<std::size_t>(i)] / each;
      if (i % each == 0) chosen.push_back(source);
      HEARTH_CHECK(ShapeError, count % each == 0 && source == chosen.back(), "transformer: of ", count,
                   " selected sequences number ", i, " answers source ", source, "; the ", each,
                   " sequences of one source stay beside each other");
    }
    bool moved = static_cast<std::int64_t>(chosen.size()) != sources_;
    for (std::size_t i = 0; i < chosen.size(); ++i) moved = moved || chosen[i] != static_cast<std::int64_t>(i);
    if (!moved) return;
    const Tensor rows = Tensor::of<std::int64_t>({static_cast<std::int64_t>(chosen.size())}, chosen).to(device_);
    for (Tensor& memory : memories_) memory = index_select(memory, 0, rows);
    if (lengths_.defined()) lengths_ = index_select(lengths_, 0, rows);
    sources_ = rows.size();
  }

  Transformer& model_;
  std::int64_t sources_ = 0;
  Tensor lengths_;                // i32 [sources]; undefined where sources have no padding
  std::vector<Tensor> memories_;  // keys and values [sources, S, 2 width] of each layer
};

std::unique_ptr<TextDecoder> Transformer::make_decoder(const DecoderOptions& options) {
  return std::make_unique<Decoder>(*this, options);
}

}  // namespace hearth::models
