// SPDX-License-Identifier: Apache-2.0
// Machines, and the times of ops on them, against sums by hand.
#include "train/plan/cost.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"
#include "train/plan/measure_machine.h"

namespace hearth::train::cost_test {
namespace {

using test::contains;
using test::error_message;

/// 1 TFLOP/s in f32, 4 in bf16, 100 GB/s, 1000 GB/s for the first 1000 bytes; every op at its limit.
Machine round_machine(const char* device = "cpu") {
  Machine machine;
  machine.name = "round";
  machine.device = device;
  machine.peak_tflops = {.f32 = 1, .bf16 = 4};
  machine.copy_gbs = 100;
  machine.efficiency = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  return machine;
}

StepOp product(double flops, double bytes) {
  return {.op = "linear", .layer = "fc", .bytes = bytes, .parts = {{"linear:onednn", flops}}};
}

TEST(Cost, OfAGpuIsTheLongerOfArithmeticAndTrafficAndTheCall) {
  Machine machine = round_machine("cuda");
  EXPECT_DOUBLE_EQ(predicted_us(product(3e6, 1e5), machine, ComputeType::f32), 3);
  EXPECT_DOUBLE_EQ(predicted_us(product(3e6, 5e5), machine, ComputeType::f32), 5);
  machine.op_us = 7;
  EXPECT_DOUBLE_EQ(predicted_us(product(3e6, 1e5), machine, ComputeType::f32), 10);
}

TEST(Cost, OfACpuIsArithmeticAndTrafficAndTheCall) {
  Machine machine = round_machine();
  EXPECT_DOUBLE_EQ(predicted_us(product(3e6, 1e5), machine, ComputeType::f32), 4);
  EXPECT_DOUBLE_EQ(predicted_us(product(8e6, 1e5), machine, ComputeType::bf16), 3);
  EXPECT_DOUBLE_EQ(predicted_us(product(3e6, 1e5), machine, ComputeType::f16), 4) << "no rate of its own: f32's";
  machine.efficiency.operands = 0.5;
  EXPECT_DOUBLE_EQ(predicted_us(product(3e6, 1e5), machine, ComputeType::f32), 5);
  machine.op_us = 7;
  EXPECT_DOUBLE_EQ(predicted_us(product(3e6, 1e5), machine, ComputeType::f32), 12);
  EXPECT_EQ(predicted_us({.op = "reshape", .layer = ""}, machine, ComputeType::f32), 0) << "a view";
}

TEST(Cost, FindsSmallOperandsInCaches) {
  Machine machine = round_machine();
  machine.cache_gbs = 1000;
  machine.cache_bytes = 1e6;
  const StepOp small{.op = "relu", .layer = "", .bytes = 5e5}, large{.op = "relu", .layer = "", .bytes = 3e6};
  EXPECT_DOUBLE_EQ(predicted_us(small, machine, ComputeType::f32), 0.5);
  EXPECT_DOUBLE_EQ(predicted_us(large, machine, ComputeType::f32), 1 + 20);
}

TEST(Cost, TakesTheMostParticularEfficiency) {
  Machine machine = round_machine();
  machine.efficiency.conv = 0.5;
  machine.efficiency.winograd = 2;
  StepOp op{.op = "conv2d", .layer = "", .parts = {{"conv2d:winograd", 4e6}}};
  const auto us = [&](ComputeType type = ComputeType::f32) { return predicted_us(op, machine, type); };
  EXPECT_DOUBLE_EQ(us(), 2);
  op.parts[0].implementation = "matmul:onednn";
  EXPECT_DOUBLE_EQ(us(), 8) << "of a convolution";
  machine.ops["conv2d"] = 0.4;
  EXPECT_DOUBLE_EQ(us(), 10);
  machine.ops["matmul:onednn"] = 0.25;
  EXPECT_DOUBLE_EQ(us(), 16);
  machine.ops["conv2d/matmul:onednn"] = 0.8;
  EXPECT_DOUBLE_EQ(us(), 5);
  machine.ops["conv2d/matmul:onednn/bf16"] = 0.5;
  EXPECT_DOUBLE_EQ(us(), 5);
  EXPECT_DOUBLE_EQ(us(ComputeType::bf16), 2);
  op.backward = true;
  machine.ops["conv2d/matmul:onednn (backward)"] = 0.1;
  EXPECT_DOUBLE_EQ(us(), 40);
}

TEST(Cost, TakesNoImplementationOfTheCpuForThatOfAGpu) {
  Machine machine = round_machine("cuda");
  machine.efficiency.conv = 0.5;
  machine.efficiency.winograd = 2;
  const StepOp op{.op = "conv2d", .layer = "", .parts = {{"conv2d:winograd", 4e6}}};
  EXPECT_DOUBLE_EQ(predicted_us(op, machine, ComputeType::f32), 8);
}

TEST(Cost, ClassesAreThoseOfTheOp) {
  Machine machine = round_machine();
  machine.efficiency = {.matmul = 1, .operands = 1, .norm = 0.5, .update = 0.25, .memory = 0.2};
  const auto us = [&](const char* op) { return predicted_us({.op = op, .layer = "", .bytes = 1e6}, machine, {}); };
  EXPECT_DOUBLE_EQ(us("batch_norm"), 20);
  EXPECT_DOUBLE_EQ(us("add_layer_norm"), 20);
  EXPECT_DOUBLE_EQ(us("optimizer"), 40);
  EXPECT_DOUBLE_EQ(us("relu"), 50);
  EXPECT_DOUBLE_EQ(us("normalize_images"), 50);
}

TEST(Machine, MeasuredOpsAreWhatPredictsThem) {
  Machine machine = round_machine();
  machine.op_us = 1;
  StepOp winograd{.op = "conv2d", .layer = "", .backward = true, .us = 5, .parts = {{"conv2d:winograd", 8e6}}};
  const StepOp norm{.op = "layer_norm", .layer = "", .bytes = 1e6, .us = 21},
      relu{.op = "relu", .layer = "", .bytes = 1e6, .us = 41};
  const StepOp quick{.op = "gelu", .layer = "", .bytes = 1e6, .us = 0.5};
  set_efficiencies(
      machine,
      {{winograd, ComputeType::f32}, {norm, ComputeType::bf16}, {relu, ComputeType::f32}, {quick, ComputeType::f32}});
  EXPECT_DOUBLE_EQ(machine.ops.at("conv2d/conv2d:winograd (backward)/f32"), 2);
  EXPECT_DOUBLE_EQ(machine.ops.at("layer_norm/bf16"), 0.5);
  EXPECT_DOUBLE_EQ(machine.ops.at("relu/f32"), 0.25);
  EXPECT_EQ(machine.ops.size(), 3U) << "what took less than a call says nothing";
  EXPECT_DOUBLE_EQ(machine.efficiency.winograd, 2);
  EXPECT_DOUBLE_EQ(machine.efficiency.norm, 0.5);
  EXPECT_DOUBLE_EQ(machine.efficiency.memory, 0.25);
  EXPECT_DOUBLE_EQ(machine.efficiency.matmul, 1) << "not measured";
  EXPECT_DOUBLE_EQ(predicted_us(winograd, machine, ComputeType::f32), 5);
  EXPECT_DOUBLE_EQ(predicted_us(norm, machine, ComputeType::bf16), 21);
  winograd.backward = false;
  EXPECT_DOUBLE_EQ(predicted_us(winograd, machine, ComputeType::f32), 5) << "by the class";
}

TEST(Machine, TrafficOfAMeasuredProductIsNoPartOfItsArithmetic) {
  Machine machine = round_machine();
  machine.efficiency.operands = 0.5;
  StepOp linear = product(3e6, 1e5);
  linear.us = 8;
  set_efficiencies(machine, {{linear, ComputeType::f32}});
  EXPECT_DOUBLE_EQ(machine.ops.at("linear/linear:onednn/f32"), 0.5) << "3 of the 6 us beside the traffic's 2";
  EXPECT_DOUBLE_EQ(predicted_us(linear, machine, ComputeType::f32), 8);
}

TEST(Machine, IsReadBackAsWritten) {
  Machine machine = round_machine("cuda");
  machine.ops["conv2d (backward)/bf16"] = 0.75;
  machine.watts = 300;
  const Machine read = parse_machine(parse_json(to_text(to_json(machine), 2), "text"));
  EXPECT_EQ(to_text(to_json(read)), to_text(to_json(machine)));
  EXPECT_EQ(read.ops, machine.ops);
}

TEST(Machine, RefusesWhatItCannotMean) {
  const auto message = [](const std::string& text) {
    return error_message<ConfigError>([&] { (void)parse_machine(parse_json(text, "m.json")); });
  };
  EXPECT_PRED2(contains, message(R"({"name": "a", "device": "cpu", "copy_gbs": 10})"), "/peak_tflops: is missing");
  EXPECT_PRED2(contains, message(R"({"name": "a", "device": "tpu", "copy_gbs": 10, "peak_tflops": {"f32": 1}})"),
               "cuda");
  EXPECT_PRED2(contains, message(R"({"name": "a", "device": "cpu", "copy_gbs": 10, "peak_tflop": {"f32": 1}})"),
               "did you mean \"peak_tflops\"?");
  EXPECT_PRED2(
      contains,
      message(R"({"name": "a", "device": "cpu", "copy_gbs": 10, "peak_tflops": {"f32": 1}, "ops": {"relu": 0}})"),
      "m.json:1:91: /ops/relu: is 0");
  EXPECT_PRED2(contains, message(R"({"name": "a", "device": "cpu", "copy_gbs": 10, "peak_tflops": {"f32": 1},
                           "efficiency": {"matmull": 0.5}})"),
               "did you mean \"matmul\"?");
  EXPECT_PRED2(contains, message("[]"), "a machine is described by an object");
}

TEST(Machine, IsFoundByNameOrFile) {
  EXPECT_EQ(machine_named("h200").name, "H200");
  EXPECT_EQ(machine_named("RTX 4090").device, "cuda");
  for (const Machine& machine : known_machines()) {
    EXPECT_GT(machine.peak(ComputeType::bf16), 0) << machine.name;
    EXPECT_FALSE(machine.source.empty()) << machine.name;
  }
  EXPECT_PRED2(contains, error_message<UsageError>([] { (void)machine_named("H20"); }), "did you mean \"H200\"?");
  const test::TempDir folder;
  std::ofstream(folder / "mine.json") << to_text(to_json(round_machine()));
  EXPECT_EQ(machine_named((folder / "mine.json").string()).name, "round");
  EXPECT_THROW((void)machine_named((folder / "other.json").string()), FileError);
}

}  // namespace
}  // namespace hearth::train::cost_test
