// SPDX-License-Identifier: Apache-2.0
// Names and layouts of other programs' weights, both ways, and what is said of those that do not fit.
#include "models/weights/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>

#include "core/random.h"
#include "models/resnet.h"
#include "models/swin.h"
#include "models/transformer/bert.h"
#include "models/transformer/gpt.h"
#include "ops/shape/view.h"
#include "tests/support/error_message.h"

namespace hearth::weights_test {
namespace {

using models::NameReport;
using models::Weight;
using models::WeightFormat;
using models::WeightSet;

/// Every element of a model's parameters another number.
template <class Network>
WeightSet weights_of(Network& model) {
  WeightSet set;
  float next = 0;
  for (const NamedTensor& named : model.parameters()) {
    const Tensor value = Tensor::empty(named.tensor->shape());
    for (std::int64_t i = 0; i < value.size(); ++i) value.data<float>()[i] = next++;
    set.weights.push_back({named.name, value});
  }
  return set;
}

WeightSet gpt() {
  models::Gpt model({.vocabulary = 5, .context = 4, .layers = 2, .heads = 1, .width = 3});
  return weights_of(model);
}

WeightSet swin(bool places = false) {
  models::Swin model({.depths = {1, 2, 1},
                      .heads = {1, 1, 2},
                      .width = 4,
                      .patch = 2,
                      .window = 2,
                      .absolute_positions = places,
                      .image_size = 8,
                      .in_channels = 1,
                      .classes = 5});
  return weights_of(model);
}

WeightSet bert(models::BertHead head = models::BertHead::embedding) {
  models::Bert model({.vocabulary = 5, .context = 4, .layers = 2, .heads = 1, .width = 3, .head = head});
  return weights_of(model);
}

std::map<std::string, std::vector<double>> values_of(const WeightSet& set) {
  std::map<std::string, std::vector<double>> result;
  for (const Weight& weight : set.weights) result[weight.name] = weight.value.to_doubles();
  return result;
}

WeightSet written(const WeightSet& ours, WeightFormat format) {
  NameReport report;
  WeightSet theirs = models::from_hearth(ours, format, report);
  EXPECT_EQ(report.faults(""), "");
  return theirs;
}

WeightSet read(const WeightSet& theirs, WeightFormat format, NameReport* seen = nullptr) {
  NameReport report;
  WeightSet ours = models::to_hearth(theirs, format, report);
  EXPECT_EQ(report.faults(""), "");
  if (seen) *seen = report;
  return ours;
}

Tensor find(const WeightSet& set, const std::string& name) {
  for (const Weight& weight : set.weights)
    if (weight.name == name) return weight.value;
  ADD_FAILURE() << "there is no " << name;
  return Tensor::zeros({1});
}

TEST(Weights, Gpt2HasItsLinearWeightsTheOtherWayRound) {
  const WeightSet ours = gpt(), theirs = written(ours, WeightFormat::hf_gpt2);
  EXPECT_EQ(find(theirs, "wte.weight").shape(), (Shape{5, 3}));
  EXPECT_EQ(find(theirs, "h.1.attn.c_attn.weight").shape(), (Shape{3, 9}));
  EXPECT_EQ(find(theirs, "h.1.mlp.c_proj.weight").shape(), (Shape{12, 3}));
  const std::vector<double> square = find(ours, "h.0.attn.c_proj.weight").to_doubles();
  std::vector<double> turned = find(theirs, "h.0.attn.c_proj.weight").to_doubles();
  EXPECT_NE(turned, square);
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t j = 0; j < i; ++j) std::swap(turned[i * 3 + j], turned[j * 3 + i]);
  EXPECT_EQ(turned, square);
  EXPECT_EQ(values_of(read(theirs, WeightFormat::hf_gpt2)), values_of(ours));
}

TEST(Weights, Gpt2MayHaveAPrefixATiedHeadAndBuffers) {
  const WeightSet ours = gpt();
  WeightSet theirs = written(ours, WeightFormat::hf_gpt2);
  for (Weight& weight : theirs.weights) weight.name = "transformer." + weight.name;
  const WeightSet prefixed = theirs;
  theirs.weights.push_back({"lm_head.weight", find(ours, "wte.weight").clone()});
  theirs.weights.push_back({"transformer.h.1.attn.bias", Tensor::zeros({1, 1, 4, 4}, DType::u8)});
  theirs.weights.push_back({"transformer.h.1.attn.masked_bias", Tensor::zeros({})});
  NameReport report;
  const WeightSet back = read(theirs, WeightFormat::hf_gpt2, &report);
  EXPECT_EQ(values_of(back), values_of(ours));
  EXPECT_EQ(report.left_out,
            (std::vector<std::string>{"lm_head.weight, equal to wte.weight", "h.1.attn.bias", "h.1.attn.masked_bias"}));
  EXPECT_EQ(values_of(written(back, WeightFormat::hf_gpt2)), values_of(prefixed)) << "the prefix is remembered";
  // A head of its own is one.
  theirs.weights[theirs.weights.size() - 3].value = Tensor::zeros({5, 3});
  EXPECT_EQ(find(read(theirs, WeightFormat::hf_gpt2), "lm_head.weight").to_doubles(), std::vector<double>(15));
}

TEST(Weights, BertHasQueryKeyAndValueApart) {
  const WeightSet ours = bert(), theirs = written(ours, WeightFormat::hf_bert);
  const std::vector<double> all = find(ours, "encoder.layer.1.attention.self.qkv.weight").to_doubles();
  std::vector<double> parts;
  for (const char* part : {"query", "key", "value"}) {
    const Tensor weight = find(theirs, join_text("encoder.layer.1.attention.self.", part, ".weight"));
    EXPECT_EQ(weight.shape(), (Shape{3, 3}));
    for (const double value : weight.to_doubles()) parts.push_back(value);
  }
  EXPECT_EQ(parts, all);
  EXPECT_EQ(values_of(read(theirs, WeightFormat::hf_bert)), values_of(ours));
}

TEST(Weights, BertWithAHeadHasAPrefix) {
  for (const auto head : {models::BertHead::masked_lm, models::BertHead::classification}) {
    const WeightSet ours = bert(head);
    WeightSet theirs = written(ours, WeightFormat::hf_bert);
    for (const Weight& weight : theirs.weights)
      EXPECT_EQ(weight.name.starts_with("bert."),
                !weight.name.starts_with("cls.") && !weight.name.starts_with("classifier."))
          << weight.name;
    EXPECT_EQ(values_of(read(theirs, WeightFormat::hf_bert)), values_of(ours));
  }
}

TEST(Weights, BertMayHaveOldNamesCopiesAndPositions) {
  const WeightSet ours = bert(models::BertHead::masked_lm);
  WeightSet theirs = written(ours, WeightFormat::hf_bert);
  for (Weight& weight : theirs.weights) {
    if (weight.name.ends_with("LayerNorm.weight")) weight.name.replace(weight.name.size() - 6, 6, "gamma");
    if (weight.name.ends_with("LayerNorm.bias")) weight.name.replace(weight.name.size() - 4, 4, "beta");
  }
  const Tensor places = Tensor::of<std::int64_t>({1, 4}, {0, 1, 2, 3});
  theirs.weights.push_back({"bert.embeddings.position_ids", places});
  theirs.weights.push_back({"cls.predictions.decoder.weight", find(ours, "embeddings.word_embeddings.weight")});
  theirs.weights.push_back({"cls.predictions.decoder.bias", find(ours, "cls.predictions.bias")});
  theirs.weights.push_back({"cls.seq_relationship.weight", Tensor::zeros({2, 3})});
  NameReport report;
  const WeightSet back = read(theirs, WeightFormat::hf_bert, &report);
  EXPECT_EQ(values_of(back), values_of(ours));
  EXPECT_EQ(report.left_out.size(), 4U);
  const Tensor again = find(written(back, WeightFormat::hf_bert), "bert.embeddings.position_ids");
  EXPECT_EQ(again.dtype(), DType::i64);
  EXPECT_EQ(again.shape(), (Shape{1, 4}));
  EXPECT_EQ(again.to_doubles(), places.to_doubles());
  // Other places than 0, 1, 2, ... could not be given back.
  for (const Tensor& other : {Tensor::of<std::int64_t>({1, 4}, {0, 1, 3, 2}),
                              Tensor::of<std::int64_t>({1, 3}, {0, 1, 2}), Tensor::of<float>({1, 4}, {0, 1, 2, 3})}) {
    WeightSet odd = theirs;
    for (Weight& weight : odd.weights)
      if (weight.name.ends_with("position_ids")) weight.value = other;
    NameReport told;
    (void)models::to_hearth(odd, WeightFormat::hf_bert, told);
    EXPECT_EQ(told.faults(""), join_text("unexpected embeddings.position_ids ", other.shape()));
  }
  // A decoder of its own has no place in the model.
  for (Weight& weight : theirs.weights)
    if (weight.name == "cls.predictions.decoder.weight") weight.value = Tensor::zeros({5, 3});
  (void)models::to_hearth(theirs, WeightFormat::hf_bert, report);
  EXPECT_EQ(report.faults("x: "), "x: unexpected cls.predictions.decoder.weight [5, 3]");
}

TEST(Weights, NarrowTypesCrossBitForBit) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    WeightSet ours = bert();
    for (Weight& weight : ours.weights) weight.value = weight.value.to(dtype);
    const WeightSet back = read(written(ours, WeightFormat::hf_bert), WeightFormat::hf_bert);
    EXPECT_EQ(values_of(back), values_of(ours));
    for (const Weight& weight : back.weights) EXPECT_EQ(weight.value.dtype(), dtype);
  }
}

