// SPDX-License-Identifier: Apache-2.0
#include "ops/dispatch/plan_cache.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace hearth::plan_cache_test {
namespace {

struct Plan {
  int number = 0;
  std::string unsupported;
};

TEST(PlanCache, AProblemIsPlannedOnce) {
  PlanCache<int, Plan> cache;
  int made = 0;
  const auto plan = [&](int key) -> const Plan& {
    return cache.get(key, [&] { return Plan{++made, key < 0 ? "negative" : ""}; });
  };
  const Plan& first = plan(7);
  EXPECT_EQ(plan(-1).unsupported, "negative");
  for (int key = 8; key < 100; ++key) (void)plan(key);
  EXPECT_EQ(&plan(7), &first) << "a plan stays where it is";
  EXPECT_EQ(plan(-1).number, 2) << "what cannot be planned is kept with its reason";
  EXPECT_EQ(made, 94);
}

TEST(PlanCache, KeepsNothingOfAPlanThatFailed) {
  PlanCache<int, Plan> cache;
  EXPECT_THROW(cache.get(1, []() -> Plan { throw std::runtime_error("no memory"); }), std::runtime_error);
  EXPECT_EQ(cache.get(1, [] { return Plan{5, ""}; }).number, 5);
}

TEST(PlanCache, ListsInOrderAndForgets) {
  PlanCache<int, Plan> cache;
  for (const int key : {3, 1, 2}) (void)cache.get(key, [&] { return Plan{key * 10, ""}; });
  std::vector<int> found;
  cache.each([&](int key, const Plan& plan) { found.push_back(key + plan.number); });
  EXPECT_EQ(found, (std::vector<int>{11, 22, 33}));
  cache.clear();
  cache.each([](int, const Plan&) { ADD_FAILURE() << "it was cleared"; });
}

TEST(PlanCache, ThreadsThatAskAtOnceGetTheSame) {
  PlanCache<int, Plan> cache;
  int made = 0;
  std::vector<const Plan*> found(8);
  std::vector<std::thread> threads;
  for (const Plan*& mine : found)
    threads.emplace_back([&cache, &made, &mine] { mine = &cache.get(1, [&] { return Plan{++made, ""}; }); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made, 1);
  for (const Plan* const plan : found) EXPECT_EQ(plan, found[0]);
}

}  // namespace
}  // namespace hearth::plan_cache_test
