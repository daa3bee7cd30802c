// SPDX-License-Identifier: Apache-2.0
// Weights as transformers and timm save them, and as the authors of Swin name them, give PyTorch's results: small ones
// of golden/make_weights.py and golden/make_swin_weights.py, and all-MiniLM-L6-v2 where HEARTH_MINILM names its folder
// and HEARTH_MINILM_CASES what scripts/parity_minilm made for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include "autograd/grad_mode.h"
#include "core/io/file.h"
#include "core/io/json_text.h"
#include "data/text/tokenizers/tokenizer_files.h"
#include "models/swin.h"
#include "models/transformer/bert.h"
#include "models/transformer/gpt.h"
#include "models/weights/weights.h"
#include "tests/support/places.h"

namespace hearth::pretrained_test {
namespace {

using models::WeightFormat;

models::WeightSet loaded(const std::string& path, WeightFormat format) {
  models::NameReport report;
  models::WeightSet set = models::to_hearth(models::read_weights(path), format, report);
  EXPECT_EQ(report.faults(path + ": "), "");
  return set;
}

std::vector<double> numbers(const models::WeightSet& set, const char* key) {
  std::vector<double> result;
  const Json list = parse_json(set.metadata.at(key), key);
  for (const Json& number : list.items()) result.push_back(number.as_number());
  return result;
}

/// Rows of ids that the file is told with.
Tensor ids_of(const models::WeightSet& set) {
  const Json rows = parse_json(set.metadata.at("ids"), "ids");
  std::vector<std::int32_t> ids;
  for (const Json& row : rows.items())
    for (const Json& id : row.items()) ids.push_back(static_cast<std::int32_t>(id.as_integer()));
  const auto count = static_cast<std::int64_t>(rows.items().size());
  return Tensor::of<std::int32_t>({count, static_cast<std::int64_t>(ids.size()) / count}, ids);
}

/// The largest difference of the model's result from PyTorch's of f64.
double distance(nn::Module& model, const models::WeightSet& set, const Tensor& input) {
  const NoGrad no_grad;
  model.eval();
  const std::vector<double> found = model(input).to_doubles(), expected = numbers(set, "result");
  EXPECT_EQ(found.size(), expected.size());
  double worst = 0;
  for (std::size_t i = 0; i < found.size(); ++i) worst = std::max(worst, std::abs(found[i] - expected[i]));
  return worst;
}

TEST(Pretrained, BertGivesPyTorchsEmbeddings) {
  const auto set = loaded(test::source_dir() + "/tests/golden/hf_bert.safetensors", WeightFormat::hf_bert);
  models::Bert model({.vocabulary = 17,
                      .context = 8,
                      .layers = 2,
                      .heads = 2,
                      .width = 8,
                      .hidden = 12,
                      .head = models::BertHead::embedding,
                      .pad = 0});
  model.to(DType::f64);
  ASSERT_EQ(models::load_weights(model.parameters(), set, {.unused = {"pooler"}}).faults(""), "");
  EXPECT_LT(distance(model, set, ids_of(set)), 1e-12);
}

TEST(Pretrained, Gpt2GivesPyTorchsScores) {
  const auto set = loaded(test::source_dir() + "/tests/golden/hf_gpt2.safetensors", WeightFormat::hf_gpt2);
  models::Gpt model({.vocabulary = 17, .context = 8, .layers = 2, .heads = 2, .width = 8});
  model.to(DType::f64);
  ASSERT_EQ(models::load_weights(model.parameters(), set).faults(""), "");
  EXPECT_LT(distance(model, set, ids_of(set)), 1e-11);
}

TEST(Pretrained, SwinsGivePyTorchsScores) {
  for (const auto& [file, format] :
       {std::pair("timm", WeightFormat::timm_swin), {"microsoft", WeightFormat::microsoft_swin}}) {
    const bool has_places = format == WeightFormat::microsoft_swin;
    const std::string path = join_text(test::source_dir(), "/tests/golden/", file, "_swin.safetensors");
    const auto set = loaded(path, format);
    models::Swin model({.depths = {2, 2},
                        .heads = {1, 2},
                        .width = 4,
                        .patch = 2,
                        .window = 2,
                        .mlp_ratio = 2,
                        .absolute_positions = has_places,
                        .image_size = 8,
                        .in_channels = 1,
                        .classes = 3});
    model.to(DType::f64);
    ASSERT_EQ(models::load_weights(model.parameters(), set).faults(file), "");
    EXPECT_LT(distance(model, set, Tensor::of<double>({3, 8, 8, 1}, numbers(set, "images"))), 1e-12) << file;
    // The way back gives every tensor but the buffers again.
    models::NameReport report;
    const models::WeightSet theirs = models::read_weights(path), back = models::from_hearth(set, format, report);
    EXPECT_EQ(report.faults(file), "");
    EXPECT_EQ(back.weights.size(), theirs.weights.size() - (has_places ? 5 : 0));
    for (const models::Weight& weight : back.weights) {
      const auto same = std::find_if(theirs.weights.begin(), theirs.weights.end(),
                                     [&](const models::Weight& w) { return w.name == weight.name; });
      ASSERT_NE(same, theirs.weights.end()) << weight.name;
      EXPECT_EQ(same->value.shape(), weight.value.shape()) << weight.name;
      EXPECT_EQ(same->value.to_doubles(), weight.value.to_doubles()) << weight.name;
    }
  }
}

class MiniLm : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::getenv("HEARTH_MINILM") || !std::getenv("HEARTH_MINILM_CASES"))
      GTEST_SKIP() << "HEARTH_MINILM is not set; scripts/parity_minilm sets it";
    folder_ = std::getenv("HEARTH_MINILM");
    cases_ = std::getenv("HEARTH_MINILM_CASES");
    tokenizer_ = data::read_tokenizer(folder_ + "/tokenizer.json");
    expected_ = models::read_weights(cases_ + "/expected.safetensors");
    std::istringstream text(read_text(cases_ + "/lines.txt"));
    for (std::string line; std::getline(text, line);) lines_.push_back(line);
  }
  const Tensor& expected(const std::string& name) const {
    for (const models::Weight& weight : expected_.weights)
      if (weight.name == name) return weight.value;
    throw DataError("there is no " + name);
  }
  std::vector<std::int32_t> row(std::size_t line) const {
    std::vector<std::int32_t> ids = tokenizer_->encode(lines_[line]);
    ids.insert(ids.begin(), tokenizer_->special().begin);
    ids.push_back(tokenizer_->special().end);
    return ids;
  }

  std::string folder_, cases_;
  data::TokenizerPointer tokenizer_;
  models::WeightSet expected_;
  std::vector<std::string> lines_;
};