TEST(Weights, EveryFaultIsTold) {
  WeightSet theirs = written(bert(), WeightFormat::hf_bert);
  std::erase_if(theirs.weights, [](const Weight& weight) {
    return weight.name == "encoder.layer.1.attention.self.key.bias" || weight.name == "embeddings.LayerNorm.weight";
  });
  for (Weight& weight : theirs.weights) {
    if (weight.name == "encoder.layer.0.intermediate.dense.bias") weight.value = Tensor::zeros({11});
    if (weight.name == "encoder.layer.1.output.LayerNorm.bias") weight.value = Tensor::zeros({3, 1});
    if (weight.name == "encoder.layer.1.attention.self.value.weight") weight.value = weight.value.to(DType::f16);
  }
  theirs.weights.push_back({"encoder.layer.999999999999.output.dense.bias", Tensor::zeros({3})});
  theirs.weights.push_back({"vision.weight", Tensor::zeros({2, 2})});
  NameReport report;
  (void)models::to_hearth(theirs, WeightFormat::hf_bert, report);
  EXPECT_EQ(report.faults("F: "),
            "F: missing embeddings.LayerNorm.weight\n"
            "F: missing encoder.layer.1.attention.self.key.bias\n"
            "F: unexpected encoder.layer.999999999999.output.dense.bias [3]\n"
            "F: unexpected vision.weight [2, 2]\n"
            "F: wrong shape: encoder.layer.0.intermediate.dense.bias [11], expected [12]\n"
            "F: wrong shape: encoder.layer.1.attention.self.qkv.weight is joined from f32 and f16\n"
            "F: wrong shape: encoder.layer.1.output.LayerNorm.bias [3, 1], expected [3]");
}

