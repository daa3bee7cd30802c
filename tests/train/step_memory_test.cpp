// SPDX-License-Identifier: Apache-2.0
// The memory of a run on the CPU: estimated from small batches, against what the allocator reports at others; and the
// command that prints it.
#include "train/memory/step_memory.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "core/build.h"
#include "core/io/json_text.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/run_program.h"
#include "tests/train/estimated_memory.h"

namespace hearth::train::step_memory_test {
namespace {

using test::contains;
using test::MemoryRun;

TEST(StepMemory, EstimatesTheCpuAtTwoBatches) {
  const MemoryRun run{.model = test::digits_resnet, .data = test::images_of_8};
  for (const std::int64_t batch : {48, 160}) run.expect_estimated({8, 16}, batch, 0.01);
}

TEST(StepMemory, EstimatesAccumulationClippingAveragesAndLowPrecision) {
  // Without a loader of its own thread, which on a busy machine is not ahead at any step's peak.
  const MemoryRun run{.model = test::digits_resnet,
                      .data = R"({"type": "digits", "workers": 0})",
                      .train = R"(, "accumulate": 3, "clip_norm": 1, "ema": 0.9)",
                      .top_level = R"(, "precision": {"level": "O1", "dtype": "bf16"}, "eval": {"batch_size": 500})"};
  run.expect_estimated({8, 16}, 48, 0.05);
  EXPECT_GT(run.estimated({2, 4}, 48).averages, 0);
}

TEST(StepMemory, EstimatesLowPrecisionWeightsAndLossScaling) {
  const MemoryRun o0{.model = test::digits_resnet, .data = test::images_of_8};
  for (const char* dtype : {"bf16", "f16"}) {
    const MemoryRun run{.model = test::digits_resnet,
                        .data = test::images_of_8,
                        .top_level = std::string(R"(, "precision": {"level": "O2", "dtype": ")") + dtype + "\"}"};
    run.expect_estimated({8, 16}, 96, 0.05);
    // Values in f32 and in 16 bits; the rest of the state is as in O0.
    const MemoryNeed narrow = run.estimated({2, 4}, 96), wide = o0.estimated({2, 4}, 96);
    EXPECT_EQ(2 * narrow.parameters, 3 * wide.parameters);
    EXPECT_EQ(narrow.gradients, wide.gradients);
    EXPECT_EQ(narrow.optimizer, wide.optimizer);
    EXPECT_LT(narrow.kept, 0.6 * static_cast<double>(wide.kept));
  }
}

TEST(StepMemory, PartsAddUpToAStep) {
  const MemoryRun run{.model = R"({"type": "mlp", "hidden": [128, 64]})",
                      .data = R"({"type": "digits", "workers": 0})"};
  const MemoryNeed need = run.estimated({8, 16}, 256);
  const std::int64_t weights = 64 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10;
  // Each parameter begins on a line of 64 bytes.
  EXPECT_GE(need.parameters, 4 * weights);
  EXPECT_LT(need.parameters, 4 * weights + 6 * 64);
  EXPECT_EQ(need.gradients, need.parameters);
  EXPECT_EQ(need.optimizer, need.parameters);
  EXPECT_EQ(need.inputs, 256 * (64 * 4 + 8));
  // Forward keeps at least the inputs of the second and third layer.
  EXPECT_GE(need.kept, 256 * 4 * (128 + 64));
  const std::int64_t step = need.parameters + need.gradients + need.optimizer + need.averages + need.buffers +
                            need.other + need.inputs + need.kept + need.working;
  EXPECT_EQ(std::max(step, need.peak), need.peak);
  EXPECT_GE(need.reserved, need.peak);
}

TEST(StepMemory, FindsTheLargestBatchOfABudget) {
  test::TempDir folder;
  const MemoryRun run{.model = test::digits_resnet};
  const auto session = run.session(folder, 32, 1);
  const StepMemory memory(*session, {2, 4}, DeviceType::cpu);
  const std::int64_t granted = memory.at(77).peak;
  EXPECT_EQ(memory.largest_batch({.limit = granted}, 100000), 77);
  EXPECT_EQ(memory.largest_batch({.limit = granted - 1}, 100000), 76);
  EXPECT_EQ(memory.largest_batch({.limit = granted}, 50), 50);
  EXPECT_EQ(memory.largest_batch({.limit = memory.at(1).peak - 1}, 100000), std::nullopt);
}

class SummaryCommand : public testing::Test {
 protected:
  Json summary(const std::vector<std::string>& more = {}) {
    std::vector<std::string> words{test::hearth_program(), "plan",
                                   test::source_dir() + "/examples/configs/digits_resnet.json", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const test::ProgramResult result = test::run_program(words, folder_.path());
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return parse_json(result.out, "stdout");
  }
  test::TempDir folder_;
};

TEST_F(SummaryCommand, PrintsTheMemoryOfTheConfiguredBatch) {
  const Json small = summary(), large = summary({"--set", "train.batch_size=64"});
  EXPECT_EQ(small.at("batch_size").as_integer(), 32);
  const Json &a = small.at("memory"), &b = large.at("memory");
  EXPECT_NEAR(b.at("saved_bytes").as_number(), 2 * a.at("saved_bytes").as_number(), 1e4) << "statistics do not grow";
  EXPECT_EQ(b.at("parameter_bytes").as_integer(), a.at("parameter_bytes").as_integer());
  EXPECT_GT(b.at("peak_bytes").as_integer(), a.at("peak_bytes").as_integer());
  EXPECT_EQ(a.at("device").as_string(), "cpu");
  EXPECT_PRED2(contains, a.at("method").as_string(), "batches 16 and 32");
  std::int64_t kept = 0;
  for (const Json& layer : small.at("layers").items()) kept += layer.at("saved_bytes").as_integer();
  EXPECT_GT(kept, a.at("saved_bytes").as_integer() / 2) << "most is kept by layers";
  EXPECT_LE(kept, a.at("saved_bytes").as_integer());
}

// Fails as a user would see it, then trains with the batch size that the failure recommends.
void expect_advice_that_works(const char* variable, const char* megabytes, const std::string& device,
                              const std::string& batch, const char* reason) {
  const test::TempDir folder;
  // The program uses its pool, also where this one is told to do without.
  const char* const memory = std::getenv("HEARTH_MEMORY");
  const std::string otherwise = memory == nullptr ? "" : memory;
  unsetenv("HEARTH_MEMORY");
  setenv(variable, megabytes, 1);
  const std::string config = test::source_dir() + "/examples/configs/digits_resnet.json";
  const auto train = [&](const std::string& batch_size) {
    return test::run_program(
        {test::hearth_program(), "train", config, "--device", device, "--out", folder / "run", "--resume", "never",
         "--set", "train.steps=4", "--set", "train.epochs=null", "--set", "train.batch_size=" + batch_size, "--set",
         // Few to evaluate on, for the time it takes.
         R"(data={"type": "synthetic", "classes": 10, "height": 8, "width": 8, "channels": 1,
          "train_size": 640, "test_size": 8})"},
        folder.path());
  };
  const test::ProgramResult failed = train(batch);
  EXPECT_EQ(failed.exit_code, 4) << failed.err;
  const std::string line = failed.last_error_line();
  EXPECT_EQ(line.find("hearth: error: memory: tensor f32 ["), 0u) << failed.err;
  for (const char* part : {" of layer", " bytes asked", " in use", reason, " would fit ("})
    EXPECT_PRED2(contains, line, part);
  EXPECT_PRED2(contains, failed.err, "\nthe largest tensors on " + std::string(device == "cuda" ? "cuda:0" : "cpu"));
  EXPECT_PRED2(contains, failed.err, ", made by ");
  const std::string key = "train.batch_size=";
  const std::size_t begin = line.find(key);
  std::string advised;
  if (begin != std::string::npos) advised = line.substr(begin + key.size(), line.find(' ', begin) - begin - key.size());
  EXPECT_NE(advised, "") << line;
  if (!advised.empty()) {
    EXPECT_GE(std::stoi(advised), 8) << line;
    EXPECT_LT(std::stoi(advised), std::stoi(batch)) << line;
    const test::ProgramResult trained = train(advised);
    EXPECT_EQ(trained.exit_code, 0) << line << "\n" << trained.err;
  }
  unsetenv(variable);
  if (!otherwise.empty()) setenv("HEARTH_MEMORY", otherwise.c_str(), 1);
}

MemoryBudget limit_of(std::int64_t bytes) { return {.limit = bytes}; }

TEST(RunThatDoesNotFit, IsRefusedBeforeItsFirstStep) {
  const test::TempDir folder;
  const MemoryRun run{.model = test::digits_resnet, .data = test::images_of_8};
  const auto session = run.session(folder, 256, 1);
  const std::string message = test::error_message<OutOfMemory>([&] { require_run_fits(*session, limit_of(6000000)); });
  for (const char* part :
       {"a run at batch 256 is estimated to need ", " bytes; 6000000 are available on cpu; train.batch_size="})
    EXPECT_PRED2(contains, message, part);
  const auto fits = run.session(folder, 8, 1);
  EXPECT_NO_THROW(require_run_fits(*fits, limit_of(6000000)));
}

TEST(RunThatDoesNotFit, WasNotLookedAtWhereItFits) {
  const test::TempDir folder;
  const MemoryRun run{.model = test::digits_resnet,
                      .data = test::images_of_8,
                      .train = R"(, "ema": 0.9, "clip_norm": 1)",
                      .top_level = R"(, "precision": {"level": "O2", "dtype": "f16"})"};
  const auto trained = [&](bool looked_at) {
    const auto session = run.session(folder, 8, 3);
    if (looked_at) require_run_fits(*session, limit_of(std::int64_t{1} << 40));
    test::TempDir out;
    RunFolder into(out / "run");
    std::ostringstream log;
    Progress progress(log, false);
    (void)Trainer(*session, into, progress).run("test");
    return session->model_state.hash() + session->training_state.hash();
  };
  EXPECT_EQ(trained(true), trained(false));
}

TEST(OutOfMemoryRun, SaysWhatBatchWouldFitOnTheCpu) {
  expect_advice_that_works("HEARTH_MEMORY_LIMIT_MB", "24", "cpu", "512", "the limit of 25165824 bytes is reached");
}

TEST(OutOfMemoryRun, IsAnErrorOfTheSummaryToo) {
  const test::TempDir folder;
  setenv("HEARTH_MEMORY_LIMIT_MB", "24", 1);
  const auto summary = [&](const char* batch) {
    return test::run_program(
        {test::hearth_program(), "plan", test::source_dir() + "/examples/configs/digits_resnet.json", "--set",
         std::string("train.batch_size=") + batch},
        folder.path());
  };
  const test::ProgramResult large = summary("512"), small = summary("8");
  unsetenv("HEARTH_MEMORY_LIMIT_MB");
  EXPECT_EQ(large.exit_code, 4) << large.err;
  EXPECT_PRED2(contains, large.last_error_line(), "hearth: error: memory: a run at batch 512 is estimated to need ");
  EXPECT_PRED2(contains, large.last_error_line(), " bytes; 25165824 are available on cpu; train.batch_size=");
  EXPECT_PRED2(contains, large.out, "peak in use") << "the table comes first";
  EXPECT_EQ(small.exit_code, 0) << small.err;
}

TEST(OutOfMemoryRun, SaysWhenNoBatchFits) {
  const test::TempDir folder;
  setenv("HEARTH_MEMORY_LIMIT_MB", "1", 1);
  const std::string config = test::source_dir() + "/examples/configs/digits_resnet.json";
  const auto train = [&](const char* width) {
    return test::run_program({test::hearth_program(), "train", config, "--out", folder / "run", "--set", width},
                             folder.path());
  };
  const test::ProgramResult step = train("model.width=32"), weights = train("model.width=96");
  unsetenv("HEARTH_MEMORY_LIMIT_MB");
  EXPECT_EQ(step.exit_code, 4) << step.err;
  EXPECT_PRED2(contains, step.last_error_line(), "not even a step of a few samples fits");
  EXPECT_EQ(weights.exit_code, 4) << weights.err;
  EXPECT_PRED2(contains, weights.last_error_line(), "does not fit at any batch size");
}

#if HEARTH_HAS_CUDA
TEST(CudaOutOfMemoryRun, SaysWhatBatchWouldFitBelowALimit) {
  if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  // Workspaces of libraries are not estimated.
  setenv("HEARTH_PICK", "conv2d:portable,linear:portable,matmul:portable", 1);
  expect_advice_that_works("HEARTH_MEMORY_LIMIT_MB", "12", "cuda", "256", "the limit of 12582912 bytes is reached");
  unsetenv("HEARTH_PICK");
}

#if HEARTH_CUDA_EMULATED
TEST(CudaOutOfMemoryRun, SaysWhatBatchWouldFitWhereTheDriverRefuses) {
  expect_advice_that_works("HEARTH_EMULATE_MEMORY_MB", "16", "cuda", "256", "the system refused");
}
#endif
#endif

}  // namespace
}  // namespace hearth::train::step_memory_test
