// SPDX-License-Identifier: Apache-2.0
// GPT: what depends on what, its sizes, and how it is configured. Training beside PyTorch is in parity_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "core/random.h"
#include "models/registry.h"
#include "models/transformer/gpt.h"
#include "ops/ops.h"

namespace hearth::gpt_test {
namespace {

models::GptOptions small() {
  return {.vocabulary = 13, .context = 8, .layers = 2, .heads = 2, .width = 8, .dropout = 0};
}

std::unique_ptr<models::Gpt> made(const models::GptOptions& options) {
  auto model = std::make_unique<models::Gpt>(options);
  nn::initialize(*model, 3);
  return model;
}

Tensor ids_of(const std::vector<std::int32_t>& ids, std::int64_t rows) {
  const std::int64_t cols = static_cast<std::int64_t>(ids.size()) / rows;
  const Tensor result = Tensor::empty({rows, cols}, DType::i32);
  std::copy(ids.begin(), ids.end(), result.data<std::int32_t>());
  return result;
}

TEST(Gpt, ATokenDependsOnThoseBeforeItOnly) {
  const NoGrad no_grad;
  const auto model = made(small());
  const std::vector<double> first = (*model)(ids_of({1, 5, 2, 7, 3, 9}, 1)).to_doubles();
  const std::vector<double> second = (*model)(ids_of({1, 5, 2, 8, 3, 9}, 1)).to_doubles();
  ASSERT_EQ(first.size(), 6u * 13u);
  for (std::size_t i = 0; i < 3 * 13; ++i) EXPECT_EQ(first[i], second[i]) << i;
  double change = 0;
  for (std::size_t i = 3 * 13; i < first.size(); ++i) change = std::max(change, std::abs(first[i] - second[i]));
  EXPECT_GT(change, 1e-4);
}

TEST(Gpt, TheSameTokenDiffersByItsPosition) {
  const NoGrad no_grad;
  const auto model = made(small());
  const std::vector<double> logits = (*model)(ids_of({4, 4}, 1)).to_doubles();
  EXPECT_NE(std::vector<double>(logits.begin(), logits.begin() + 13),
            std::vector<double>(logits.begin() + 13, logits.end()));
}

TEST(Gpt, RotaryPositionsAreThoseOfTheTokensToEachOther) {
  const NoGrad no_grad;
  models::GptOptions options = small();
  options.positions = models::GptPositions::rotary;
  const auto model = made(options);
  for (const NamedTensor& parameter : model->parameters()) {
    EXPECT_EQ(parameter.name.find("wpe"), std::string::npos);
    if (parameter.tensor->rank() == 2) parameter.tensor->copy_from(*parameter.tensor * 20.0);
  }
  const auto last_of = [&](const std::vector<std::int32_t>& ids) {
    const std::vector<double> logits = (*model)(ids_of(ids, 1)).to_doubles();
    return std::vector<double>(logits.end() - 13, logits.end());
  };
  const auto distance = [](const std::vector<double>& a, const std::vector<double>& b) {
    double most = 0;
    for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
    return most;
  };
  EXPECT_LT(distance(last_of({4}), last_of({4, 4, 4})), 1e-5) << "equal tokens are one to each other";
  EXPECT_GT(distance(last_of({1, 2, 3}), last_of({2, 1, 3})), 1e-3) << "the order matters";
}

TEST(Gpt, HasAsManyParametersAsGpt2) {
  EXPECT_EQ(models::Gpt(models::GptOptions{}).parameter_count(), 124'439'808);
  models::GptOptions untied = small();
  const std::int64_t tied_count = models::Gpt(untied).parameter_count();
  untied.tie_head = false;
  EXPECT_EQ(models::Gpt(untied).parameter_count(), tied_count + 13 * 8);
}

TEST(Gpt, ItsNamesAreThoseOfThePublishedWeights) {
  models::Gpt model(small());
  std::vector<std::string> names;
  for (const NamedTensor& named : model.parameters()) names.push_back(named.name);
  const std::vector<std::string> first = {"wte.weight",
                                          "wpe.weight",
                                          "h.0.ln_1.weight",
                                          "h.0.ln_1.bias",
                                          "h.0.attn.c_attn.weight",
                                          "h.0.attn.c_attn.bias",
                                          "h.0.attn.c_proj.weight"};
  ASSERT_GT(names.size(), first.size());
  EXPECT_EQ(std::vector<std::string>(names.begin(), names.begin() + 7), first);
  EXPECT_EQ(names.back(), "ln_f.bias");
}

TEST(Gpt, RecomputedBlocksGiveTheSameBits) {
  std::vector<std::vector<double>> gradients;
  for (const bool recompute : {false, true}) {
    models::GptOptions options = small();
    options.recompute = recompute;
    options.dropout = 0.25;
    const auto model = made(options);
    FlatParameters flat(model->parameters());
    const Tensor ids = ids_of({1, 5, 2, 7, 3, 9, 0, 12}, 2), labels = ids_of({5, 2, 7, 3, 9, 0, 12, 1}, 2);
    const RandomScope random(7, 0);
    flat.zero_grads();
    backward(cross_entropy((*model)(ids), labels.to(DType::i64)));
    gradients.push_back(flat.grads().to_doubles());
  }
  EXPECT_EQ(gradients[0], gradients[1]);
}

TEST(Gpt, DropsInTrainingOnly) {
  models::GptOptions options = small();
  options.dropout = 0.5;
  const auto model = made(options);
  const NoGrad no_grad;
  const Tensor ids = ids_of({1, 5, 2}, 1);
  model->eval();
  EXPECT_EQ((*model)(ids).to_doubles(), made(small())->forward(ids).to_doubles());
  model->train();
  EXPECT_NE((*model)(ids).to_doubles(), made(small())->forward(ids).to_doubles());
}

TEST(Gpt, RefusesWhatDoesNotFit) {
  for (const auto& change : std::vector<void (*)(models::GptOptions&)>{
           [](models::GptOptions& o) { o.vocabulary = 0; }, [](models::GptOptions& o) { o.context = 0; },
           [](models::GptOptions& o) { o.layers = 0; }, [](models::GptOptions& o) { o.heads = 3; },
           [](models::GptOptions& o) { o.width = 0; }, [](models::GptOptions& o) { o.hidden = -1; },
           [](models::GptOptions& o) { o.width = 6, o.positions = models::GptPositions::rotary; }}) {
    models::GptOptions options = small();
    change(options);
    EXPECT_THROW(models::Gpt{options}, ShapeError);
  }
  const auto model = made(small());
  EXPECT_THROW((*model)(ids_of({1, 2, 3, 4, 5, 6, 7, 8, 9}, 1)), ShapeError) << "longer than the context";
  EXPECT_THROW((*model)(Tensor::zeros({3}, DType::i32)), ShapeError) << "one axis";
  EXPECT_THROW((*model)(Tensor::zeros({1, 3})), DTypeError) << "no ids";
  EXPECT_THROW((*model)(ids_of({13}, 1)), IndexError) << "not in the vocabulary";
}

TEST(Gpt, TakesItsSizesFromTheDataOrSaysWhatIsWrong) {
  const auto make = [](const char* text, const models::InputInfo& input) {
    return models::make(parse_json(text, "test"), input);
  };
  const char* sizes = R"({"type": "gpt", "layers": 1, "heads": 2, "width": 8})";
  models::InputInfo text;
  text.vocabulary = 13;
  text.length = 8;
  const auto model = make(sizes, text);
  EXPECT_EQ(model->parameters()[0].tensor->shape(), (Shape{13, 8}));
  EXPECT_EQ(model->parameters()[1].tensor->shape(), (Shape{8, 8}));
  EXPECT_THROW(make(sizes, {}), ConfigError) << "neither says";
  EXPECT_THROW(make(R"({"type": "gpt", "heads": 3, "width": 8})", text), ConfigError);
  EXPECT_THROW(make(R"({"type": "gpt", "context": 4})", text), ConfigError) << "rows are longer";
  EXPECT_THROW(make(R"({"type": "gpt", "vocabulary": 4})", text), ConfigError) << "the data has more";
  EXPECT_THROW(make(R"({"type": "gpt", "heads": 2, "width": 6, "positions": "rotary"})", text), ConfigError);
  EXPECT_THROW(make(R"({"type": "gpt", "depth": 4})", text), ConfigError) << "no such key";
}

}  // namespace
}  // namespace hearth::gpt_test
