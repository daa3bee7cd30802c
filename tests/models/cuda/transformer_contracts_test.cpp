// SPDX-License-Identifier: Apache-2.0
// What a block of a Transformer costs the host on a CUDA device, by counter, as contracts_test.cpp has it for a ResNet.
#include <gtest/gtest.h>

#include <memory>

#include "models/transformer/bert.h"
#include "models/transformer/gpt.h"
#include "models/transformer/transformer.h"
#include "ops/ops.h"
#include "tests/models/cuda/step_cost.h"

namespace hearth::models::transformer_contracts_test {
namespace {

struct Cost {
  std::int64_t forward, backward;
};

Cost cost_of(nn::Module& model, const std::function<Tensor()>& outputs) {
  const StepCost cost = step_cost(model, [&] { return mean(outputs()); });
  expect_undisturbed(cost);
  return {calls(cost.forward), calls(cost.backward)};
}

Tensor ids(std::int64_t length) { return Tensor::full({2, length}, 3, DType::i32, gpu); }

Cost cost_of_gpt(std::int64_t layers, double dropout) {
  Gpt model({.vocabulary = 16, .context = 8, .layers = layers, .heads = 2, .width = 32, .dropout = dropout});
  return cost_of(model, [&] { return model(ids(8)); });
}

Cost cost_of_transformer(std::int64_t layers, std::int64_t decoder_layers, NormPosition place) {
  Transformer model({.source_vocabulary = 16,
                     .vocabulary = 16,
                     .context = 8,
                     .layers = layers,
                     .decoder_layers = decoder_layers,
                     .heads = 2,
                     .width = 32,
                     .hidden = 64,
                     .dropout = 0.25,
                     .norm = place});
  return cost_of(model, [&] { return model(ids(8), ids(7)); });
}

Cost cost_of_bert(std::int64_t layers, BertHead head) {
  Bert model({.vocabulary = 16,
              .context = 8,
              .layers = layers,
              .heads = 2,
              .width = 32,
              .dropout = 0.25,
              .head = head,
              .pool = BertPool::mean,
              .pad = 0});
  return cost_of(model, [&] { return model(ids(8)); });
}

class CudaTransformerContracts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::why_no_device();
  }
};

// What a model with one block more costs more is the block's cost: a norm, four products, attention, and residual,
// dropout and norm in one between the parts; behind the second part dropout and the residual of the next block.
TEST_F(CudaTransformerContracts, ABlockOfAGpt) {
  const Cost one = cost_of_gpt(1, 0.25), two = cost_of_gpt(2, 0.25);
  const Cost one_undropped = cost_of_gpt(1, 0), two_undropped = cost_of_gpt(2, 0);
  EXPECT_EQ(two.forward - one.forward, 9);
  EXPECT_EQ(two_undropped.forward - one_undropped.forward, 8);
  // The gradient of the first dropout is part of the norm's.
  EXPECT_EQ((two.backward - one.backward) - (two_undropped.backward - one_undropped.backward), 1);
}

// Norms after each part take residual and dropout of every part along.
TEST_F(CudaTransformerContracts, ALayerOfATranslator) {
  const auto more = [](std::int64_t layers, std::int64_t decoder_layers, NormPosition place) {
    return cost_of_transformer(layers, decoder_layers, place).forward - cost_of_transformer(1, 1, place).forward;
  };
  EXPECT_EQ(more(2, 1, NormPosition::before), 9);
  EXPECT_EQ(more(2, 1, NormPosition::after), 7);
  EXPECT_EQ(more(1, 2, NormPosition::before), 14);
  EXPECT_EQ(more(1, 2, NormPosition::after), 12);
}

// Four products, attention, and twice residual, dropout and norm in one, whatever stands on top.
TEST_F(CudaTransformerContracts, ALayerOfABert) {
  for (const BertHead head : {BertHead::masked_lm, BertHead::classification, BertHead::embedding}) {
    const Cost one = cost_of_bert(1, head), two = cost_of_bert(2, head);
    EXPECT_EQ(two.forward - one.forward, 7 + gelu_apart());
  }
}

}  // namespace
}  // namespace hearth::models::transformer_contracts_test
