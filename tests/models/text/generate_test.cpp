// SPDX-License-Identifier: Apache-2.0
// Writing on: by the argmax, and by drawing with temperature, top_k and top_p.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "autograd/grad_mode.h"
#include "models/text/generate.h"
#include "models/transformer/gpt.h"
#include "tests/models/text/table_decoder.h"

namespace hearth::generate_test {
namespace {

using models::GenerateOptions;
using test::TableDecoder;
using Ids = std::vector<std::int32_t>;

std::vector<models::Written> written(TableDecoder& decoder, const std::vector<Ids>& prompts,
                                     const GenerateOptions& options) {
  return generate(decoder, prompts, options);
}

/// 0 -> 1 -> 2 -> 0 ...
std::vector<std::vector<double>> circle() { return {{0, 3, 1}, {1, 0, 3}, {3, 1, 0}}; }

std::unique_ptr<models::Gpt> gpt(std::int64_t context = 12) {
  auto model = std::make_unique<models::Gpt>(
      models::GptOptions{.vocabulary = 13, .context = context, .layers = 2, .heads = 2, .width = 8, .dropout = 0});
  nn::initialize(*model, 5);
  model->eval();
  return model;
}

TEST(Generate, GreedyDecodingTakesTheArgmax) {
  TableDecoder decoder(circle(), 1, 100);
  const auto result = written(decoder, {{0}}, {.limits = {.most = 5}, .temperature = 0});
  EXPECT_EQ(result[0].ids, (Ids{1, 2, 0, 1, 2}));
  EXPECT_FALSE(result[0].ended);
  EXPECT_EQ(decoder.appended, (std::vector<std::int64_t>{1, 1, 1, 1, 1}));
}

TEST(Generate, OfEqualsTheFirst) {
  TableDecoder decoder({{1, 2, 2}, {0, 0, 0}, {0, 0, 0}}, 1, 9);
  EXPECT_EQ(written(decoder, {{0}}, {.limits = {.most = 2}, .temperature = 0})[0].ids, (Ids{1, 0}));
}

TEST(Generate, ATextEndsBeforeItsEndId) {
  TableDecoder decoder(circle(), 2, 100);
  const auto result = written(decoder, {{0}, {1}}, {.limits = {.most = 9, .end = 2}, .temperature = 0});
  EXPECT_EQ(result[0].ids, (Ids{1}));
  EXPECT_TRUE(result[0].ended && result[1].ended);
  EXPECT_EQ(result[1].ids, Ids{});
  EXPECT_EQ(decoder.sequences(), 1) << "one was over at once";
}

TEST(Generate, SomeIdsAreNeverWritten) {
  TableDecoder decoder(circle(), 1, 100);
  EXPECT_EQ(written(decoder, {{0}}, {.limits = {.most = 3, .never = {1}}, .temperature = 0})[0].ids, (Ids{2, 0, 2}));
  TableDecoder other(circle(), 1, 100);
  EXPECT_EQ(written(other, {{0}}, {.limits = {.most = 3, .vocabulary = 2}, .temperature = 0})[0].ids, (Ids{1, 0, 1}));
}

TEST(Generate, PromptsOfDifferentLengthsGoTogether) {
  const auto model = gpt();
  const std::vector<Ids> prompts = {{1, 2, 3, 4, 5}, {7}, {3, 9}};
  for (const double temperature : {0.0, 1.5}) {
    const GenerateOptions options{.limits = {.most = 6}, .temperature = temperature, .seed = 11};
    const auto decoder = models::make_decoder(*model, {.sequences = 3});
    const auto together = generate(*decoder, prompts, options);
    // The same prompt at the same position, with others beside it.
    std::vector<Ids> others = {{2}, {4, 4, 4, 4, 4, 4, 4}, {8}};
    for (std::size_t i = 0; i < 3; ++i) {
      std::vector<Ids> mixed = others;
      mixed[i] = prompts[i];
      const auto again = models::make_decoder(*model, {.sequences = 3});
      EXPECT_EQ(generate(*again, mixed, options)[i].ids, together[i].ids) << i;
      EXPECT_EQ(together[i].ids.size(), 6u);
    }
  }
}

TEST(Generate, LongPromptsAreWrittenOnTheSameWhateverIsBeside) {
  const auto model = gpt(6);
  // The most probable of nearly equal ids: every id that is seen counts.
  const auto beside = [&](const Ids& prompt, const Ids& other) {
    const auto decoder = models::make_decoder(*model, {.sequences = 2});
    return generate(*decoder, {prompt, other}, {.limits = {.most = 20}, .temperature = 0})[0].ids;
  };
  for (const Ids& prompt : {Ids{1, 2, 3, 4, 5, 6, 7, 8, 9}, Ids{10, 3, 8, 1, 2, 12, 4, 5}, Ids{5, 4, 3, 2, 1, 0}})
    EXPECT_EQ(beside(prompt, {2}), beside(prompt, Ids(30, 7))) << prompt.size();
}

TEST(Generate, WritesWhatWholePassesWouldSay) {
  const auto model = gpt();
  const auto decoder = models::make_decoder(*model, {});
  const Ids found = generate(*decoder, {{5, 2}}, {.limits = {.most = 8}, .temperature = 0})[0].ids;
  const NoGrad no_grad;
  Ids text = {5, 2};
  for (const std::int32_t id : found) {
    const std::vector<double> all =
        (*model)(Tensor::of<std::int32_t>({1, static_cast<std::int64_t>(text.size())}, text)).to_doubles();
    const auto last = all.end() - 13;
    EXPECT_EQ(id, std::max_element(last, all.end()) - last);
    text.push_back(id);
  }
}

TEST(Generate, AFullRoomGoesOnFromTheLastHalf) {
  TableDecoder decoder(circle(), 1, 6);
  const auto result = written(decoder, {{0, 1}}, {.limits = {.most = 9}, .temperature = 0});
  EXPECT_EQ(result[0].ids, (Ids{2, 0, 1, 2, 0, 1, 2, 0, 1}));
  EXPECT_EQ(decoder.appended, (std::vector<std::int64_t>{2, 1, 1, 1, 1, 3, 1, 1, 1}));
  TableDecoder longer(circle(), 1, 6);
  EXPECT_EQ(written(longer, {{0, 1, 2, 0, 1, 2, 0, 1}}, {.limits = {.most = 2}, .temperature = 0})[0].ids, (Ids{2, 0}));
  EXPECT_EQ(longer.appended, (std::vector<std::int64_t>{3, 1}));
  TableDecoder least(circle(), 1, 1);
  EXPECT_EQ(written(least, {{0, 1}}, {.limits = {.most = 3}, .temperature = 0})[0].ids, (Ids{2, 0, 1}));
}

/// How often each id follows 0 over many seeds.
std::map<std::int32_t, double> shares(const std::vector<double>& logits, GenerateOptions options) {
  constexpr int draws = 4000;
  options.limits.most = 1;
  std::map<std::int32_t, double> result;
  for (int seed = 0; seed < draws; ++seed) {
    TableDecoder decoder(std::vector(logits.size(), logits), 1, 2);
    options.seed = static_cast<std::uint64_t>(seed);
    result[written(decoder, {{0}}, options)[0].ids[0]] += 1.0 / draws;
  }
  return result;
}

TEST(Generate, DrawsAsTheLogitsSay) {
  const std::vector<double> logits = {std::log(0.1), std::log(0.5), std::log(0.3), std::log(0.1)};
  auto found = shares(logits, {});
  EXPECT_NEAR(found[0], 0.1, 0.02);
  EXPECT_NEAR(found[1], 0.5, 0.03);
  EXPECT_NEAR(found[2], 0.3, 0.03);
  found = shares(logits, {.temperature = 0.5});  // in proportion to the squares
  EXPECT_NEAR(found[1], 0.25 / 0.36, 0.03);
  EXPECT_NEAR(found[2], 0.09 / 0.36, 0.03);
  found = shares(logits, {.top_k = 2});
  EXPECT_NEAR(found[1], 5.0 / 8, 0.03);
  EXPECT_EQ(found.size(), 2u);
  found = shares(logits, {.top_p = 0.7});  // 0.5 is not enough, 0.8 is
  EXPECT_NEAR(found[2], 3.0 / 8, 0.03);
  EXPECT_EQ(found.size(), 2u);
  EXPECT_EQ(shares(logits, {.top_p = 0.4}).size(), 1u);
  found = shares(logits, {.top_k = 3, .top_p = 0.99});  // of equals the first
  EXPECT_EQ(found.size(), 3u);
  EXPECT_EQ(found.count(3), 0u);
}

TEST(Generate, TheSeedDecides) {
  const auto text = [](std::uint64_t seed) {
    TableDecoder decoder({{0, 0}, {0, 0}}, 2, 100);
    return written(decoder, {{0}, {0}}, {.limits = {.most = 64}, .seed = seed});
  };
  EXPECT_EQ(text(1)[0].ids, text(1)[0].ids);
  EXPECT_NE(text(1)[0].ids, text(2)[0].ids);
  EXPECT_NE(text(1)[0].ids, text(1)[1].ids) << "sequences of one batch draw apart";
}

TEST(Generate, RefusesWhatCannotBe) {
  const auto refused = [](const GenerateOptions& options, const std::vector<Ids>& prompts = {{0}}) {
    TableDecoder decoder(circle(), 1, 9);
    EXPECT_THROW(written(decoder, prompts, options), UsageError);
  };
  refused({.temperature = -1});
  refused({.temperature = std::numeric_limits<double>::quiet_NaN()});
  refused({.top_k = -1});
  refused({.top_p = 0});
  refused({.top_p = 1.5});
  refused({.limits = {.most = 0}});
  refused({.limits = {.end = 2, .never = {2}}});
  refused({.limits = {.never = {-1}}});
  refused({.limits = {.never = {0, 1, 2}}});
  refused({}, {{}});
  refused({}, {{0}, {0}});
  TableDecoder used(circle(), 1, 9);
  used.append(Tensor::of<std::int64_t>({1, 1}, {0}));
  EXPECT_THROW(written(used, {{0}}, {}), UsageError) << "it has a text already";
  const double nan = std::numeric_limits<double>::quiet_NaN();
  TableDecoder broken({{nan, 0}, {0, nan}}, 1, 9);
  EXPECT_THROW(written(broken, {{0}}, {}), DivergedError);
}

}  // namespace
}  // namespace hearth::generate_test
