// SPDX-License-Identifier: Apache-2.0
#include "tests/dist/strategy/conformance.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>

#include "core/error.h"
#include "tests/dist/groups.h"
#include "tests/support/temp_dir.h"

namespace hearth::dist::strategy_test {

std::vector<StrategyCase> cases_of(const StrategyCase& strategy) {
  std::vector<StrategyCase> all;
  for (const auto& [backend, ranks] : {std::pair{"loopback", 1},
                                       {"loopback", 2},
                                       {"loopback", 3},
                                       {"loopback", 4},
                                       {"shared memory", 2},
                                       {"shared memory", 3},
                                       {"tcp", 2},
                                       {"tcp", 3}}) {
    all.push_back(strategy);
    all.back().backend = backend;
    all.back().ranks = ranks;
  }
  return all;
}

namespace {

/// Runs f(group) on the ranks of a case.
void on_ranks(const StrategyCase& strategy, const std::function<void(Collective&)>& f) {
  for (const std::string& failure : test::failures_of_ranks(groups_of(strategy.backend, strategy.ranks), f))
    EXPECT_EQ(failure, "");
}

/// A rank of a training.
struct Rank {
  Rank(Collective& group, const StrategyFactory& make, bool overlap = true)
      : parameters(some_shapes), parallel(group, *parameters.flat, [&] {
          DataParallelOptions options = options_with(make);
          options.overlap = overlap;
          return options;
        }()) {
    parallel.register_state(state);
  }
  /// A step with gradients of that number, and its update; the sums.
  std::vector<float> step(std::int64_t number) { return step_of(parameters.draw(parallel.group().rank(), number)); }
  std::vector<float> step_of(const std::vector<Tensor>& gradients) {
    parameters.backward_of(gradients);
    parallel.reduce();
    parallel.update_made();
    return parameters.gradients();
  }

  Parameters parameters;
  DataParallel parallel;
  State state;
};

TEST_P(StrategyConformance, AllRanksHaveTheSameBitsAfterEachStep) {
  on_ranks(GetParam(), [](Collective& group) {
    Rank rank(group, GetParam().make);
    ASSERT_GT(rank.parallel.buckets().size(), 2U);
    for (int step = 0; step < 5; ++step) {
      (void)rank.step(step);
      rank.parallel.require_equal(rank.parameters.flat->grads(), "the sums");
    }
  });
}

TEST_P(StrategyConformance, GapsBetweenParametersStayZero) {
  on_ranks(GetParam(), [](Collective& group) {
    Rank rank(group, GetParam().make);
    for (int step = 0; step < 2; ++step) (void)rank.step(step);
    const Tensor& all = rank.parameters.flat->grads();
    std::vector<char> is_gap(static_cast<std::size_t>(all.size()), 1);
    for (const FlatParameters::Entry& entry : rank.parameters.flat->entries())
      std::fill_n(is_gap.begin() + entry.begin, entry.size, char{0});
    ASSERT_GT(std::count(is_gap.begin(), is_gap.end(), char{1}), 0);
    for (std::int64_t i = 0; i < all.size(); ++i)
      EXPECT_TRUE(is_gap[static_cast<std::size_t>(i)] == 0 || all.data<const float>()[i] == 0) << i;
  });
}

// What one step leaves out, later ones send.
TEST_P(StrategyConformance, TheMeanOfManySumsIsThatOfTheGradients) {
  on_ranks(GetParam(), [](Collective& group) {
    Rank rank(group, GetParam().make);
    std::vector<double> sent, exact;
    for (int other = 0; other < group.size(); ++other) {
      const std::vector<float> g = values_of(rank.parameters.draw(other, 0));
      exact.resize(g.size());
      for (std::size_t i = 0; i < g.size(); ++i) exact[i] += static_cast<double>(g[i]);
    }
    sent.resize(exact.size());
    const std::vector<Tensor> mine = rank.parameters.draw(group.rank(), 0);
    for (std::int64_t step = 0; step < GetParam().steps; ++step) {
      const std::vector<float> sum = rank.step_of(mine);
      for (std::size_t i = 0; i < sent.size(); ++i) sent[i] += static_cast<double>(sum[i]);
    }
    double largest = 0, error = 0;
    for (std::size_t i = 0; i < sent.size(); ++i) {
      largest = std::max(largest, std::abs(exact[i]));
      error = std::max(error, std::abs(sent[i] / static_cast<double>(GetParam().steps) - exact[i]));
    }
    EXPECT_LE(error, GetParam().tolerance * largest);
  });
}

TEST_P(StrategyConformance, TheOrderOfTheBackwardPassChangesNoBit) {
  on_ranks(GetParam(), [](Collective& group) {
    Rank during(group, GetParam().make), after(group, GetParam().make, false);
    for (int step = 0; step < 3; ++step) EXPECT_EQ(during.step(step), after.step(step));
    EXPECT_EQ(after.parallel.overlapped(), 0);
  });
}

TEST_P(StrategyConformance, AResumedRunHasTheBitsOfOneThatNeverStopped) {
  const test::TempDir folder;
  on_ranks(GetParam(), [&](Collective& group) {
    const std::string path = folder / "state.safetensors";
    Rank rank(group, GetParam().make), resumed(group, GetParam().make);
    for (int step = 0; step < 3; ++step) (void)rank.step(step);
    group.rank() == 0 ? rank.state.save(path) : rank.state.read_shards();
    group.barrier();
    resumed.state.load(path);
    for (int step = 3; step < 6; ++step) EXPECT_EQ(rank.step(step), resumed.step(step));
    EXPECT_EQ(rank.state.hash(), resumed.state.hash());
  });
}

TEST_P(StrategyConformance, AStepWithoutUpdateLeavesTheState) {
  on_ranks(GetParam(), [](Collective& group) {
    Rank rank(group, GetParam().make), steady(group, GetParam().make);
    for (int step = 0; step < 2; ++step) EXPECT_EQ(rank.step(step), steady.step(step));
    const std::string before = rank.state.hash();
    // Given up in the middle, and skipped after the sum.
    rank.parameters.backward_of(rank.parameters.draw(group.rank(), 9));
    rank.parallel.discard();
    rank.parameters.backward_of(rank.parameters.draw(group.rank(), 10));
    rank.parallel.reduce();
    rank.parallel.discard();
    EXPECT_EQ(rank.state.hash(), before);
    for (int step = 2; step < 4; ++step) EXPECT_EQ(rank.step(step), steady.step(step));
  });
}

TEST_P(StrategyConformance, ANumberThatIsNotFiniteReachesAllRanksAndStaysInNoState) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  on_ranks(GetParam(), [](Collective& group) {
    Rank rank(group, GetParam().make), steady(group, GetParam().make);
    EXPECT_EQ(rank.step(0), steady.step(0));
    for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()})
      for (std::size_t i = 0; i < some_shapes.size(); ++i) {
        std::vector<Tensor> gradients = rank.parameters.draw(group.rank(), 1);
        if (group.rank() == group.size() - 1) gradients[i].data<float>()[gradients[i].size() / 2] = bad;
        rank.parameters.backward_of(gradients);
        rank.parallel.reduce();
        const std::vector<float> sums = rank.parameters.gradients();
        EXPECT_TRUE(std::any_of(sums.begin(), sums.end(), [](float x) { return !std::isfinite(x); }))
            << bad << " in parameter " << i;
        rank.parallel.discard();
      }
    for (int step = 2; step < 4; ++step) EXPECT_EQ(rank.step(step), steady.step(step));
  });
}

