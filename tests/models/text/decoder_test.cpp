// SPDX-License-Identifier: Apache-2.0
// Decoders that keep keys and values give the logits of a pass over all ids, on each device, also after sequences
// changed places or were dropped.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "autograd/grad_mode.h"
#include "core/random.h"
#include "models/text/decoder.h"
#include "models/transformer/gpt.h"
#include "models/transformer/transformer.h"
#include "ops/ops.h"

namespace hearth::decoder_test {
namespace {

using Ids = std::vector<std::int64_t>;
using Texts = std::vector<Ids>;

Tensor as_tensor(const Texts& sequences) {
  Ids all;
  for (const Ids& text : sequences) all.insert(all.end(), text.begin(), text.end());
  return Tensor::of<std::int64_t>(
      {static_cast<std::int64_t>(sequences.size()), static_cast<std::int64_t>(sequences[0].size())}, all);
}

Texts drawn(std::uint64_t seed, std::size_t sequences, std::size_t length, std::uint64_t vocabulary) {
  Random random(seed, 0);
  Texts result(sequences, Ids(length));
  for (Ids& text : result)
    for (std::int64_t& id : text) id = static_cast<std::int64_t>(1 + random.below(vocabulary - 1));
  return result;
}

struct Site {
  Device device;
  DType dtype;
  double tolerance;
};

/// A model without a decoder of its own.
struct Plain : nn::Module {
  explicit Plain(nn::Module& wrapped) : model(wrapped) { register_module("network", wrapped); }
  Tensor forward(const Tensor& ids) override { return model(ids); }
  Tensor forward_inputs(const nn::Inputs& inputs) override { return model(inputs); }
  nn::Module& model;
};

class Decoder : public testing::TestWithParam<Site> {
 protected:
  void SetUp() override {
    if (device_count(GetParam().device.type) == 0) GTEST_SKIP() << "there is no device " << GetParam().device;
  }

  template <class Network>
  std::unique_ptr<Network> made(const auto& options) const {
    auto model = std::make_unique<Network>(options);
    nn::initialize(*model, 3);
    // Far enough from zero that places and ids tell apart.
    for (const NamedTensor& parameter : model->parameters())
      if (parameter.tensor->rank() == 2) parameter.tensor->copy_from(*parameter.tensor * 5.0);
    model->to(GetParam().dtype);
    model->to(GetParam().device);
    model->eval();
    return model;
  }
  std::unique_ptr<models::Gpt> gpt(models::GptPositions positions = models::GptPositions::learned) const {
    return made<models::Gpt>(models::GptOptions{
        .vocabulary = 13, .context = 12, .layers = 2, .heads = 2, .width = 8, .dropout = 0.3, .positions = positions});
  }
  std::unique_ptr<models::Transformer> transformer(models::NormPosition place) const {
    return made<models::Transformer>(models::TransformerOptions{.source_vocabulary = 11,
                                                                .vocabulary = 13,
                                                                .context = 12,
                                                                .layers = 1,
                                                                .decoder_layers = 2,
                                                                .heads = 2,
                                                                .width = 8,
                                                                .hidden = 12,
                                                                .dropout = 0.3,
                                                                .norm = place,
                                                                .source_pad = 0});
  }

