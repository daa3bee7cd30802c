// SPDX-License-Identifier: Apache-2.0
// More padding than a batch needs changes no loss and no gradient: bit for bit in f64 on the CPU.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "models/registry.h"
#include "ops/ops.h"

namespace hearth::padding_test {
namespace {

constexpr std::int64_t rows = 3, longest = 7, vocabulary = 11, ignored = -100;

/// Ids of rows of 7, 4 and 5 tokens, filled up with 0 to `length`; or labels, filled up with -100.
template <class T>
Tensor filled(DType dtype, std::int64_t length, T filler, int seed) {
  const std::int64_t counts[rows] = {longest, 4, 5};
  const Tensor result = Tensor::empty({rows, length}, dtype);
  for (std::int64_t n = 0; n < rows; ++n)
    for (std::int64_t t = 0; t < length; ++t)
      result.data<T>()[n * length + t] =
          t < counts[n] ? static_cast<T>(1 + (seed + 5 * n + 3 * t * t) % (vocabulary - 1)) : filler;
  return result;
}

struct Result {
  double loss = 0;
  std::vector<double> gradients;
};

/// `padding` more ids in each row than the longest has.
Result run(const std::string& node, std::int64_t padding, std::int64_t source_padding) {
  models::InputInfo input;
  input.vocabulary = input.source_vocabulary = vocabulary;
  input.classes = 4;
  input.length = 24;
  input.pad = input.source_pad = 0;
  const auto model = models::make(parse_json(node, "test"), input);
  nn::initialize(*model, 5);
  model->to(DType::f64);
  FlatParameters flat(model->parameters());
  const Tensor ids = filled<std::int32_t>(DType::i32, longest + padding, 0, 1);
  const Tensor source = filled<std::int32_t>(DType::i32, longest + source_padding, 0, 4);
  const bool pairs = node.find("transformer") != std::string::npos;
  const bool classes = node.find("classification") != std::string::npos;
  const Tensor labels = classes ? Tensor::of<std::int64_t>({rows}, {2, 0, 3})
                                : filled<std::int64_t>(DType::i64, longest + padding, ignored, 2);
  flat.zero_grads();
  const Tensor outputs = pairs ? (*model)(source, ids) : (*model)(ids);
  const Tensor loss = cross_entropy(outputs, labels, {.ignore_index = ignored});
  backward(loss);
  return {loss.item(), flat.grads().to_doubles()};
}

class Padding : public testing::TestWithParam<const char*> {};

TEST_P(Padding, ChangesNoLossAndNoGradient) {
  const std::string node = GetParam();
  const Result bare = run(node, 0, 0);
  ASSERT_GT(bare.loss, 0.1);
  for (const auto& [padding, source_padding] : {std::pair(1, 0), {0, 4}, {9, 9}, {17, 2}}) {
    const Result padded = run(node, padding, source_padding);
    EXPECT_EQ(padded.loss, bare.loss) << padding << " and " << source_padding;
    EXPECT_EQ(padded.gradients, bare.gradients) << padding << " and " << source_padding;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Networks, Padding,
    testing::Values(R"({"type": "gpt", "layers": 2, "heads": 2, "width": 12, "dropout": 0})",
                    R"({"type": "bert", "layers": 2, "heads": 2, "width": 12, "dropout": 0})",
                    R"({"type": "bert", "head": "classification", "layers": 2, "heads": 2, "width": 12, "dropout": 0})",
                    R"({"type": "bert", "head": "classification", "pool": "mean", "heads": 2, "width": 12, "dropout": 0,
                        "layers": 1})",
                    R"({"type": "transformer", "layers": 1, "decoder_layers": 2, "heads": 2, "width": 12, "hidden": 20,
                        "dropout": 0})"));

}  // namespace
}  // namespace hearth::padding_test
