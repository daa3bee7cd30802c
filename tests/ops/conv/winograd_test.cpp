// SPDX-License-Identifier: Apache-2.0
// Winograd's convolution against plain loops in double: shapes that its tiles do not fill, rounding, and where it is
// taken. The tests of all implementations are in conv2d_cpu_test.cpp.
#include "ops/conv/cpu/winograd.h"

#include <gtest/gtest.h>

#include <set>

#include "core/cpu/amx.h"
#include "core/cpu/parallel.h"
#include "tests/ops/conv/plain_convolution.h"
#include "tests/support/kept_threads.h"

namespace hearth::test::winograd_test {
namespace {

using namespace conv;

class Winograd : public testing::Test {
 private:
  const KeptThreads threads_;
};

// What Winograd's tiles, pieces of filters and vectors of channels cut off or leave empty, with more squares
// than filters and fewer, squares of a row or column less in one group of images and in several, the last of them
// smaller, many of them with filters for each half, and padding from none to more than filters reach.
std::vector<ConvShape> square_shapes() {
  return {shape(1, 1, 1, 1, 1, 3, 3, 1, 1),
          shape(1, 8, 8, 16, 24, 3, 3, 1, 1),
          shape(3, 5, 6, 13, 9, 3, 3, 1, 0),
          shape(1, 14, 14, 40, 50, 3, 3, 1, 1),
          shape(2, 7, 7, 70, 33, 3, 3, 1, 1),
          shape(2, 24, 31, 20, 17, 3, 3, 1, 1),
          shape(1, 3, 3, 8, 8, 3, 3, 1, 0),
          shape(1, 6, 5, 9, 100, 3, 3, 1, 4),
          shape(1, 20, 20, 300, 11, 3, 3, 1, 1),
          shape(1, 4, 4, 64, 300, 3, 3, 1, 1),
          uneven(shape(2, 9, 9, 4, 6, 3, 3, 1, 1), 9),
          shape(7, 7, 6, 20, 9, 3, 3, 1, 1),
          shape(5, 13, 15, 24, 17, 3, 3, 1, 1),
          shape(21, 7, 6, 300, 35, 3, 3, 1, 1),
          shape(9, 2, 2, 12, 40, 3, 3, 1, 1),
          shape(131, 2, 2, 132, 136, 3, 3, 1, 1)};
}

// The result of a pass by tiles of a size.
template <class T, class W>
Tensor made_by(int tile, const ConvProblem& problem, const Operands& o) {
  const Tensor& like = o.result(problem.pass);
  const Tensor made = Tensor::full(like.shape(), 9, like.dtype());
  const ConvShape& s = problem.shape;
  if (problem.pass == Pass::forward)
    kernels::winograd::forward(tile, s, o.x.data<T>(), o.w.data<W>(), o.b.data<float>(), false, made.data<T>());
  else if (problem.pass == Pass::backward_data)
    kernels::winograd::backward_data(tile, s, o.y.data<T>(), o.w.data<W>(), false, made.data<T>());
  else
    kernels::winograd::backward_weights(tile, s, o.x.data<T>(), o.y.data<T>(), made.data<W>());
  return made;
}

template <class T, class W>
void expect_plain_loops(int tile, double tolerance) {
  for (const ConvShape& s : square_shapes())
    for (const Pass pass : all_passes) {
      const ConvProblem problem{.shape = s, .pass = pass, .activations = dtype_of<T>(), .weights = dtype_of<W>()};
      const Operands operands(problem);
      expect_near(made_by<T, W>(tile, problem, operands), plain_loops(problem, operands).main, tolerance,
                  text_of(problem) + " by tiles of " + std::to_string(tile));
    }
}

// Wide tiles round ten times as much.
constexpr double narrow_error = 5e-6, wide_error = 4e-5;

TEST_F(Winograd, MatchesPlainLoops) {
  expect_plain_loops<float, float>(kernels::winograd::narrow_tile, narrow_error);
  expect_plain_loops<float, float>(kernels::winograd::wide_tile, wide_error);
}

// bf16 is exact in f32, and a result rounded once: half a unit of it and the errors of f32.
TEST_F(Winograd, RoundsBf16Once) {
  expect_plain_loops<bf16, float>(kernels::winograd::narrow_tile, narrow_error);
  expect_plain_loops<bf16, bf16>(kernels::winograd::narrow_tile, narrow_error);
  expect_plain_loops<bf16, float>(kernels::winograd::wide_tile, wide_error);
  expect_plain_loops<bf16, bf16>(kernels::winograd::wide_tile, wide_error);
}

TEST_F(Winograd, SumsTheBiasGradient) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const ConvProblem problem{
        .shape = shape(3, 5, 6, 13, 9, 3, 3, 1, 0), .pass = Pass::backward_weights, .activations = type};
    const Operands operands(problem);
    expect_near(run(kernels::conv2d_winograd, problem, operands).db, plain_loops(problem, operands).db, 2e-6, "db");
  }
}