  /// Appends the sequences in pieces of the given lengths, each time comparing with a pass over all ids so far.
  /// `rounding`: instead of the site's tolerance, in proportion to the largest logit.
  void expect_like_whole(models::TextDecoder& decoder, nn::Module& model, const Texts& sequences, const Texts& sources,
                         const std::vector<std::size_t>& pieces, double rounding = 0) const {
    const NoGrad no_grad;
    const Device device = GetParam().device;
    for (const std::size_t piece : pieces) {
      const auto begin = static_cast<std::size_t>(decoder.length()), end = begin + piece;
      Texts added, so_far;
      for (const Ids& text : sequences) {
        added.emplace_back(text.begin() + static_cast<std::ptrdiff_t>(begin),
                           text.begin() + static_cast<std::ptrdiff_t>(end));
        so_far.emplace_back(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end));
      }
      const Tensor logits = decoder.append(as_tensor(added));
      const Tensor ids = as_tensor(so_far).to(device);
      const Tensor whole = sources.empty() ? model(ids) : model(as_tensor(sources).to(device), ids);
      ASSERT_EQ(decoder.length(), static_cast<std::int64_t>(end));
      ASSERT_EQ(logits.shape(), (Shape{static_cast<std::int64_t>(sequences.size()), 13}));
      const std::vector<double> found = logits.to_doubles(), all = whole.to_doubles();
      double most = 0;
      for (const double logit : all) most = std::max(most, std::abs(logit));
      const double tolerance = rounding > 0 ? rounding * most : GetParam().tolerance;
      for (std::size_t row = 0; row < sequences.size(); ++row)
        for (std::size_t i = 0; i < 13; ++i)
          ASSERT_NEAR(found[row * 13 + i], all[(row * end + end - 1) * 13 + i], tolerance)
              << "text " << row << ", ids " << end;
    }
  }
};

Texts chosen(const Texts& sequences, const std::vector<std::int64_t>& from) {
  Texts result;
  for (const std::int64_t text : from) result.push_back(sequences[static_cast<std::size_t>(text)]);
  return result;
}

TEST_P(Decoder, OfAGptSeesWhatAWholePassSees) {
  const auto model = gpt();
  Texts sequences = drawn(1, 3, 12, 13);
  const auto decoder = models::make_decoder(*model, {.sequences = 3});
  EXPECT_EQ(decoder->capacity(), 12);
  expect_like_whole(*decoder, *model, sequences, {}, {3, 1, 2, 1});
  decoder->clear();
  expect_like_whole(*decoder, *model, drawn(2, 3, 12, 13), {}, {1, 11});
}

TEST_P(Decoder, OfAGptWithRotaryPositions) {
  const auto model = gpt(models::GptPositions::rotary);
  const auto decoder = models::make_decoder(*model, {.sequences = 3});
  expect_like_whole(*decoder, *model, drawn(1, 3, 12, 13), {}, {3, 1, 2, 1});
}

TEST_P(Decoder, InMixedPrecisionToo) {
  if (GetParam().dtype != DType::f32) GTEST_SKIP() << "weights are f32";
  const auto model = gpt();
  const auto pairs = transformer(models::NormPosition::before);
  const Texts sequences = drawn(1, 2, 12, 13), sources = drawn(5, 2, 6, 11);
  for (const DType narrow : {DType::bf16, DType::f16}) {
    const AutocastScope autocast(narrow);
    const double rounding = narrow == DType::bf16 ? 0.02 : 0.003;
    const auto decoder = models::make_decoder(*model, {.sequences = 2});
    expect_like_whole(*decoder, *model, sequences, {}, {3, 1, 2, 1}, rounding);
    const auto answers = models::make_decoder(*pairs, {.sequences = 2, .source = as_tensor(sources)});
    expect_like_whole(*answers, *pairs, sequences, sources, {1, 2, 1}, rounding);
  }
}

TEST_P(Decoder, TextsChangePlacesAndAreDropped) {
  const auto model = gpt();
  Texts sequences = drawn(1, 4, 12, 13);
  const auto decoder = models::make_decoder(*model, {.sequences = 4, .capacity = 10});
  expect_like_whole(*decoder, *model, sequences, {}, {2, 1});
  for (const std::vector<std::int64_t>& from :
       std::vector<std::vector<std::int64_t>>{{2, 0, 0, 3}, {1, 3}, {1, 1, 0}, {2}}) {
    decoder->select(from);
    sequences = chosen(sequences, from);
    EXPECT_EQ(decoder->sequences(), static_cast<std::int64_t>(from.size()));
    expect_like_whole(*decoder, *model, sequences, {}, {1});
    for (std::size_t i = 0; i < sequences.size(); ++i)  // equal so far, different from here on
      sequences[i][static_cast<std::size_t>(decoder->length())] = static_cast<std::int64_t>(i + 1);
  }
}

TEST_P(Decoder, OfATransformerEncodesEachSourceOnce) {
  for (const models::NormPosition place : {models::NormPosition::before, models::NormPosition::after}) {
    const auto model = transformer(place);
    Texts sources = drawn(5, 2, 6, 11), answered;
    sources[1][4] = sources[1][5] = 0;  // padding
    answered = {sources[0], sources[0], sources[0], sources[1], sources[1], sources[1]};
    Texts sequences = drawn(1, 6, 12, 13);
    const auto decoder = models::make_decoder(*model, {.sequences = 6, .source = as_tensor(sources)});
    expect_like_whole(*decoder, *model, sequences, answered, {1, 2, 1});
    for (const std::vector<std::int64_t>& from :
         std::vector<std::vector<std::int64_t>>{{2, 0, 0, 5, 4, 5}, {4, 3, 3}}) {
      decoder->select(from);
      sequences = chosen(sequences, from), answered = chosen(answered, from);
      expect_like_whole(*decoder, *model, sequences, answered, {1, 1});
    }
  }
}

TEST_P(Decoder, AnyNetworkHasOne) {
  const auto own = gpt();
  Plain model(*own);
  model.eval();
  Texts sequences = drawn(1, 3, 12, 13);
  const auto decoder = models::make_decoder(model, {.sequences = 3, .capacity = 9});
  expect_like_whole(*decoder, model, sequences, {}, {3, 1});
  decoder->select(std::vector<std::int64_t>{2, 1});
  expect_like_whole(*decoder, model, chosen(sequences, {2, 1}), {}, {2});

  const auto pair = transformer(models::NormPosition::before);
  Plain answering(*pair);
  answering.eval();
  const Texts sources = drawn(5, 2, 6, 11);
  const Texts answered = {sources[0], sources[0], sources[1], sources[1]};
  sequences = drawn(1, 4, 12, 13);
  const auto other = models::make_decoder(answering, {.sequences = 4, .capacity = 9, .source = as_tensor(sources)});
  expect_like_whole(*other, answering, sequences, answered, {1, 1});
  other->select(std::vector<std::int64_t>{3, 2});
  expect_like_whole(*other, answering, chosen(sequences, {3, 2}), chosen(answered, {3, 2}), {2});
}

INSTANTIATE_TEST_SUITE_P(
    Sites, Decoder,
    // A library's products of one row and of many sum in different orders.
    testing::Values(Site{{DeviceType::cpu, 0}, DType::f64, 1e-12}, Site{{DeviceType::cpu, 0}, DType::f32, 1e-5},
                    Site{{DeviceType::cuda, 0}, DType::f64, 1e-12}, Site{{DeviceType::cuda, 0}, DType::f32, 5e-5}),
    [](const auto& site) {
      return std::string(site.param.device.is_cuda() ? "cuda_" : "cpu_") + std::string(name_of(site.param.dtype));
    });

TEST(DecoderRefuses, WhatDoesNotFit) {
  models::Gpt gpt({.vocabulary = 13, .context = 4, .layers = 1, .heads = 2, .width = 8});
  EXPECT_THROW(models::make_decoder(gpt, {}), UsageError) << "in training";
  gpt.eval();
  EXPECT_THROW(models::make_decoder(gpt, {.sequences = 0}), ShapeError);
  EXPECT_THROW(models::make_decoder(gpt, {.capacity = -1}), ShapeError);
  const Tensor source = as_tensor({{1, 2}, {1, 2}});
  EXPECT_THROW(models::make_decoder(gpt, {.sequences = 2, .source = source}), UsageError) << "it takes no source";
  const auto decoder = models::make_decoder(gpt, {.sequences = 2, .capacity = 9});
  EXPECT_EQ(decoder->capacity(), 4) << "the context";
  EXPECT_THROW(decoder->append(as_tensor({{1, 2}})), ShapeError) << "one text";
  EXPECT_THROW(decoder->append(as_tensor({{1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}})), ShapeError) << "too many ids";
  EXPECT_THROW(decoder->append(Tensor::empty({2, 0}, DType::i64)), ShapeError) << "no ids";
  decoder->append(as_tensor({{1, 2, 3}, {1, 2, 3}}));
  EXPECT_THROW(decoder->append(as_tensor({{1, 2}, {1, 2}})), ShapeError) << "no room left";
  EXPECT_THROW(decoder->select(std::vector<std::int64_t>{2}), IndexError);
  EXPECT_THROW(decoder->select(std::vector<std::int64_t>{}), ShapeError);
  EXPECT_THROW(decoder->select(std::vector<std::int64_t>{0, 0, 0}), ShapeError) << "more than it was made for";

  models::Transformer pairs({.source_vocabulary = 11,
                             .vocabulary = 13,
                             .context = 4,
                             .layers = 1,
                             .decoder_layers = 1,
                             .heads = 2,
                             .width = 8,
                             .hidden = 8});
  pairs.eval();
  EXPECT_THROW(models::make_decoder(pairs, {}), UsageError) << "no source";
  EXPECT_THROW(models::make_decoder(pairs, {.sequences = 3, .source = source}), ShapeError) << "3 sequences, 2 sources";
  const auto answers = models::make_decoder(pairs, {.sequences = 4, .source = source});
  EXPECT_THROW(answers->select(std::vector<std::int64_t>{0, 2, 1, 3}), ShapeError) << "sources mixed";
  EXPECT_THROW(answers->select(std::vector<std::int64_t>{0, 1, 2}), ShapeError) << "a source with one text";
  Plain plain(gpt);
  plain.eval();
  EXPECT_THROW(models::make_decoder(plain, {.sequences = 1}), ShapeError) << "nobody says the room";
}

}  // namespace
}  // namespace hearth::decoder_test
