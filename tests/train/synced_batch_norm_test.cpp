// SPDX-License-Identifier: Apache-2.0
// Batch normalisation by the statistics of all ranks equals that of one process over all rows.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/error.h"
#include "core/random.h"
#include "dist/process_group.h"
#include "ops/ops.h"
#include "tests/support/error_message.h"
#include "tests/support/ranks.h"

namespace hearth::synced_batch_norm_test {
namespace {

constexpr std::int64_t channels = 5;

Tensor drawn(const Shape& shape, std::uint64_t seed, double around = 0) {
  Random random(seed, 0);
  std::vector<double> values(static_cast<std::size_t>(shape.size()));
  for (double& value : values) value = around + random.normal();
  return Tensor::of(shape, values);
}

struct Layer {
  BatchNormOptions options;
  bool residual = false;
  DType dtype = DType::f64;
};

struct Result {
  std::vector<double> y, dx, d_residual, d_gamma, d_beta, running_mean, running_var;
};

/// Of the rows [begin, end).
Result run(const Layer& layer, std::int64_t begin, std::int64_t end, std::int64_t rows) {
  const DType wide = layer.dtype == DType::f64 ? DType::f64 : DType::f32;
  const auto part = [&](std::uint64_t seed, double around) {
    return slice(drawn({rows, channels}, seed, around), 0, begin, end).contiguous().to(layer.dtype);
  };
  // A mean of many deviations.
  const Tensor x = requires_grad(part(1, 50)), residual = layer.residual ? requires_grad(part(2, 0)) : Tensor(),
               gamma = requires_grad(drawn({channels}, 3, 1).to(wide)),
               beta = requires_grad(drawn({channels}, 4).to(wide));
  const Tensor mean = Tensor::full({channels}, 0.25, wide), variance = Tensor::full({channels}, 1.5, wide);
  const Tensor y = batch_norm(x, gamma, beta, layer.options, mean, variance, residual);
  backward(y, part(5, 0));
  Result result{y.to_doubles(),    grad_of(x).to_doubles(), {}, grad_of(gamma).to_doubles(), grad_of(beta).to_doubles(),
                mean.to_doubles(), variance.to_doubles()};
  if (layer.residual) result.d_residual = grad_of(residual).to_doubles();
  return result;
}

void expect_near(const std::vector<double>& found, std::span<const double> expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], tolerance) << what << " " << i;
}

/// Ranks with so many rows each.
void check(Layer layer, const std::vector<std::int64_t>& shares, double tolerance) {
  std::int64_t rows = 0;
  for (const std::int64_t share : shares) rows += share;
  const Result one = run(layer, 0, rows, rows);
  std::mutex mutex;
  std::vector<double> d_gamma(channels), d_beta(channels);
  const auto failures =
      test::failures_of_ranks(dist::loopback_groups(static_cast<int>(shares.size())), [&](Collective& group) {
        std::int64_t begin = 0;
        for (int rank = 0; rank < group.rank(); ++rank) begin += shares[static_cast<std::size_t>(rank)];
        const std::int64_t count = shares[static_cast<std::size_t>(group.rank())];
        Layer synced = layer;
        synced.options.group = &group;
        const Result mine = run(synced, begin, begin + count, rows);
        const auto part = [&](const std::vector<double>& all) {
          return std::span(all).subspan(static_cast<std::size_t>(begin * channels),
                                        static_cast<std::size_t>(count * channels));
        };
        const std::string who = join_text("rank ", group.rank(), " of ", shares.size());
        expect_near(mine.y, part(one.y), tolerance, who + " y");
        expect_near(mine.dx, part(one.dx), tolerance, who + " dx");
        if (layer.residual) expect_near(mine.d_residual, part(one.d_residual), tolerance, who + " d_residual");
        expect_near(mine.running_mean, one.running_mean, tolerance, who + " running mean");
        expect_near(mine.running_var, one.running_var, tolerance, who + " running variance");
        const std::lock_guard lock(mutex);
        for (std::size_t c = 0; c < channels; ++c) d_gamma[c] += mine.d_gamma[c], d_beta[c] += mine.d_beta[c];
      });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
  expect_near(d_gamma, one.d_gamma, tolerance * 20, "gamma");
  expect_near(d_beta, one.d_beta, tolerance * 20, "beta");
}

TEST(SyncedBatchNorm, EqualsOneProcess) {
  const std::vector<std::vector<std::int64_t>> shares{{12}, {6, 6}, {3, 8, 1}, {4, 0, 7, 1}};
  for (const auto& of_ranks : shares) {
    check({}, of_ranks, 1e-12);
    check({.options = {.momentum = 0.3, .eps = 1e-3, .activation = Activation::relu}}, of_ranks, 1e-12);
    check({.options = {.activation = Activation::relu}, .residual = true}, of_ranks, 1e-12);
    check({.options = {}, .dtype = DType::f32}, of_ranks, 2e-5);
  }
}

TEST(SyncedBatchNorm, NeedsTwoValuesOnAllRanks) {
  for (const std::string& failure : test::failures_of_ranks(dist::loopback_groups(2), [](Collective& group) {
         (void)run({.options = {.group = &group}}, 0, group.rank() == 0 ? 1 : 0, 1);
       }))
    EXPECT_PRED2(test::contains, failure, "1 values a channel on all ranks");
}

}  // namespace
}  // namespace hearth::synced_batch_norm_test
