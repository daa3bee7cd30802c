// SPDX-License-Identifier: Apache-2.0
// BERT: what depends on what, its heads, and how it is configured. Training beside PyTorch is in parity_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "models/registry.h"
#include "models/transformer/bert.h"
#include "ops/ops.h"
#include "tests/support/error_message.h"

namespace hearth::bert_test {
namespace {

using models::BertHead;
using models::BertPool;

models::BertOptions small(BertHead head = BertHead::masked_lm, BertPool pool = BertPool::first) {
  return {.vocabulary = 13,
          .context = 8,
          .layers = 2,
          .heads = 2,
          .width = 8,
          .hidden = 12,
          .dropout = 0,
          .head = head,
          .pool = pool,
          .classes = 3,
          .pad = 0};
}

std::unique_ptr<models::Bert> made(const models::BertOptions& options) {
  auto model = std::make_unique<models::Bert>(options);
  nn::initialize(*model, 3);
  // Larger than what training starts from, so that what depends on something shows it.
  for (const NamedTensor& named : model->parameters())
    if (named.tensor->rank() == 2) named.tensor->copy_from(*named.tensor * 20.0);
  return model;
}

Tensor ids_of(const std::vector<std::int32_t>& ids, std::int64_t rows) {
  const Tensor result = Tensor::empty({rows, static_cast<std::int64_t>(ids.size()) / rows}, DType::i32);
  std::copy(ids.begin(), ids.end(), result.data<std::int32_t>());
  return result;
}

std::vector<double> output(models::Bert& model, const std::vector<std::int32_t>& ids) {
  const NoGrad no_grad;
  return model(ids_of(ids, 1)).to_doubles();
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b, std::size_t count) {
  double result = 0;
  for (std::size_t i = 0; i < count; ++i) result = std::max(result, std::abs(a[i] - b[i]));
  return result;
}

TEST(Bert, ATokenSeesAllOthersButPadding) {
  const auto model = made(small());
  const std::vector<double> first = output(*model, {4, 5, 6}), other = output(*model, {4, 5, 7});
  EXPECT_GT(largest_difference(first, other, 13), 1e-3) << "the first token sees the last";
  EXPECT_LT(largest_difference(first, output(*model, {4, 5, 6, 0, 0}), first.size()), 1e-5);
  models::BertOptions unmarked = small();
  unmarked.pad = -1;
  EXPECT_GT(largest_difference(first, output(*made(unmarked), {4, 5, 6, 0, 0}), first.size()), 1e-3);
}

TEST(Bert, ATextIsAVectorOfLengthOneWhateverItsPadding) {
  const auto model = made(small(BertHead::embedding));
  const std::vector<double> bare = output(*model, {4, 5, 6}), padded = output(*model, {4, 5, 6, 0, 0});
  ASSERT_EQ(bare.size(), 8U);
  double square = 0;
  for (const double value : bare) square += value * value;
  EXPECT_NEAR(square, 1, 1e-6);
  EXPECT_LT(largest_difference(bare, padded, 8), 1e-6);
  // The mean of the encoder's tokens, brought to that length.
  const NoGrad no_grad;
  const Tensor ids = ids_of({4, 5, 6}, 1);
  const std::vector<double> tokens = model->encode(ids, model->lengths(ids)).to_doubles();
  std::vector<double> mean(8);
  for (std::size_t i = 0; i < tokens.size(); ++i) mean[i % 8] += tokens[i] / 3;
  double norm = 0;
  for (const double value : mean) norm += value * value;
  for (double& value : mean) value /= std::sqrt(norm);
  EXPECT_LT(largest_difference(bare, mean, 8), 1e-6);
}

TEST(Bert, AClassifierSeesTheWholeText) {
  for (const BertPool pool : {BertPool::first, BertPool::mean}) {
    const auto model = made(small(BertHead::classification, pool));
    const std::vector<double> first = output(*model, {4, 5, 6});
    ASSERT_EQ(first.size(), 3U);
    EXPECT_GT(largest_difference(first, output(*model, {4, 5, 7}), 3), 1e-3);
    EXPECT_LT(largest_difference(first, output(*model, {4, 5, 6, 0}), 3), 1e-5);
  }
}

std::vector<std::string> names_of(models::Bert& model) {
  std::vector<std::string> names;
  for (const NamedTensor& named : model.parameters()) names.push_back(named.name);
  return names;
}

TEST(Bert, ItsNamesAreThoseOfThePublishedWeights) {
  models::BertOptions options = small();
  options.layers = 1;
  models::Bert model(options);
  EXPECT_EQ(names_of(model), (std::vector<std::string>{"embeddings.word_embeddings.weight",
                                                       "embeddings.position_embeddings.weight",
                                                       "embeddings.token_type_embeddings.weight",
                                                       "embeddings.LayerNorm.weight",
                                                       "embeddings.LayerNorm.bias",
                                                       "encoder.layer.0.attention.self.qkv.weight",
                                                       "encoder.layer.0.attention.self.qkv.bias",
                                                       "encoder.layer.0.attention.output.dense.weight",
                                                       "encoder.layer.0.attention.output.dense.bias",
                                                       "encoder.layer.0.attention.output.LayerNorm.weight",
                                                       "encoder.layer.0.attention.output.LayerNorm.bias",
                                                       "encoder.layer.0.intermediate.dense.weight",
                                                       "encoder.layer.0.intermediate.dense.bias",
                                                       "encoder.layer.0.output.dense.weight",
                                                       "encoder.layer.0.output.dense.bias",
                                                       "encoder.layer.0.output.LayerNorm.weight",
                                                       "encoder.layer.0.output.LayerNorm.bias",
                                                       "cls.predictions.bias",
                                                       "cls.predictions.transform.dense.weight",
                                                       "cls.predictions.transform.dense.bias",
                                                       "cls.predictions.transform.LayerNorm.weight",
                                                       "cls.predictions.transform.LayerNorm.bias"}));
  models::Bert pooled(small(BertHead::classification)), averaged(small(BertHead::classification, BertPool::mean));
  EXPECT_EQ(names_of(pooled).back(), "classifier.bias");
  EXPECT_EQ(names_of(pooled).size(), names_of(averaged).size() + 2) << "pooler.dense";
}

TEST(Bert, HasThePublishedSizes) {
  // BERT-base has 109,482,240 parameters with its pooler, 7,087,872 of them in each layer; all-MiniLM-L6-v2 22,713,216.
  models::BertOptions base{.layers = 1, .head = BertHead::classification};
  EXPECT_EQ(models::Bert(base).parameter_count(), 109'482'240 - 11 * 7'087'872 + 2 * 768 + 2);
  models::BertOptions minilm{.layers = 6, .width = 384, .head = BertHead::embedding};
  EXPECT_EQ(models::Bert(minilm).parameter_count(), 22'713'216 - 384 * 384 - 384);
}

TEST(Bert, RecomputedLayersGiveTheSameBits) {
  std::vector<std::vector<double>> gradients;
  for (const bool recompute : {false, true}) {
    models::BertOptions options = small();
    options.recompute = recompute;
    options.dropout = 0.25;
    const auto model = made(options);
    FlatParameters flat(model->parameters());
    const Tensor ids = ids_of({1, 5, 2, 7, 3, 9, 0, 0}, 2), labels = ids_of({5, 2, 7, 3, 9, 1, 0, 1}, 2);
    const RandomScope random(7, 0);
    flat.zero_grads();
    backward(cross_entropy((*model)(ids), labels.to(DType::i64)));
    gradients.push_back(flat.grads().to_doubles());
  }
  EXPECT_EQ(gradients[0], gradients[1]);
}

TEST(Bert, RefusesWhatDoesNotFit) {
  for (const auto& change : std::vector<void (*)(models::BertOptions&)>{
           [](models::BertOptions& o) { o.vocabulary = 0; }, [](models::BertOptions& o) { o.context = 0; },
           [](models::BertOptions& o) { o.layers = 0; }, [](models::BertOptions& o) { o.heads = 3; },
           [](models::BertOptions& o) { o.segments = -1; }, [](models::BertOptions& o) { o.hidden = -1; }}) {
    models::BertOptions options = small();
    change(options);
    EXPECT_THROW(models::Bert{options}, ShapeError);
  }
  const auto model = made(small());
  EXPECT_THROW((*model)(ids_of({1, 2, 3, 4, 5, 6, 7, 8, 9}, 1)), ShapeError) << "longer than the context";
  EXPECT_THROW((*model)(Tensor::zeros({3}, DType::i32)), ShapeError) << "one axis";
  EXPECT_THROW((*model)(Tensor::zeros({1, 3})), DTypeError) << "no ids";
  EXPECT_THROW((*model)(ids_of({13}, 1)), IndexError) << "not in the vocabulary";
}

TEST(Bert, TakesItsSizesFromTheDataOrSaysWhatIsWrong) {
  const auto make = [](const char* text, const models::InputInfo& input) {
    return models::make(parse_json(text, "test"), input);
  };
  const char* sizes = R"({"type": "bert", "layers": 1, "heads": 2, "width": 8})";
  models::InputInfo text;
  text.vocabulary = 13;
  text.length = 6;
  EXPECT_EQ(make(sizes, text)->parameters()[1].tensor->shape(), (Shape{6, 8}));
  const char* classifier = R"({"type": "bert", "layers": 1, "heads": 2, "width": 8, "head": "classification"})";
  EXPECT_THROW(make(classifier, text), ConfigError) << "the data has no classes";
  text.classes = 5;
  EXPECT_EQ(make(classifier, text)->parameters().back().tensor->shape(), (Shape{5}));
  text.labelled = true;
  EXPECT_EQ(make(classifier, text)->parameters().back().tensor->shape(), (Shape{5}));
  EXPECT_PRED2(test::contains, test::error_message<ConfigError>([&] { make(sizes, text); }),
               "/model/head: \"masked_lm\" has no scores of the data's classes; use \"classification\"");
  EXPECT_THROW(make(R"({"type": "bert", "head": "classification", "classes": 4})", text), ConfigError);
  text.labelled = false;
  EXPECT_THROW(make(sizes, {}), ConfigError) << "neither says";
  EXPECT_THROW(make(R"({"type": "bert", "heads": 3, "width": 8})", text), ConfigError);
  EXPECT_THROW(make(R"({"type": "bert", "context": 4})", text), ConfigError) << "rows are longer";
  EXPECT_THROW(make(R"({"type": "bert", "head": "translation"})", text), ConfigError);
}

}  // namespace
}  // namespace hearth::bert_test