TEST(Weights, WhateverAFileHoldsIsReportedNeverThrown) {
  Random random(3, 1);
  const Shape shapes[] = {{}, {0}, {3}, {3, 3}, {0, 3}, {1, 2, 3}, {9, 3}, {12}};
  for (const auto& [format, own] : {std::pair(WeightFormat::hf_bert, bert(models::BertHead::masked_lm)),
                                    {WeightFormat::hf_gpt2, gpt()},
                                    {WeightFormat::timm_swin, swin()},
                                    {WeightFormat::microsoft_swin, swin(true)}}) {
    const WeightSet good = written(own, format);
    int faulty = 0;
    for (int trial = 0; trial < 300; ++trial) {
      WeightSet theirs = good;
      for (std::uint64_t change = random.below(3); change < 3; ++change) {
        const auto at = static_cast<std::ptrdiff_t>(random.below(theirs.weights.size()));
        Weight& weight = theirs.weights[static_cast<std::size_t>(at)];
        const std::uint64_t kind = random.below(4);
        if (kind == 0) weight.value = Tensor::zeros(shapes[random.below(8)], random.below(2) ? DType::f32 : DType::i64);
        if (kind == 1) weight.name = theirs.weights[random.below(theirs.weights.size())].name;
        if (kind == 2) weight.name[random.below(weight.name.size())] = static_cast<char>('0' + random.below(10));
        if (kind == 3) theirs.weights.erase(theirs.weights.begin() + at);
      }
      NameReport report;
      const WeightSet ours = models::to_hearth(theirs, format, report);
      faulty += report.fits() ? 0 : 1;
      if (report.fits()) (void)models::from_hearth(ours, format, report);
    }
    EXPECT_GT(faulty, 200);
    // More stages than a model has, whose widths would be beyond any number.
    WeightSet stages = good;
    for (int stage = 3; stage <= 60; ++stage)
      stages.weights.push_back({join_text("layers.", stage, ".blocks.0.norm1.bias"), Tensor::zeros({1})});
    // And widths of which the multiples are; shapes take no greater ones.
    constexpr std::int64_t extent = std::int64_t{1} << 59;
    for (const Shape& shape : {Shape{extent, 0, 0, 0}, Shape{0, extent}}) {
      WeightSet wide = good;
      const auto first = std::find_if(wide.weights.begin(), wide.weights.end(),
                                      [&](const Weight& weight) { return weight.value.rank() == shape.rank(); });
      if (first == wide.weights.end()) continue;
      first->value = Tensor::zeros(shape);
      NameReport report;
      (void)models::to_hearth(wide, format, report);
      EXPECT_FALSE(report.fits()) << shape;
    }
    NameReport report;
    (void)models::to_hearth(stages, format, report);
    EXPECT_GE(report.unexpected.size(), 55U);
  }
}

