// SPDX-License-Identifier: Apache-2.0
// Gradients of which each rank keeps a part, and the collectives by parts that they take.
#include "dist/zero/divided_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "autograd/record.h"
#include "core/error.h"
#include "core/random.h"
#include "dist/data_parallel.h"
#include "tests/dist/groups.h"
#include "tests/support/error_message.h"

namespace hearth::dist::divided_sums_test {
namespace {

using test::contains;
using test::error_message;
using test::failures_of_ranks;

void run_ranks(const std::string& backend, int size, const std::function<void(Collective&)>& f) {
  for (const std::string& failure : failures_of_ranks(groups_of(backend, size), f)) EXPECT_EQ(failure, "");
}

Tensor drawn(std::int64_t size, int rank) {
  Random random(static_cast<std::uint64_t>(rank) + 1, 0);
  const Tensor x = Tensor::empty({size});
  for (std::int64_t i = 0; i < size; ++i) x.data<float>()[i] = static_cast<float>(random.normal());
  return x;
}

/// Uneven parts, of which the second is empty.
std::vector<std::int64_t> cuts_of(std::int64_t size, int ranks) {
  std::vector<std::int64_t> cuts{0};
  for (int rank = 1; rank < ranks; ++rank) cuts.push_back(rank < 3 ? size / 5 : size / 2);
  cuts.push_back(size);
  return cuts;
}

std::vector<double> part_of(const std::vector<double>& x, const std::vector<std::int64_t>& cuts, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  return {x.begin() + cuts[r], x.begin() + cuts[r + 1]};
}

TEST(CollectivesByParts, GiveTheBitsOfTheWhole) {
  for (const char* backend : {"loopback", "shared memory", "tcp"})
    for (const int ranks : {1, 2, 3, 4})
      run_ranks(backend, ranks, [](Collective& group) {
        for (const std::int64_t size : {20, 9000}) {
          const std::vector<std::int64_t> cuts = cuts_of(size, group.size());
          const Tensor x = drawn(size, group.rank()), sum = x.clone(), gathered = x.clone();
          const std::vector<double> mine = part_of(x.to_doubles(), cuts, group.rank());
          const auto r = static_cast<std::size_t>(group.rank());
          const Tensor part = Tensor::empty({cuts[r + 1] - cuts[r]}), same = Tensor::empty(part.shape());
          group.all_reduce(sum).wait();
          group.reduce_parts(x.clone(), cuts, part).wait();
          EXPECT_EQ(part.to_doubles(), part_of(sum.to_doubles(), cuts, group.rank()));
          group.Collective::reduce_parts(x.clone(), cuts, same).wait();
          EXPECT_EQ(same.to_doubles(), part.to_doubles()) << "of a group without sums by parts";
          group.gather_parts(gathered, cuts).wait();
          for (int other = 0; other < group.size(); ++other)
            EXPECT_EQ(part_of(gathered.to_doubles(), cuts, other),
                      part_of(drawn(size, other).to_doubles(), cuts, other));
          const Tensor again = x.clone();
          group.Collective::gather_parts(again, cuts).wait();
          EXPECT_EQ(again.to_doubles(), gathered.to_doubles());
        }
      });
}

TEST(CollectivesByParts, RefuseOtherCuts) {
  run_ranks("loopback", 2, [](Collective& group) {
    const Tensor x = Tensor::zeros({4}), part = Tensor::zeros({2});
    for (const std::vector<std::int64_t>& cuts :
         std::vector<std::vector<std::int64_t>>{{0, 4}, {0, 2, 5}, {1, 2, 4}, {0, 5, 4}, {0, 1, 2, 4}, {}}) {
      EXPECT_PRED2(contains, error_message<ShapeError>([&] { (void)group.gather_parts(x, cuts); }), "size() + 1 cuts");
      EXPECT_PRED2(contains, error_message<ShapeError>([&] { (void)group.reduce_parts(x, cuts, part); }),
                   "size() + 1 cuts");
    }
    EXPECT_THROW((void)group.gather_parts(Tensor::zeros({2, 2}), {0, 2, 4}), ShapeError);
    EXPECT_THROW((void)group.gather_parts(Tensor(), {0, 2, 4}), UsageError);
    EXPECT_PRED2(contains, error_message<ShapeError>([&] {
                   (void)group.reduce_parts(x, {0, 1, 4}, part);
                 }),
                 "is no part of");
    EXPECT_THROW((void)group.reduce_parts(x, {0, 2, 4}, Tensor::zeros({2}, DType::f64)), ShapeError);
  });
  const std::vector<std::string> failures = failures_of_ranks(loopback_groups(2), [](Collective& group) {
    const Tensor x = Tensor::zeros({4});
    group.rank() == 0 ? group.gather_parts(x, {0, 2, 4}).wait() : group.broadcast(x).wait();
  });
  for (const std::string& failure : failures) EXPECT_PRED2(contains, failure, "calls gather_parts of f32 [4]");
}

/// y = factor * (sum of a^2 + sum of 2 c), an op of the test's own: dist knows no other.
struct LossOfTest {
  static constexpr OpInfo info{.name = "loss_of_test"};
  double factor;
  struct Saved {
    SavedTensor a;
    Shape c;
  };
  Tensor forward(Saved& saved, const Tensor& a, const Tensor& c) const {
    saved.a = a, saved.c = c.shape();
    double sum = 0;
    for (const double value : a.to_doubles()) sum += value * value;
    for (const double value : c.to_doubles()) sum += 2 * value;
    return Tensor::full({1}, factor * sum);
  }
  std::array<Tensor, 2> backward(const Saved& saved, Tensor dy, const NeedsGrad&) const {
    std::vector<double> of_a = saved.a.get().to_doubles();
    for (double& value : of_a) value *= 2 * factor * dy.item();
    return {Tensor::of<double>(saved.a.get().shape(), of_a).to(DType::f32),
            Tensor::full(saved.c, 2 * factor * dy.item())};
  }
};

/// Three parameters in blocks of their own, the largest in two pieces.
struct Net {
  explicit Net(Collective& group, bool overlap = true)
      : parameters({{"a", &a}, {"b", &b}, {"c", &c}}, {}, Division{&group, 50}),
        parallel(group, parameters, {.overlap = overlap, .zero = 2}) {}
  Tensor loss(double factor) const { return record(LossOfTest{factor}, a, c); }
  /// This rank's part of the gradients, [total] with zeros elsewhere.
  std::vector<double> own() const {
    std::vector<double> all(static_cast<std::size_t>(parameters.total()), 0.0);
    const std::vector<double> kept = parameters.grads().to_doubles();
    for (const auto& [begin, end, place] : parameters.shards()->ranges())
      std::copy(kept.begin() + place, kept.begin() + place + end - begin, all.begin() + begin);
    return all;
  }