TEST_F(MiniLm, IdsAreThoseOfItsTokenizer) {
  ASSERT_EQ(expected("counts").size(), static_cast<std::int64_t>(lines_.size()));
  const std::int64_t* id = expected("ids").data<std::int64_t>();
  std::int64_t unequal = 0;
  for (std::size_t line = 0; line < lines_.size(); ++line) {
    const std::vector<std::int32_t> found = row(line);
    const std::int64_t count = expected("counts").data<std::int64_t>()[line];
    if (static_cast<std::int64_t>(found.size()) == count && std::equal(found.begin(), found.end(), id)) {
      id += count;
      continue;
    }
    if (++unequal <= 5) ADD_FAILURE() << "line " << line + 1 << ": " << lines_[line];
    id += count;
  }
  EXPECT_EQ(unequal, 0);
  std::cout << lines_.size() << " lines, " << expected("ids").size() << " ids, " << unequal << " lines unequal\n";
}

TEST_F(MiniLm, EmbeddingsAreThoseOfPyTorch) {
  const auto set = loaded(folder_ + "/model.safetensors", WeightFormat::hf_bert);
  models::Bert model(
      {.layers = 6, .heads = 12, .width = 384, .head = models::BertHead::embedding, .pad = tokenizer_->special().pad});
  ASSERT_EQ(models::load_weights(model.parameters(), set, {.unused = {"pooler"}}).faults(""), "");
  const NoGrad no_grad;
  model.eval();
  const Tensor chosen = expected("chosen");
  const std::vector<double> wanted = expected("embeddings").to_doubles();
  double worst = 0;
  constexpr std::int64_t together = 16;
  for (std::int64_t first = 0; first < chosen.size(); first += together) {
    std::vector<std::vector<std::int32_t>> rows;
    std::size_t longest = 0;
    for (std::int64_t i = first; i < std::min(first + together, chosen.size()); ++i) {
      rows.push_back(row(static_cast<std::size_t>(chosen.data<std::int64_t>()[i])));
      longest = std::max(longest, rows.back().size());
    }
    std::vector<std::int32_t> ids;
    for (std::vector<std::int32_t>& each : rows) {
      each.resize(longest, tokenizer_->special().pad);
      ids.insert(ids.end(), each.begin(), each.end());
    }
    const auto count = static_cast<std::int64_t>(rows.size());
    const std::vector<double> found =
        model(Tensor::of<std::int32_t>({count, static_cast<std::int64_t>(longest)}, ids)).to_doubles();
    for (std::size_t i = 0; i < found.size(); ++i)
      worst = std::max(worst, std::abs(found[i] - wanted[static_cast<std::size_t>(first) * 384 + i]));
  }
  EXPECT_LT(worst, 1e-5);
  std::cout << chosen.size() << " sentences, largest difference from PyTorch in f64 " << worst << '\n';
}

}  // namespace
}  // namespace hearth::pretrained_test