TEST(Weights, NothingAtAllIsAllMissing) {
  NameReport report;
  EXPECT_TRUE(models::to_hearth({}, WeightFormat::hf_gpt2, report).weights.empty());
  EXPECT_EQ(report.missing, (std::vector<std::string>{"wte.weight", "wpe.weight", "ln_f.weight", "ln_f.bias"}));
}

TEST(Weights, FiltersOfPyTorch) {
  WeightSet ours;
  ours.weights.push_back({"conv.weight", Tensor::of<float>({1, 1, 2, 2}, {1, 2, 3, 4})});
  const WeightSet theirs = written(ours, WeightFormat::torch);
  EXPECT_EQ(find(theirs, "conv.weight").to_doubles(), (std::vector<double>{1, 3, 2, 4}));
  EXPECT_EQ(values_of(read(theirs, WeightFormat::torch)), values_of(ours));
}

TEST(Weights, PyTorchsCountersOfBatchesAreLeftOut) {
  WeightSet theirs;
  for (const char* name : {"bn.weight", "bn.running_mean"}) theirs.weights.push_back({name, Tensor::zeros({3})});
  theirs.weights.push_back({"bn.num_batches_tracked", Tensor::full({}, 7, DType::i64)});
  // Not such counters.
  theirs.weights.push_back({"num_batches_tracked", Tensor::full({}, 7, DType::i64)});
  theirs.weights.push_back({"a.num_batches_tracked", Tensor::zeros({2}, DType::i64)});
  theirs.weights.push_back({"b.num_batches_tracked", Tensor::zeros({})});
  NameReport report;
  const WeightSet ours = to_hearth(theirs, WeightFormat::torch, report);
  EXPECT_TRUE(report.fits()) << report.faults("");
  EXPECT_EQ(report.left_out, std::vector<std::string>{});
  EXPECT_EQ(ours.weights.size(), 5u);
}

