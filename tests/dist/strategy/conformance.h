// SPDX-License-Identifier: Apache-2.0
// What every strategy promises, on every kind of group:
//
//   INSTANTIATE_TEST_SUITE_P(Sign, StrategyConformance, testing::ValuesIn(cases_of({"sign", make_sign})),
//   name_of_case);
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "tests/dist/strategy/gradients.h"

namespace hearth::dist::strategy_test {

struct StrategyCase {
  std::string name;
  StrategyFactory make;
  /// How far the mean of so many steps of one gradient may be from it, as part of the largest gradient.
  std::int64_t steps = 64;
  double tolerance = 0.05;
  // What is filled in for each group.
  std::string backend{};
  int ranks = 0;
};
inline void PrintTo(const StrategyCase& strategy, std::ostream* out) { *out << strategy.name; }
/// The case on each kind of group, with 1 to 4 ranks.
std::vector<StrategyCase> cases_of(const StrategyCase& strategy);
inline std::string name_of_case(const testing::TestParamInfo<StrategyCase>& info) {
  std::string name = info.param.backend + "_" + std::to_string(info.param.ranks);
  for (char& c : name) c = c == ' ' ? '_' : c;
  return name;
}

class StrategyConformance : public testing::TestWithParam<StrategyCase> {};

}  // namespace hearth::dist::strategy_test
