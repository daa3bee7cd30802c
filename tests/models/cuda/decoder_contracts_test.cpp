// SPDX-License-Identifier: Apache-2.0
// What an id of a text costs the host on a CUDA device, by counter: no memory, no wait, no copy but that of the ids and
// of which text goes on from which. The same on a real and on the emulated device.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "core/cuda/counters.h"
#include "core/cuda/stream.h"
#include "models/transformer/gpt.h"
#include "models/transformer/transformer.h"

namespace hearth::models::decoder_contracts_test {
namespace {

constexpr Device gpu{DeviceType::cuda, 0};

cuda::Counters cost_of_an_id(nn::Module& model, const Tensor& source) {
  model.eval();
  model.to(gpu);
  const auto decoder = make_decoder(model, {.sequences = 4, .capacity = 16, .source = source});
  const Tensor ids = Tensor::full({4, 1}, 3, DType::i32);
  cuda::Counters start;
  for (int i = 0; i < 8; ++i) {
    start = cuda::counters();
    (void)decoder->append(ids);
    decoder->select(std::vector<std::int64_t>{1, 0, 3, 3});
  }
  return cuda::counters() - start;
}

void expect_small(const cuda::Counters& cost, std::int64_t layers) {
  EXPECT_EQ(cost.waits, 0);
  EXPECT_EQ(cost.copies_out, 0);
  EXPECT_EQ(cost.copies_in, 2);
  EXPECT_EQ(cost.layout_changes, layers) << "the keys and values are put where they stay";
  // Where tests of bounds want each tensor as a block of its own, there is no pool to take them from.
  const char* const memory = std::getenv("HEARTH_MEMORY");
  const bool pooled = memory == nullptr || std::string_view(memory) != "system";
  EXPECT_TRUE(cost.allocations == 0 || !pooled) << cost.allocations << " allocations";
}

TEST(CudaDecoderContracts, AnIdOfAText) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::why_no_device();
  Gpt gpt({.vocabulary = 13, .context = 16, .layers = 3, .heads = 2, .width = 8});
  expect_small(cost_of_an_id(gpt, {}), 3);
  Transformer transformer({.source_vocabulary = 11,
                           .vocabulary = 13,
                           .context = 16,
                           .layers = 1,
                           .decoder_layers = 2,
                           .heads = 2,
                           .width = 8,
                           .hidden = 8,
                           .source_pad = 0});
  expect_small(cost_of_an_id(transformer, Tensor::full({2, 5}, 1, DType::i32)), 2);
}

}  // namespace
}  // namespace hearth::models::decoder_contracts_test