TEST(Weights, ANetworkTakesPyTorchsNormsWithTheirCounters) {
  models::ResNet model({.blocks = {1, 1}, .stem = models::ResNetStem::small, .width = 2, .classes = 3});
  std::vector<NamedTensor> tensors = model.parameters();
  for (const NamedTensor& buffer : model.buffers()) tensors.push_back(buffer);
  WeightSet ours;
  for (const NamedTensor& named : tensors) ours.weights.push_back({named.name, named.tensor->clone()});
  WeightSet theirs = written(ours, WeightFormat::torch);
  for (const NamedTensor& buffer : model.buffers())
    if (buffer.name.ends_with("running_mean"))
      theirs.weights.push_back(
          {buffer.name.substr(0, buffer.name.rfind('.')) + ".num_batches_tracked", Tensor::full({}, 7, DType::i64)});
  EXPECT_EQ(theirs.weights.size(), tensors.size() + 6);
  const WeightSet back = read(theirs, WeightFormat::torch);
  EXPECT_EQ(values_of(back), values_of(ours));
  EXPECT_EQ(models::load_weights(tensors, back).faults(""), "");
}

TEST(Weights, BuffersOfSwin) {
  const std::string table = "attn.relative_position_bias_table", buffer = "attn.relative_position_index";
  WeightSet ours;
  ours.weights.push_back({table, Tensor::zeros({9, 1})});
  const std::vector<double> index{4, 3, 1, 0, 5, 4, 2, 1, 7, 6, 4, 3, 8, 7, 5, 4};
  WeightSet theirs = written(ours, WeightFormat::torch);
  ASSERT_EQ(theirs.weights.size(), 2U);
  EXPECT_EQ(find(theirs, buffer).to_doubles(), index);
  for (const Shape& shape : {Shape{16}, Shape{4, 4}}) {
    theirs.weights[1].value = reshape(theirs.weights[1].value, shape);
    NameReport report;
    EXPECT_EQ(values_of(models::to_hearth(theirs, WeightFormat::torch, report)), values_of(ours));
    EXPECT_EQ(report.left_out, std::vector<std::string>{buffer});
  }
  // Another order of tokens than Hearth's is kept, so that loading refuses it.
  theirs.weights[1].value.data<std::int64_t>()[1] = 1;
  NameReport report;
  EXPECT_EQ(models::to_hearth(theirs, WeightFormat::torch, report).weights.size(), 2U);
  theirs.weights.erase(theirs.weights.begin());
  EXPECT_EQ(models::to_hearth(theirs, WeightFormat::torch, report).weights.size(), 1U);
  EXPECT_TRUE(report.left_out.empty());
}

TEST(Weights, SwinsOfTimmAndOfItsAuthors) {
  const WeightSet ours = swin();
  for (const WeightFormat format : {WeightFormat::timm_swin, WeightFormat::microsoft_swin}) {
    const WeightSet theirs = written(ours, format);
    EXPECT_EQ(theirs.weights.size(), ours.weights.size());
    EXPECT_EQ(values_of(read(theirs, format)), values_of(ours));
    const bool timm = format == WeightFormat::timm_swin;
    EXPECT_EQ(find(theirs, "patch_embed.proj.weight").shape(), (Shape{4, 1, 2, 2}));
    for (const auto& [their_name, our_name] :
         {std::pair("patch_embed.norm.bias", "features.0.2.bias"),
          {"layers.1.blocks.1.mlp.fc1.weight", "features.3.1.mlp.0.weight"},
          {"layers.2.blocks.0.mlp.fc2.bias", "features.5.0.mlp.3.bias"},
          {timm ? "layers.1.downsample.norm.weight" : "layers.0.downsample.norm.weight", "features.2.norm.weight"},
          {timm ? "layers.2.downsample.reduction.weight" : "layers.1.downsample.reduction.weight",
           "features.4.reduction.weight"},
          {timm ? "head.fc.weight" : "head.weight", "head.weight"},
          {"norm.bias", "norm.bias"}})
      EXPECT_EQ(find(theirs, their_name).to_doubles(), find(ours, our_name).to_doubles()) << their_name;
  }
  // Places have a name with the authors only.
  NameReport report;
  (void)models::from_hearth(swin(true), WeightFormat::timm_swin, report);
  EXPECT_EQ(report.faults(""), "unexpected absolute_pos_embed [1, 16, 4]");
  EXPECT_EQ(find(written(swin(true), WeightFormat::microsoft_swin), "absolute_pos_embed").shape(), (Shape{1, 16, 4}));
}