  Tensor a = drawn(20000, 0), b = drawn(60, 1), c = drawn(100, 2);
  FlatParameters parameters;
  DataParallel parallel;
};

TEST(DividedSums, EachRankKeepsItsPartOfTheSum) {
  for (const bool overlap : {true, false})
    run_ranks("loopback", 2, [&](Collective& group) {
      Net net(group, overlap);
      ASSERT_EQ(net.parameters.blocks().size(), 3U);
      EXPECT_LT(net.parameters.grads().size(), net.parameters.total());
      for (const double factor : {1.0, 2.0}) {
        net.parameters.zero_grads();
        // Of b nothing arrives; the second backward pass is added.
        for (int pass = 0; pass < 2; ++pass) {
          backward(net.loss(factor * (group.rank() + 1)));
          net.parallel.reduce();
        }
        const std::vector<double> own = net.own();
        const Tensor all = Tensor::of<double>({net.parameters.total()}, own);
        group.all_reduce(all).wait();
        const std::vector<double> sums = all.to_doubles();
        const std::vector<FlatParameters::Entry>& entries = net.parameters.entries();
        for (std::int64_t i = 0; i < 20000; ++i)
          ASSERT_FLOAT_EQ(static_cast<float>(sums[static_cast<std::size_t>(i)]),
                          12 * static_cast<float>(factor) * net.a.data<const float>()[i]);
        for (std::int64_t i = 0; i < 60; ++i) EXPECT_EQ(sums[static_cast<std::size_t>(entries[1].begin + i)], 0);
        for (std::int64_t i = 0; i < 100; ++i)
          EXPECT_EQ(sums[static_cast<std::size_t>(entries[2].begin + i)], 12 * factor);
      }
    });
}

TEST(DividedSums, BuffersLiveAsLongAsTheyAreNeeded) {
  run_ranks("loopback", 1, [](Collective& group) {
    Net net(group);
    const std::int64_t before = memory_of(Device{}).statistics().in_use;
    net.parameters.zero_grads();
    {
      const Tensor loss = net.loss(1);
      backward(loss);
      EXPECT_GT(memory_of(Device{}).statistics().in_use, before) << "one block waits for b";
    }
    net.parallel.reduce();
    EXPECT_EQ(memory_of(Device{}).statistics().in_use, before);
    backward(net.loss(1));
    net.parallel.discard();
    EXPECT_EQ(memory_of(Device{}).statistics().in_use, before);
  });
}

TEST(DividedSums, WhatCannotBeIsRefusedByName) {
  run_ranks("loopback", 2, [](Collective& group) {
    Net net(group);
    net.parameters.zero_grads();
    EXPECT_PRED2(contains, error_message<UsageError>([&] { (void)grad_of(net.a); }),
                 "keep a part of its gradient each");
    EXPECT_PRED2(contains, error_message<UsageError>([&] { net.parameters.finish_grads(); }),
                 "call reduce() of their DataParallel");
    backward(net.loss(1));
    EXPECT_PRED2(contains, error_message<UsageError>([&] { backward(net.loss(1)); }), "a second backward()");
    net.parallel.discard();
    Tensor w = Tensor::zeros({4});
    const std::vector<NamedTensor> named{{"w", &w}};
    EXPECT_PRED2(contains, error_message<UsageError>([&] { FlatParameters({named}, {}, Division{}); }),
                 "a division needs a group");
    EXPECT_THROW(FlatParameters({named}, {}, Division{&group, 0}), UsageError);
    EXPECT_THROW(FlatParameters({named}, LowPrecisionCopy{DType::bf16, LowPrecisionCopy::Use::instead, &group},
                                Division{&group, 8}),
                 UsageError);
    FlatParameters divided({named}, {}, Division{&group, 8});
    EXPECT_PRED2(contains, error_message<UsageError>([&] { DataParallel(group, divided, {.zero = 1}); }),
                 "but the parameters have a Division: use zero 2");
    EXPECT_PRED2(contains,
                 error_message<ConfigError>([&] { DataParallel(group, divided, {.zero = 2, .wire = DType::bf16}); }),
                 "leave the wire out");
  });
}

}  // namespace
}  // namespace hearth::dist::divided_sums_test
