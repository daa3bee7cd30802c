// SPDX-License-Identifier: Apache-2.0
// Beam search against all sequences there are, against the argmax each time, and on tables where the answer is known.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "autograd/grad_mode.h"
#include "models/text/beam_search.h"
#include "models/transformer/gpt.h"
#include "models/transformer/transformer.h"
#include "ops/ops.h"
#include "tests/models/text/table_decoder.h"

namespace hearth::beam_search_test {
namespace {

using models::BeamOptions;
using models::Found;
using Ids = std::vector<std::int32_t>;

constexpr std::int32_t end_id = 2;
constexpr std::int64_t vocabulary = 5;

Tensor as_tensor(const std::vector<Ids>& rows) {
  Ids all;
  for (const Ids& row : rows) all.insert(all.end(), row.begin(), row.end());
  return Tensor::of<std::int32_t>({static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(rows[0].size())},
                                  all);
}

/// Weights large enough that the next id depends on all before it.
void make_decided(nn::Module& model) {
  nn::initialize(model, 9);
  for (const NamedTensor& parameter : model.parameters())
    if (parameter.tensor->rank() == 2) parameter.tensor->copy_from(*parameter.tensor * 6.0);
  model.to(DType::f64);
  model.eval();
}

std::unique_ptr<models::Gpt> gpt() {
  auto model = std::make_unique<models::Gpt>(
      models::GptOptions{.vocabulary = vocabulary, .context = 12, .layers = 2, .heads = 2, .width = 8});
  make_decided(*model);
  return model;
}

std::unique_ptr<models::Transformer> transformer() {
  auto model = std::make_unique<models::Transformer>(models::TransformerOptions{.source_vocabulary = 7,
                                                                                .vocabulary = vocabulary,
                                                                                .context = 12,
                                                                                .layers = 1,
                                                                                .decoder_layers = 2,
                                                                                .heads = 2,
                                                                                .width = 8,
                                                                                .hidden = 8,
                                                                                .source_pad = 0});
  make_decided(*model);
  return model;
}

/// log P of ids behind a prompt, from whole passes.
double log_probability(nn::Module& model, const Ids& source, Ids text, const Ids& ids) {
  const NoGrad no_grad;
  double sum = 0;
  for (const std::int32_t id : ids) {
    const Tensor so_far = as_tensor({text});
    const std::vector<double> all = (source.empty() ? model(so_far) : model(as_tensor({source}), so_far)).to_doubles();
    const std::vector<double> last(all.end() - vocabulary, all.end());
    double total = 0;
    for (const double logit : last) total += std::exp(logit);
    sum += last[static_cast<std::size_t>(id)] - std::log(total);
    text.push_back(id);
  }
  return sum;
}

double penalty(std::size_t length, double exponent) {
  return std::pow((5.0 + static_cast<double>(length)) / 6.0, exponent);
}

/// The best of all sequences that end after at most `most` ids, the end among them.
Found best_of_all(nn::Module& model, const Ids& source, const Ids& prompt, std::size_t most, double exponent,
                  const Ids& begun = {}, double sum = 0) {
  Found best{{}, -std::numeric_limits<double>::infinity(), false};
  Ids text = prompt;
  text.insert(text.end(), begun.begin(), begun.end());
  for (std::int32_t id = 0; id < vocabulary; ++id) {
    const double with_id = sum + log_probability(model, source, text, {id});
    Ids longer = begun;
    longer.push_back(id);
    Found found{begun, with_id / penalty(longer.size(), exponent), true};
    if (id != end_id) {
      if (longer.size() == most) continue;
      found = best_of_all(model, source, prompt, most, exponent, longer, with_id);
    }
    if (found.score > best.score) best = found;
  }
  return best;
}

TEST(BeamSearch, AWideOneFindsTheBestOfAllTexts) {
  const auto model = gpt();
  for (const double exponent : {0.0, 0.6, 2.0}) {
    const std::vector<Ids> prompts = {{1}, {3}, {4}};
    const auto decoder = models::make_decoder(*model, {.sequences = 3 * 90});
    const auto found =
        beam_search(*decoder, prompts, {.limits = {.most = 4, .end = end_id}, .beam = 90, .length_penalty = exponent});
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const Found best = best_of_all(*model, {}, prompts[i], 4, exponent);
      EXPECT_EQ(found[i].ids, best.ids) << i << ", penalty " << exponent;
      EXPECT_NEAR(found[i].score, best.score, 1e-9);
      EXPECT_TRUE(found[i].ended);
    }
  }
}

TEST(BeamSearch, AWideOneFindsTheBestAnswer) {
  const auto model = transformer();
  const std::vector<Ids> sources = {{3, 4, 5, 6}, {6, 1, 0, 0}};
  const auto decoder = models::make_decoder(*model, {.sequences = 2 * 90, .source = as_tensor(sources)});
  const auto found =
      beam_search(*decoder, {{1}, {1}}, {.limits = {.most = 4, .end = end_id}, .beam = 90, .length_penalty = 1});
  for (std::size_t i = 0; i < 2; ++i) {
    const Found best = best_of_all(*model, sources[i], {1}, 4, 1);
    EXPECT_EQ(found[i].ids, best.ids) << i;
    EXPECT_NEAR(found[i].score, best.score, 1e-9);
  }
}

// A cache that does not follow its text gives a score that is not the text's.
TEST(BeamSearch, ScoresAreThoseOfTheTexts) {
  const auto model = transformer();
  std::vector<Ids> sources;
  for (std::int32_t i = 0; i < 16; ++i) sources.push_back({1 + i % 6, 1 + i * 5 % 6, i % 3 == 0 ? 0 : 1 + i / 3, 0});
  const std::vector<Ids> prompts(sources.size(), Ids{1});
  for (const std::int64_t beam : {2, 5}) {
    const std::int64_t sequences = beam * static_cast<std::int64_t>(sources.size());
    const auto decoder = models::make_decoder(*model, {.sequences = sequences, .source = as_tensor(sources)});
    const BeamOptions options{.limits = {.most = 11, .end = end_id}, .beam = beam, .length_penalty = 0.6};
    const auto found = beam_search(*decoder, prompts, options);
    for (std::size_t i = 0; i < sources.size(); ++i) {
      Ids ids = found[i].ids;
      if (found[i].ended) ids.push_back(end_id);
      EXPECT_NEAR(found[i].score, log_probability(*model, sources[i], {1}, ids) / penalty(ids.size(), 0.6), 1e-9)
          << i << ", beam " << beam;
      const auto alone = models::make_decoder(*model, {.sequences = beam, .source = as_tensor({sources[i]})});
      EXPECT_EQ(beam_search(*alone, {{1}}, options)[0].ids, found[i].ids);
    }
  }
}

TEST(BeamSearch, OfOneSequenceIsGreedyDecoding) {
  const auto model = gpt();
  const std::vector<Ids> prompts = {{1, 0}, {3, 3}, {4, 1}, {0, 0}};
  const auto searched = models::make_decoder(*model, {.sequences = 4}),
             written = models::make_decoder(*model, {.sequences = 4});
  const auto found = beam_search(*searched, prompts, {.limits = {.most = 9, .end = end_id}, .beam = 1});
  const auto greedy = generate(*written, prompts, {.limits = {.most = 9, .end = end_id}, .temperature = 0});
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(found[i].ids, greedy[i].ids) << i;
    EXPECT_EQ(found[i].ended, greedy[i].ended) << i;
  }
}