// What f32 takes, and what bf16 does: wide tiles where images fill them.
TEST_F(Winograd, TakesTilesByTheirTime) {
  using kernels::winograd::tile_of;
  for (const Pass pass : all_passes) {
    EXPECT_EQ(tile_of(shape(16, 14, 14, 256, 256, 3, 3, 1, 1), pass, DType::f32), 4);
    EXPECT_EQ(tile_of(shape(16, 14, 14, 256, 256, 3, 3, 1, 1), pass, DType::bf16), 7);
    EXPECT_EQ(tile_of(shape(16, 56, 56, 64, 64, 3, 3, 1, 1), pass, DType::bf16), 7);
    EXPECT_EQ(tile_of(shape(32, 16, 16, 64, 64, 3, 3, 1, 1), pass, DType::bf16), 4);
    EXPECT_EQ(tile_of(shape(32, 4, 4, 256, 256, 3, 3, 1, 1), pass, DType::bf16), 4);
    // Many filters' gradients meet few squares.
    EXPECT_EQ(tile_of(shape(16, 7, 7, 512, 512, 3, 3, 1, 1), pass, DType::bf16),
              pass == Pass::backward_weights ? 4 : 7);
  }
}

template <class T>
void expect_not_finite(int tile) {
  const DType type = dtype_of<T>();
  const ConvProblem problem{.shape = shape(1, 14, 14, 16, 32, 3, 3, 1, 1), .activations = type, .weights = type};
  Operands o(problem);
  std::vector<double> x = o.x.to_doubles();
  x[0] = NAN, x[(14 * 14 - 1) * 16] = -INFINITY;
  o.x = Tensor::of<double>(o.x.shape(), x).to(type);
  const std::vector<double> y = made_by<T, T>(tile, problem, o).to_doubles();
  const auto at = [&](std::size_t i, std::size_t j, std::size_t k) { return y[(i * 14 + j) * 32 + k]; };
  for (std::size_t k = 0; k < 32; ++k) {
    EXPECT_TRUE(std::isnan(at(0, 0, k)) && std::isnan(at(1, 1, k)));
    EXPECT_FALSE(std::isfinite(at(12, 12, k)) || std::isfinite(at(13, 13, k)));
    EXPECT_TRUE(std::isfinite(at(5, 9, k)));
  }
}

TEST_F(Winograd, KeepsWhatIsNotFinite) {
  for (const int tile : {kernels::winograd::narrow_tile, kernels::winograd::wide_tile}) {
    expect_not_finite<float>(tile);
    expect_not_finite<bf16>(tile);
  }
}

TEST_F(Winograd, GivesTheSameBitsForEveryThreadCount) {
  for (const ConvShape& s : {shape(4, 9, 9, 40, 96, 3, 3, 1, 1), shape(3, 30, 25, 24, 33, 3, 3, 1, 1)})
    for (const Pass pass : all_passes)
      for (const int tile : {kernels::winograd::narrow_tile, kernels::winograd::wide_tile}) {
        const ConvProblem problem{.shape = s, .pass = pass};
        const Operands operands(problem);
        std::set<std::vector<double>> found;
        for (const int pool : {1, 2, 3, 4, 5, 6, 7, 8}) {
          cpu::set_threads(pool);
          found.insert(made_by<float, float>(tile, problem, operands).to_doubles());
        }
        EXPECT_EQ(found.size(), 1u) << text_of(problem) << " by tiles of " << tile;
      }
}

// Nearly as little as sums of the definition; the usual points of interpolation round two to three times as much.
TEST_F(Winograd, RoundsLittle) {
  struct Bound {
    ConvShape shape;
    double error;
  };
  for (const Bound& bound :
       {Bound{shape(2, 14, 14, 256, 32, 3, 3, 1, 1), 5e-6}, Bound{shape(8, 28, 28, 16, 16, 3, 3, 1, 1), 2.5e-6}})
    for (const Pass pass : all_passes) {
      const ConvProblem problem{.shape = bound.shape, .pass = pass};
      const Operands operands(problem);
      expect_near(run(kernels::conv2d_winograd, problem, operands).main, plain_loops(problem, operands).main,
                  bound.error, text_of(problem));
    }
}

