// SPDX-License-Identifier: Apache-2.0
// Every strategy keeps the promises of all.
#include "dist/strategy/dgc.h"
#include "dist/strategy/powersgd.h"
#include "dist/strategy/quantized.h"
#include "dist/strategy/registry.h"
#include "tests/dist/strategy/conformance.h"

namespace hearth::dist::strategy_test {
namespace {

StrategyFactory configured(const std::string& options, const CompressionInfo& info = {.seed = 5}) {
  return compressions().parse(parse_json(options, "compress")).make(info);
}

const StrategyCase none{"none", plain_sum({}), 1, 1e-6};
const StrategyCase onebit{"onebit", configured(R"({"type": "onebit", "block": 64})"), 256, 0.25};
const StrategyCase int8{"int8", configured(R"({"type": "int8"})"), 64, 0.02};
const StrategyCase dgc{"dgc", configured(R"({"type": "dgc", "sparsity": 0.9, "warmup_epochs": 0})"), 128, 0.3};
const StrategyCase powersgd{"powersgd", configured(R"({"type": "powersgd", "rank": 2})"), 256, 0.3};

INSTANTIATE_TEST_SUITE_P(None, StrategyConformance, testing::ValuesIn(cases_of(none)), name_of_case);
INSTANTIATE_TEST_SUITE_P(OneBit, StrategyConformance, testing::ValuesIn(cases_of(onebit)), name_of_case);
INSTANTIATE_TEST_SUITE_P(Int8, StrategyConformance, testing::ValuesIn(cases_of(int8)), name_of_case);
INSTANTIATE_TEST_SUITE_P(Dgc, StrategyConformance, testing::ValuesIn(cases_of(dgc)), name_of_case);
INSTANTIATE_TEST_SUITE_P(PowerSgd, StrategyConformance, testing::ValuesIn(cases_of(powersgd)), name_of_case);

}  // namespace
}  // namespace hearth::dist::strategy_test
