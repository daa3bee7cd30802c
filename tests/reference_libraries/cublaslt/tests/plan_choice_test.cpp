// SPDX-License-Identifier: Apache-2.0
// Which of several plans a product gets, and what the file of choices has to do with it.
#include "core/cpu/parallel.h"
#include "core/io/file.h"
#include "core/memory/memory.h"
#include "ops/dispatch/repeatable.h"
#include "ops/matmul/cuda/matmul_cublaslt.h"
#include "ops/matmul/matmul.h"
#include "tests/emulated_gpu/runtime.h"
#include "tests/reference_libraries/cublaslt/tests/reference.h"
#include "tests/support/op_test.h"

namespace hearth::test {
namespace {

using Choice = PlanChoice;
using cuda::blas::PlanInfo;
namespace blas = cuda::blas;
using reference_blas::halves;
using reference_blas::in_place;
using reference_blas::narrow;
using reference_blas::plain;
using reference_blas::spacious;
using reference_blas::unaligned;
using reference_blas::wide;

constexpr Device gpu{DeviceType::cuda};

class CudaPlanChoice : public CudaReferenceBlas {
 protected:
  static void make_slow(std::initializer_list<int> which) {
    for (const int i : which) controls().cost[static_cast<std::size_t>(i)] = 3000;
  }