TEST_F(Winograd, PassesItsResultsThroughARelu) {
  const ConvProblem problem{.shape = shape(2, 9, 7, 5, 19, 3, 3, 1, 1)};
  Operands o(problem);
  o.x.data<float>()[0] = NAN;
  const Tensor plain = run(kernels::conv2d_winograd, problem, o).main;
  kernels::Conv2dEpilogue epilogue{Activation::relu};
  kernels::conv2d_winograd.run(problem, {o.x, o.w, o.b, o.y, &epilogue});
  EXPECT_EQ(epilogue.activation, Activation::none);
  int negative = 0, nan = 0;
  for (std::int64_t i = 0; i < plain.size(); ++i) {
    const float before = plain.data<float>()[i], after = o.y.data<float>()[i];
    negative += before < 0;
    nan += std::isnan(before);
    ASSERT_TRUE(std::isnan(before) ? std::isnan(after) : after == std::max(before, 0.0f)) << i;
  }
  EXPECT_GT(negative, 100);
  EXPECT_GT(nan, 19);
}

TEST_F(Winograd, TakesBf16WhereItBeatsPairs) {
  if (!cpu::amx::has_bf16_vectors()) GTEST_SKIP() << "needs AVX-512 with bf16 products";
  const auto taken = [](const ConvShape& s, Pass pass) { return takes(kernels::conv2d_winograd, s, pass); };
  for (const Pass pass : all_passes) {
    const bool tiles = cpu::amx::unsupported().empty();
    EXPECT_EQ(taken(shape(16, 56, 56, 64, 64, 3, 3, 1, 1), pass), !tiles);
    EXPECT_EQ(taken(shape(16, 14, 14, 256, 256, 3, 3, 1, 1), pass), !tiles);
    EXPECT_EQ(taken(shape(16, 8, 8, 128, 128, 3, 3, 1, 1), pass), !tiles);
    EXPECT_EQ(taken(shape(16, 7, 7, 512, 512, 3, 3, 1, 1), pass), !tiles);
    EXPECT_FALSE(taken(shape(4, 7, 7, 512, 512, 3, 3, 1, 1), pass));
    EXPECT_FALSE(taken(shape(16, 4, 4, 256, 256, 3, 3, 1, 1), pass));
    EXPECT_EQ(taken(shape(8, 56, 56, 32, 32, 3, 3, 1, 1), pass), !tiles);
    EXPECT_FALSE(taken(shape(8, 56, 56, 16, 16, 3, 3, 1, 1), pass));
    EXPECT_FALSE(taken(shape(1, 14, 14, 256, 256, 3, 3, 1, 1), pass));
  }
}

TEST_F(Winograd, TakesWhatFillsItsTiles) {
  const auto taken = [](const ConvShape& s, Pass pass = Pass::forward) {
    return takes(kernels::conv2d_winograd, s, pass, DType::f32);
  };
  for (const Pass pass : all_passes) {
    EXPECT_TRUE(taken(shape(8, 56, 56, 64, 64, 3, 3, 1, 1), pass));
    EXPECT_TRUE(taken(shape(1, 14, 14, 256, 256, 3, 3, 1, 1), pass));
    EXPECT_TRUE(taken(shape(8, 7, 7, 512, 512, 3, 3, 1, 1), pass));
    EXPECT_FALSE(taken(shape(32, 2, 2, 512, 512, 3, 3, 1, 1), pass));
    EXPECT_FALSE(taken(shape(8, 56, 56, 8, 8, 3, 3, 1, 1), pass));
    EXPECT_FALSE(taken(shape(8, 56, 56, 3, 64, 3, 3, 1, 1), pass));
    EXPECT_FALSE(taken(shape(8, 56, 56, 64, 64, 3, 3, 2, 1), pass));
  }
  // The library's filter gradients are slower.
  EXPECT_FALSE(taken(shape(8, 56, 56, 16, 16, 3, 3, 1, 1)));
  EXPECT_TRUE(taken(shape(8, 56, 56, 16, 16, 3, 3, 1, 1), Pass::backward_weights));
  // Few squares for the transforms of many filters.
  EXPECT_FALSE(taken(shape(1, 7, 7, 512, 512, 3, 3, 1, 1)));
  // An output of 4x4 is one square; the gradient of its images, of 6x6, is four.
  EXPECT_TRUE(taken(shape(8, 6, 6, 128, 128, 3, 3, 1, 0)));
  EXPECT_FALSE(taken(shape(8, 6, 6, 128, 128, 3, 3, 1, 0), Pass::backward_data));
}

}  // namespace
}  // namespace hearth::test::winograd_test
