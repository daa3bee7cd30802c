// SPDX-License-Identifier: Apache-2.0
// The search of `hearth tune` over made-up times, and its guard's band.
#include "train/tune/search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "core/error.h"
#include "tests/support/error_message.h"
#include "train/tune/run_trials.h"

namespace hearth::train::search_test {
namespace {

using test::contains;

/// A machine on which each value of a path has a factor of the time.
class MadeUp : public TuneTrials {
 public:
  double ratio(const Overrides& base, const Overrides& candidate) override {
    ++timed;
    if (time_of(candidate) < 0) throw OutOfMemory("no room for it\nsecond line");
    return time_of(candidate) / time_of(base);
  }
  std::string refusal(const Overrides& candidate) override {
    for (const auto& [path, value] : candidate)
      if (refused.contains(path + "=" + value)) return "its loss is wrong";
    return "";
  }
  double time_of(const Overrides& overrides) const {
    double time = 1;
    for (const auto& [path, value] : overrides) {
      const auto factor = factors.find(path + "=" + value);
      if (factor != factors.end()) time *= factor->second;
    }
    return time;
  }

  std::map<std::string, double> factors;
  std::set<std::string> refused;
  int timed = 0;
};

TuneVariant variant(const std::string& path, const std::string& value, bool changes_numbers = false) {
  return {.text = value, .overrides = {{path, value}}, .changes_numbers = changes_numbers};
}

TuneResult quiet_search(const std::vector<TuneChoice>& choices, TuneTrials& trials) {
  return search(choices, trials, [](const TuneDecision&) {});
}

TEST(TuneSearch, TakesWhatIsFasterInOrder) {
  MadeUp machine;
  machine.factors = {{"a=1", 0.5}, {"a=2", 0.4}, {"a=3", 0.45}, {"b=1", 1.3}, {"c=1", 0.98}};
  std::vector<TuneDecision> told;
  const TuneResult result =
      search({{.name = "a", .variants = {variant("a", "1"), variant("a", "2"), variant("a", "3")}},
              {.name = "b", .variants = {variant("b", "1")}},
              {.name = "c", .variants = {variant("c", "1")}},
              {.name = "d", .why_not = "there is none"}},
             machine, [&](const TuneDecision& decision) { told.push_back(decision); });
  EXPECT_EQ(result.overrides, (Overrides{{"a", "2"}}));
  EXPECT_NEAR(result.speed, 2.5, 1e-12);
  ASSERT_EQ(told.size(), 7U);
  EXPECT_EQ(told[0].reason, "2.00 times as fast");
  EXPECT_TRUE(told[0].taken && told[1].taken && !told[2].taken && !told[3].taken);
  EXPECT_EQ(told[3].reason, "1.30 times the time");
  EXPECT_FALSE(told[4].taken) << "a gain within the noise";
  EXPECT_EQ(told[5].reason, "there is none");
  EXPECT_EQ(told[6].choice, "all of these");
}

TEST(TuneSearch, NeverKeepsWhatTheGuardRefuses) {
  MadeUp machine;
  machine.factors = {{"p=O2", 0.3}, {"p=O1", 0.6}};
  machine.refused = {"p=O2"};
  const TuneResult result =
      quiet_search({{.name = "precision", .variants = {variant("p", "O2", true), variant("p", "O1", true)}}}, machine);
  EXPECT_EQ(result.overrides, (Overrides{{"p", "O1"}}));
  EXPECT_PRED2(contains, result.decisions[0].reason, "refused by the guard: its loss is wrong");
}

TEST(TuneSearch, EndsWhereAnotherRankIsGone) {
  class Deserted : public TuneTrials {
   public:
    double ratio(const Overrides&, const Overrides&) override { throw PeerError("rank 1 is gone"); }
    std::string refusal(const Overrides&) override { return ""; }
  } machine;
  EXPECT_THROW((void)quiet_search({{.name = "a", .variants = {variant("a", "1")}}}, machine), PeerError);
}

TEST(TuneSearch, ALadderEndsAtItsFirstFailure) {
  MadeUp machine;
  machine.factors = {{"b=2", 0.6}, {"b=4", -1}, {"b=8", 0.1}};
  const TuneChoice batch{
      .name = "batch", .variants = {variant("b", "2"), variant("b", "4"), variant("b", "8")}, .is_ladder = true};
  const TuneResult result = quiet_search({batch}, machine);
  EXPECT_EQ(result.overrides, (Overrides{{"b", "2"}}));
  ASSERT_EQ(result.decisions.size(), 3U);
  EXPECT_EQ(result.decisions[1].reason, "does not run: no room for it");
}

TEST(TuneSearch, WhatIsNotFasterAltogetherIsDropped) {
  /// Choices that gain by themselves, and nothing together.
  class Disturbed : public TuneTrials {
   public:
    double ratio(const Overrides& base, const Overrides&) override { return calls++ > 0 && base.empty() ? 0.98 : 0.9; }
    std::string refusal(const Overrides&) override { return ""; }
    int calls = 0;
  } machine;
  const TuneResult result = quiet_search({{.name = "a", .variants = {variant("a", "1")}}}, machine);
  EXPECT_TRUE(result.overrides.empty());
  EXPECT_EQ(result.speed, 1);
}

// Over random machines: what is found is at least as fast as each thing that was tried and accepted, and never has what
// the guard refuses; and the same times lead to the same result.
TEST(TuneSearch, IsMonotoneAndDeterministicOverRandomMachines) {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> factor(0.3, 2);
  for (int round = 0; round < 500; ++round) {
    MadeUp machine;
    std::vector<TuneChoice> choices;
    for (const char* path : {"a", "b", "c", "d"}) {
      TuneChoice choice{.name = path, .is_ladder = random() % 3 == 0};
      for (const char* value : {"1", "2", "3"}) {
        const std::string name = join_text(path, "=", value);
        machine.factors[name] = random() % 8 == 0 ? -1 : factor(random);
        if (random() % 4 == 0) machine.refused.insert(name);
        choice.variants.push_back(variant(path, value, true));
      }
      choices.push_back(choice);
    }
    const TuneResult result = quiet_search(choices, machine);
    EXPECT_EQ(machine.refusal(result.overrides), "");
    EXPECT_GE(result.speed, 1);
    EXPECT_NEAR(result.speed, 1 / machine.time_of(result.overrides), 1e-9);
    for (const TuneDecision& decision : result.decisions)
      EXPECT_TRUE(!decision.taken || *decision.ratio <= 1) << decision.choice;
    EXPECT_EQ(quiet_search(choices, machine).overrides, result.overrides);
  }
}

TEST(TuneGuard, TheBandIsThatOfTheSeeds) {
  const GuardBand band = band_of({2.0, 2.2, 2.1});
  EXPECT_NEAR(band.low, 1.8, 1e-12);
  EXPECT_NEAR(band.high, 2.4, 1e-12);
  EXPECT_NEAR(band_of({2.0, 2.0, 2.0}).high, 2.04, 1e-12) << "no narrower than 2 %";
  EXPECT_EQ(refusal_of(2.3, band, true), "");
  EXPECT_PRED2(contains, refusal_of(2.5, band, true), "its loss 2.5 leaves the band of the f32 shadow, 1.8 to 2.4");
  EXPECT_NE(refusal_of(2.5, band, false), "");
  EXPECT_NE(refusal_of(1.5, band, true), "") << "the same batches do not make that of a run";
  EXPECT_EQ(refusal_of(1.5, band, false), "");
  for (const double loss : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_NE(refusal_of(loss, band, true), "");
    EXPECT_NE(refusal_of(loss, band, false), "");
  }
}

}  // namespace
}  // namespace hearth::train::search_test
