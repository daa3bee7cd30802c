// SPDX-License-Identifier: Apache-2.0
#include "dist/cost/choice.h"

#include <algorithm>

#include "core/error.h"
#include "dist/routes.h"

namespace hearth::dist {
namespace {

// By as much a later choice has to be faster, as measured times differ from run to run.
constexpr double margin = 0.01;

}  // namespace

PassTimes agreed_times(Collective& group, const PassTimes& mine) {
  PassTimes times = mine;
  std::vector<double*> numbers;
  for (std::vector<double>& stages : times.stages)
    for (double& stage : stages) numbers.push_back(&stage);
  for (double& end : times.ends) numbers.push_back(&end);
  const auto largest = [&](const std::vector<double>& values) {
    const Tensor x = Tensor::of<double>({static_cast<std::int64_t>(values.size())}, values);
    group.all_reduce(x, Reduce::max).wait();
    return x.to_doubles();
  };
  double sum = 0;
  for (const double* number : numbers) sum += *number;
  if (sum < largest({sum})[0])
    for (double* number : numbers) *number = 0;
  numbers.push_back(&times.compute);
  for (double& arrival : times.arrivals) numbers.push_back(&arrival);
  std::vector<double> values;
  for (const double* number : numbers) values.push_back(*number);
  values = largest(values);
  for (std::size_t i = 0; i < numbers.size(); ++i) *numbers[i] = values[i];
  return times;
}

std::vector<Route> automatic_routes(Route usual, const std::vector<int>& hosts, bool repeatable) {
  std::vector<Route> routes{usual};
  // Ranks of one host share their links; no route sends fewer bytes, or in fewer rounds, than the usual one.
  const bool is_one_host = std::all_of(hosts.begin(), hosts.end(), [&](int host) { return host == hosts[0]; });
  if (is_one_host || (repeatable && !why_not(usual, hosts, true).empty())) return routes;
  for (const Route route : {Route::direct, Route::hierarchical, Route::tree, Route::ring})
    if (route != usual && why_not(route, hosts, repeatable).empty()) routes.push_back(route);
  return routes;
}

std::vector<double> automatic_bucket_mb() { return {DataParallelOptions().bucket_mb, 1, 2, 4, 25, 50, 100}; }

std::vector<SumForecast> forecasts(const DataParallel& parallel, const PassTimes& times, const SumCosts& costs,
                                   const SumChoices& choices) {
  std::vector<SumForecast> all;
  for (const double size : choices.bucket_mb) {
    const bool is_current = size == parallel.options().bucket_mb;
    HEARTH_CHECK(UsageError, is_current || !parallel.options().compress, "forecast of a step: buckets of ", size,
                 " MiB; compress keeps state of those of ", parallel.options().bucket_mb, " MiB");
    DataParallelOptions options = parallel.options();
    options.bucket_mb = size;
    const std::vector<Bucket> buckets =
        is_current ? parallel.buckets() : DataParallel::buckets_of(parallel.parameters(), options, times.arrivals);
    const std::vector<double> ready = DataParallel::ready_times(parallel.parameters(), buckets, times.arrivals);
    for (const Route route : choices.routes) {
      std::vector<BucketCost> costs_of_buckets;
      for (std::size_t i = 0; i < buckets.size(); ++i) {
        BucketCost& bucket = costs_of_buckets.emplace_back();
        bucket.ready = options.overlap ? ready[i] : times.compute;
        const std::vector<Transfer> transfers =
            is_current ? parallel.strategy().transfers(i)
                       : std::vector<Transfer>{{.is_sum = true,
                                                .count = buckets[i].size,
                                                .type = parallel.strategy().transfers(0).front().type}};
        for (std::size_t stage = 0; stage < transfers.size(); ++stage)
          bucket.stages.push_back({is_current ? times.stages[i].at(stage) : 0, costs.seconds(transfers[stage], route)});
        bucket.end = is_current ? times.ends[i] : 0;
      }
      all.push_back({route, size, forecast(times.compute, costs_of_buckets)});
    }
  }
  return all;
}

const SumForecast& best_of(const std::vector<SumForecast>& forecasts) {
  HEARTH_CHECK(UsageError, !forecasts.empty(), "best forecast: there is none");
  const auto seconds = [](const SumForecast& a, const SumForecast& b) { return a.step.seconds < b.step.seconds; };
  const double least = std::min_element(forecasts.begin(), forecasts.end(), seconds)->step.seconds;
  return *std::find_if(forecasts.begin(), forecasts.end(),
                       [&](const SumForecast& one) { return one.step.seconds <= (1 + margin) * least; });
}

}  // namespace hearth::dist
