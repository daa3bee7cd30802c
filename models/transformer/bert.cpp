// SPDX-License-Identifier: Apache-2.0
#include "models/transformer/bert.h"

#include "models/initial.h"
#include "ops/ops.h"

namespace hearth::models {
namespace {

std::int64_t hidden_of(const BertOptions& options) {
  return options.hidden ? options.hidden : checked_mul(4, options.width, "bert width");
}

/// The end of both parts of a layer: norm(x + dropout(y w + b)).
class Output : public nn::Module {
 public:
  Output(std::int64_t inputs, const BertOptions& options)
      : dense_(inputs, options.width, initial_linear()),
        norm_(options.width, options.norm_eps),
        dropout_(options.dropout) {
    register_module("dense", dense_);
    register_module("LayerNorm", norm_);
    register_module("dropout", dropout_);
  }
  Tensor forward(const Tensor& y) override { return norm_(dropout_(dense_(y))); }
  Tensor operator()(const Tensor& y, const Tensor& x) {
    return observed([&] { return norm_(x, dense_(y), dropout_.rate()).y; });
  }

 private:
  nn::Linear dense_;
  nn::LayerNorm norm_;
  nn::Dropout dropout_;
};

const BertOptions& checked(const BertOptions& o) {
  HEARTH_CHECK(ShapeError,
               o.vocabulary >= 1 && o.context >= 1 && o.layers >= 1 && o.classes >= 1 && o.hidden >= 0 &&
                   o.segments >= 0 && o.position_offset >= 0,
               "bert: vocabulary ", o.vocabulary, ", context ", o.context, ", segments ", o.segments, ", layers ",
               o.layers, ", classes ", o.classes, ", hidden ", o.hidden, ", position_offset ", o.position_offset,
               "; all are at least 1 (hidden 0 is 4 times the width; segments and position_offset may be 0)");
  HEARTH_CHECK(ShapeError, o.width >= 1 && o.heads >= 1 && o.width % o.heads == 0, "bert: a width of ", o.width,
               " does not divide into ", o.heads, " heads");
  return o;
}

}  // namespace

class Bert::Layer : public nn::Module {
 public:
  explicit Layer(const BertOptions& options)
      : heads_(options.heads),
        dropout_(options.dropout),
        qkv_(attention_.add_named<nn::ModuleList>("self").add_named<nn::Linear>(
            "qkv", options.width, checked_mul(3, options.width, "bert width"), initial_linear())),
        attended_(attention_.add_named<Output>("output", options.width, options)),
        output_(hidden_of(options), options) {
    register_module("attention", attention_);
    intermediate_.add_named<nn::Linear>("dense", options.width, hidden_of(options), initial_linear(options.activation));
    register_module("intermediate", intermediate_);
    register_module("output", output_);
  }
  Tensor forward(const Tensor& x) override { return (*this)(x, {}, {}); }
  Tensor operator()(const Tensor& x, const Tensor& lengths, const Tensor& segments) {
    return observed([&] {
      const double dropout = is_training() ? dropout_ : 0.0;
      const Tensor seen =
          self_attention(qkv_(x), heads_, {.dropout = dropout, .key_lengths = lengths, .segments = segments});
      const Tensor y = attended_(seen, x);
      return output_(intermediate_(y), y);
    });
  }

 private:
  std::int64_t heads_;
  double dropout_;
  nn::ModuleList attention_;
  nn::Linear& qkv_;
  Output& attended_;
  nn::ModuleList intermediate_;
  Output output_;
};

/// Of every token: the table of tokens is the last layer's weight.
class Bert::Predictions : public nn::Module {
 public:
  explicit Predictions(const BertOptions& options) : bias(Tensor::zeros({options.vocabulary})) {
    parameter("bias", bias, nn::init::zeros());
    transform_.add_named<nn::Linear>("dense", options.width, options.width, initial_linear(options.activation));
    transform_.add_named<nn::LayerNorm>("LayerNorm", options.width, options.norm_eps);
    register_module("transform", transform_);
  }
  Tensor forward(const Tensor& y) override { return transform_(y); }

  Tensor bias;

