// SPDX-License-Identifier: Apache-2.0
// Models with a head over a vocabulary: their outputs are what the head makes of their features.
#include "models/text/vocabulary_model.h"

#include <gtest/gtest.h>

#include "autograd/grad_mode.h"
#include "models/transformer/bert.h"
#include "models/transformer/gpt.h"
#include "models/transformer/transformer.h"
#include "ops/ops.h"

namespace hearth::models::vocabulary_model_test {
namespace {

const Tensor ids = Tensor::of<std::int32_t>({2, 3}, {1, 5, 2, 7, 3, 4});

template <class Network>
void prepare(Network& model) {
  nn::initialize(model, 3);
  model.eval();
}

void expect_outputs(const VocabularyModel::Head& head, const Tensor& features, const Tensor& outputs) {
  EXPECT_EQ(linear(features, head.weight, head.bias).to_doubles(), outputs.to_doubles());
}

TEST(VocabularyModel, OutputsAreTheHeadOfTheFeatures) {
  const NoGrad no_grad;
  for (const bool tie : {true, false}) {
    Gpt gpt({.vocabulary = 9, .context = 4, .layers = 2, .heads = 2, .width = 8, .tie_head = tie});
    prepare(gpt);
    expect_outputs(gpt.head(), gpt.features({ids}), gpt(ids));
  }
  for (const NormPosition place : {NormPosition::before, NormPosition::after}) {
    Transformer transformer({.source_vocabulary = 9,
                             .vocabulary = 9,
                             .context = 4,
                             .layers = 1,
                             .decoder_layers = 1,
                             .heads = 2,
                             .width = 8,
                             .hidden = 8,
                             .norm = place});
    prepare(transformer);
    expect_outputs(transformer.head(), transformer.features({ids, ids}), transformer(ids, ids));
    EXPECT_THROW((void)transformer.features({ids}), UsageError);
    EXPECT_THROW((void)transformer(ids), UsageError);
    EXPECT_THROW((void)transformer({ids, ids, ids}), UsageError);
  }
  Bert bert({.vocabulary = 9, .context = 4, .layers = 1, .heads = 2, .width = 8});
  prepare(bert);
  expect_outputs(bert.head(), bert.features({ids}), bert(ids));
  // The second are segments.
  EXPECT_THROW((void)bert.features({ids, ids}), ShapeError);
  EXPECT_THROW((void)bert(ids, ids), ShapeError);
  EXPECT_THROW((void)bert.features({ids, ids, ids}), UsageError);
}

TEST(VocabularyModel, OtherHeadsAreNone) {
  Bert bert({.vocabulary = 9, .context = 4, .layers = 1, .heads = 2, .width = 8, .head = BertHead::classification});
  EXPECT_FALSE(bert.head().weight.defined());
  EXPECT_THROW((void)bert.features({ids}), UsageError);
}

// Features are calls of the model, as its outputs are: observers see one, not two.
TEST(VocabularyModel, FeaturesAreOneCallOfTheModel) {
  struct Counter : nn::CallObserver {
    int calls = 0;
    void before(const nn::Module&) override {}
    void after(const nn::Module& module, const Tensor&) override { calls += module.depth() == 0 ? 1 : 0; }
  };
  const NoGrad no_grad;
  Gpt gpt({.vocabulary = 9, .context = 4, .layers = 1, .heads = 2, .width = 8});
  Counter of_features, of_outputs;
  {
    const nn::ObserverScope scope(of_features);
    (void)gpt.features({ids});
  }
  {
    const nn::ObserverScope scope(of_outputs);
    (void)gpt(ids);
  }
  EXPECT_EQ(of_features.calls, 1);
  EXPECT_EQ(of_outputs.calls, 1);
}

}  // namespace
}  // namespace hearth::models::vocabulary_model_test
