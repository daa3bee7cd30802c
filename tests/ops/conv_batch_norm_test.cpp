// SPDX-License-Identifier: Apache-2.0
// A convolution that takes the moments of its result for the batch normalisation after it.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/random.h"
#include "ops/conv/conv2d_moments.h"
#include "ops/dispatch/candidates.h"
#include "ops/norm/batch_norm_moments.h"
#include "tests/ops/conv_case.h"
#include "tests/support/op_test.h"

namespace hearth::test::conv_batch_norm_test {
namespace {

using Case = ConvCase;

// Tiles are 64 or 128 rows and columns: one, several, ragged ones, and a last one of a single row.
const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"few pixels", {2, 3, 3, 8}, {8, 1, 1, 8}},
      {"block", {2, 9, 8, 8}, {24, 3, 3, 8}, {.padding = 1}},
      {"several tiles both ways", {3, 10, 9, 8}, {136, 1, 1, 8}},
      {"one row over", {1, 3, 43, 8}, {8, 1, 1, 8}},
      {"stride", {2, 17, 17, 8}, {16, 3, 3, 8}, {.stride = 2, .padding = 1}},
      {"groups", {2, 9, 8, 16}, {32, 3, 3, 8}, {.padding = 1, .groups = 2}},
  };
  return all;
}

bool has_candidate(const char* name) {
  const bool tensor_cores = size_of(site_dtype()) == 2;
  return !current_site().device.is_cuda() || tensor_cores || std::string(name) != "mma";
}

Tensor normalized(Draw& draw, const Case& c, bool pass_moments) {
  const Tensor x = draw.normal(c.x);
  const Tensor w = draw.normal(c.w, 1.0 / std::sqrt(static_cast<double>(c.w.size() / c.w[0])));
  const Tensor gamma = draw.away_from_zero({c.w[0]}, Width::wide), beta = draw.normal({c.w[0]}, 1.0, Width::wide);
  ChannelMoments moments;
  const Tensor y = detail::conv2d(x, w, {}, c.options, &moments);
  EXPECT_EQ(moments.parts.defined(), y.device().is_cuda());
  return detail::batch_norm(y, gamma, beta, {}, {}, {}, {}, pass_moments ? &moments : nullptr);
}

void check_all(const char* candidate) {
  if (!has_candidate(candidate)) return;
  const ForceCandidate force("conv2d", candidate);
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.what);
    // Behind a convolution with a rounded result of its own.
    check([&](Draw& draw) { return normalized(draw, c, true); }, {.tolerance_scale = 4.0});
  }
}

OP_TEST(ConvBatchNormPortable) { check_all("portable"); }
OP_TEST(ConvBatchNormTensorCores) { check_all("mma"); }

// Each run's moments are those of the values that were stored.
OP_TEST(ConvMoments) {
  if (!current_site().device.is_cuda()) return;
  for (const char* const candidate : {"portable", "mma"}) {
    if (!has_candidate(candidate)) continue;
    const ForceCandidate force("conv2d", candidate);
    for (const Case& c : cases()) {
      SCOPED_TRACE(c.what);
      Random random(3, 1);
      const auto numbers = [&](const Shape& shape, double mean) {
        std::vector<double> values(static_cast<std::size_t>(shape.size()));
        for (double& value : values) value = mean + random.normal();
        return Tensor::of<double>(shape, values).to(site_dtype()).to(current_site().device);
      };
      ChannelMoments moments;
      const Tensor bias = c.options.groups > 1 ? Tensor() : numbers({c.w[0]}, 1.0);
      const Tensor stored = detail::conv2d(numbers(c.x, 0.5), numbers(c.w, 0.0), bias, c.options, &moments);
      ASSERT_TRUE(moments.parts.defined());
      const std::vector<double> y = stored.to_doubles(), parts = moments.parts.to_doubles();
      const std::int64_t channels = stored.dim(-1), rows = stored.size() / channels, runs = moments.parts.dim(2);
      ASSERT_EQ(runs, (rows + moments.run_rows - 1) / moments.run_rows);
      const double precision = site_dtype() == DType::f64 ? 1e-14 : 2e-6;
      for (std::int64_t channel = 0; channel < channels; ++channel)
        for (std::int64_t run = 0; run < runs; ++run) {
          const std::int64_t begin = run * moments.run_rows, end = std::min(rows, begin + moments.run_rows);
          const auto at = [&](std::int64_t row) { return y[static_cast<std::size_t>(row * channels + channel)]; };
          double mean = 0, squares = 0, largest = 0;
          for (std::int64_t row = begin; row < end; ++row) mean += at(row) / static_cast<double>(end - begin);
          for (std::int64_t row = begin; row < end; ++row) {
            squares += (at(row) - mean) * (at(row) - mean);
            largest = std::max(largest, std::abs(at(row)));
          }
          const auto found = [&](std::int64_t which) {
            return parts[static_cast<std::size_t>((which * channels + channel) * runs + run)];
          };
          ASSERT_NEAR(found(0), mean, precision * largest) << channel << ' ' << run;
          ASSERT_NEAR(found(1), squares, precision * (squares + largest)) << channel << ' ' << run;
        }
    }
  }
}

}  // namespace
}  // namespace hearth::test::conv_batch_norm_test
