// SPDX-License-Identifier: Apache-2.0
// Answers of sacreBLEU, made by tests/golden/make_text.py; distances by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/io/json_text.h"
#include "data/text/metrics/bleu.h"
#include "data/text/metrics/chrf.h"
#include "data/text/metrics/error_rate.h"
#include "tests/support/places.h"

namespace hearth::data::metrics_test {
namespace {

std::vector<std::string> texts_of(const Json& list) {
  std::vector<std::string> sequences;
  for (const Json& text : list.items()) sequences.push_back(text.as_string());
  return sequences;
}

Json golden_bleu() { return read_json(test::source_dir() + "/tests/golden/text/bleu.json"); }

TEST(BleuTest, TokensOf13a) {
  const Json golden = golden_bleu();
  const auto references = texts_of(golden.at("references"));
  for (std::size_t i = 0; i < references.size(); ++i) {
    std::string joined;
    for (const std::string& token : tokens_13a(references[i])) joined += (joined.empty() ? "" : " ") + token;
    EXPECT_EQ(joined, golden.at("tokens").at(i).as_string());
  }
}

TEST(BleuTest, ScoreOfSacreBleu) {
  const Json golden = golden_bleu();
  const Bleu found = bleu(texts_of(golden.at("outputs")), texts_of(golden.at("references")));
  EXPECT_NEAR(found.score, golden.at("score").as_number(), 1e-9);
  EXPECT_NEAR(found.brevity_penalty, golden.at("brevity_penalty").as_number(), 1e-12);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(found.precisions[i], golden.at("precisions").at(i).as_number(), 1e-9);
}

TEST(BleuTest, Extremes) {
  const std::vector<std::string> text{"one two three four five"};
  EXPECT_NEAR(bleu(text, text).score, 100, 1e-9);
  EXPECT_EQ(bleu(std::vector<std::string>{"no match here"}, text).score, 0);
  EXPECT_EQ(bleu(std::vector<std::string>{""}, text).score, 0);
  EXPECT_EQ(bleu(std::vector<std::string>{"one two"}, text).score, 0);
  // Three of four orders match: the last precision is 100 / (2 * 1).
  const Bleu smoothed = bleu(std::vector<std::string>{"one two three x"}, text);
  EXPECT_NEAR(smoothed.precisions[3], 50, 1e-9);
  EXPECT_THROW((void)bleu(text, {}), DataError);
}

TEST(ChrfTest, ScoreOfSacreBleu) {
  const Json golden = golden_bleu();
  EXPECT_NEAR(chrf(texts_of(golden.at("outputs")), texts_of(golden.at("references"))), golden.at("chrf").as_number(),
              1e-9);
}

TEST(ChrfTest, Extremes) {
  const std::vector<std::string> text{"one two three"};
  EXPECT_NEAR(chrf(text, text), 100, 1e-9);
  EXPECT_NEAR(chrf(std::vector<std::string>{" onetwo  three"}, text), 100, 1e-9) << "white space does not count";
  EXPECT_EQ(chrf(std::vector<std::string>{""}, text), 0);
  EXPECT_EQ(chrf(std::vector<std::string>{"xyz"}, std::vector<std::string>{"abc"}), 0);
  EXPECT_THROW((void)chrf(text, {}), DataError);
  EXPECT_THROW((void)chrf(std::vector<std::string>{"\xff"}, text), DataError);
}

TEST(ErrorRateTest, Distances) {
  const std::vector<std::int32_t> kitten{1, 2, 3, 3, 4, 5}, sitting{6, 2, 3, 3, 2, 5, 7};
  EXPECT_EQ(edit_distance(kitten, sitting), 3);
  EXPECT_EQ(edit_distance(sitting, kitten), 3);
  EXPECT_EQ(edit_distance(kitten, std::vector<std::int32_t>{}), 6);
  EXPECT_EQ(edit_distance(std::vector<std::string>{"a", "b"}, std::vector<std::string>{"b", "a"}), 2);
}

TEST(ErrorRateTest, NearestReferenceCounts) {
  ErrorRate rate;
  const std::vector<std::vector<std::string>> references{
      {"T", "AH", "M", "EY", "T", "OW"}, {"T", "AH", "M", "AA", "T", "OW"}, {"T", "OW"}};
  rate.add(std::vector<std::string>{"T", "AH", "M", "AA", "T", "OW"}, references);
  rate.add(std::vector<std::string>{"K", "AE"}, std::vector<std::string>{"K", "AE", "T"});
  rate.add(std::vector<std::string>{"D"}, std::vector<std::string>{"D"});
  EXPECT_EQ(rate.edits(), 1);
  EXPECT_EQ(rate.length(), 10);
  EXPECT_DOUBLE_EQ(rate.rate(), 0.1);
  EXPECT_DOUBLE_EQ(rate.sequence_error_rate(), 1.0 / 3);
  EXPECT_THROW(rate.add(std::vector<std::string>{}, std::span<const std::vector<std::string>>{}), UsageError);
}

TEST(ErrorRateTest, BitsAndPerplexity) {
  EXPECT_DOUBLE_EQ(perplexity(std::log(37.0)), 37);
  EXPECT_DOUBLE_EQ(bits_per_character(std::log(2.0) * 6, 100, 300), 2);
  EXPECT_EQ(bits_per_character(1, 1, 0), 0);
}

}  // namespace
}  // namespace hearth::data::metrics_test