/// Logits of probabilities.
std::vector<std::vector<double>> logs(std::vector<std::vector<double>> table) {
  for (auto& row : table)
    for (double& value : row) value = std::log(value);
  return table;
}

Found found_in(const std::vector<std::vector<double>>& table, const BeamOptions& options, std::int64_t capacity = 20) {
  test::TableDecoder decoder(logs(table), options.beam, capacity);
  return beam_search(decoder, {{0}}, options)[0];
}

TEST(BeamSearch, SeesBehindALikelyFirstId) {
  // Behind 0 come 1 (0.6), which spreads what follows, or 2 (0.4), which leads on surely. 3 is the end.
  const std::vector<std::vector<double>> table = {
      {0, 0.6, 0.4, 0}, {0.3, 0.2, 0.1, 0.4}, {0, 0, 0, 1}, {0.25, 0.25, 0.25, 0.25}};
  const BeamOptions options{.limits = {.most = 6, .end = 3}, .beam = 1, .length_penalty = 0};
  EXPECT_EQ(found_in(table, options).ids, (Ids{1}));
  BeamOptions wide = options;
  wide.beam = 2;
  const Found found = found_in(table, wide);
  EXPECT_EQ(found.ids, (Ids{2}));
  EXPECT_NEAR(found.score, std::log(0.4), 1e-12);
}