TEST(Weights, EveryFaultOfASwinIsTold) {
  WeightSet theirs = written(swin(), WeightFormat::timm_swin);
  NameReport other;
  (void)models::to_hearth(theirs, WeightFormat::microsoft_swin, other);
  // Merging behind the first stage, and the head; that of the second has the first's shapes.
  EXPECT_EQ(other.missing.size(), 5U) << other.faults("");
  EXPECT_EQ(other.unexpected.size(), 5U);
  EXPECT_EQ(other.misshaped.size(), 3U);
  std::erase_if(theirs.weights, [](const Weight& weight) {
    return weight.name.starts_with("head.fc.") || weight.name == "layers.1.blocks.0.attn.qkv.bias" ||
           weight.name == "patch_embed.proj.bias";
  });
  for (Weight& weight : theirs.weights) {
    if (weight.name == "layers.1.downsample.norm.bias") weight.value = Tensor::zeros({8});
    if (weight.name == "layers.2.blocks.0.attn.relative_position_bias_table") weight.value = Tensor::zeros({25, 2});
  }
  theirs.weights.push_back({"layers.1.blocks.3.norm1.bias", Tensor::zeros({8})});
  theirs.weights.push_back({"layers.0.blocks.0.attn.relative_position_index", Tensor::zeros({4, 4}, DType::i64)});
  NameReport report;
  (void)models::to_hearth(theirs, WeightFormat::timm_swin, report);
  EXPECT_EQ(report.faults(""),
            "missing patch_embed.proj.bias\n"
            "missing layers.1.blocks.0.attn.qkv.bias\n"
            "unexpected layers.0.blocks.0.attn.relative_position_index [4, 4]\n"
            "unexpected layers.1.blocks.3.norm1.bias [8]\n"
            "wrong shape: layers.1.downsample.norm.bias [8], expected [16]\n"
            "wrong shape: layers.2.blocks.0.attn.relative_position_bias_table [25, 2], expected [9, 2]")
      << "a head may be absent";
}

TEST(Weights, IntegersAndBooleansAreNoWeights) {
  models::Gpt model({.vocabulary = 5, .context = 4, .layers = 1, .heads = 1, .width = 3});
  const std::vector<double> before = model.parameters()[0].tensor->to_doubles();
  WeightSet ours = weights_of(model);
  ours.weights[0].value = Tensor::zeros({5, 3}, DType::i64);
  ours.weights[1].value = Tensor::zeros({4, 3}, DType::boolean);
  ours.weights[2].value = ours.weights[2].value.to(DType::f64);
  const NameReport report = models::load_weights(model.parameters(), ours);
  EXPECT_FALSE(report.fits());
  EXPECT_EQ(report.faults("F: "),
            "F: wrong type: wte.weight i64, expected f32\n"
            "F: wrong type: wpe.weight bool, expected f32");
  EXPECT_EQ(model.parameters()[0].tensor->to_doubles(), before) << "nothing is loaded";
  // Nor are they converted, in either direction, for every family.
  for (const auto& [format, own] : {std::pair(WeightFormat::hf_gpt2, gpt()),
                                    {WeightFormat::hf_bert, bert()},
                                    {WeightFormat::timm_swin, swin()},
                                    {WeightFormat::microsoft_swin, swin()}}) {
    WeightSet theirs = written(own, format);
    Weight& last = theirs.weights.back();
    last.value = Tensor::zeros(last.value.shape(), DType::u8);
    NameReport found;
    (void)models::to_hearth(theirs, format, found);
    EXPECT_EQ(found.faults(""), "wrong type: " + last.name + " u8, expected a floating type");
    WeightSet odd = own;
    odd.weights.front().value = Tensor::zeros(odd.weights.front().value.shape(), DType::i32);
    NameReport back;
    (void)models::from_hearth(odd, format, back);
    EXPECT_EQ(back.faults(""), "wrong type: " + odd.weights.front().name + " i32, expected a floating type");
  }
}

