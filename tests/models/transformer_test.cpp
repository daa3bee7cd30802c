// SPDX-License-Identifier: Apache-2.0
// The encoder-decoder Transformer: what depends on what, and how it is configured. Training beside PyTorch is in
// parity_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "autograd/grad_mode.h"
#include "models/registry.h"
#include "models/transformer/transformer.h"

namespace hearth::transformer_test {
namespace {

models::TransformerOptions small() {
  return {.source_vocabulary = 11,
          .vocabulary = 13,
          .context = 6,
          .layers = 1,
          .decoder_layers = 1,
          .heads = 2,
          .width = 8,
          .hidden = 12,
          .dropout = 0,
          .source_pad = 0};
}

std::unique_ptr<models::Transformer> made(const models::TransformerOptions& options) {
  auto model = std::make_unique<models::Transformer>(options);
  nn::initialize(*model, 3);
  return model;
}

std::vector<double> logits(models::Transformer& model, const std::vector<std::int32_t>& source,
                           const std::vector<std::int32_t>& target) {
  const NoGrad no_grad;
  const auto row = [](const std::vector<std::int32_t>& ids) {
    const Tensor result = Tensor::empty({1, static_cast<std::int64_t>(ids.size())}, DType::i32);
    std::copy(ids.begin(), ids.end(), result.data<std::int32_t>());
    return result;
  };
  return model(row(source), row(target)).to_doubles();
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b, std::size_t begin,
                          std::size_t end) {
  double result = 0;
  for (std::size_t i = begin; i < end; ++i) result = std::max(result, std::abs(a[i] - b[i]));
  return result;
}

TEST(Transformer, ATargetTokenSeesTheSourceAndThoseBeforeIt) {
  for (const models::NormPosition place : {models::NormPosition::before, models::NormPosition::after}) {
    models::TransformerOptions options = small();
    options.norm = place;
    const auto model = made(options);
    const std::vector<double> first = logits(*model, {4, 5, 6}, {1, 2, 3, 4});
    const std::vector<double> later = logits(*model, {4, 5, 6}, {1, 2, 9, 4});
    EXPECT_EQ(largest_difference(first, later, 0, 2 * 13), 0);
    EXPECT_GT(largest_difference(first, later, 2 * 13, 4 * 13), 1e-4);
    EXPECT_GT(largest_difference(first, logits(*model, {4, 5, 7}, {1, 2, 3, 4}), 0, 13), 1e-4) << "the last of it too";
  }
}

TEST(Transformer, PaddingOfTheSourceChangesNothing) {
  const auto model = made(small());
  const std::vector<double> bare = logits(*model, {4, 5, 6}, {1, 2, 3});
  EXPECT_LT(largest_difference(bare, logits(*model, {4, 5, 6, 0, 0}, {1, 2, 3}), 0, bare.size()), 1e-5);
  models::TransformerOptions unmarked = small();
  unmarked.source_pad = -1;
  const auto seeing = made(unmarked);
  EXPECT_GT(largest_difference(bare, logits(*seeing, {4, 5, 6, 0, 0}, {1, 2, 3}), 0, bare.size()), 1e-4);
}

TEST(Transformer, SharedTablesAreOneParameter) {
  models::TransformerOptions options = small();
  options.source_vocabulary = 13;
  const std::int64_t apart = models::Transformer(options).parameter_count();
  options.share_tables = true;
  EXPECT_EQ(models::Transformer(options).parameter_count(), apart - 13 * 8);
}

TEST(Transformer, HasThePapersSizeOfTheBaseModel) {
  // 6 + 6 layers of width 512 with 2048 hidden units hold 44.1 million, the shared table of 37,000 tokens 18.9 million.
  models::TransformerOptions base;
  base.source_vocabulary = base.vocabulary = 37000;
  base.share_tables = true;
  EXPECT_NEAR(static_cast<double>(models::Transformer(base).parameter_count()), 63.1e6, 0.1e6);
}

TEST(Transformer, RefusesWhatDoesNotFit) {
  for (const auto& change : std::vector<void (*)(models::TransformerOptions&)>{
           [](models::TransformerOptions& o) { o.vocabulary = 0; },
           [](models::TransformerOptions& o) { o.source_vocabulary = 0; },
           [](models::TransformerOptions& o) { o.layers = 0; }, [](models::TransformerOptions& o) { o.hidden = 0; },
           [](models::TransformerOptions& o) { o.heads = 3; },
           [](models::TransformerOptions& o) { o.share_tables = true; }}) {
    models::TransformerOptions options = small();
    change(options);
    EXPECT_THROW(models::Transformer{options}, ShapeError);
  }
  const auto model = made(small());
  const Tensor ids = Tensor::zeros({1, 3}, DType::i32);
  EXPECT_THROW((*model)(ids), UsageError) << "one input";
  EXPECT_THROW((*model)(Tensor::zeros({1, 7}, DType::i32), ids), ShapeError) << "longer than the context";
  EXPECT_THROW((*model)(ids, Tensor::zeros({3}, DType::i32)), ShapeError) << "one axis";
  EXPECT_THROW((*model)(ids, Tensor::zeros({2, 3}, DType::i32)), ShapeError) << "another number of rows";
  EXPECT_THROW((*model)(ids, Tensor::zeros({1, 3})), DTypeError) << "no ids";
}

TEST(Transformer, TakesItsSizesFromTheDataOrSaysWhatIsWrong) {
  const auto make = [](const char* text, const models::InputInfo& input) {
    return models::make(parse_json(text, "test"), input);
  };
  const char* sizes = R"({"type": "transformer", "layers": 1, "decoder_layers": 1, "heads": 2, "width": 8})";
  models::InputInfo pairs;
  pairs.vocabulary = 13;
  pairs.source_vocabulary = 11;
  pairs.length = 6;
  const auto model = make(sizes, pairs);
  EXPECT_EQ(model->parameters()[0].tensor->shape(), (Shape{11, 8}));
  EXPECT_EQ(model->parameters()[1].tensor->shape(), (Shape{13, 8}));
  EXPECT_THROW(make(sizes, {}), ConfigError) << "neither says";
  EXPECT_THROW(make(R"({"type": "transformer", "heads": 3, "width": 8})", pairs), ConfigError);
  EXPECT_THROW(make(R"({"type": "transformer", "context": 4})", pairs), ConfigError) << "rows are longer";
  EXPECT_THROW(make(R"({"type": "transformer", "vocabulary": 4})", pairs), ConfigError) << "the data has more";
  EXPECT_THROW(make(R"({"type": "transformer", "norm": "between"})", pairs), ConfigError);
}

}  // namespace
}  // namespace hearth::transformer_test
