// SPDX-License-Identifier: Apache-2.0
// Plans of runs, and the command that prints them.
#include "train/plan/run_plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "models/resnet.h"
#include "models/vgg.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"
#include "train/checkpoint/run_info.h"

namespace hearth::train::run_plan_test {
namespace {

using test::contains;

/// Of one image of 224 pixels.
std::vector<nn::ModuleReport> layers_of(nn::Module& model) {
  return nn::summarize(model, {Tensor::zeros({1, 224, 224, 3}, DType::f32)});
}

// Per image; torchvision's counts of parameters.
TEST(RunPlan, CountsResNet50AsByHand) {
  models::ResNet model({.depth = 50});
  const std::vector<nn::ModuleReport> layers = layers_of(model);
  double products = 112.0 * 112 * 64 * 3 * 7 * 7 + 2048.0 * 1000, in = 64;
  double side = 56;
  for (const auto& [blocks, width] : {std::pair{3, 64.0}, {4, 128.0}, {6, 256.0}, {3, 512.0}}) {
    for (int block = 0; block < blocks; ++block) {
      const bool halves = block == 0 && width > 64;
      const double before = side * side;
      if (halves) side /= 2;
      const double after = side * side;
      products += before * in * width + after * width * width * 9 + after * width * 4 * width;
      if (block == 0) products += after * in * 4 * width;
      in = 4 * width;
    }
  }
  EXPECT_EQ(products, 4089184256);
  EXPECT_EQ(layers[0].flops, 2 * products);
  EXPECT_EQ(layers[0].parameters, 25557032);
}

TEST(RunPlan, CountsVgg16AsByHand) {
  models::Vgg model({.depth = 16});
  const std::vector<nn::ModuleReport> layers = layers_of(model);
  double products = 25088.0 * 4096 + 4096.0 * 4096 + 4096.0 * 1000, in = 3, side = 224;
  for (const auto& [convolutions, width] : {std::pair{2, 64.0}, {2, 128.0}, {3, 256.0}, {3, 512.0}, {3, 512.0}}) {
    for (int i = 0; i < convolutions; ++i) {
      products += side * side * in * width * 9;
      in = width;
    }
    side /= 2;
  }
  EXPECT_EQ(products, 15470264320);
  EXPECT_EQ(layers[0].flops, 2 * products);
  EXPECT_EQ(layers[0].parameters, 138357544);
}

class PlanCommand : public testing::Test {
 protected:
  PlanCommand() {
    std::ofstream(folder_ / "run.json") << R"({"device": "cpu", "model": {"type": "mlp", "hidden": [16]},
      "data": {"type": "digits"}, "optimizer": {"type": "sgd", "lr": 0.1}, "train": {"batch_size": 32, "steps": 300}})";
    // 1 GFLOP/s and all else at once; 50 us a call.
    std::ofstream(folder_ / "slow.json") << R"({"name": "slow", "device": "cpu", "copy_gbs": 1e6, "watts": 200,
      "peak_tflops": {"f32": 0.001}, "efficiency": {"matmul": 1, "update": 1, "memory": 1}})";
  }
  test::ProgramResult run(std::vector<std::string> words) const {
    words.insert(words.begin(), {"/usr/bin/env", "HEARTH_CACHE_DIR=" + (folder_ / "cache").string(),
                                 "HEARTH_EMULATE_DRIVER=1", "CUDA_VISIBLE_DEVICES=", test::hearth_program()});
    return test::run_program(words, folder_.path());
  }
  Json plan(std::vector<std::string> more) const {
    more.insert(more.begin(), {"plan", "run.json", "--json"});
    const test::ProgramResult result = run(more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return parse_json(result.out, "stdout");
  }
  test::TempDir folder_;
};

TEST_F(PlanCommand, PredictsAStepAndTheRunByHand) {
  const Json plan = this->plan({"--on", "./slow.json", "--price-per-hour", "3"});
  const Json& step = plan.at("step");
  const double forward = 2.0 * 32 * (64 * 16 + 16 * 10), backward = 2.0 * 32 * (64 * 16 + 2 * 16 * 10);
  EXPECT_DOUBLE_EQ(step.at("flops").as_number(), forward + backward);
  EXPECT_EQ(plan.at("machine").as_string(), "slow");
  const Json& phases = step.at("phase_milliseconds");
  EXPECT_NEAR(phases.at("forward").as_number(), 1e-6 * forward, 1e-4);
  EXPECT_NEAR(phases.at("backward").as_number(), 1e-6 * backward, 1e-4);
  EXPECT_TRUE(phases.at("data").is_null());
  double sum = 0;
  for (const JsonMember& phase : phases.members())
    if (!phase.value.is_null()) sum += phase.value.as_number();
  const double ms = step.at("milliseconds").as_number();
  EXPECT_DOUBLE_EQ(ms, sum);
  EXPECT_NEAR(step.at("per_s").as_number(), 32e3 / ms, 1e-6 * 32e3 / ms);
  EXPECT_EQ(step.at("unit").as_string(), "images/s");
  const Json& whole = plan.at("run");
  EXPECT_EQ(whole.at("steps").as_integer(), 300);
  const double evaluation_ms = whole.at("evaluated_samples").as_number() * phases.at("forward").as_number() / 32;
  const double hours = (300 * ms + evaluation_ms) / 3.6e6;
  EXPECT_NEAR(whole.at("hours").as_number(), hours, 1e-9);
  EXPECT_NEAR(whole.at("kwh").as_number(), 0.2 * hours, 1e-9);
  EXPECT_NEAR(whole.at("price").as_number(), 3 * hours, 1e-9);
}

