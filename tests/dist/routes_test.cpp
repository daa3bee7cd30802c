// SPDX-License-Identifier: Apache-2.0
#include "dist/routes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <mutex>
#include <random>

#include "core/error.h"
#include "dist/agreement.h"
#include "tests/dist/groups.h"
#include "tests/support/error_message.h"

namespace hearth::dist::routes_test {
namespace {

using test::failures_of_ranks;

/// What a rank has before a sum; of all magnitudes, so that another order of adding gives other bits.
Tensor numbers_of(int rank, std::int64_t count, DType dtype) {
  std::mt19937_64 bits(static_cast<std::uint64_t>(rank) * 977 + 3);
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < count; ++i) {
    const double magnitude = std::ldexp(1.0, static_cast<int>(bits() % 20) - 10);
    numbers.push_back(magnitude * (static_cast<double>(bits() >> 11) * 0x1p-52 - 1));
  }
  return Tensor::of({count}, numbers).to(dtype);
}

/// f(group) of each rank.
std::vector<Tensor> results_of(std::vector<std::unique_ptr<Collective>> groups,
                               const std::function<Tensor(Collective&)>& f) {
  std::vector<Tensor> results(groups.size());
  for (const std::string& failure : failures_of_ranks(
           std::move(groups), [&](Collective& group) { results[static_cast<std::size_t>(group.rank())] = f(group); }))
    EXPECT_EQ(failure, "");
  return results;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.byte_size() == b.byte_size() && std::memcmp(a.bytes(), b.bytes(), a.byte_size()) == 0;
}

struct Case {
  const char* backend;
  Route route;
  int ranks, ranks_each;  ///< of all hosts, of one
};
class Routes : public testing::TestWithParam<Case> {};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* backend : {"loopback", "shared memory", "tcp", "shared memory and tcp"})
    for (const auto& [route, ranks, ranks_each] : {std::tuple{Route::ring, 2, 1},
                                                   {Route::ring, 3, 2},
                                                   {Route::ring, 5, 2},
                                                   {Route::ring, 8, 4},
                                                   {Route::tree, 2, 1},
                                                   {Route::tree, 4, 3},
                                                   {Route::tree, 8, 2},
                                                   {Route::hierarchical, 4, 2},
                                                   {Route::hierarchical, 6, 2},
                                                   {Route::hierarchical, 8, 4},
                                                   {Route::hierarchical, 8, 2},
                                                   {Route::direct, 5, 2}})
      // Shared memory alone is that of one host.
      if (std::string(backend) != "shared memory" || route != Route::hierarchical)
        all.push_back({backend, route, ranks, ranks_each});
  return all;
}

TestRoute route_of(const Case& of) {
  TestRoute route{of.route, of.route != Route::ring, hosts_with(of.ranks_each, of.ranks)};
  if (std::string(of.backend) == "shared memory") route.hosts.clear();
  return route;
}

TEST_P(Routes, SumToTheSameBits) {
  const Case of = GetParam();
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64})
    for (const std::int64_t count : {std::int64_t{130}, std::int64_t{9001}}) {
      SCOPED_TRACE(join_text(dtype, " [", count, "]"));
      const auto sum = [&](Collective& group) {
        const Tensor x = numbers_of(group.rank(), count, dtype);
        group.all_reduce(x).wait();
        return x;
      };
      const std::vector<Tensor> results = results_of(groups_of(of.backend, of.ranks, route_of(of)), sum);
      const Tensor expected = results_of(loopback_groups(of.ranks), sum)[0];
      for (const Tensor& result : results) {
        ASSERT_TRUE(same_bits(result, results[0]));
        if (of.route != Route::ring || dtype == DType::i64) {
          ASSERT_TRUE(same_bits(result, expected));
          continue;
        }
        const std::vector<double> is = result.to_doubles(), should_be = expected.to_doubles();
        const double tolerance = size_of(dtype) == 2 ? 1e-2 : 1e-4;
        for (std::size_t i = 0; i < is.size(); ++i)
          ASSERT_NEAR(is[i], should_be[i], tolerance * (1 + std::abs(should_be[i]))) << i;
      }
    }
}

TEST_P(Routes, MinimaMaximaAndTheWire) {
  const Case of = GetParam();
  const auto all = [](Collective& group) {
    const Tensor low = numbers_of(group.rank(), 1000, DType::f32), high = low.clone();
    const Tensor ones = Tensor::full({1000}, group.rank() == 0 ? 256.0 : 1.0);
    const Work works[] = {group.all_reduce(low, Reduce::min), group.all_reduce(high, Reduce::max),
                          group.all_reduce(ones, Reduce::sum, DType::bf16)};
    for (const Work& work : works) work.wait();
    const Tensor together = Tensor::empty({3000});
    const Tensor* const parts[] = {&low, &high, &ones};
    for (int i = 0; i < 3; ++i) std::memcpy(together.bytes() + i * 4000, parts[i]->bytes(), 4000);
    return together;
  };
  const Tensor expected = results_of(loopback_groups(of.ranks), all)[0];
  for (const Tensor& result : results_of(groups_of(of.backend, of.ranks, route_of(of)), all))
    ASSERT_TRUE(same_bits(result, expected));
}