 private:
  nn::ModuleList transform_;
};

Bert::Bert(const BertOptions& options)
    : options_(checked(options)),
      words_(embeddings_.add_named<nn::Embedding>("word_embeddings", options.vocabulary, options.width,
                                                  nn::init::normal(initial_deviation))),
      positions_(embeddings_.add_named<nn::Embedding>(
          "position_embeddings", checked_add(options.context, options.position_offset, "bert positions"), options.width,
          nn::init::normal(initial_deviation))),
      segments_(options.segments == 0
                    ? nullptr
                    : &embeddings_.add_named<nn::Embedding>("token_type_embeddings", options.segments, options.width,
                                                            nn::init::normal(initial_deviation))),
      norm_(embeddings_.add_named<nn::LayerNorm>("LayerNorm", options.width, options.norm_eps)),
      dropout_(options.dropout),
      layers_(encoder_.add_named<nn::ModuleList>("layer")) {
  register_module("embeddings", embeddings_);
  register_module("dropout", dropout_);
  for (std::int64_t i = 0; i < options.layers; ++i) layers_.add<Layer>(options);
  register_module("encoder", encoder_);
  if (options.head == BertHead::masked_lm) {
    predictions_ = &cls_.add_named<Predictions>("predictions", options);
    register_module("cls", cls_);
  }
  if (options.head != BertHead::classification) return;
  if (options.pool == BertPool::first) {
    pooler_.add_named<nn::Linear>("dense", options.width, options.width, initial_linear());
    register_module("pooler", pooler_);
  }
  classifier_ = std::make_unique<nn::Linear>(options.width, options.classes, initial_linear());
  register_module("classifier", *classifier_);
}

Tensor Bert::lengths(const Tensor& ids) const { return options_.pad < 0 ? Tensor{} : row_lengths(ids, options_.pad); }

Tensor Bert::embed(const Tensor& ids, const Tensor& segments) {
  HEARTH_CHECK(ShapeError, ids.rank() == 2 && ids.dim(1) >= 1 && ids.dim(1) <= options_.context, "bert: token ids ",
               describe(ids), "; they are [N, T] with T from 1 to the context of ", options_.context);
  const std::int64_t first = options_.position_offset;
  Tensor positions = slice(positions_.weight, 0, first, first + ids.dim(1));
  if (segments.defined()) positions = hearth::embedding(positions, segment_positions(segments));
  return dropout_(norm_(words_(ids) + (segments_ ? positions + slice(segments_->weight, 0, 0, 1) : positions)));
}

Tensor Bert::encode(const Tensor& ids, const Tensor& lengths, const Tensor& segments) {
  Tensor y = embed(ids, segments);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    auto& layer = static_cast<Layer&>(layers_[i]);
    const auto call = [&layer, lengths, segments](std::span<const Tensor> x) { return layer(x[0], lengths, segments); };
    y = options_.recompute ? nn::recomputed(layer, call, {y}) : layer(y, lengths, segments);
  }
  return y;
}

Tensor Bert::first_token(const Tensor& y) const { return reshape(slice(y, 1, 0, 1), {y.dim(0), options_.width}); }

/// Attention whose scores are all equal is a mean, and knows how long rows are.
Tensor Bert::mean_of_tokens(const Tensor& y, const Tensor& lengths) const {
  const std::int64_t n = y.dim(0), t = y.dim(1), width = options_.width / options_.heads;
  const Tensor nothing = Tensor::zeros({1, 1, 1, width}, y.dtype(), y.device());
  const Tensor query = expand(nothing, {n, 1, options_.heads, width});
  const Tensor keys = expand(nothing, {n, t, options_.heads, width});
  const Tensor values = reshape(y, {n, t, options_.heads, width});
  return reshape(attention(query, keys, values, {.key_lengths = lengths}), {n, options_.width});
}

VocabularyModel::Head Bert::head() const {
  return predictions_ != nullptr ? Head{words_.weight, predictions_->bias} : Head{};
}

Tensor Bert::features(const nn::Inputs& inputs) {
  return observed([&] { return predictions_of(inputs); });
}

Tensor Bert::predictions_of(const nn::Inputs& inputs) {
  HEARTH_CHECK(
      UsageError, predictions_ != nullptr,
      "bert: this model has no head over its vocabulary, and makes one result of each row; give it one sequence a "
      "row, or the head masked_lm");
  HEARTH_CHECK(UsageError, inputs.size() == 1 || inputs.size() == 2, "bert: ", inputs.size(),
               " inputs; it takes ids, or ids and the segments of packed rows");
  const bool packed = inputs.size() == 2;
  return (*predictions_)(encode(inputs[0], packed ? Tensor() : lengths(inputs[0]), packed ? inputs[1] : Tensor()));
}

Tensor Bert::forward(const Tensor& ids) { return predictions_ ? forward_inputs({ids}) : outputs_of(embedding(ids)); }

Tensor Bert::forward_inputs(const nn::Inputs& inputs) {
  const Tensor y = predictions_of(inputs);
  return linear(y, words_.weight, predictions_->bias);
}

Tensor Bert::embedding(const Tensor& ids) {
  HEARTH_CHECK(UsageError, predictions_ == nullptr,
               "bert: embedding: the head masked_lm sees each token by itself, not the whole text");
  const Tensor known = lengths(ids);
  const Tensor y = encode(ids, known);
  if (!classifier_) {
    const Tensor vector = options_.embedding_pool == EmbeddingPool::mean ? mean_of_tokens(y, known) : first_token(y);
    return options_.normalize ? vector / sqrt(sum(square(vector), {-1}, true) + 1e-24) : vector;
  }
  if (pooler_.empty()) return mean_of_tokens(y, known);
  const Tensor pooled = pooler_(first_token(y));
  return options_.pool_activation == PoolActivation::tanh ? tanh(pooled) : relu(pooled);
}

Tensor Bert::outputs_of(const Tensor& embedding) {
  return classifier_ ? (*classifier_)(dropout_(embedding)) : embedding;
}

}  // namespace hearth::models
