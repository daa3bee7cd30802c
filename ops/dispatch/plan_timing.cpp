// SPDX-License-Identifier: Apache-2.0
#include "ops/dispatch/plan_timing.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace hearth {
namespace {

constexpr std::size_t first_runs = 5, more_runs = 10, finalists = 3;

double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::infinity();
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

bool plan_timing_is_on() {
  const char* const text = std::getenv("HEARTH_PLAN_TIMING");
  const std::string_view word = text == nullptr ? "on" : text;
  HEARTH_CHECK(ConfigError, word == "on" || word == "off", "HEARTH_PLAN_TIMING is \"", word, "\"; use on or off");
  return word == "on";
}

Fastest fastest_of(std::size_t ways, const TimeOneRun& time) {
  std::vector<std::vector<double>> runs(ways);
  std::vector<std::size_t> order(ways);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::size_t round = 0;
  const auto run = [&](std::size_t way) {
    const double taken = time(way, round++);
    return std::isnan(taken) ? std::numeric_limits<double>::infinity() : taken;
  };
  std::erase_if(order, [&](std::size_t way) { return !std::isfinite(run(way)); });
  const auto repeat = [&](std::size_t times) {
    for (std::size_t i = 0; i < times; ++i)
      for (const std::size_t way : order) runs[way].push_back(run(way));
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return median(runs[a]) < median(runs[b]); });
  };
  repeat(first_runs);
  if (order.size() > finalists) order.resize(finalists);
  // By number again, so that of equals the first wins.
  std::sort(order.begin(), order.end());
  repeat(more_runs);
  if (order.empty()) return {0, std::numeric_limits<double>::infinity()};
  return {order.front(), median(runs[order.front()])};
}

}  // namespace hearth