TEST(Weights, NonFiniteValuesAreNotLoaded) {
  models::Gpt model({.vocabulary = 5, .context = 4, .layers = 1, .heads = 1, .width = 3});
  WeightSet ours = weights_of(model);
  ours.weights[1].value.data<float>()[4] = std::nanf("");
  ours.weights[1].value.data<float>()[5] = -std::numeric_limits<float>::infinity();
  const std::string fault = "wpe.weight: 1 NaN, 1 infinite of 12 values";
  EXPECT_EQ(models::non_finite_tensors(ours), std::vector<std::string>{fault});
  EXPECT_EQ(models::load_weights(model.parameters(), ours).faults(""), "not finite: " + fault);
  EXPECT_TRUE(models::non_finite_tensors(model.parameters()).empty());
  WeightSet wide = weights_of(model);
  wide.weights[1].value = Tensor::full({4, 3}, 1e39, DType::f64);
  EXPECT_EQ(models::load_weights(model.parameters(), wide).faults(""),
            "not finite: wpe.weight: 12 infinite of 12 values as f32, which the file has as f64");
  // What is not loaded may be anything.
  EXPECT_TRUE(models::load_weights(model.parameters(), ours, {.reinitialize = {"wpe."}}).fits());
}

TEST(Weights, AFormatThatIsNotKnown) {
  EXPECT_EQ(models::weight_format_named("hf-bert"), WeightFormat::hf_bert);
  EXPECT_THROW(models::weight_format_named("hf-brt"), UsageError);
}

TEST(Weights, AnEncoderIsLoadedBelowAnInitializedClassifier) {
  models::Bert model({.vocabulary = 5,
                      .context = 4,
                      .layers = 2,
                      .heads = 1,
                      .width = 3,
                      .head = models::BertHead::classification,
                      .pool = models::BertPool::mean});
  nn::initialize(model, 1);
  const auto find_own = [&](const std::string& name) {
    for (const NamedTensor& named : model.parameters())
      if (named.name == name) return named.tensor->to_doubles();
    return std::vector<double>();
  };
  const std::vector<double> reinitialize = find_own("classifier.weight"),
                            drawn = find_own("encoder.layer.1.output.dense.weight");
  WeightSet given = bert(models::BertHead::masked_lm);
  for (Weight& weight : given.weights) weight.value = weight.value.to(DType::f64);
  NameReport report = models::load_weights(model.parameters(), given);
  EXPECT_EQ(report.missing, (std::vector<std::string>{"classifier.weight [2, 3]", "classifier.bias [2]"}));
  EXPECT_EQ(report.unexpected.size(), 5U);
  EXPECT_EQ(find_own("encoder.layer.1.output.dense.weight"), drawn) << "all or nothing";
  report = models::load_weights(model.parameters(), given, {.reinitialize = {"classifier"}, .unused = {"cls."}});
  EXPECT_EQ(report.faults(""), "");
  EXPECT_EQ(report.left_out.size(), 7U);
  EXPECT_EQ(find_own("classifier.weight"), reinitialize);
  EXPECT_EQ(find_own("encoder.layer.1.output.dense.weight"),
            find(given, "encoder.layer.1.output.dense.weight").to_doubles());
  // Rules that name nothing are slips.
  const auto refusal = [&](const models::LoadRules& rules) {
    return test::error_message<ConfigError>([&] { (void)models::load_weights(model.parameters(), given, rules); });
  };
  EXPECT_PRED2(test::contains, refusal({.reinitialize = {"classifier", "clasifier"}, .unused = {"cls."}}),
               "/weights/reinitialize: \"clasifier\" begins the name of no tensor of the model");
  EXPECT_PRED2(test::contains, refusal({.reinitialize = {"classifier"}, .unused = {"cls.", "pooler"}}),
               "/weights/unused: \"pooler\" begins");
  EXPECT_PRED2(test::contains, refusal({.reinitialize = {"classifier"}, .unused = {"cls.", "embeddings"}}),
               "no place for")
      << "the model has it";
}

}  // namespace
}  // namespace hearth::weights_test
