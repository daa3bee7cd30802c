// SPDX-License-Identifier: Apache-2.0
#include "dist/cost/sums.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <utility>

#include "core/error.h"

namespace hearth::dist {
namespace {

// f32 elements of a small sum and of a large one: about those of buckets.
constexpr std::int64_t few_elements = std::int64_t{1} << 18, many_elements = std::int64_t{1} << 21;
// After a small sum that takes longer, the large one has `slow_elements`.
constexpr double long_sum_seconds = 0.06;
constexpr std::int64_t slow_elements = 4 * few_elements;
// Bytes to each other rank.
constexpr std::int64_t small_piece = 16 << 10, large_piece = 256 << 10;
constexpr int timed_sums = 3;

/// Seconds from the end of `f` on the slowest rank to that of the next one, after a first time. As in a step, ranks
/// that have finished early begin the next one. The median of a few, as a stall is no cost.
double slowest_median(Collective& group, const std::function<void()>& f) {
  f();
  group.barrier();
  std::vector<double> mine;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < timed_sums; ++i) {
    f();
    mine.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  const Tensor slowest = Tensor::of<double>({timed_sums}, mine);
  group.all_reduce(slowest, Reduce::max).wait();
  std::vector<double> seconds = slowest.to_doubles();
  std::adjacent_difference(seconds.begin(), seconds.end(), seconds.begin());
  std::nth_element(seconds.begin(), seconds.begin() + timed_sums / 2, seconds.end());
  return seconds[timed_sums / 2];
}

LinearCost cost_of_sums(Collective& group, const Tensor& x, std::optional<DType> wire) {
  const auto element = static_cast<double>(size_of(wire.value_or(x.dtype())));
  const auto time = [&](std::int64_t count) {
    const Tensor part = slice_of(x, 0, count);
    return slowest_median(group, [&] { group.all_reduce(part, Reduce::sum, wire).wait(); });
  };
  const double of_few = time(few_elements);
  const std::int64_t many = of_few > long_sum_seconds ? slow_elements : many_elements;
  return fit(element * static_cast<double>(few_elements), of_few, element * static_cast<double>(many), time(many));
}

LinearCost cost_of_exchanges(Collective& group) {
  const auto time = [&](std::int64_t piece) {
    const Tensor x = Tensor::zeros({group.size() * piece}, DType::u8),
                 y = Tensor::zeros({group.size() * piece}, DType::u8);
    return slowest_median(group, [&] { group.all_to_all(x, y).wait(); });
  };
  const double of_small = time(small_piece);
  return fit(small_piece, of_small, large_piece, time(large_piece));
}

}  // namespace

LinearCost fit(double fewer_bytes, double their_seconds, double more_bytes, double seconds) {
  HEARTH_CHECK(UsageError, fewer_bytes >= 0 && fewer_bytes < more_bytes, "fit of a cost: ", fewer_bytes, " and ",
               more_bytes, " bytes; the latter are more");
  const double per_byte = std::max(0.0, (seconds - their_seconds) / (more_bytes - fewer_bytes));
  return {std::max(0.0, their_seconds - per_byte * fewer_bytes), per_byte};
}

double SumCosts::seconds(const Transfer& transfer, Route route) const {
  const double bytes = static_cast<double>(transfer.count) * static_cast<double>(size_of(transfer.type));
  if (!transfer.is_sum) return to_each.seconds(bytes);
  const auto found = routes.find(route);
  HEARTH_CHECK(UsageError, found != routes.end(), "cost of a sum: the route ", name_of(route), " was not measured");
  return found->second.seconds(bytes);
}

SumCosts measure_sums(Collective& group, const std::vector<Route>& routes, std::optional<DType> wire, bool exchanges) {
  Routed* const of = routed(group);
  HEARTH_CHECK(UsageError, of != nullptr, "measure_sums: ", group.backend(), " has no routes to choose from");
  const Tensor x = Tensor::zeros({many_elements});
  const Route before = of->current_route();
  SumCosts costs;
  for (const Route route : routes) {
    of->use_route(route);
    costs.routes[route] = cost_of_sums(group, x, wire);
  }
  of->use_route(before);
  if (exchanges) costs.to_each = cost_of_exchanges(group);
  return costs;
}

}  // namespace hearth::dist