  /// One small product of ones, and what is known of its plan.
  static PlanInfo plan_of_a_product() {
    const Tensor a = Tensor::full({4, 8}, 1, DType::f32, gpu), b = Tensor::full({8, 4}, 1, DType::f32, gpu);
    EXPECT_EQ(matmul(a, b, {}).to_doubles(), std::vector<double>(16, 8.0));
    const std::vector<PlanInfo> plans = blas::plans();
    EXPECT_EQ(plans.size(), 1u);
    return plans.at(0);
  }
  static void forget() {
    blas::clear_plans();
    forget_plan_file();
  }
  /// The same in a process that comes later.
  static PlanInfo plan_of_a_later_product() {
    forget();
    return plan_of_a_product();
  }
  static std::int64_t products() {
    std::int64_t sum = 0;
    for (const std::int64_t runs : controls().runs) sum += runs;
    return sum;
  }
  std::string file() const { return (folder_ / "plans-1.jsonl").string(); }
};

TEST_F(CudaPlanChoice, TheFastestIsTakenAndKept) {
  make_slow({plain, unaligned, narrow});
  const PlanInfo first = plan_of_a_product();
  EXPECT_EQ(first.choice, Choice::timed);
  EXPECT_EQ(first.offered, 4u) << "plain, halves, unaligned and narrow fit";
  EXPECT_EQ(first.taken, 1u);
  for (const int never : {wide, spacious, in_place}) EXPECT_EQ(controls().runs[static_cast<std::size_t>(never)], 0);

  // The next process takes it from the file, whatever is fast by then.
  controls() = {};
  make_slow({halves});
  const PlanInfo later = plan_of_a_later_product();
  EXPECT_EQ(later.choice, Choice::kept);
  EXPECT_EQ(later.taken, 1u);
  EXPECT_EQ(later.microseconds, first.microseconds);
  EXPECT_EQ(products(), 1);
  EXPECT_EQ(controls().runs[halves], 1);
  EXPECT_EQ(plan_file().plans, 1u);
}

// What an epilogue reads and writes is there while its plans are timed.
TEST_F(CudaPlanChoice, ProductsWithEpiloguesAreTimed) {
  const MatmulProblem product{.m = 16, .n = 8, .k = 24, .a = DType::bf16, .b = DType::bf16, .c = DType::bf16};
  std::vector<MatmulProblem> problems(3, product);
  problems[0].has_bias = problems[0].keeps_pre = true;
  problems[0].activation = Activation::gelu_tanh;
  problems[1].slope = Activation::gelu_tanh;
  problems[2].has_bias = true;
  problems[2].activation = Activation::relu;
  const auto zeros = [](const Shape& shape) { return Tensor::zeros(shape, DType::bf16, gpu); };
  const Tensor a = zeros({16, 24}), b = zeros({24, 8}), vector = zeros({16}), c = zeros({16, 8}),
               beside = zeros({16, 8});
  for (const MatmulProblem& problem : problems) {
    ASSERT_EQ(blas::unsupported(problem), "") << problem;
    blas::matmul(cuda::stream_of(gpu), problem,
                 {.a = a.bytes(),
                  .b = b.bytes(),
                  .bias = vector.bytes(),
                  .c = c.bytes(),
                  .pre = beside.bytes(),
                  .slope_at = beside.bytes()});
    const PlanInfo plan = blas::plans().back();
    EXPECT_EQ(plan.choice, Choice::timed) << problem << ": " << plan.why;
    EXPECT_GT(plan.microseconds, 0) << problem;
    blas::clear_plans();
  }
}

TEST_F(CudaPlanChoice, AWorkspaceIsGivenBack) {
  make_slow({plain, unaligned, narrow});
  (void)plan_of_a_product();
  const std::int64_t before = memory_of(gpu).statistics().in_use;
  (void)plan_of_a_product();
  EXPECT_GE(controls().runs[halves], 2) << "it has a workspace";
  EXPECT_EQ(memory_of(gpu).statistics().in_use, before);
}

TEST_F(CudaPlanChoice, AProblemIsPlannedOnce) {
  (void)plan_of_a_product();
  const std::int64_t before = products();
  (void)plan_of_a_product();
  EXPECT_EQ(controls().questions, 1);
  EXPECT_EQ(products(), before + 1);
}

/// 2049 + 1, a sum of f16 that is 2050 only if the first half of it is not rounded; in a result of this type.
double sum_of_two_halves(DType result) {
  std::vector<double> rows(8 * 16, 0.0);
  rows[0] = 2048, rows[1] = rows[8] = 1;
  const Tensor a = Tensor::of<double>({8, 16}, rows).to(DType::f16).to(gpu),
               b = Tensor::full({16, 8}, 1, DType::f16, gpu), c = Tensor::empty({8, 8}, result, gpu);
  const MatmulProblem problem{.m = 8, .n = 8, .k = 16, .a = DType::f16, .b = DType::f16, .c = result};
  blas::matmul(cuda::stream_of(gpu), problem, {.a = a.bytes(), .b = b.bytes(), .c = c.bytes()});
  return c.to_doubles()[0];
}

// Each part would be rounded to the 16 bits of the result.
TEST_F(CudaPlanChoice, PartsOfSixteenBitResultsAreAddedInF32) {
  for (const DType result : {DType::f16, DType::f32}) {
    blas::clear_plans();
    controls() = {};
    make_slow({plain, halves, unaligned});
    EXPECT_EQ(sum_of_two_halves(result), 2050);
    EXPECT_EQ(controls().runs[narrow] > 0, result == DType::f32);
    EXPECT_EQ(controls().runs[in_place], 0);
  }
}

TEST_F(CudaPlanChoice, AlgorithmsThatDoNotRepeatAreOfferedWhereThatIsAllowed) {
  make_slow({plain, halves, unaligned, narrow});
  set_repeatable(false);
  const Tensor a = Tensor::full({4, 8}, 1, DType::bf16, gpu), b = Tensor::full({8, 4}, 1, DType::bf16, gpu);
  EXPECT_EQ(matmul(a, b, {}).to_doubles(), std::vector<double>(16, 8.0));
  set_repeatable(true);
  EXPECT_GT(controls().runs[in_place], 0);
  EXPECT_GT(controls().runs[narrow], 0);
  controls().runs = {};
  EXPECT_EQ(matmul(a, b, {}).to_doubles(), std::vector<double>(16, 8.0));
  EXPECT_EQ(blas::plans().size(), 2u) << "one is no plan of the other's";
  EXPECT_EQ(controls().runs[in_place], 0);
  EXPECT_EQ(controls().runs[narrow], 0);
}

TEST_F(CudaPlanChoice, DeterministicModeTakesTheHeuristicsFirst) {
  make_slow({plain});
  cpu::set_deterministic(true);
  const PlanInfo plan = plan_of_a_product();
  cpu::set_deterministic(false);
  EXPECT_EQ(plan.choice, Choice::heuristic);
  EXPECT_EQ(plan.taken, 0u);
  EXPECT_EQ(plan.why, "deterministic mode");
  EXPECT_EQ(products(), 1);
  EXPECT_FALSE(file_exists(file()));
}

using CudaPlanChoiceOnTwoDevices = CudaPlanChoice;

TEST_F(CudaPlanChoiceOnTwoDevices, APlanIsForThatOfTheMatrices) {
  if (device_count(DeviceType::cuda) < 2) GTEST_SKIP() << "there is one device (HEARTH_EMULATE_DEVICES)";
  const Device second{DeviceType::cuda, 1};
  const Tensor a = Tensor::full({4, 8}, 1, DType::f32, second), b = Tensor::full({8, 4}, 1, DType::f32, second);
  EXPECT_EQ(matmul(a, b, {}).to_doubles(), std::vector<double>(16, 8.0));
  EXPECT_EQ(blas::plans().size(), 1u) << "and not one for the first device too";
}

TEST_F(CudaPlanChoice, TimingCanBeSwitchedOff) {
  make_slow({plain});
  const VariableScope off("HEARTH_PLAN_TIMING", "off");
  const PlanInfo plan = plan_of_a_product();
  EXPECT_EQ(plan.choice, Choice::heuristic);
  EXPECT_EQ(products(), 1);
}

TEST_F(CudaPlanChoice, AnotherWordForTheSwitchIsRefused) {
  const VariableScope wrong("HEARTH_PLAN_TIMING", "of");
  refuses<ConfigError>("HEARTH_PLAN_TIMING", [] { return plan_of_a_product(); });
}

// A choice that the next process would not know of is none: resumed runs would differ.
TEST_F(CudaPlanChoice, WhatCannotBeKeptIsNotChosen) {
  make_slow({plain, unaligned, narrow});
  folder_.write("not-a-folder", {});
  const VariableScope nowhere("HEARTH_CACHE_DIR", (folder_ / "not-a-folder").string());
  const PlanInfo plan = plan_of_a_later_product();
  EXPECT_EQ(plan.choice, Choice::heuristic);
  EXPECT_EQ(plan.taken, 0u);
  EXPECT_NE(plan.why.find("could not be kept"), std::string::npos) << plan.why;
  EXPECT_FALSE(plan_file().remarks.empty());
}

// Nor may it depend on how much memory a process happened to have free.
TEST_F(CudaPlanChoice, WithoutRoomForTimingTheFirstIsKept) {
  make_slow({plain, unaligned, narrow});
  const MatmulProblem problem{.m = 4, .n = 4, .k = 8, .deterministic = cpu::deterministic()};
  (void)cuda::stream_of(gpu);  // has what it needs for itself
  const cuda::emulate::Settings before = cuda::emulate::settings();
  cuda::emulate::Settings full = before;
  full.memory_bytes = cuda::emulate::memory_in_use(0) + 512;
  cuda::emulate::apply(full);
  EXPECT_EQ(blas::unsupported(problem), "");
  cuda::emulate::apply(before);
  ASSERT_EQ(blas::plans().size(), 1u);
  const PlanInfo plan = blas::plans()[0];
  EXPECT_EQ(plan.choice, Choice::heuristic);
  EXPECT_NE(plan.why.find("too little"), std::string::npos) << plan.why;
  EXPECT_EQ(products(), 0);
  const PlanInfo later = plan_of_a_later_product();
  EXPECT_EQ(later.choice, Choice::kept);
  EXPECT_EQ(later.taken, 0u);
  EXPECT_EQ(products(), 1);
}

TEST_F(CudaPlanChoice, APlanThatIsNotOfferedAnyMoreIsReplaced) {
  make_slow({plain, unaligned, narrow});
  EXPECT_EQ(plan_of_a_product().taken, 1u);
  controls().withheld = halves;
  controls().cost[plain] = 0;
  const PlanInfo plan = plan_of_a_later_product();
  EXPECT_EQ(plan.choice, Choice::timed);
  EXPECT_EQ(plan.taken, 0u);
  const std::int64_t before = products();
  EXPECT_EQ(plan_of_a_later_product().choice, Choice::kept);
  EXPECT_EQ(products(), before + 1);
}

TEST_F(CudaPlanChoice, ADamagedFileIsSaidAndReplaced) {
  make_slow({plain, unaligned, narrow});
  (void)plan_of_a_product();
  write_file_synced(file(), "{\"hearth_plans\":1}\n{\"library\":\"cuBL");
  forget();
  ASSERT_EQ(plan_file().remarks.size(), 1u);
  EXPECT_NE(plan_file().remarks[0].find("line 2"), std::string::npos);
  EXPECT_EQ(plan_of_a_product().choice, Choice::timed);
  EXPECT_EQ(plan_of_a_later_product().choice, Choice::kept);
  EXPECT_TRUE(plan_file().remarks.empty());
}

}  // namespace
}  // namespace hearth::test