TEST_P(StrategyConformance, ALossScaleThatMovesChangesNoBit) {
  on_ranks(GetParam(), [](Collective& group) {
    Rank rank(group, GetParam().make), scaled(group, GetParam().make);
    for (int step = 0; step < 4; ++step) {
      const float scale = step < 2 ? 1024 : 256;
      std::vector<Tensor> gradients = rank.parameters.draw(group.rank(), step);
      std::vector<float> sums = rank.step_of(gradients);
      for (const Tensor& g : gradients)
        for (std::int64_t i = 0; i < g.size(); ++i) g.data<float>()[i] *= scale;
      for (float& x : sums) x *= scale;
      scaled.parallel.set_scale(scale);
      EXPECT_EQ(scaled.step_of(gradients), sums) << step;
    }
  });
}

TEST_P(StrategyConformance, AParameterWithoutPartInTheLossCountsAsZero) {
  on_ranks(GetParam(), [](Collective& group) {
    Rank without(group, GetParam().make), with(group, GetParam().make);
    for (int step = 0; step < 2; ++step) {
      std::vector<Tensor> gradients = with.parameters.draw(group.rank(), step);
      gradients[3].fill_(0);
      const std::vector<float> sums = with.step_of(gradients);
      gradients[3] = {};
      EXPECT_EQ(without.step_of(gradients), sums);
    }
  });
}

TEST_P(StrategyConformance, AnUnknownFateOfTheLastUpdateIsRefused) {
  on_ranks(GetParam(), [](Collective& group) {
    Rank rank(group, GetParam().make);
    const auto sum = [&] {
      rank.parameters.backward_of(rank.parameters.draw(group.rank(), 0));
      rank.parallel.reduce();
    };
    sum();
    if (rank.parallel.strategy().is_stateful()) {
      EXPECT_THROW(sum(), UsageError);
    }
    rank.parallel.discard();
    EXPECT_NO_THROW(sum());
  });
}

TEST_P(StrategyConformance, ThePayloadIsWhatTravels) {
  const bool compresses = GetParam().name != "none";
  on_ranks(GetParam(), [&](Collective& group) {
    Rank rank(group, GetParam().make);
    (void)rank.step(0);
    const std::int64_t before = group.traffic().bytes;
    group.barrier();
    const std::int64_t comparison = group.traffic().bytes - before;
    const auto collectives =
        static_cast<std::int64_t>(rank.parallel.buckets().size()) * (1 + rank.parallel.strategy().further());
    const std::int64_t start = group.traffic().bytes;
    (void)rank.step(1);
    const std::int64_t sent = group.traffic().bytes - start - collectives * comparison;
    const std::int64_t payload = rank.parallel.strategy().payload();
    EXPECT_GT(payload, 0);
    const std::int64_t raw = 4 * rank.parameters.flat->grads().size();
    EXPECT_TRUE(compresses ? payload < raw : payload == raw) << payload << " of " << raw;
    // What is small travels with the comparison.
    EXPECT_LE(sent, payload * (group.size() - 1));
    EXPECT_EQ(sent > 0, group.size() > 1);
  });
}

}  // namespace

}  // namespace hearth::dist::strategy_test
