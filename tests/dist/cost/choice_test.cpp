// SPDX-License-Identifier: Apache-2.0
#include "dist/cost/choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "autograd/grad_state.h"
#include "core/error.h"
#include "tests/dist/groups.h"
#include "tests/support/error_message.h"
#include "tests/support/ranks.h"

namespace hearth::dist::choice_test {
namespace {

using test::failures_of_ranks;

/// Parameters of 256 KiB each.
struct Model {
  explicit Model(int count) {
    std::vector<NamedTensor> named;
    for (int i = 0; i < count; ++i) tensors.push_back(requires_grad(Tensor::full({1 << 16}, 1)));
    for (int i = 0; i < count; ++i) named.push_back({"p" + std::to_string(i), &tensors[static_cast<std::size_t>(i)]});
    flat = std::make_unique<FlatParameters>(named);
  }
  std::deque<Tensor> tensors;
  std::unique_ptr<FlatParameters> flat;
};

/// A pass of `seconds` whose gradients arrive evenly, from the last parameter to the first.
PassTimes even_pass(const DataParallel& parallel, double seconds) {
  const std::size_t n = parallel.parameters().entries().size();
  PassTimes times{.compute = seconds, .arrivals = std::vector<double>(n)};
  for (std::size_t i = 0; i < n; ++i) times.arrivals[i] = seconds * static_cast<double>(n - i) / static_cast<double>(n);
  times.stages.assign(parallel.buckets().size(), {0});
  times.ends.assign(parallel.buckets().size(), 0);
  return times;
}

SumForecast best(const DataParallel& parallel, const SumCosts& costs, const SumChoices& choices) {
  return best_of(forecasts(parallel, even_pass(parallel, 1), costs, choices));
}

TEST(SumChoices, TheRouteOfTheLeastCostIsTaken) {
  const auto groups = loopback_groups(1);
  Model model(16);
  DataParallel parallel(*groups[0], *model.flat, {.bucket_mb = 1, .first_bucket_mb = 1});
  const auto with = [&](double direct, double tree) {
    const SumCosts costs{.routes = {{Route::direct, {0, direct}}, {Route::tree, {0, tree}}}};
    return best(parallel, costs, {{Route::direct, Route::tree}, {1}}).route;
  };
  EXPECT_EQ(with(2e-6, 1e-6), Route::tree);
  EXPECT_EQ(with(1e-6, 2e-6), Route::direct);
  // The usual one, unless another is clearly faster.
  EXPECT_EQ(with(1e-6, 0.9999e-6), Route::direct);
}

TEST(SumChoices, LatencyWantsLargeBucketsAndBandwidthSmallOnes) {
  const auto groups = loopback_groups(1);
  Model model(64);
  DataParallel parallel(*groups[0], *model.flat, {.bucket_mb = 4, .first_bucket_mb = 1});
  const auto with = [&](double latency, double seconds_per_byte) {
    const SumCosts costs{.routes = {{Route::direct, {latency, seconds_per_byte}}}};
    return best(parallel, costs, {{Route::direct}, {4, 1, 16}});
  };
  // 16 MiB take 0.84 s of a step of 1 s: the last bucket is what is exposed.
  EXPECT_EQ(with(0, 5e-8).bucket_mb, 1);
  // A second for each collective.
  EXPECT_EQ(with(1, 1e-12).bucket_mb, 16);
  double before = 0;
  for (const double seconds_per_byte : {1e-9, 1e-8, 1e-7, 1e-6}) {
    const double exposed = with(1e-4, seconds_per_byte).step.exposed;
    EXPECT_GE(exposed, before);
    before = exposed;
  }
}

TEST(SumChoices, ExposedTimeByHand) {
  const auto groups = loopback_groups(1);
  Model model(4);
  DataParallel parallel(*groups[0], *model.flat, {.bucket_mb = 0.25, .first_bucket_mb = 0.25});
  // Each of four buckets takes 0.3 s, and there is one every 0.25 s: the last one ends at 0.25 + 4 * 0.3 s.
  const SumCosts costs{.routes = {{Route::direct, {0.3 - 0.2, 0.2 / (1 << 18)}}}};
  const std::vector<SumForecast> all = forecasts(parallel, even_pass(parallel, 1), costs, {{Route::direct}, {0.25}});
  ASSERT_EQ(all.size(), 1U);
  EXPECT_NEAR(all[0].step.exposed, 0.45, 1e-9);
  DataParallel after_it(*groups[0], *model.flat, {.bucket_mb = 0.25, .first_bucket_mb = 0.25, .overlap = false});
  EXPECT_NEAR(forecasts(after_it, even_pass(after_it, 1), costs, {{Route::direct}, {0.25}})[0].step.exposed, 1.2, 1e-9);
  EXPECT_PRED2(test::contains, test::error_message<UsageError>([&] {
                 (void)forecasts(parallel, even_pass(parallel, 1), costs, {{Route::tree}, {0.25}});
               }),
               "the route tree was not measured");
  EXPECT_THROW((void)best_of({}), UsageError);
}

TEST(SumChoices, MeasuredTimesChangeNoBitOfARepeatableRun) {
  const std::vector<int> four_of_two = hosts_with(2, 8), three_of_one{0, 1, 2}, two_of_three = hosts_with(3, 6);
  using Routes = std::vector<Route>;
  EXPECT_EQ(automatic_routes(Route::hierarchical, four_of_two, true),
            (Routes{Route::hierarchical, Route::direct, Route::tree}));
  EXPECT_EQ(automatic_routes(Route::hierarchical, four_of_two, false),
            (Routes{Route::hierarchical, Route::direct, Route::tree, Route::ring}));
  EXPECT_EQ(automatic_routes(Route::direct, three_of_one, true), Routes{Route::direct});
  EXPECT_EQ(automatic_routes(Route::direct, three_of_one, false), (Routes{Route::direct, Route::ring}));
  // Hosts of three ranks add in another order than the other routes.
  EXPECT_EQ(automatic_routes(Route::hierarchical, two_of_three, true), Routes{Route::hierarchical});
  EXPECT_EQ(automatic_routes(Route::direct, std::vector<int>(8), true), Routes{Route::direct});
}

TEST(SumCosts, AreMeasuredAlikeOnAllRanksAndLeaveTheRoute) {
  for (const char* const backend : {"loopback", "shared memory and tcp"}) {
    std::vector<SumCosts> costs(4);
    const auto failures = failures_of_ranks(groups_of(backend, 4, {.hosts = hosts_with(2, 4)}), [&](Collective& group) {
      const auto rank = static_cast<std::size_t>(group.rank());
      const Route before = routed(group)->current_route();
      costs[rank] = measure_sums(group, {Route::direct, Route::tree}, DType::bf16, true);
      EXPECT_EQ(routed(group)->current_route(), before);
      const Tensor x = Tensor::full({1000}, group.rank() + 1);
      group.all_reduce(x).wait();
      EXPECT_EQ(x.to_doubles()[999], 10);
    });
    EXPECT_EQ(failures, std::vector<std::string>(4)) << backend;
    for (int rank = 1; rank < 4; ++rank) {
      EXPECT_EQ(costs[static_cast<std::size_t>(rank)].routes, costs[0].routes);
      EXPECT_EQ(costs[static_cast<std::size_t>(rank)].to_each, costs[0].to_each);
    }
    EXPECT_EQ(costs[0].routes.size(), 2U);
    EXPECT_GT(costs[0].seconds({.is_sum = true, .count = 1 << 20, .type = DType::bf16}, Route::tree), 0);
  }
}

TEST(SumCosts, ALineGoesThroughBothTimes) {
  const LinearCost cost = fit(100, 1.5, 300, 2.5);
  EXPECT_DOUBLE_EQ(cost.latency, 1);
  EXPECT_DOUBLE_EQ(cost.seconds_per_byte, 0.005);
  EXPECT_DOUBLE_EQ(cost.seconds(200), 2);
  // More bytes in less time, or none at the end: noise, and no negative cost.
  EXPECT_EQ(fit(100, 2, 300, 1), (LinearCost{2, 0}));
  EXPECT_EQ(fit(100, 1, 200, 3).latency, 0);
  EXPECT_THROW((void)fit(300, 1, 100, 2), UsageError);
}

TEST(PassTimes, ThoseOfTheSlowestRankCount) {
  const auto failures = failures_of_ranks(loopback_groups(2), [](Collective& group) {
    const PassTimes agreed = agreed_times(group, {.compute = 1.0 + group.rank(),
                                                  .arrivals = {3.0 - group.rank()},
                                                  .stages = {{1}, {2, 4.0 * group.rank()}},
                                                  .ends = {5.0 - group.rank(), 6}});
    EXPECT_EQ(agreed.compute, 2);
    EXPECT_EQ(agreed.arrivals, std::vector<double>{3});
    EXPECT_EQ(agreed.stages, (std::vector<std::vector<double>>{{1}, {2, 4}}));
    // Rank 1 computes 17 s for buckets, rank 0 14 s.
    EXPECT_EQ(agreed.ends, (std::vector<double>{4, 6}));
  });
  EXPECT_EQ(failures, std::vector<std::string>(2));
}

}  // namespace
}  // namespace hearth::dist::choice_test
