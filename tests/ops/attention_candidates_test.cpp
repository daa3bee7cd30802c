// SPDX-License-Identifier: Apache-2.0
// What runs attention and windows on the CPU. That candidates compute the same is tested by attention_test.cpp,
// attention_segments_test.cpp and window_attention_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/cpu/amx.h"
#include "core/profiler.h"
#include "ops/attention/attention.h"
#include "ops/attention/window_attention.h"
#include "ops/dispatch/candidates.h"
#include "tests/support/error_message.h"

namespace hearth::test::attention_candidates_test {
namespace {

constexpr DType all_types[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

std::string expected_of(DType dtype) {
  return dtype == DType::bf16 && cpu::amx::has_bf16_vectors() ? "avx512_bf16" : "portable";
}

/// What ran the op forward, and what its gradient.
struct Choices {
  std::string forward, gradient;
  bool operator==(const Choices&) const = default;
};

template <class F>
Choices choices_of(const char* op, const F& run) {
  const Tensor y = run();
  const std::string forward = last_choice(op);
  backward(y, y.detach());
  return {forward, last_choice(op)};
}

Choices of_attention(DType dtype, std::int64_t queries, double dropout = 0) {
  return choices_of("attention", [&] {
    const Tensor q = requires_grad(Tensor::full({1, queries, 2, 8}, 0.5, dtype));
    const Tensor k = Tensor::full({1, 7, 2, 8}, 0.5, dtype);
    return attention(q, k, k, {.dropout = dropout});
  });
}

Choices of_windows(DType dtype) {
  return choices_of("window_attention", [&] {
    const Tensor qkv = requires_grad(Tensor::full({1, 4, 4, 24}, 0.5, dtype));
    return window_attention(qkv, Tensor::zeros({9, 2}, dtype == DType::f64 ? dtype : DType::f32),
                            {.heads = 2, .window = 2});
  });
}

TEST(AttentionCandidates, AreChosenByTypeAndQueries) {
  for (const DType dtype : all_types) {
    const std::string blocks = expected_of(dtype);
    EXPECT_EQ(of_attention(dtype, 4), (Choices{blocks, blocks})) << dtype;
    EXPECT_EQ(of_attention(dtype, 3), (Choices{"rows", blocks})) << dtype;
    EXPECT_EQ(of_attention(dtype, 3, 0.5), (Choices{blocks, blocks})) << dtype;
    EXPECT_EQ(of_windows(dtype), (Choices{blocks, blocks})) << dtype;
  }
}

TEST(AttentionCandidates, RunWhereTheyAreForced) {
  for (const DType dtype : all_types) {
    for (const char* const op : {"attention", "window_attention"}) {
      const ForceCandidate force(op, "portable");
      const bool windows = std::string(op) == "window_attention";
      EXPECT_EQ(windows ? of_windows(dtype) : of_attention(dtype, 3), (Choices{"portable", "portable"})) << dtype;
    }
    const ForceCandidate force("attention", "rows");
    EXPECT_EQ(of_attention(dtype, 9), (Choices{"rows", expected_of(dtype)})) << dtype;
  }
  if (!cpu::amx::has_bf16_vectors()) GTEST_SKIP() << "needs AVX-512 with bf16 products";
  const ForceCandidate force("attention", "avx512_bf16");
  EXPECT_EQ(of_attention(DType::bf16, 1), (Choices{"avx512_bf16", "avx512_bf16"}));
}

// A weight of 0.7 is 0.69921875 in bf16: 1 - 0.7 * 1.4296875 is negative, and positive where weights are rounded.
TEST(AttentionCandidates, RoundWeightsByProductsOfPairsAlone) {
  const Tensor q = Tensor::zeros({1, 5, 1, 3}, DType::bf16), k = Tensor::zeros({1, 2, 1, 3}, DType::bf16);
  const Tensor v = Tensor::of<double>({1, 2, 1, 3}, {1, 0, 1, -1.4296875, 0, -1.4296875}).to(DType::bf16);
  std::vector<float> bias;
  for (int i = 0; i < 5; ++i) bias.insert(bias.end(), {0.0f, std::log(0.7f)});
  std::vector<double> qkv(4 * 9), table(9);
  qkv[6] = 1, qkv[9 + 6] = -1.4296875, table[3] = std::log(0.7);
  const Tensor tokens = Tensor::of<double>({1, 2, 2, 9}, qkv).to(DType::bf16);
  for (const std::string name : {"rows", "avx512_bf16", "portable"}) {
    const bool rounds = name == "avx512_bf16";
    if (rounds && !cpu::amx::has_bf16_vectors()) continue;
    const ForceCandidate force("attention", name);
    const Tensor y = attention(q, k, v, {.bias = Tensor::of<float>({1, 5, 2}, bias)});
    EXPECT_EQ(y.to_doubles()[0] > 0, rounds) << name;
    if (name == "rows") continue;
    const ForceCandidate force_windows("window_attention", name);
    const Tensor windows =
        window_attention(tokens, Tensor::of<double>({9, 1}, table).to(DType::f32), {.heads = 1, .window = 2});
    EXPECT_EQ(windows.to_doubles()[0] > 0, rounds) << name;
  }
}

TEST(AttentionCandidates, SayWhyTheyRefuse) {
  const ForceCandidate force("attention", "avx512_bf16"), force_windows("window_attention", "avx512_bf16");
  EXPECT_PRED2(contains, error_message<UsageError>([] { (void)of_attention(DType::f32, 5); }),
               "attention: forced to avx512_bf16, which does not support this problem: avx512_bf16: heads are f32, not "
               "bf16");
  EXPECT_PRED2(contains, error_message<UsageError>([] { (void)of_windows(DType::f16); }), "heads are f16, not bf16");
  if (!cpu::amx::has_bf16_vectors()) {
    EXPECT_PRED2(contains, error_message<UsageError>([] { (void)of_attention(DType::bf16, 5); }), "no AVX-512");
  }
  const ForceCandidate force_rows("attention", "rows");
  EXPECT_PRED2(contains, error_message<UsageError>([] { (void)of_attention(DType::f32, 1, 0.5); }),
               "dropout is drawn for blocks of queries");
}

TEST(AttentionCandidates, ArePartOfProfiles) {
  profiler::start();
  (void)of_attention(DType::bf16, 5);
  (void)of_windows(DType::f32);
  profiler::stop();
  const auto summary = profiler::summary();
  for (const std::string& name : {"attention:" + expected_of(DType::bf16), std::string("window_attention:portable")}) {
    ASSERT_EQ(summary.count(name), 1U) << name;
    EXPECT_EQ(summary.at(name).calls, 2) << name;
    EXPECT_GT(summary.at(name).flops, 0) << name;
    EXPECT_EQ(summary.at(name.substr(0, name.find(':'))).flops, 0) << "reported where it is done";
  }
}

}  // namespace
}  // namespace hearth::test::attention_candidates_test