TEST(BeamSearch, ThePenaltyFavoursLongerTexts) {
  // To end at once has 0.5, to end after two more 0.45.
  const std::vector<std::vector<double>> table = {
      {0, 0.5, 0, 0.5}, {0, 0, 0.95, 0.05}, {0.04, 0.01, 0, 0.95}, {1, 1, 1, 1}};
  BeamOptions options{.limits = {.most = 6, .end = 3}, .beam = 3, .length_penalty = 0};
  EXPECT_EQ(found_in(table, options).ids, Ids{});
  options.length_penalty = 1;
  const Found found = found_in(table, options);
  EXPECT_EQ(found.ids, (Ids{1, 2}));
  EXPECT_NEAR(found.score, std::log(0.5 * 0.95 * 0.95) / (8.0 / 6.0), 1e-12);
}

TEST(BeamSearch, AnUnlikelyEndDoesNotCount) {
  // Third of the steps behind 0 1 and 0 2 is the end of the latter; two sequences that ended would be all.
  const std::vector<std::vector<double>> table = {
      {0, 0.6, 0.4, 0, 0}, {0, 0, 0, 0.5, 0.5}, {0, 0, 0, 0.5, 0.5}, {1, 1, 1, 1, 1}, {0, 0, 0, 1, 0}};
  EXPECT_EQ(found_in(table, {.limits = {.most = 6, .end = 3}, .beam = 2, .length_penalty = 2}).ids, (Ids{1, 4}));
}

TEST(BeamSearch, WhatDoesNotEndIsCutOff) {
  const std::vector<std::vector<double>> table = {{0, 0.9, 0.1, 0}, {0.8, 0.1, 0.1, 0}, {0.5, 0.5, 0, 0}, {1, 1, 1, 1}};
  const Found found = found_in(table, {.limits = {.most = 4, .end = 3}, .beam = 2, .length_penalty = 0});
  EXPECT_EQ(found.ids, (Ids{1, 0, 1, 0}));
  EXPECT_FALSE(found.ended);
  EXPECT_NEAR(found.score, std::log(0.9 * 0.8 * 0.9 * 0.8), 1e-12);
  // The prompt and what is looked behind fill the room.
  EXPECT_EQ(found_in(table, {.limits = {.most = 99, .end = 3}, .beam = 2}, 3).ids.size(), 3u);
}

TEST(BeamSearch, RefusesWhatCannotBe) {
  const auto refused = [](const BeamOptions& options, std::int64_t sequences, const std::vector<Ids>& prompts = {{0}}) {
    test::TableDecoder decoder({{1, 2}, {2, 1}}, sequences, 3);
    EXPECT_THROW(beam_search(decoder, prompts, options), UsageError);
  };
  refused({.beam = 0}, 1);
  refused({.beam = 2, .length_penalty = -1}, 2);
  refused({.limits = {.most = 0}, .beam = 2}, 2);
  refused({.beam = 2}, 3);
  refused({.beam = 2}, 4);
  refused({.beam = 1}, 1, {{}});
  refused({.beam = 1}, 1, {});
  refused({.beam = 1}, 2, {{0}, {0, 1}});
  refused({.beam = 1}, 1, {{0, 1, 0, 1}});
}

}  // namespace
}  // namespace hearth::beam_search_test
