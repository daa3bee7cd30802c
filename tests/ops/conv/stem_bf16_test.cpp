// SPDX-License-Identifier: Apache-2.0
// The bf16 kernels of first convolutions against plain loops in double.
#include <gtest/gtest.h>

#include <cmath>

#include "core/cpu/amx.h"
#include "ops/conv/cpu/conv2d_cpu.h"
#include "tests/ops/conv/plain_convolution.h"

namespace hearth::test::stem_bf16_test {
namespace {

using namespace conv;

// Of few channels: tiles of pixels, outputs and values of a filter that are not full, rows of an odd number of values,
// pixels at odd ones, an odd last pixel, filters that lie in the padding, and images in several parts.
std::vector<ConvShape> stem_shapes() {
  return {shape(2, 15, 77, 3, 20, 7, 7, 2, 3),
          shape(1, 9, 14, 3, 70, 5, 5, 3, 2),
          shape(2, 8, 9, 1, 100, 3, 4, 1, 1),
          shape(1, 7, 13, 2, 130, 2, 5, 1, 0),
          shape(3, 12, 12, 4, 16, 4, 4, 4, 0),
          shape(1, 1, 1, 3, 7, 3, 3, 1, 1),
          shape(1, 7, 15, 3, 16, 3, 3, 2, 0),
          shape(1, 3, 2, 3, 33, 3, 3, 1, 4),
          shape(2, 90, 37, 3, 64, 3, 3, 1, 1),
          shape(1, 70, 71, 1, 48, 11, 11, 4, 2),
          uneven(shape(2, 10, 11, 3, 17, 4, 3, 2, 1), 4),
          cut(shape(2, 14, 15, 3, 24, 5, 5, 2, 2), 2, 1)};
}

TEST(StemBf16, MatchesPlainLoops) {
  const int all = cpu::amx::has_bf16_vectors() ? 2 * static_cast<int>(stem_shapes().size()) : 0;
  for (const DType weights : {DType::f32, DType::bf16}) {
    Runs runs = check_shapes(stem_shapes(), {DType::bf16, weights});
    EXPECT_EQ(runs["stem_bf16"][Pass::forward], all);
    EXPECT_EQ(runs["stem_bf16"][Pass::backward_weights], all);
    EXPECT_EQ(runs["stem_bf16"][Pass::backward_data], 0);
  }
}

// Wherever plain loops have one.
TEST(StemBf16, PassesNaNAndInfinityOn) {
  if (!cpu::amx::has_bf16_vectors()) GTEST_SKIP() << "needs AVX-512 with bf16 products";
  const ConvShape s = shape(2, 12, 13, 3, 20, 3, 3, 2, 1);
  for (const double value : {std::nan(""), HUGE_VAL})
    for (const Pass pass : {Pass::forward, Pass::backward_weights})
      for (const bool in_x : {false, true}) {
        const ConvProblem problem{.shape = s, .pass = pass, .activations = DType::bf16};
        Operands o(problem);
        Tensor& operand = in_x ? o.x : pass == Pass::forward ? o.w : o.y;
        std::vector<double> values = operand.to_doubles();
        values[values.size() / 2] = value;
        operand = Tensor::of<double>(operand.shape(), values).to(operand.dtype());
        const std::vector<double> expected = plain_loops(problem, o).main,
                                  found = run(kernels::conv2d_stem_bf16, problem, o).main.to_doubles();
        std::size_t beyond = 0, finite = 0;
        for (std::size_t i = 0; i < expected.size(); ++i) {
          beyond += !std::isfinite(expected[i]);
          finite += std::isfinite(found[i]);
          EXPECT_TRUE(std::isfinite(expected[i]) || !std::isfinite(found[i])) << text_of(problem) << " at " << i;
        }
        EXPECT_GT(beyond, 0u);
        EXPECT_GT(finite, 0u);
      }
}

TEST(StemBf16, RoundsOnce) {
  if (!cpu::amx::has_bf16_vectors()) GTEST_SKIP() << "needs AVX-512 with bf16 products";
  for (const Pass pass : {Pass::forward, Pass::backward_weights}) {
    ConvProblem problem{.shape = shape(2, 20, 20, 3, 24, 7, 7, 2, 3), .pass = pass, .activations = DType::bf16};
    Operands operands(problem);
    const Tensor of_f32 = run(kernels::conv2d_stem_bf16, problem, operands).main;
    problem.weights = DType::bf16;
    operands.w = operands.w.to(DType::bf16);
    EXPECT_EQ(run(kernels::conv2d_stem_bf16, problem, operands).main.to_doubles(), of_f32.to(DType::bf16).to_doubles());
  }
}

TEST(StemBf16, TakesFewChannels) {
  if (!cpu::amx::has_bf16_vectors()) GTEST_SKIP() << "needs AVX-512 with bf16 products";
  if (cpu::amx::unsupported().empty()) GTEST_SKIP() << "this processor has matrix tiles";
  const auto taken = [](const ConvShape& s, Pass pass = Pass::forward, DType type = DType::bf16) {
    return takes(kernels::conv2d_stem_bf16, s, pass, type);
  };
  const ConvShape stem = shape(16, 224, 224, 3, 64, 7, 7, 2, 3);
  EXPECT_TRUE(taken(stem));
  EXPECT_TRUE(taken(stem, Pass::backward_weights));
  EXPECT_FALSE(taken(stem, Pass::backward_data));
  EXPECT_FALSE(taken(stem, Pass::forward, DType::f32));
  EXPECT_FALSE(taken(shape(16, 224, 224, 5, 64, 7, 7, 2, 3)));
  EXPECT_FALSE(taken(shape(16, 224, 224, 3, 64, 3, 3, 2, 1, 2)));
  EXPECT_FALSE(taken(shape(16, 224, 224, 4, 64, 3, 3, 2, 1, 1, 2)));
  EXPECT_FALSE(taken(shape(16, 224, 224, 3, 64, 3, 3, 4, 1)));
  EXPECT_TRUE(taken(shape(4, 224, 224, 3, 64, 3, 3, 1, 1)));
  EXPECT_FALSE(taken(shape(16, 224, 224, 3, 64, 3, 3, 1, 1)));
  EXPECT_TRUE(taken(shape(16, 224, 224, 3, 64, 3, 3, 1, 1), Pass::backward_weights));
  EXPECT_FALSE(taken(shape(16, 28, 28, 1, 8, 3, 3, 1, 1), Pass::backward_weights));
}

}  // namespace
}  // namespace hearth::test::stem_bf16_test
