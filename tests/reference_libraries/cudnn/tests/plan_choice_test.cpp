// SPDX-License-Identifier: Apache-2.0
// Which of several engines a convolution gets, and what the file of choices has to do with it.
#include "ops/dispatch/plan_choice.h"
#include "core/cpu/parallel.h"
#include "core/cuda/graph.h"
#include "core/io/file.h"
#include "ops/conv/conv2d.h"
#include "ops/conv/cuda/conv2d_cudnn.h"
#include "tests/reference_libraries/cudnn/tests/reference.h"
#include "tests/support/error_message.h"
#include "tests/support/op_test.h"
#include "tests/support/temp_dir.h"
#include "tests/support/variable_scope.h"

namespace hearth::test {
namespace {

using reference_dnn::knobbed;
using reference_dnn::plain;
using reference_dnn::rounding;

constexpr Device gpu{DeviceType::cuda, 0};

class CudaEngineChoice : public CudaReferenceDnn {
 protected:
  CudaEngineChoice() { forget(); }
  ~CudaEngineChoice() override { forget(); }

  /// Plans and the file, as for a process that comes later.
  static void forget() {
    cuda::dnn::clear_plans();
    forget_plan_file();
  }
  static void make_slow(std::initializer_list<int> which) {
    for (const int i : which) controls().cost[static_cast<std::size_t>(i)] = 3000;
  }
  /// The engine of one small convolution, which is run once more than its plan is timed.
  static int engine() {
    const Tensor x = Tensor::full({1, 3, 3, 8}, 1, DType::bf16, gpu),
                 w = Tensor::full({4, 1, 1, 8}, 1, DType::bf16, gpu);
    EXPECT_EQ(conv2d(x, w).to_doubles(), std::vector<double>(36, 8.0));
    const std::array timed = controls().runs;
    EXPECT_EQ(conv2d(x, w).to_doubles(), std::vector<double>(36, 8.0));
    for (std::size_t i = 0; i < timed.size(); ++i)
      if (controls().runs[i] > timed[i]) return static_cast<int>(i);
    return -1;
  }
  static int later_engine() {
    forget();
    return engine();
  }
  static std::int64_t runs() {
    std::int64_t sum = 0;
    for (const std::int64_t count : controls().runs) sum += count;
    return sum;
  }
  std::string file() const { return (folder_ / "plans-1.jsonl").string(); }

  TempDir folder_;
  VariableScope cache_{"HEARTH_CACHE_DIR", folder_.path().string()};
  VariableScope timing_{"HEARTH_PLAN_TIMING", "on"};
};

TEST_F(CudaEngineChoice, TheFastestIsTakenAndKept) {
  make_slow({rounding, plain});
  EXPECT_EQ(engine(), knobbed);
  EXPECT_GT(cuda::dnn::microseconds({.shape = {.n = 1, .h = 3, .w = 3, .c = 8, .k = 4, .p = 3, .q = 3},
                                     .activations = DType::bf16,
                                     .weights = DType::bf16,
                                     .deterministic = cpu::deterministic()}),
            0.0);
  for (const int never : {reference_dnn::adding_anywhere, reference_dnn::spacious})
    EXPECT_EQ(controls().runs[static_cast<std::size_t>(never)], 0);
  const std::string kept = read_text(file());
  EXPECT_PRED2(contains, kept, "\"library\":\"cuDNN ");
  EXPECT_PRED2(contains, kept, "forward of bf16, [1, 3, 3, 8] by [4, 1, 1, 8] to [1, 3, 3, 4]");
  EXPECT_PRED2(contains, kept, "engine 4, knob ") << "with the knobs";

  // The next process takes it from the file, whatever is fast by then.
  controls() = {};
  make_slow({knobbed});
  EXPECT_EQ(later_engine(), knobbed);
  EXPECT_EQ(runs(), 2);
}

TEST_F(CudaEngineChoice, AWorkspaceIsTimedToo) {
  make_slow({rounding, knobbed});
  EXPECT_EQ(engine(), plain);
}

TEST_F(CudaEngineChoice, DeterministicModeTakesTheHeuristicsFirst) {
  make_slow({rounding});
  cpu::set_deterministic(true);
  EXPECT_EQ(engine(), rounding);
  cpu::set_deterministic(false);
  EXPECT_EQ(runs(), 2);
  EXPECT_FALSE(file_exists(file()));
}

TEST_F(CudaEngineChoice, TimingCanBeSwitchedOff) {
  make_slow({rounding});
  const VariableScope off("HEARTH_PLAN_TIMING", "off");
  EXPECT_EQ(engine(), rounding);
  EXPECT_EQ(runs(), 2);
}

TEST_F(CudaEngineChoice, WhatCannotBeKeptIsNotChosen) {
  make_slow({rounding});
  folder_.write("not-a-folder", {});
  const VariableScope nowhere("HEARTH_CACHE_DIR", (folder_ / "not-a-folder").string());
  EXPECT_EQ(later_engine(), rounding);
}

TEST_F(CudaEngineChoice, AnEngineThatIsNotSuggestedAnyMoreIsReplaced) {
  make_slow({rounding, plain});
  EXPECT_EQ(engine(), knobbed);
  controls().unsuggested = knobbed;
  controls().cost[rounding] = 0;
  EXPECT_EQ(later_engine(), rounding);
  EXPECT_EQ(later_engine(), rounding);
}

TEST_F(CudaEngineChoice, ADamagedFileIsReplaced) {
  make_slow({rounding, plain});
  EXPECT_EQ(engine(), knobbed);
  write_file_synced(file(), "{\"hearth_plans\":1}\n{\"library\":\"cuD");
  EXPECT_EQ(later_engine(), knobbed);
  EXPECT_EQ(later_engine(), knobbed);
  EXPECT_TRUE(plan_file().remarks.empty());
}

TEST_F(CudaEngineChoice, NothingIsTimedWhileAStepIsRecorded) {
  const Tensor x = Tensor::full({1, 2, 2, 8}, 1, DType::bf16, gpu), w = Tensor::full({4, 1, 1, 8}, 1, DType::bf16, gpu);
  const Tensor larger = Tensor::full({1, 9, 9, 8}, 1, DType::bf16, gpu);
  cuda::Arena arena(gpu);
  arena.run([&] { (void)conv2d(larger, w); });
  const std::string text = error_message<DeviceError>(
      [&] { (void)cuda::Graph::record(cuda::stream_of(gpu), arena, [&] { (void)conv2d(x, w); }); });
  EXPECT_PRED2(contains, text, "choosing cuDNN's plan for a new problem");
  EXPECT_EQ(conv2d(x, w).to_doubles(), std::vector<double>(16, 8.0)) << "and it can be chosen later";
}

}  // namespace
}  // namespace hearth::test
