// SPDX-License-Identifier: Apache-2.0
// Every strategy keeps the promises of all.
#include "tests/dist/strategy/conformance.h"

namespace hearth::dist::strategy_test {
namespace {

const StrategyCase none{"none", plain_sum({}), 1, 1e-6};

INSTANTIATE_TEST_SUITE_P(None, StrategyConformance, testing::ValuesIn(cases_of(none)), name_of_case);

}  // namespace
}  // namespace hearth::dist::strategy_test
