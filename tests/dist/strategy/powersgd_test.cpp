// SPDX-License-Identifier: Apache-2.0
#include "dist/strategy/powersgd.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "dist/process_group.h"
#include "tests/dist/strategy/gradients.h"
#include "tests/support/ranks.h"

namespace hearth::dist::strategy_test {
namespace {

StrategyFactory powersgd_of(const PowerSgdOptions& options) {
  return [=](const StrategyContext& context) { return std::make_unique<PowerSgd>(context, options); };
}

void run_all(int ranks, const std::function<void(Collective&)>& f) {
  for (const std::string& failure : test::failures_of_ranks(loopback_groups(ranks), f)) EXPECT_EQ(failure, "");
}

/// A matrix of this rank: sums of products of random columns and rows.
Tensor matrix_of_rank(std::int64_t rank, std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  Random random(seed, 4);
  const Tensor m = Tensor::zeros({rows, columns});
  for (std::int64_t k = 0; k < rank; ++k) {
    std::vector<double> a, b;
    for (std::int64_t i = 0; i < rows; ++i) a.push_back(random.normal());
    for (std::int64_t j = 0; j < columns; ++j) b.push_back(random.normal());
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j)
        m.data<float>()[i * columns + j] +=
            static_cast<float>(a[static_cast<std::size_t>(i)] * b[static_cast<std::size_t>(j)]);
  }
  return m;
}

TEST(Orthonormal, HasOrthonormalRowsAndZerosWhereOneDepends) {
  constexpr std::int64_t n = 50;
  Random random(1, 1);
  std::vector<float> p(4 * n);
  for (float& x : p) x = static_cast<float>(random.normal());
  for (std::int64_t i = 0; i < n; ++i)
    p[static_cast<std::size_t>(2 * n + i)] = 3 * p[static_cast<std::size_t>(i)] - p[static_cast<std::size_t>(n + i)];
  make_orthonormal(p.data(), 4, n);
  for (std::int64_t a = 0; a < 4; ++a)
    for (std::int64_t b = 0; b < 4; ++b) {
      double dot = 0;
      for (std::int64_t i = 0; i < n; ++i)
        dot += static_cast<double>(p[static_cast<std::size_t>(a * n + i)]) *
               static_cast<double>(p[static_cast<std::size_t>(b * n + i)]);
      EXPECT_NEAR(dot, a == b && a != 2 ? 1 : 0, 1e-6) << a << ' ' << b;
    }
}

TEST(PowerSgd, IsExactOnMatricesOfItsRank) {
  for (const float scale : {1.0F, 1e-18F, 1e12F})
    run_all(2, [&](Collective& group) {
      Parameters parameters(Shapes{{60, 50}, {30, 3, 3, 8}});
      DataParallel parallel(group, *parameters.flat, options_with(powersgd_of({.rank = 3, .seed = 2})));
      for (int step = 0; step < 3; ++step) {
        // Their sum has rank 3: columns that the ranks share.
        std::vector<Tensor> gradients{matrix_of_rank(3, 60, 50, 8), matrix_of_rank(2, 30, 72, 9)};
        std::vector<float> exact = values_of(gradients);
        for (float& x : exact) x *= 3 * scale;
        for (const Tensor& g : gradients)
          for (std::int64_t i = 0; i < g.size(); ++i)
            g.data<float>()[i] *= scale * static_cast<float>(group.rank() + 1);
        const Shape filters{30, 3, 3, 8};
        gradients[1] =
            Tensor::view(gradients[1].storage(), filters, contiguous_strides(filters), 0, DType::f32, Device{});
        parameters.backward_of(gradients);
        parallel.reduce();
        parallel.update_made();
        const std::vector<float> sums = parameters.gradients();
        for (std::size_t i = 0; i < sums.size(); ++i) ASSERT_NEAR(sums[i] / scale, exact[i] / scale, 2e-4F) << i;
      }
    });
}

TEST(PowerSgd, WhatIsLeftOutIsKept) {
  run_all(3, [](Collective& group) {
    Parameters parameters(Shapes{{40, 30}});
    DataParallel parallel(group, *parameters.flat, options_with(powersgd_of({.rank = 2})));
    State state;
    parallel.register_state(state);
    std::vector<double> total(1200), received(1200);
    for (int step = 0; step < 5; ++step) {
      for (int rank = 0; rank < 3; ++rank) {
        const std::vector<float> g = values_of(parameters.draw(rank, step));
        for (std::size_t i = 0; i < g.size(); ++i) total[i] += static_cast<double>(g[i]);
      }
      parameters.backward_of(parameters.draw(group.rank(), step));
      parallel.reduce();
      parallel.update_made();
      const std::vector<float> sums = parameters.gradients();
      for (std::size_t i = 0; i < sums.size(); ++i) received[i] += static_cast<double>(sums[i]);
    }
    Tensor residual;
    for (const State::Entry& entry : state.entries())
      if (entry.name == "compress.residual") residual = entry.tensor->clone();
    group.all_reduce(residual).wait();
    for (std::size_t i = 0; i < total.size(); ++i)
      EXPECT_NEAR(received[i] + static_cast<double>(residual.data<const float>()[i]), total[i], 1e-6);
  });
}

TEST(PowerSgd, StartsFromTheBasisOfTheStepBefore) {
  run_all(1, [](Collective& group) {
    Parameters parameters(Shapes{{100, 80}});
    DataParallel parallel(group, *parameters.flat, options_with(powersgd_of({.rank = 1, .error_feedback = false})));
    // Two directions, one a little longer: powers tell them apart.
    std::vector<Tensor> gradients{Tensor::zeros({100, 80})};
    gradients[0].data<float>()[0] = 1;
    gradients[0].data<float>()[81] = 0.8F;
    double first = 0;
    for (int step = 0; step < 40; ++step) {
      parameters.backward_of(gradients);
      parallel.reduce();
      parallel.update_made();
      if (step == 0) first = std::abs(1 - static_cast<double>(parameters.gradients()[0]));
    }
    EXPECT_NEAR(parameters.gradients()[0], 1, 1e-5);
    EXPECT_NEAR(parameters.gradients()[81], 0, 1e-3);
    EXPECT_GT(first, 1e-3);
  });
}

TEST(PowerSgd, AStepOfZerosLosesNoBasis) {
  run_all(2, [](Collective& group) {
    Parameters parameters(Shapes{{60, 50}});
    DataParallel parallel(group, *parameters.flat, options_with(powersgd_of({.rank = 2})));
    const auto sum = [&](const Tensor& gradient) {
      parameters.backward_of({gradient});
      parallel.reduce();
      parallel.update_made();
      return parameters.gradients();
    };
    for (const float x : sum(Tensor::zeros({60, 50}))) ASSERT_EQ(x, 0);
    const Tensor m = matrix_of_rank(2, 60, 50, 3);
    const std::vector<float> sums = sum(m);
    for (std::size_t i = 0; i < sums.size(); ++i) ASSERT_NEAR(sums[i], 2 * m.data<const float>()[i], 1e-4F);
  });
}

TEST(PowerSgd, RefusesOtherRanks) {
  run_all(1, [](Collective& group) {
    Parameters parameters(Shapes{{5}});
    for (const std::int64_t rank : {0, -1, 65})
      EXPECT_THROW(DataParallel(group, *parameters.flat, options_with(powersgd_of({.rank = rank}))), ConfigError);
  });
}

}  // namespace
}  // namespace hearth::dist::strategy_test