// In the middle of a sum that is larger than what the ranks' connections hold.
TEST_P(Routes, ARankThatGivesUpIsNamed) {
  const Case of = GetParam();
  const std::vector<std::string> failures =
      failures_of_ranks(groups_of(of.backend, of.ranks, route_of(of)), [&](Collective& group) {
        group.barrier();
        if (group.rank() == 1) return group.abort("no memory");
        group.all_reduce(Tensor::zeros({3'000'000})).wait();
      });
  EXPECT_EQ(failures[1], "");
  for (std::size_t rank = 0; rank < failures.size(); ++rank)
    if (rank != 1) {
      EXPECT_PRED2(test::contains, failures[rank], "rank 1 ");
      EXPECT_PRED2(test::contains, failures[rank], "gave up: no memory");
    }
}

INSTANTIATE_TEST_SUITE_P(All, Routes, testing::ValuesIn(cases()), [](const auto& of) {
  std::string name =
      join_text(of.param.backend, '_', name_of(of.param.route), "_ranks", of.param.ranks, "_each", of.param.ranks_each);
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
});

// Larger than the buffers: several parts, and many chunks.
TEST(Route, SumsLargeTensorsInParts) {
  constexpr std::int64_t count = 4'200'001;
  const auto sum = [](Collective& group) {
    const Tensor x = Tensor::full({count}, group.rank() + 1, DType::f32);
    x.data<float>()[count - 1] = 0.5F;
    group.all_reduce(x).wait();
    return x;
  };
  const Tensor expected = Tensor::full({count}, 10, DType::f32);
  expected.data<float>()[count - 1] = 2;
  for (const char* backend : {"loopback", "shared memory and tcp"})
    for (const Route route : {Route::direct, Route::hierarchical, Route::tree, Route::ring})
      for (const Tensor& result : results_of(groups_of(backend, 4, {route, false, hosts_with(2, 4)}), sum))
        ASSERT_TRUE(same_bits(result, expected)) << backend << ' ' << name_of(route);
}

TEST(Route, AnOrderOfItsOwnIsARings) {
  const auto sum = [&](Collective& group) {
    const Tensor x = numbers_of(group.rank(), 3001, DType::f32);
    group.all_reduce(x).wait();
    return x;
  };
  EXPECT_FALSE(same_bits(results_of(groups_of("loopback", 5, {Route::ring, false}), sum)[0],
                         results_of(loopback_groups(5), sum)[0]));
}

TEST(Route, CrossesHostsWithTheBytesOfAllItsRanksOnce) {
  constexpr std::int64_t elements = 64 * 96;
  const auto remote_bytes = [&](Route route) {
    std::int64_t sum = 0;
    for (const Tensor& sent :
         results_of(groups_of("loopback", 8, {route, false, hosts_with(2, 8)}), [&](Collective& group) {
           const Tensor x = Tensor::zeros({elements});
           group.barrier();
           const std::int64_t before = group.traffic().remote_bytes;
           group.barrier();
           const std::int64_t comparison = group.traffic().remote_bytes - before;
           group.all_reduce(x).wait();
           return Tensor::of<std::int64_t>({1}, {group.traffic().remote_bytes - before - 2 * comparison});
         }))
      sum += sent.data<const std::int64_t>()[0];
    return sum;
  };
  constexpr std::int64_t bytes = elements * 4;
  EXPECT_EQ(remote_bytes(Route::direct), 2 * 8 * 6 * bytes / 8);
  EXPECT_EQ(remote_bytes(Route::hierarchical), 2 * 4 * 3 * bytes / 4);
  EXPECT_EQ(remote_bytes(Route::tree), 2 * 8 * (bytes / 4 + bytes / 8));
  EXPECT_EQ(remote_bytes(Route::ring), 2 * 4 * 7 * bytes / 8);
}

