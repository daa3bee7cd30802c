// SPDX-License-Identifier: Apache-2.0
#include "hearth/models/transformer/transformer.h"

#include <cmath>

#include "hearth/ops/ops.h"

namespace hearth::models {
namespace {

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
    adopt("in_proj", in_);
    adopt("out_proj", out_);
  }
  Tensor forward(const Tensor& x) override { return (*this)(x, {}); }
  Tensor operator()(const Tensor& x, const Tensor& lengths) {
    return observed([&] {
      const double dropout = is_training() ? dropout_ : 0.0;
      return out_(self_attention(in_(x), heads_, {.causal = causal_, .dropout = dropout, .key_lengths = lengths}));
    });
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
    adopt("q_proj", query_);
    adopt("kv_proj", memory_);
    adopt("out_proj", out_);
  }
  Tensor forward(const Tensor& x) override { return (*this)(x, x, {}); }
  Tensor operator()(const Tensor& x, const Tensor& memory, const Tensor& lengths) {
    return observed([&] {
      const double dropout = is_training() ? dropout_ : 0.0;
      return out_(cross_attention(query_(x), memory_(memory), heads_, {.dropout = dropout, .key_lengths = lengths}));
    });
  }

 private:
  std::int64_t heads_;
  double dropout_;
  nn::Linear query_;
  nn::Linear memory_;
  nn::Linear out_;
};

/// What both kinds of layer share: a part f with its norm, dropout and residual, and the two-layer part.
class Layer : public nn::Module {
 protected:
  explicit Layer(const TransformerOptions& options)
      : place_(options.norm),
        in_(options.width, options.hidden, xavier(Activation::relu)),
        out_(options.hidden, options.width, xavier()),
        dropout_(options.dropout) {}

  void adopt_shared() {
    adopt("linear1", in_);
    adopt("linear2", out_);
    adopt("dropout", dropout_);
  }
  template <class F>
  Tensor added(nn::LayerNorm& norm, const Tensor& x, const F& f) {
    if (place_ == NormPlace::before) return x + dropout_(f(norm(x)));
    return norm(x + dropout_(f(x)));
  }
  Tensor fed_forward(nn::LayerNorm& norm, const Tensor& x) {
    return added(norm, x, [&](const Tensor& y) { return out_(in_(y)); });
  }

 private:
  NormPlace place_;
  nn::Linear in_;
  nn::Linear out_;
  nn::Dropout dropout_;
};

class EncoderLayer : public Layer {
 public:
  explicit EncoderLayer(const TransformerOptions& options)
      : Layer(options), attention_(options, false), norm1_(options.width), norm2_(options.width) {
    adopt("self_attn", attention_);
    adopt_shared();
    adopt("norm1", norm1_);
    adopt("norm2", norm2_);
  }
  Tensor forward(const Tensor& x) override { return (*this)(x, {}); }
  Tensor operator()(const Tensor& x, const Tensor& lengths) {
    return observed([&] {
      const Tensor y = added(norm1_, x, [&](const Tensor& z) { return attention_(z, lengths); });
      return fed_forward(norm2_, y);
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
        norm1_(options.width),
        norm2_(options.width),
        norm3_(options.width) {
    adopt("self_attn", attention_);
    adopt("multihead_attn", cross_);
    adopt_shared();
    adopt("norm1", norm1_);
    adopt("norm2", norm2_);
    adopt("norm3", norm3_);
  }
  Tensor forward(const Tensor& x) override { return (*this)(x, x, {}); }
  Tensor operator()(const Tensor& x, const Tensor& memory, const Tensor& lengths) {
    return observed([&] {
      Tensor y = added(norm1_, x, [&](const Tensor& z) { return attention_(z, {}); });
      y = added(norm2_, y, [&](const Tensor& z) { return cross_(z, memory, lengths); });
      return fed_forward(norm3_, y);
    });
  }

 private:
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
    adopt("source_tokens", *source_tokens_);
  }
  adopt("tokens", tokens_);
  buffer("positions", positions_);
  adopt("dropout", dropout_);
  for (std::int64_t i = 0; i < options.layers; ++i) encoder_.add<EncoderLayer>(options);
  for (std::int64_t i = 0; i < options.decoder_layers; ++i) decoder_.add<DecoderLayer>(options);
  adopt("encoder", encoder_);
  adopt("decoder", decoder_);
  if (options.norm == NormPlace::after) return;
  encoder_norm_ = std::make_unique<nn::LayerNorm>(options.width);
  decoder_norm_ = std::make_unique<nn::LayerNorm>(options.width);
  adopt("encoder_norm", *encoder_norm_);
  adopt("decoder_norm", *decoder_norm_);
}

Tensor Transformer::forward(const Tensor&) {
  throw UsageError("transformer: takes two inputs, a source and the target so far");
}

Tensor Transformer::forward_pair(const Tensor& source, const Tensor& target) {
  const Tensor lengths = source_lengths(source);
  return decode(encode(source, lengths), lengths, target);
}

Tensor Transformer::source_lengths(const Tensor& source) const {
  return options_.source_pad < 0 ? Tensor{} : row_lengths(source, options_.source_pad);
}

Tensor Transformer::embed(nn::Embedding& table, const Tensor& ids, const char* what) {
  HEARTH_CHECK(ShapeError, ids.rank() == 2 && ids.dim(1) >= 1 && ids.dim(1) <= options_.context, "transformer: ", what,
               " ids ", describe(ids), "; they are [N, T] with T from 1 to the context of ", options_.context);
  const Tensor y = table(ids) * std::sqrt(static_cast<double>(options_.width));
  return dropout_(y + cast(slice(positions_, 0, 0, ids.dim(1)), y.dtype()));
}

Tensor Transformer::encode(const Tensor& source, const Tensor& lengths) {
  Tensor y = embed(source_tokens_ ? *source_tokens_ : tokens_, source, "source");
  for (std::size_t i = 0; i < encoder_.size(); ++i) y = static_cast<EncoderLayer&>(encoder_[i])(y, lengths);
  return encoder_norm_ ? (*encoder_norm_)(y) : y;
}

Tensor Transformer::decode(const Tensor& memory, const Tensor& lengths, const Tensor& target) {
  Tensor y = embed(tokens_, target, "target");
  for (std::size_t i = 0; i < decoder_.size(); ++i) y = static_cast<DecoderLayer&>(decoder_[i])(y, memory, lengths);
  if (decoder_norm_) y = (*decoder_norm_)(y);
  return linear(y, tokens_.weight, {});
}

}  // namespace hearth::models
