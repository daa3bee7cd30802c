// SPDX-License-Identifier: Apache-2.0
#include "dist/strategy/dgc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "dist/process_group.h"
#include "tests/dist/strategy/gradients.h"
#include "tests/support/ranks.h"

namespace hearth::dist::strategy_test {
namespace {

StrategyFactory dgc_of(const DgcOptions& options) {
  return [=](const StrategyContext& context) { return std::make_unique<Dgc>(context, options); };
}

void run(int ranks, const std::function<void(Collective&)>& f) {
  for (const std::string& failure : test::failures_of_ranks(loopback_groups(ranks), f)) EXPECT_EQ(failure, "");
}

/// This rank's part of a state, parameters alone.
std::vector<float> part_of(const State& state, const std::string& name, const FlatParameters& parameters) {
  for (const State::Entry& entry : state.entries())
    if (entry.name == name) {
      const auto* const all = reinterpret_cast<const float*>(entry.bytes().data());
      std::vector<float> part;
      for (const FlatParameters::Entry& entry_of_part : parameters.entries())
        part.insert(part.end(), all + entry_of_part.begin, all + entry_of_part.begin + entry_of_part.size);
      return part;
    }
  ADD_FAILURE() << name << " is no state";
  return {};
}

TEST(Dgc, TheWarmUpSendsLessAndLess) {
  const DgcOptions options{.sparsity = 0.999, .warmup_steps = 100};
  EXPECT_EQ(Dgc::density(options, 0), 0.25);
  EXPECT_EQ(Dgc::density(options, 24), 0.25);
  EXPECT_EQ(Dgc::density(options, 25), 0.0625);
  EXPECT_EQ(Dgc::density(options, 99), 0.00390625);
  EXPECT_DOUBLE_EQ(Dgc::density(options, 100), 0.001);
  EXPECT_DOUBLE_EQ(Dgc::density({.sparsity = 0.9, .warmup_steps = 4}, 3), 0.1) << "never below the last";
  EXPECT_DOUBLE_EQ(Dgc::density({.sparsity = 0.9}, 0), 0.1);
}

// Of one rank: the sum is what it has sent.
TEST(Dgc, WhatIsSentAndWhatIsKeptIsTheGradientToTheBit) {
  for (const bool nesterov : {false, true})
    run(1, [&](Collective& group) {
      // The last one is searched by samples.
      Parameters parameters(Shapes{{40, 30}, {50}, {300, 200}});
      DataParallel parallel(group, *parameters.flat,
                            options_with(dgc_of({.sparsity = 0.95, .momentum = 0.75, .nesterov = nesterov})));
      State state;
      parallel.register_state(state);
      const std::size_t all = 1200 + 50 + 60000;
      std::vector<float> u(all), v(all);
      for (int step = 0; step < 4; ++step) {
        const std::vector<Tensor> gradients = parameters.draw(0, step);
        const std::vector<float> g = values_of(gradients);
        parameters.backward_of(gradients);
        parallel.reduce();
        parallel.update_made();
        const std::vector<float> sent = parameters.gradients();
        const std::vector<float> residual = part_of(state, "compress.residual", *parameters.flat);
        const std::vector<float> velocity = part_of(state, "compress.velocity", *parameters.flat);
        std::size_t sparse = 0;
        float least_sent = 1e9F, most_residual = 0;
        for (std::size_t i = 0; i < all; ++i) {
          // May be rounded once or twice by the kernel.
          const float moved = std::fma(0.75F, u[i], g[i]);
          ASSERT_NEAR(velocity[i], sent[i] != 0 && (i < 1200 || i >= 1250) ? 0 : moved, 1e-8F) << i;
          const float accumulated = nesterov ? v[i] + std::fma(0.75F, moved, g[i]) : v[i] + moved;
          ASSERT_NEAR(sent[i] + residual[i], accumulated, 2e-8F) << i;
          ASSERT_TRUE(sent[i] == 0 || residual[i] == 0) << i;
          u[i] = velocity[i];
          v[i] = residual[i];
          if (i < 1250) continue;
          if (sent[i] != 0) ++sparse, least_sent = std::min(least_sent, std::abs(sent[i]));
          most_residual = std::max(most_residual, std::abs(residual[i]));
        }
        EXPECT_EQ(sparse, 3001U);
        EXPECT_LE(most_residual, least_sent) << "the largest are sent";
        for (std::size_t i = 1200; i < 1250; ++i) EXPECT_EQ(residual[i], 0) << "vectors are sent whole";
      }
    });
}

// With gradients and momentum whose sums are exact nothing may be lost at all.
TEST(Dgc, SumsOfAllRanksAreConservedToTheBit) {
  run(3, [](Collective& group) {
    Parameters parameters(Shapes{{64, 64}});
    DataParallel parallel(group, *parameters.flat, options_with(dgc_of({.sparsity = 0.99, .momentum = 0})));
    State state;
    parallel.register_state(state);
    std::vector<float> total(4096), received(4096);
    for (int step = 0; step < 20; ++step) {
      for (int rank = 0; rank < 3; ++rank) {
        std::vector<Tensor> gradients = parameters.draw(rank, step);
        for (std::int64_t i = 0; i < 4096; ++i) {
          float& g = gradients[0].data<float>()[i];
          g = std::round(g * 1024) / 1024;
          total[static_cast<std::size_t>(i)] += g;
        }
        if (rank == group.rank()) parameters.backward_of(gradients);
      }
      parallel.reduce();
      parallel.update_made();
      const std::vector<float> sums = parameters.gradients();
      for (std::size_t i = 0; i < sums.size(); ++i) received[i] += sums[i];
    }
    const Tensor residual = Tensor::of<float>({4096}, part_of(state, "compress.residual", *parameters.flat));
    group.all_reduce(residual).wait();
    for (std::size_t i = 0; i < total.size(); ++i) ASSERT_EQ(received[i] + residual.data<const float>()[i], total[i]);
  });
}

TEST(Dgc, SamplesThatMissTheLargestChangeNothing) {
  run(1, [](Collective& group) {
    constexpr std::int64_t n = 100000;
    Parameters parameters(Shapes{{100, 1000}});
    DataParallel parallel(group, *parameters.flat, options_with(dgc_of({.sparsity = 0.999, .momentum = 0})));
    // All samples are large and no others: too few reach the threshold.
    std::vector<Tensor> gradients{Tensor::full({100, 1000}, 1e-3)};
    for (std::int64_t i = 0; i < 8192; ++i) gradients[0].data<float>()[i * n / 8192] = 1 + static_cast<float>(i) / 1024;
    gradients[0].data<float>()[7] = 20;
    parameters.backward_of(gradients);
    parallel.reduce();
    const std::vector<float> sums = parameters.gradients();
    EXPECT_EQ(sums[7], 20);
    const float least = 1 + (8192 - 100) / 1024.0F;
    for (std::int64_t i = 0; i < n; ++i) {
      const float g = gradients[0].data<const float>()[i];
      EXPECT_EQ(sums[static_cast<std::size_t>(i)], g >= least ? g : 0);
    }
    EXPECT_EQ(std::count_if(sums.begin(), sums.end(), [](float x) { return x != 0; }), 101);
  });
}

TEST(Dgc, VectorsHaveTheMomentumOfSgd) {
  run(2, [](Collective& group) {
    for (const bool nesterov : {false, true}) {
      Parameters parameters(Shapes{{200}});
      DataParallel parallel(group, *parameters.flat, options_with(dgc_of({.momentum = 0.5, .nesterov = nesterov})));
      std::vector<float> m(200);
      for (int step = 0; step < 4; ++step) {
        parameters.backward_of(parameters.draw(group.rank(), step));
        parallel.reduce();
        parallel.update_made();
        const std::vector<float> a = values_of(parameters.draw(0, step)), b = values_of(parameters.draw(1, step)),
                                 sums = parameters.gradients();
        for (std::size_t i = 0; i < m.size(); ++i) {
          const float g = a[i] + b[i];
          m[i] = 0.5F * m[i] + g;
          EXPECT_NEAR(sums[i], nesterov ? g + 0.5F * m[i] : m[i], 1e-7F);
        }
      }
    }
  });
}

TEST(Dgc, ClipsBeforeItAccumulates) {
  run(4, [](Collective& group) {
    Parameters parameters(Shapes{{1000}, {10}});
    DataParallel parallel(group, *parameters.flat, options_with(dgc_of({.momentum = 0, .clip_norm = 3})));
    parallel.set_scale(2);
    parameters.backward_of({Tensor::full({1000}, group.rank() == 0 ? 5 : 0), Tensor::zeros({10})});
    parallel.reduce();
    EXPECT_EQ(parallel.overlapped(), 0) << "the norm is that of all gradients";
    double squares = 0;
    for (const float x : parameters.gradients()) squares += static_cast<double>(x * x);
    // 3 over the root of 4 ranks, in gradients of scale 2.
    EXPECT_NEAR(std::sqrt(squares), 2 * 1.5, 1e-5);
  });
}

TEST(Dgc, RefusesOptionsOutOfRange) {
  run(1, [](Collective& group) {
    Parameters parameters(Shapes{{5}});
    for (const DgcOptions& bad : {DgcOptions{.sparsity = 0}, DgcOptions{.sparsity = 1}, DgcOptions{.warmup_steps = -1},
                                  DgcOptions{.momentum = 1}, DgcOptions{.momentum = -0.1}, DgcOptions{.clip_norm = 0}})
      EXPECT_THROW(DataParallel(group, *parameters.flat, options_with(dgc_of(bad))), ConfigError);
  });
}

}  // namespace
}  // namespace hearth::dist::strategy_test