TEST(Route, IsChosenByTheHosts) {
  const auto chosen = [](const std::vector<int>& hosts, bool ordered) {
    const auto groups = groups_of("loopback", static_cast<int>(hosts.size()), {Route::automatic, ordered, hosts});
    return dist::route_of(*groups[0]);
  };
  EXPECT_EQ(chosen({0}, true), "direct");
  EXPECT_EQ(chosen({0, 0}, true), "direct");
  EXPECT_EQ(chosen({0, 1}, true), "direct");
  EXPECT_EQ(chosen({0, 0, 1}, false), "direct");
  EXPECT_EQ(chosen({0, 0, 1, 1}, true), "hierarchical, 2 hosts of 2 ranks");
  EXPECT_EQ(chosen({0, 1, 0, 1}, true), "direct");
  EXPECT_EQ(chosen({0, 1, 0, 1}, false), "hierarchical, 2 hosts of 2 ranks");
  EXPECT_EQ(chosen({0, 0, 0, 1, 1, 1}, true), "direct");
  EXPECT_EQ(chosen({0, 0, 0, 1, 1, 1}, false), "hierarchical, 2 hosts of 3 ranks");
}

// On hosts whose ranks are not neighbours or no power of 2 the order is another, but the same on all ranks.
TEST(Route, HierarchicalSumsWithoutOrder) {
  for (const std::vector<int>& hosts : {std::vector<int>{0, 1, 0, 1}, {0, 0, 0, 1, 1, 1}, {0, 1, 2, 2, 1, 0}}) {
    const int ranks = static_cast<int>(hosts.size());
    const auto sum = [&](Collective& group) {
      const Tensor x = numbers_of(group.rank(), 3001, DType::f64);
      group.all_reduce(x).wait();
      return x;
    };
    const std::vector<double> expected = results_of(loopback_groups(ranks), sum)[0].to_doubles();
    const std::vector<Tensor> results =
        results_of(groups_of("loopback", ranks, {Route::hierarchical, false, hosts}), sum);
    for (const Tensor& result : results) {
      ASSERT_TRUE(same_bits(result, results[0]));
      for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(result.to_doubles()[i], expected[i], 1e-9);
    }
  }
}

TEST(Route, WhatTheRanksCannotIsRefused) {
  const auto refused = [](int size, const TestRoute& route, const char* backend = "loopback") {
    return test::error_message<ConfigError>([&] { (void)groups_of(backend, size, route); });
  };
  for (const char* backend : {"loopback", "tcp"}) {
    EXPECT_EQ(refused(3, {Route::ring}, backend),
              "dist.route: ring: it adds in an order of its own, and train.deterministic wants sums by pairs of "
              "neighbouring ranks; auto takes what is possible");
    EXPECT_EQ(refused(6, {Route::tree, false}, backend),
              "dist.route: tree: it takes 2, 4, 8 or another power of 2 of ranks; there are 6; auto takes what is "
              "possible");
    EXPECT_EQ(refused(4, {Route::hierarchical}, backend),
              "dist.route: hierarchical: all ranks are on one host; auto takes what is possible");
    EXPECT_EQ(refused(2, {Route::hierarchical, false, {0, 1}}, backend),
              "dist.route: hierarchical: no host has several ranks; auto takes what is possible");
    EXPECT_EQ(refused(3, {Route::hierarchical, false, {0, 0, 1}}, backend),
              "dist.route: hierarchical: some hosts have 1 ranks, others 2; it takes as many on each host; auto takes "
              "what is possible");
  }
  EXPECT_PRED2(test::contains, refused(4, {Route::hierarchical, true, {0, 1, 0, 1}}),
               "neighbouring ranks are on different hosts");
  EXPECT_PRED2(test::contains, refused(6, {Route::hierarchical, true, {0, 0, 0, 1, 1, 1}}), "hosts have 3 ranks");
}

TEST(Route, RanksWithOtherRoutesAreRefused) {
  const ControlOptions control{.size = 2, .token = "t"};
  const ControlServer server("127.0.0.1", 0, control);
  std::vector<std::string> messages(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      const Placement placement{.rank = rank,
                                .size = 2,
                                .address = "127.0.0.1",
                                .port = server.port(),
                                .token = "t",
                                .is_server_elsewhere = true};
      messages[static_cast<std::size_t>(rank)] = test::error_message<PeerError>(
          [&] { (void)join_processes(placement, {.route = rank == 0 ? Route::direct : Route::tree}); });
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& message : messages) EXPECT_PRED2(test::contains, message, "and dist.route tree, rank 0 ");
}

TEST(Route, GroupsOfSeveralHostsAreMixed) {
  const auto backends = [](int size, const std::vector<int>& hosts) {
    return std::string(groups_of("shared memory and tcp", size, {Route::automatic, true, hosts})[0]->backend());
  };
  EXPECT_EQ(backends(3, {0, 0, 1}), "shared memory and tcp");
  EXPECT_EQ(backends(4, {0, 1, 0, 1}), "shared memory and tcp");
  EXPECT_EQ(backends(2, {0, 1}), "tcp");
  EXPECT_EQ(backends(2, {0, 0}), "shared memory");
}

}  // namespace
}  // namespace hearth::dist::routes_test
