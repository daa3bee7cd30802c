// SPDX-License-Identifier: Apache-2.0
// Edit distances of known pairs and the suggestions drawn from them.
#include "core/nearest.h"

#include <gtest/gtest.h>

#include <vector>

namespace {

using hearth::edit_distance;
using hearth::nearest;

TEST(Nearest, DistancesOfKnownPairs) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("flaw", "lawn"), 2u);
  EXPECT_EQ(edit_distance("momentum", "momnetum"), 1u) << "a swap of neighbours is one edit";
  EXPECT_EQ(edit_distance("ca", "abc"), 3u) << "no part is edited twice";
  EXPECT_EQ(edit_distance("abcdef", "badcfe"), 3u);
}

TEST(Nearest, TheClosestCandidateWins) {
  const std::vector<std::string> keys{"lr", "momentum", "weight_decay", "beta1", "beta2", "batch_size"};
  EXPECT_EQ(nearest("momentun", keys), "momentum");
  EXPECT_EQ(nearest("l", keys), "lr");
  EXPECT_EQ(nearest("rl", keys), "lr");
  EXPECT_EQ(nearest("LR", keys), "lr");
  EXPECT_EQ(nearest("weight-decay", keys), "weight_decay");
  EXPECT_EQ(nearest("a-b-c-d", std::vector<std::string>{"a_b_c_d"}), "a_b_c_d");
  EXPECT_EQ(nearest("BatchSize", keys), "batch_size");
  EXPECT_EQ(nearest("mom", keys), "momentum") << "the beginning of a key";
  EXPECT_EQ(nearest("beta3", keys), "beta1") << "of equals the first";
  EXPECT_EQ(nearest("beta2x", keys), "beta2");
  EXPECT_EQ(nearest("xy", keys), "");
  EXPECT_EQ(nearest("completely_different", keys), "");
  EXPECT_EQ(nearest("", keys), "");
  EXPECT_EQ(nearest(std::string(1000000, 'a'), keys), "");
  EXPECT_EQ(nearest("lr", {}), "");
}

TEST(Nearest, SuggestionsListEverything) {
  const std::vector<std::string> keys{"lr", "momentum"};
  EXPECT_EQ(hearth::suggest("lrr", keys, "known keys"), "did you mean \"lr\"? known keys: lr, momentum");
  EXPECT_EQ(hearth::suggest("zzz", keys, "known keys"), "known keys: lr, momentum");
  EXPECT_EQ(hearth::suggest("zzz", {}, "known keys"), "known keys: none");
}

}  // namespace