TEST_F(PlanCommand, CountsEveryBatchOfAStep) {
  const Json one = plan({"--on", "./slow.json"}), three = plan({"--on", "./slow.json", "--set", "train.accumulate=3"});
  const auto forward = [](const Json& of) { return of.at("step").at("phase_milliseconds").at("forward").as_number(); };
  const auto update = [](const Json& of) { return of.at("step").at("phase_milliseconds").at("update").as_number(); };
  EXPECT_NEAR(forward(three), 3 * forward(one), 1e-9);
  EXPECT_DOUBLE_EQ(update(three), update(one));
  EXPECT_DOUBLE_EQ(three.at("step").at("flops").as_number(), 3 * one.at("step").at("flops").as_number());
}

TEST_F(PlanCommand, PredictsRanksOverALink) {
  const Json plan = this->plan({"--on", "./slow.json", "--ranks", "4", "--link", "800mbit"});
  const Json& scaling = plan.at("scaling");
  const double sent = scaling.at("sent_bytes").as_number();
  EXPECT_NEAR(sent, 1.5 * 4 * 1210, 1.5 * 4 * 64) << "with the gaps between parameters";
  EXPECT_EQ(scaling.at("step").at("rows").as_integer(), 8);
  const double alone = plan.at("step").at("milliseconds").as_number(),
               ranked = scaling.at("step").at("milliseconds").as_number();
  EXPECT_DOUBLE_EQ(scaling.at("efficiency").as_number(), alone / (4 * ranked));
  EXPECT_EQ(plan.at("ranks").size(), 4U);
  EXPECT_EQ(scaling.at("layers").size(), 2U);
  EXPECT_PRED2(contains, run({"plan", "run.json", "--link", "1gbit"}).err, "say how many, as in --ranks 8");
}

TEST_F(PlanCommand, TimesTheOpsOfThisMachineWithoutAnother) {
  const Json plan = this->plan({});
  EXPECT_PRED2(contains, plan.at("basis").as_string(), "the times of the ops of these steps");
  EXPECT_GT(plan.at("step").at("milliseconds").as_number(), 0);
  EXPECT_PRED2(contains, run({"plan", "run.json"}).out, "not predicted: loading and decoding");
}

TEST_F(PlanCommand, TakesWhatWasMeasuredOfThisMachine) {
  std::filesystem::create_directory(folder_ / "cache");
  const auto keep = [&](const std::string& name, int cores) {
    std::ofstream(folder_ / "cache/machine-cpu.json")
        << to_text(Json::object()
                       .set("name", name)
                       .set("device", "cpu")
                       .set("copy_gbs", 1e6)
                       .set("cores", cores)
                       .set("peak_tflops", Json::object().set("f32", 0.001)));
    return contains(plan({}).at("basis").as_string(), "`hearth doctor --speed` kept in ");
  };
  EXPECT_TRUE(keep(processor_name(), 1)) << "tests run on one thread";
  EXPECT_FALSE(keep(processor_name(), 77));
  EXPECT_FALSE(keep("another", 1));
}

TEST_F(PlanCommand, NeedsNoGpuForAGpu) {
  const Json plan = this->plan({"--on", "H200", "--set", R"(precision={"level": "O2", "dtype": "bf16"})"});
  EXPECT_EQ(plan.at("memory").at("device").as_string(), "cuda:0");
  EXPECT_GT(plan.at("memory").at("largest_batch_size").as_integer(), 0);
  EXPECT_GT(plan.at("step").at("milliseconds").as_number(), 0);
  const Json blind = this->plan({"--set", "device=\"cuda\""});
  EXPECT_TRUE(blind.at("step").at("milliseconds").is_null());
  EXPECT_TRUE(blind.at("run").at("hours").is_null());
  EXPECT_PRED2(contains, blind.at("why_no_times").as_string(), "name the machine, as in --on H200");
}

TEST_F(PlanCommand, SaysWhatWouldDoInPlaceOfData) {
  const test::ProgramResult result =
      run({"plan", "run.json", "--set", R"(data={"type": "image_folder", "path": "nowhere"})"});
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_PRED2(contains, result.err, "images need no files");
}

TEST_F(PlanCommand, HasItsFormerNameWithAHint) {
  const test::ProgramResult result = run({"summary", "run.json", "--json"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_PRED2(contains, result.err, "hearth: hint: `hearth summary` is now `hearth plan`");
  EXPECT_EQ(parse_json(result.out, "stdout").at("parameters").as_integer(), 1210);
}

}  // namespace
}  // namespace hearth::train::run_plan_test
