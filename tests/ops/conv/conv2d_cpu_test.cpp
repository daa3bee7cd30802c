// SPDX-License-Identifier: Apache-2.0
// Every implementation of a convolution on the CPU, on all that it supports, against plain loops in double; and what
// is chosen by itself.
#include "ops/conv/cpu/conv2d_cpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/cpu/amx.h"
#include "core/cpu/isa.h"
#include "core/cpu/parallel.h"
#include "ops/conv/conv2d.h"
#include "ops/matmul/cpu/matmul_onednn.h"
#include "ops/onednn/onednn.h"
#include "ops/pointwise/operators.h"
#include "tests/ops/conv/plain_convolution.h"
#include "tests/ops/emulate_tiles.h"
#include "tests/support/error_message.h"
#include "tests/support/kept_threads.h"

namespace hearth::test::conv2d_cpu_test {
namespace {

using namespace conv;

std::vector<ConvShape> odd_shapes() {
  return {shape(2, 9, 7, 3, 5, 3, 3, 1, 1),
          shape(1, 8, 8, 1, 4, 5, 5, 1, 2),
          shape(3, 11, 13, 16, 32, 3, 3, 2, 1),
          shape(2, 14, 14, 32, 17, 1, 1, 1, 0),
          shape(2, 15, 15, 24, 40, 1, 1, 2, 0),
          shape(2, 12, 10, 6, 9, 3, 3, 1, 1, 1, 3),
          shape(4, 10, 10, 16, 16, 3, 3, 1, 1, 1, 16),
          shape(5, 13, 13, 8, 16, 3, 3, 1, 2, 2),
          shape(1, 32, 32, 3, 64, 7, 7, 2, 3),
          shape(11, 4, 4, 64, 64, 3, 3, 1, 1),
          shape(2, 5, 9, 16, 16, 1, 5, 1, 0),
          shape(9, 1, 1, 10, 7, 1, 1, 1, 0),
          shape(7, 2, 2, 128, 130, 3, 3, 1, 1),
          shape(5, 5, 4, 130, 128, 3, 2, 2, 1),
          shape(3, 6, 6, 128, 128, 3, 3, 1, 2, 2)};
}

// Of bf16: cases that differ in what the two bf16 kernels cut off, skip, repeat or leave without any tap.
std::vector<ConvShape> tile_shapes() {
  return {shape(8, 2, 2, 128, 128, 3, 3, 1, 1),        shape(15, 4, 3, 128, 160, 3, 3, 1, 1),
          shape(8, 5, 6, 160, 128, 3, 3, 2, 1),        shape(8, 1, 1, 128, 128, 3, 3, 1, 1),
          shape(8, 6, 7, 128, 128, 2, 3, 3, 0),        shape(8, 5, 5, 128, 128, 3, 3, 1, 2, 2),
          shape(2, 5, 7, 32, 8, 3, 3, 1, 1),           shape(7, 2, 2, 64, 16, 3, 3, 1, 1),
          shape(6, 9, 8, 32, 16, 3, 3, 2, 1),          shape(3, 1, 1, 32, 8, 3, 3, 1, 1),
          shape(4, 1, 3, 32, 8, 5, 5, 1, 2),           shape(5, 8, 8, 32, 24, 3, 3, 1, 2, 2),
          shape(4, 6, 5, 96, 40, 2, 3, 1, 0),          shape(3, 11, 9, 32, 8, 1, 3, 3, 2),
          shape(1, 4, 4, 32, 32, 1, 1, 1, 0),          uneven(shape(16, 5, 5, 128, 128, 3, 3, 2, 1), 3),
          uneven(shape(4, 7, 7, 32, 8, 3, 3, 2, 1), 4)};
}

// Convolutions whose output ends before the image does, as conv_transpose2d has them with output padding.
std::vector<ConvShape> cut_shapes() {
  return {cut(shape(2, 5, 6, 32, 32, 1, 1, 1, 0), 1, 2), cut(shape(2, 5, 6, 32, 32, 1, 1, 1, 0), 1, 0),
          cut(shape(2, 9, 8, 32, 64, 1, 1, 2, 0), 1, 1), cut(shape(3, 7, 7, 64, 32, 3, 3, 1, 2, 2), 1, 1),
          cut(shape(2, 7, 8, 128, 128, 3, 3, 1, 1), 2, 3)};
}

// In three chunks of images for the paired filter gradient, an odd image in the last.
ConvShape many_images() { return shape(9, 64, 64, 64, 8, 3, 3, 1, 1); }

class Conv2dCpu : public testing::Test {
 private:
  const KeptThreads threads_;
};

TEST_F(Conv2dCpu, F32MatchesPlainLoops) {
  Runs runs = check_shapes(odd_shapes(), {DType::f32, DType::f32});
  for (const Pass pass : all_passes) {
    EXPECT_EQ(runs["matmul"][pass], 2 * 3);
    EXPECT_EQ(runs["unfolded"][pass], 2 * 13);
    EXPECT_EQ(runs["onednn"][pass], cpu::dnn::available() ? 2 * 15 : 0);
  }
  EXPECT_TRUE(runs["direct_bf16"].empty() && runs["paired_bf16"].empty() && runs["stem_bf16"].empty());
  for (const Pass pass : all_passes) EXPECT_EQ(runs["winograd"][pass], 3);
}

TEST_F(Conv2dCpu, Bf16MatchesPlainLoops) {
  std::vector<ConvShape> shapes = odd_shapes();
  for (const ConvShape& s : tile_shapes()) shapes.push_back(s);
  for (const DType weights : {DType::f32, DType::bf16}) {
    Runs runs = check_shapes(shapes, {DType::bf16, weights});
    check_problem(
        {.shape = many_images(), .pass = Pass::backward_weights, .activations = DType::bf16, .weights = weights}, runs);
    EXPECT_GT(runs["matmul"][Pass::forward], 0);
    EXPECT_GT(runs["unfolded"][Pass::backward_data], 0);
    EXPECT_EQ(runs["direct_bf16"][Pass::forward] > 0, cpu::amx::has_bf16_vectors());
    EXPECT_EQ(runs["direct_bf16"][Pass::backward_data] > 0, cpu::amx::has_bf16_vectors());
    EXPECT_EQ(runs["paired_bf16"][Pass::backward_weights] > 0, cpu::amx::has_bf16_vectors());
    for (const Pass pass : all_passes) {
      EXPECT_GT(runs["winograd"][pass], 0);
      EXPECT_EQ(runs["amx"][pass] > 0, cpu::amx::unsupported().empty());
    }
    EXPECT_EQ(runs["onednn"][Pass::forward] > 0, cpu::dnn::has_hardware_bf16());
  }
}

TEST_F(Conv2dCpu, EmulatedTilesMatchPlainLoops) {
  const test::EmulateTiles emulate;
  for (const DType weights : {DType::f32, DType::bf16}) {
    Runs runs = check_shapes(tile_shapes(), {DType::bf16, weights});
    for (const Pass pass : all_passes) EXPECT_GT(runs["amx"][pass], 0);
  }
  Runs folded;
  for (const ConvShape& s : odd_shapes())
    for (const Pass pass : {Pass::forward, Pass::backward_weights})
      if (s.c % 32 != 0) check_problem({.shape = s, .pass = pass, .activations = DType::bf16}, folded);
  EXPECT_EQ(folded["amx"][Pass::forward], 2 * 8);
  EXPECT_EQ(folded["amx"][Pass::backward_weights], 2 * 8);
}

TEST_F(Conv2dCpu, PixelsUnderNoFilterMatchPlainLoops) {
  for (const Types types : {Types{DType::f32, DType::f32}, {DType::bf16, DType::f32}, {DType::bf16, DType::bf16}}) {
    Runs runs = check_shapes(cut_shapes(), types);
    for (const Pass pass : all_passes) {
      EXPECT_EQ(runs["matmul"][pass], 2 * 3);
      EXPECT_EQ(runs["unfolded"][pass], 2 * 5);
    }
    const test::EmulateTiles emulate;
    Runs tiles = check_shapes(cut_shapes(), types);
    for (const Pass pass : all_passes) EXPECT_EQ(tiles["amx"][pass] > 0, types.activations == DType::bf16);
  }
}

// Images of which a task copies some rows, and small ones of which it copies several.
TEST_F(Conv2dCpu, TilesCutImagesAlikeForAnyThreadCount) {
  const test::EmulateTiles emulate;
  for (const ConvShape& s : {shape(2, 40, 57, 128, 32, 3, 3, 1, 1), shape(1, 79, 60, 96, 64, 3, 3, 2, 1),
                             shape(2, 130, 131, 3, 64, 7, 7, 2, 3), uneven(shape(1, 45, 90, 64, 32, 5, 3, 2, 1), 21),
                             shape(13, 7, 7, 32, 96, 3, 3, 1, 1)})
    for (const Pass pass : all_passes) {
      const ConvProblem problem{.shape = s, .pass = pass, .activations = DType::bf16, .weights = DType::bf16};
      const Operands operands(problem);
      expect_near(run(kernels::conv2d_amx, problem, operands).main, plain_loops(problem, operands).main, 2e-5,
                  text_of(problem));
      std::set<std::string> found;
      for (const int pool : {1, 2, 5}) {
        cpu::set_threads(pool);
        found.insert(bits_of(kernels::conv2d_amx, problem, operands));
      }
      EXPECT_EQ(found.size(), 1u) << text_of(problem);
    }
}

TEST_F(Conv2dCpu, AnyThreadCountMatchesPlainLoops) {
  for (const int pool : {1, 2, 3}) {
    cpu::set_threads(pool);
    Runs runs;
    for (const Pass pass : all_passes)
      check_problem({.shape = shape(3, 12, 12, 16, 24, 3, 3, 1, 1), .pass = pass}, runs);
    cpu::parallel_chunks(2, [&](std::int64_t) {
      Runs own;
      check_problem({.shape = shape(3, 12, 12, 16, 24, 3, 3, 1, 1)}, own);
    });
  }
}

// The native bf16 kernels, and Winograd's without the mode.
TEST_F(Conv2dCpu, DeterministicModeGivesTheSameBitsForEveryThreadCount) {
  for (const ConvShape& s :
       {shape(10, 14, 14, 64, 32, 3, 3, 1, 1), shape(16, 28, 28, 32, 64, 1, 1, 1, 0),
        shape(7, 16, 16, 3, 64, 7, 7, 2, 3), shape(1, 16, 16, 16, 16, 3, 3, 2, 1), shape(8, 2, 2, 128, 256, 3, 3, 1, 1),
        shape(16, 4, 4, 128, 256, 3, 3, 1, 1), shape(8, 9, 9, 64, 32, 3, 3, 1, 1), shape(4, 9, 9, 40, 96, 3, 3, 1, 1),
        shape(3, 90, 37, 3, 40, 5, 5, 1, 2), many_images()})
    for (const DType activations : {DType::f32, DType::bf16})
      for (const Pass pass : all_passes)
        for (const bool deterministic : {false, true})
          for (const Conv2dCandidate* candidate : all_candidates) {
            const ConvProblem problem{
                .shape = s, .pass = pass, .activations = activations, .deterministic = deterministic};
            const bool own = candidate == &kernels::conv2d_direct_bf16 || candidate == &kernels::conv2d_paired_bf16 ||
                             candidate == &kernels::conv2d_stem_bf16 || candidate == &kernels::conv2d_winograd ||
                             candidate == &kernels::conv2d_amx;
            if ((!deterministic && !own) || !candidate->unsupported(problem).empty()) continue;
            const Operands operands(problem);
            std::set<std::string> found;
            for (const int pool : {1, 2, 3, 5, 8}) {
              cpu::set_threads(pool);
              found.insert(bits_of(*candidate, problem, operands));
            }
            EXPECT_EQ(found.size(), 1u) << candidate->name << " " << text_of(problem);
          }
}

TEST_F(Conv2dCpu, Bf16KernelsRoundOnce) {
  if (!cpu::amx::has_bf16_vectors()) GTEST_SKIP() << "needs AVX-512 with bf16 products";
  ConvProblem problem{.shape = shape(8, 3, 3, 128, 128, 3, 3, 1, 1), .activations = DType::bf16};
  Operands operands(problem);
  const std::vector<double> wide = run(kernels::conv2d_direct_bf16, problem, operands).main.to_doubles();
  problem.weights = DType::bf16;
  operands.w = operands.w.to(DType::bf16);
  EXPECT_EQ(run(kernels::conv2d_direct_bf16, problem, operands).main.to_doubles(), wide);
  problem.pass = Pass::backward_weights;
  const Tensor narrow = run(kernels::conv2d_paired_bf16, problem, operands).main;
  problem.weights = DType::f32;
  operands.w = operands.w.to(DType::f32);
  const Tensor dw = run(kernels::conv2d_paired_bf16, problem, operands).main;
  EXPECT_EQ(narrow.to_doubles(), dw.to(DType::bf16).to_doubles());
}

TEST_F(Conv2dCpu, DirectTakesSmallImagesOfFullBlocks) {
  if (!cpu::amx::has_bf16_vectors()) GTEST_SKIP() << "needs AVX-512 with bf16 products";
  if (cpu::amx::unsupported().empty()) GTEST_SKIP() << "this processor has matrix tiles";
  const auto taken = [](const ConvShape& s, Pass pass = Pass::forward, DType type = DType::bf16) {
    return takes(kernels::conv2d_direct_bf16, s, pass, type);
  };
  EXPECT_TRUE(taken(shape(32, 4, 4, 256, 256, 3, 3, 1, 1)));
  EXPECT_FALSE(taken(shape(32, 4, 4, 256, 256, 3, 3, 1, 1), Pass::backward_weights));
  EXPECT_FALSE(taken(shape(32, 4, 4, 256, 256, 3, 3, 1, 1), Pass::forward, DType::f32));
  EXPECT_FALSE(taken(shape(12, 4, 4, 256, 256, 3, 3, 1, 1)));
  EXPECT_FALSE(taken(shape(32, 4, 4, 256, 256, 1, 1, 1, 0)));
  EXPECT_FALSE(taken(shape(32, 4, 4, 264, 256, 3, 3, 1, 1)));
  EXPECT_FALSE(taken(shape(32, 4, 4, 256, 272, 3, 3, 1, 1)));
  EXPECT_FALSE(taken(shape(32, 8, 8, 256, 256, 3, 3, 1, 1)));
  EXPECT_TRUE(taken(shape(32, 8, 8, 256, 256, 3, 3, 1, 1), Pass::backward_data));
  EXPECT_FALSE(taken(shape(32, 28, 28, 256, 256, 3, 3, 1, 1), Pass::backward_data));
}

TEST_F(Conv2dCpu, PairedTakesOnlyWhatFillsItsTiles) {
  if (!cpu::amx::has_bf16_vectors()) GTEST_SKIP() << "needs AVX-512 with bf16 products";
  if (cpu::amx::unsupported().empty()) GTEST_SKIP() << "this processor has matrix tiles";
  const auto taken = [](const ConvShape& s, DType type = DType::bf16) {
    return takes(kernels::conv2d_paired_bf16, s, Pass::backward_weights, type);
  };
  EXPECT_TRUE(taken(shape(2, 8, 8, 32, 8, 3, 3, 1, 1)));
  EXPECT_FALSE(taken(shape(2, 8, 8, 32, 8, 3, 3, 1, 1), DType::f32));
  EXPECT_FALSE(taken(shape(2, 8, 8, 16, 8, 3, 3, 1, 1)));
  EXPECT_FALSE(taken(shape(2, 8, 8, 32, 12, 3, 3, 1, 1)));
  EXPECT_FALSE(taken(shape(2, 8, 8, 32, 8, 1, 1, 1, 0)));
  EXPECT_FALSE(taken(shape(1, 8, 8, 32, 8, 3, 3, 1, 1)));
  EXPECT_FALSE(taken(shape(8, 2, 2, 512, 512, 3, 3, 1, 1)));
  EXPECT_TRUE(taken(shape(16, 2, 2, 512, 512, 3, 3, 1, 1)));
  EXPECT_FALSE(taken(shape(2, 8, 8, 64, 16, 3, 3, 1, 1, 1, 2)));
  EXPECT_FALSE(takes(kernels::conv2d_paired_bf16, shape(2, 8, 8, 32, 8, 3, 3, 1, 1), Pass::forward));
}

TEST_F(Conv2dCpu, TilesTakeThePlaceOfVectors) {
  const test::EmulateTiles emulate;
  EXPECT_FALSE(takes(kernels::conv2d_stem_bf16, shape(16, 64, 64, 3, 64, 7, 7, 2, 3), Pass::forward));
  const ConvShape small = shape(32, 4, 4, 256, 256, 3, 3, 1, 1);
  for (const Pass pass : all_passes) {
    EXPECT_FALSE(takes(kernels::conv2d_direct_bf16, small, pass));
    EXPECT_FALSE(takes(kernels::conv2d_paired_bf16, small, pass));
    EXPECT_TRUE(takes(kernels::conv2d_amx, small, pass));
    EXPECT_EQ(takes(kernels::conv2d_amx, shape(32, 8, 8, 128, 128, 1, 1, 2, 0), pass), !cpu::dnn::available());
  }
}

// Every distinct convolution of ResNet-18 and -50 for square images.
std::vector<ConvShape> resnet_shapes(std::int64_t n, std::int64_t pixels) {
  std::vector<ConvShape> all{shape(n, pixels, pixels, 3, 64, 7, 7, 2, 3)};
  std::int64_t size = pixels / 4, in18 = 64, in50 = 64;
  for (std::int64_t width = 64; width <= 512; width *= 2) {
    const std::int64_t stride = width == 64 ? 1 : 2, out = size / stride, wide = width * 4;
    all.push_back(shape(n, size, size, in18, width, 3, 3, stride, 1));
    all.push_back(shape(n, out, out, width, width, 3, 3, 1, 1));
    if (stride == 2) all.push_back(shape(n, size, size, in18, width, 1, 1, 2, 0));
    all.push_back(shape(n, size, size, in50, width, 1, 1, 1, 0));
    all.push_back(shape(n, size, size, width, width, 3, 3, stride, 1));
    all.push_back(shape(n, out, out, width, wide, 1, 1, 1, 0));
    all.push_back(shape(n, size, size, in50, wide, 1, 1, stride, 0));
    all.push_back(shape(n, out, out, wide, width, 1, 1, 1, 0));
    in18 = width;
    in50 = wide;
    size = out;
  }
  return all;
}

TEST_F(Conv2dCpu, NoResNetLayerRunsReferenceCode) {
  if (!cpu::dnn::available()) GTEST_SKIP() << "built without oneDNN";
  // Other tests of the process may have asked for what the library does not take.
  std::set<std::string> before;
  for (const cpu::dnn::PlanInfo& plan : cpu::dnn::plans()) before.insert(plan.problem);
  for (const std::int64_t pixels : {64, 224})
    for (const ConvShape& s : resnet_shapes(2, pixels))
      for (const Pass pass : all_passes)
        for (const bool deterministic : {false, true})
          for (const DType activations : {DType::f32, DType::bf16}) {
            if (activations == DType::bf16 && !cpu::dnn::has_hardware_bf16()) continue;
            const ConvProblem problem{
                .shape = s, .pass = pass, .activations = activations, .deterministic = deterministic};
            EXPECT_EQ(kernels::conv2d_onednn.unsupported(problem), "") << text_of(problem);
          }
  for (const cpu::dnn::PlanInfo& plan : cpu::dnn::plans()) {
    EXPECT_TRUE(before.contains(plan.problem) || !plan.implementation.empty()) << plan.problem;
  }
}

/// What runs the pass of such images.
std::string choice(const ConvShape& s, Pass pass, DType dtype) {
  const ConvProblem problem{.shape = s, .activations = dtype, .weights = dtype};
  const Operands o(problem);
  kernels::conv2d(cpu::stream_of({}), s, pass, {o.x, o.w, Tensor(), o.y});
  return last_choice("conv2d");
}

TEST_F(Conv2dCpu, AddsTheGradientToWhatIsThere) {
  struct Case {
    ConvShape shape;
    const char* candidate;
    DType dtype;
  };
  const ConvShape square = shape(3, 9, 7, 20, 34, 3, 3, 1, 1);
  for (const auto& [s, candidate, dtype] : {Case{shape(2, 14, 14, 33, 17, 1, 1, 1, 0), "matmul", DType::f32},
                                            Case{shape(2, 14, 14, 32, 1030, 1, 1, 1, 0), "matmul", DType::bf16},
                                            Case{shape(2, 15, 14, 24, 40, 1, 1, 2, 0), "matmul", DType::f32},
                                            Case{shape(2, 15, 14, 24, 40, 1, 1, 2, 0), "matmul", DType::bf16},
                                            Case{square, "winograd", DType::f32}, Case{square, "winograd", DType::bf16},
                                            Case{square, "onednn", DType::f32}, Case{square, "im2col", DType::f64}}) {
    if (candidate == std::string("onednn") && !cpu::dnn::available()) continue;
    const ForceCandidate force("conv2d", candidate);
    const ConvProblem problem{.shape = s, .pass = Pass::backward_data, .activations = dtype, .weights = dtype};
    const Operands o(problem);
    std::vector<double> expected = plain_loops(problem, o).main;
    const std::vector<double> before = o.x.to_doubles();
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
    kernels::conv2d(cpu::stream_of({}), s, Pass::backward_data, {o.x, o.w, Tensor(), o.y, nullptr, true});
    expect_near(o.x, expected, 2e-5, join_text(candidate, " ", text_of(problem)));
  }
}

// The second of two gradients of one tensor is added by the convolution, into the first's memory.
TEST_F(Conv2dCpu, AddsToTheSumOfTheTape) {
  const Tensor x = requires_grad(Operands::draw({2, 6, 6, 8}, 1, DType::f32));
  const Tensor w = Operands::draw({8, 1, 1, 8}, 2, DType::f32);
  const Tensor h = x * 2.0, y = conv2d(h, w, Conv2dOptions{}), z = y + h * 3.0;
  const ChoiceLog log;
  backward(z, Tensor::full(z.shape(), 1));
  std::int64_t added = 0;
  for (const auto& [run, count] : log.runs())
    if (run.first.starts_with("conv2d:") && run.second.find(", added") != std::string::npos) added += count;
  EXPECT_EQ(added, 1);
  const std::vector<double> filters = w.to_doubles(), found = grad_of(x).to_doubles();
  for (std::size_t i = 0; i < found.size(); ++i) {
    double expected = 3;
    for (std::size_t k = 0; k < 8; ++k) expected += filters[k * 8 + i % 8];
    ASSERT_NEAR(found[i], 2 * expected, 1e-5) << i;
  }
}

TEST_F(Conv2dCpu, ChoosesInOrder) {
  const bool library = cpu::dnn::available();
  for (const Pass pass : all_passes) {
    EXPECT_EQ(choice(shape(2, 14, 14, 32, 16, 1, 1, 1, 0), pass, DType::f32), "matmul");
    EXPECT_EQ(choice(shape(2, 15, 15, 32, 16, 1, 1, 2, 0), pass, DType::f32), "matmul");
    EXPECT_EQ(choice(shape(8, 2, 2, 128, 128, 3, 3, 1, 1), pass, DType::f32), "unfolded");
    for (const DType type : {DType::f32, DType::f16}) {
      EXPECT_EQ(choice(shape(2, 12, 12, 8, 8, 3, 3, 1, 1), pass, type), library ? "onednn" : "im2col");
      EXPECT_EQ(choice(shape(2, 12, 12, 64, 64, 3, 3, 1, 1), pass, type), "winograd");
      // On AVX2 the library is slow at strided filter gradients.
      const bool slow = pass == Pass::backward_weights && cpu::isa() == cpu::Isa::v3;
      EXPECT_EQ(choice(shape(2, 12, 12, 64, 64, 3, 3, 2, 1), pass, type), library && !slow ? "onednn" : "im2col");
      EXPECT_EQ(choice(shape(2, 12, 12, 32, 64, 3, 3, 2, 1), pass, type), library ? "onednn" : "im2col");
    }
    EXPECT_EQ(choice(shape(2, 14, 14, 32, 16, 1, 1, 1, 0), pass, DType::f64), "im2col");
    // Many pixels of many channels: the library's convolution beats its product with transposed filters.
    const bool slow_product = library && pass == Pass::forward;
    EXPECT_EQ(choice(shape(2, 14, 14, 264, 16, 1, 1, 1, 0), pass, DType::f32), slow_product ? "onednn" : "matmul");
    if (!cpu::amx::has_bf16_vectors()) continue;
    const bool gradient = pass == Pass::backward_weights;
    if (cpu::amx::unsupported().empty()) {
      EXPECT_EQ(choice(shape(2, 16, 16, 256, 256, 3, 3, 1, 1), pass, DType::bf16), "amx");
      continue;
    }
    EXPECT_EQ(choice(shape(8, 4, 4, 128, 128, 3, 3, 1, 1), pass, DType::bf16),
              gradient ? "paired_bf16" : "direct_bf16");
    const std::string other = cpu::dnn::has_hardware_bf16() ? "onednn" : "im2col";
    EXPECT_EQ(choice(shape(2, 32, 32, 3, 64, 7, 7, 2, 3), pass, DType::bf16),
              pass == Pass::backward_data ? other : "stem_bf16");
  }
}

// A plan of the library's is made for what it runs, and thrown away for nothing else.
TEST_F(Conv2dCpu, PlansOnlyWhatTheLibraryRuns) {
  if (!cpu::dnn::available()) GTEST_SKIP() << "built without oneDNN";
  cpu::dnn::clear();
  const auto convolutions = [] {
    const auto plans = cpu::dnn::plans();
    return std::count_if(plans.begin(), plans.end(), [](const auto& p) { return p.problem.starts_with("conv2d"); });
  };
  for (const Pass pass : all_passes) {
    (void)choice(shape(3, 13, 13, 32, 16, 1, 1, 1, 0), pass, DType::f32);
    (void)choice(shape(9, 2, 2, 128, 128, 3, 3, 1, 1), pass, DType::f32);
    if (cpu::amx::has_bf16_vectors() && !cpu::amx::unsupported().empty())
      (void)choice(shape(16, 3, 4, 128, 128, 3, 3, 1, 1), pass, DType::bf16);
    EXPECT_EQ(convolutions(), 0);
  }
  (void)choice(shape(3, 13, 13, 16, 16, 3, 3, 1, 1), Pass::forward, DType::f32);
  EXPECT_EQ(convolutions(), 1);
}

TEST_F(Conv2dCpu, APinSaysWhatIsUnsupported) {
  const auto message = [](const char* candidate, const ConvShape& s, DType dtype) {
    const ForceCandidate force("conv2d", candidate);
    return error_message<UsageError>([&] { (void)choice(s, Pass::forward, dtype); });
  };
  const ConvShape small = shape(2, 6, 6, 8, 8, 3, 3, 1, 1);
  for (const Conv2dCandidate* candidate : all_candidates)
    EXPECT_PRED2(contains, message(candidate->name, small, DType::f64), "f64");
  EXPECT_PRED2(contains, message("matmul", small, DType::f32), "filters of 3x3");
  EXPECT_PRED2(contains, message("unfolded", shape(2, 6, 6, 8, 8, 3, 3, 1, 1, 1, 2), DType::f32), "2 groups");
  EXPECT_PRED2(contains, message("winograd", shape(2, 6, 6, 8, 8, 3, 3, 2, 1), DType::f32), "stride 2x2");
  EXPECT_PRED2(contains, message("winograd", shape(2, 6, 6, 8, 8, 3, 3, 1, 1, 2), DType::f32), "dilation 2x2");
  EXPECT_PRED2(contains, message("winograd", shape(2, 6, 6, 8, 8, 3, 2, 1, 1), DType::f32), "filters of 3x2");
  EXPECT_PRED2(contains, message("winograd", shape(2, 6, 6, 8, 8, 3, 3, 1, 1, 1, 2), DType::f32), "2 groups");
  {
    cpu::set_deterministic(true);
    EXPECT_PRED2(contains, message("winograd", small, DType::f32), "deterministic mode");
    cpu::set_deterministic(false);
  }
  EXPECT_PRED2(contains, message("direct_bf16", small, DType::f32), "bf16");
  EXPECT_PRED2(contains, message("paired_bf16", small, DType::bf16), "not a filter gradient");
  EXPECT_PRED2(contains, message("stem_bf16", small, DType::f32), "images of f32");
  EXPECT_PRED2(contains, message("stem_bf16", small, DType::bf16), "8 channels, more than 4");
  EXPECT_PRED2(contains, message("stem_bf16", shape(2, 6, 6, 4, 8, 3, 3, 1, 1, 1, 2), DType::bf16), "2 groups");
  EXPECT_PRED2(contains, message("stem_bf16", shape(2, 9, 9, 3, 8, 3, 3, 1, 1, 2), DType::bf16), "dilation 2x2");
  EXPECT_PRED2(contains, message("stem_bf16", shape(2, 9, 9, 3, 8, 2, 3, 3, 1), DType::bf16),
               "stride 3x3, beyond filters of 2x3");
  if (cpu::dnn::available()) return;
  EXPECT_PRED2(contains, message("onednn", small, DType::f32), "install libdnnl-dev");
}

}  // namespace
}  // namespace hearth::test::conv2d_cpu_test
