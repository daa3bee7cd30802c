// SPDX-License-Identifier: Apache-2.0
// Texts that share a row give the loss and the gradients that they give in rows of their own.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "models/registry.h"
#include "ops/ops.h"
#include "tests/support/op_test.h"

namespace hearth::packed_rows_test {
namespace {

constexpr std::int64_t vocabulary = 13, row_length = 24, rows = 2;
// Texts of each row; what is missing is padding.
const std::vector<std::vector<std::int64_t>> lengths{{7, 1, 9, 4}, {20, 2}};

std::int64_t id_of(std::int64_t text, std::int64_t position) {
  return 1 + (3 + 5 * text + 3 * position * position) % (vocabulary - 1);
}

std::unique_ptr<nn::Module> model_of(const std::string& node) {
  models::InputInfo input;
  input.vocabulary = vocabulary;
  input.length = row_length;
  input.pad = 0;
  auto model = models::make(parse_json(node, "test"), input);
  nn::initialize(*model, 5);
  model->to(DType::f64);
  return model;
}

struct Result {
  double loss = 0;
  Tensor gradients;
};

/// The sum of the losses of all tokens, and its gradients.
Result packed(const std::string& node) {
  const auto model = model_of(node);
  FlatParameters flat(model->parameters());
  flat.zero_grads();
  const Tensor ids = Tensor::zeros({rows, row_length}, DType::i32);
  const Tensor labels = Tensor::full({rows, row_length}, -100, DType::i64);
  const Tensor segments = Tensor::empty({rows, row_length, 2}, DType::i32);
  std::int64_t text = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t at = row * row_length;
    const std::int64_t begin = at;
    const auto bound = [&](std::int64_t first, std::int64_t end) {
      segments.data<std::int32_t>()[2 * at] = static_cast<std::int32_t>(first - begin);
      segments.data<std::int32_t>()[2 * at + 1] = static_cast<std::int32_t>(end - begin);
    };
    for (const std::int64_t length : lengths[static_cast<std::size_t>(row)]) {
      const std::int64_t first = at;
      for (std::int64_t i = 0; i < length; ++i, ++at) {
        ids.data<std::int32_t>()[at] = static_cast<std::int32_t>(id_of(text, i));
        labels.data<std::int64_t>()[at] = id_of(text, i + 1);
        bound(first, first + length);
      }
      ++text;
    }
    for (; at < begin + row_length; ++at) bound(at, at + 1);
  }
  const Tensor outputs = (*model)(ids, segments);
  const Tensor loss = cross_entropy(outputs, labels, {.ignore_index = -100, .reduction = Reduction::sum});
  backward(loss);
  return {loss.item(), flat.grads()};
}

Result one_by_one(const std::string& node) {
  const auto model = model_of(node);
  FlatParameters flat(model->parameters());
  flat.zero_grads();
  Result result;
  std::int64_t text = 0;
  for (const auto& row : lengths)
    for (const std::int64_t length : row) {
      const Tensor ids = Tensor::empty({1, length}, DType::i32), labels = Tensor::empty({1, length}, DType::i64);
      for (std::int64_t i = 0; i < length; ++i) {
        ids.data<std::int32_t>()[i] = static_cast<std::int32_t>(id_of(text, i));
        labels.data<std::int64_t>()[i] = id_of(text, i + 1);
      }
      ++text;
      const Tensor loss = cross_entropy((*model)(ids), labels, {.reduction = Reduction::sum});
      result.loss += loss.item();
      backward(loss);
    }
  result.gradients = flat.grads();
  return result;
}

class PackedRows : public testing::TestWithParam<const char*> {};

TEST_P(PackedRows, GiveTheLossAndGradientsOfTheirTexts) {
  const Result together = packed(GetParam()), alone = one_by_one(GetParam());
  ASSERT_GT(alone.loss, 10);
  EXPECT_NEAR(together.loss, alone.loss, 1e-12 * alone.loss);
  test::expect_close(together.gradients, alone.gradients, 1e-12);
}

INSTANTIATE_TEST_SUITE_P(
    Networks, PackedRows,
    testing::Values(R"({"type": "gpt", "layers": 2, "heads": 2, "width": 12, "dropout": 0})",
                    R"({"type": "gpt", "layers": 2, "heads": 2, "width": 12, "dropout": 0, "recompute": true})",
                    R"({"type": "gpt", "layers": 2, "heads": 2, "width": 12, "dropout": 0, "positions": "rotary"})",
                    R"({"type": "bert", "layers": 2, "heads": 2, "width": 12, "dropout": 0})",
                    R"({"type": "bert", "layers": 1, "heads": 2, "width": 12, "dropout": 0, "position_offset": 2,
                        "segments": 0, "recompute": true})"));

TEST(PackedRows, AreRefusedWhereARowMakesOneResult) {
  const auto model = model_of(R"({"type": "bert", "head": "embedding", "layers": 1, "heads": 2, "width": 12})");
  const Tensor ids = Tensor::zeros({1, 4}, DType::i32), segments = Tensor::zeros({1, 4, 2}, DType::i32);
  EXPECT_THROW((*model)(ids, segments), UsageError);
}

}  // namespace
}  // namespace hearth::packed_rows_test
