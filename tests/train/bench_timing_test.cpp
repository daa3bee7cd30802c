// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "train/bench/bench.h"

namespace hearth::train::bench_timing_test {
namespace {

TEST(TimingOf, gives_median_minimum_and_ninetieth_percentile) {
  std::vector<double> milliseconds;
  for (int i = 100; i >= 1; --i) milliseconds.push_back(i);
  const Timing timing = timing_of(milliseconds);
  EXPECT_EQ(timing.median_ms, 51);
  EXPECT_EQ(timing.min_ms, 1);
  EXPECT_EQ(timing.p90_ms, 91);
}

TEST(TimingOf, takes_one_value_and_refuses_none) {
  const Timing timing = timing_of({3});
  EXPECT_EQ(timing.median_ms, 3);
  EXPECT_EQ(timing.min_ms, 3);
  EXPECT_EQ(timing.p90_ms, 3);
  EXPECT_THROW(timing_of({}), UsageError);
}

TEST(TimeRepeated, runs_at_least_five_times_after_a_warm_up) {
  int calls = 0;
  const Timing timing = time_repeated([&] { ++calls; }, {}, 0);
  EXPECT_EQ(calls, 6);
  EXPECT_LE(timing.min_ms, timing.median_ms);
  EXPECT_LE(timing.median_ms, timing.p90_ms);
}

BenchCase sample() {
  BenchCase measured;
  measured.name = "conv2d";
  measured.shape = "[16, 56, 56, 64]";
  measured.batch = 16;
  measured.timing = {2, 1, 4};
  measured.items = 16;
  measured.flops = 4e9;
  measured.bytes = 1e8;
  measured.peak_bytes = 3e6;
  measured.implementation = "onednn";
  return measured;
}

TEST(BenchJson, has_the_published_keys_and_derived_rates) {
  const Json json = to_json(sample());
  EXPECT_EQ(json.at("schema").as_integer(), 1);
  EXPECT_EQ(json.at("case").at("name").as_string(), "conv2d");
  EXPECT_EQ(json.at("case").at("dtype").as_string(), "f32");
  EXPECT_EQ(json.at("case").at("device").as_string(), "cpu");
  const Json& own = json.at("hearth");
  EXPECT_EQ(own.at("ms").as_number(), 2);
  EXPECT_EQ(own.at("ms_min").as_number(), 1);
  EXPECT_EQ(own.at("ms_p90").as_number(), 4);
  EXPECT_DOUBLE_EQ(own.at("per_s").as_number(), 8000);
  EXPECT_DOUBLE_EQ(own.at("gbs").as_number(), 50);
  EXPECT_DOUBLE_EQ(own.at("tflops").as_number(), 2);
  EXPECT_EQ(own.at("implementation").as_string(), "onednn");
  for (const char* key : {"peers", "ratio_best_peer", "ceilings", "percent_of_limit", "max_error", "ok", "note"})
    EXPECT_NE(json.find(key), nullptr) << key;
}

TEST(BenchJson, tells_a_result_that_is_too_far_off) {
  EXPECT_TRUE(to_json(sample()).at("max_error").is_null());
  BenchCase wrong = sample();
  wrong.max_error = 0.5;
  wrong.ok = false;
  EXPECT_EQ(to_json(wrong).at("max_error").as_number(), 0.5);
  EXPECT_FALSE(to_json(wrong).at("ok").as_boolean());
  EXPECT_NE(to_line(wrong).find("too much"), std::string::npos);
}

TEST(BenchJson, holds_a_product_against_the_limit_of_its_own_type) {
  const Ceilings all{.matmul_f32_tflops = 50, .matmul_bf16_tflops = 700, .matmul_f16_tflops = 600};
  EXPECT_EQ(matmul_ceiling(all, DType::f32), 50);
  EXPECT_EQ(matmul_ceiling(all, DType::bf16), 700);
  EXPECT_EQ(matmul_ceiling(all, DType::f16), 600);
  const Ceilings plain{.matmul_f32_tflops = 2};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) EXPECT_EQ(matmul_ceiling(plain, dtype), 2);
  BenchCase narrow = sample();
  narrow.dtype = DType::f16;
  const double limit = to_json(narrow).at("ceilings").at("matmul_tflops").as_number();
  EXPECT_EQ(limit, matmul_ceiling(ceilings({}), DType::f16));
  narrow.bytes = 0;
  EXPECT_DOUBLE_EQ(to_json(narrow).at("percent_of_limit").as_number(), 100 * 2 / limit);
}

TEST(RelativeError, is_the_largest_difference_as_part_of_the_largest_value) {
  const std::vector<double> exact = {1, -4, 2};
  EXPECT_EQ(relative_error(exact, exact), 0);
  EXPECT_EQ(relative_error(std::vector<double>{1, -4, 2.5}, exact), 0.125);
  EXPECT_TRUE(std::isnan(relative_error(std::vector<double>{std::nan(""), -4, 2.5}, exact)));
  EXPECT_TRUE(std::isinf(relative_error(std::vector<double>{1}, std::vector<double>{0})));
  EXPECT_THROW(relative_error(std::vector<double>{1}, exact), UsageError);
}

/// A bench whose operation is wrong must not pass: every case has a bound that its own error is far from.
TEST(OpBenches, every_update_agrees_with_f64) {
  for (const OpBench& bench : update_benches({})) EXPECT_LE(bench.error(), bench.error_bound) << bench.name;
}

}  // namespace
}  // namespace hearth::train::bench_timing_test
