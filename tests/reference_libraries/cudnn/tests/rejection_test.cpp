// SPDX-License-Identifier: Apache-2.0
// Plans of a library that fail when they are first used. Choices are kept as long as the
// process, so each test has sizes of its own.
#include <cudnn.h>

#include <functional>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/cuda/graph.h"
#include "core/random.h"
#include "ops/attention/attention.h"
#include "ops/conv/conv2d.h"
#include "ops/conv/cuda/conv2d_cudnn.h"
#include "ops/dispatch/candidates.h"
#include "tests/reference_libraries/cudnn/tests/reference.h"
#include "tests/support/error_message.h"
#include "tests/support/op_test.h"
#include "tests/support/warnings.h"

namespace hearth::test {
namespace {

constexpr Device gpu{DeviceType::cuda, 0};
constexpr DType bf16 = DType::bf16;

using CudaPlanRejection = CudaReferenceDnn;

Tensor numbers(const Shape& shape, std::uint64_t stream, DType dtype = bf16) {
  Random random(31, stream);
  std::vector<double> values(static_cast<std::size_t>(shape.size()));
  for (double& value : values) value = 0.25 * random.normal();
  return Tensor::of<double>(shape, values).to(dtype).to(gpu);
}

/// y with bias and ReLU, and the gradients, for images of so many rows.
std::vector<Tensor> convolve(std::int64_t rows) {
  const Tensor x = requires_grad(numbers({1, rows, 5, 8}, 1)), w = requires_grad(numbers({16, 3, 3, 8}, 2)),
               b = requires_grad(numbers({16}, 3));
  const Tensor y = conv2d(x, w, b, {.padding = 1, .activation = Activation::relu});
  backward(y, numbers(y.shape(), 4));
  return {y, grad_of(x), grad_of(w), grad_of(b)};
}

std::vector<Tensor> attend(std::int64_t samples) {
  const Tensor q = requires_grad(numbers({samples, 128, 2, 16}, 1)),
               k = requires_grad(numbers({samples, 128, 2, 16}, 2)),
               v = requires_grad(numbers({samples, 128, 2, 16}, 3));
  const Tensor bias = requires_grad(numbers({2, 128, 128}, 4, DType::f32));
  std::vector<double> lengths(static_cast<std::size_t>(samples), 100);
  const Tensor y = attention(
      q, k, v,
      {.causal = true, .bias = bias, .key_lengths = Tensor::of<double>({samples}, lengths).to(DType::i32).to(gpu)});
  backward(y, numbers(y.shape(), 5));
  return {y, grad_of(q), grad_of(k), grad_of(v), grad_of(bias)};
}

template <class F>
std::vector<Tensor> native(const char* op, F&& f) {
  const ForceCandidate force(op, "portable");
  return f();
}

void expect_same(const std::vector<Tensor>& found, const std::vector<Tensor>& expected) {
  for (std::size_t i = 0; i < found.size(); ++i) expect_close(found[i], expected[i], 2e-2);
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_F(CudaPlanRejection, APlanThatFailsIsToldAndTheNextRuns) {
  const std::vector<Tensor> own = native("conv2d", [] { return convolve(5); });
  controls().failing = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
  std::vector<Tensor> found;
  const std::string text = warnings_of([&] { found = convolve(5); });
  for (const char* part : {"conv2d: cudnn is not used for backward_weights of bf16",
                           "[1, 5, 5, 8] by [16, 3, 3, 8] to [1, 5, 5, 16], padding 1",
                           "cudnnBackendExecute: CUDNN_STATUS_EXECUTION_FAILED; the next implementation runs it"})
    EXPECT_PRED2(contains, text, part);
  EXPECT_EQ(count_of(text, "is not used for"), 1u) << text;
  EXPECT_EQ(controls().runs[reference_dnn::rounding], 2) << "the other passes";
  expect_same(found, own);

  controls() = {};
  EXPECT_EQ(warnings_of([&] { found = convolve(5); }), "") << "it is not tried again";
  EXPECT_EQ(controls().runs[reference_dnn::rounding], 2);
  expect_same(found, own);
}

TEST_F(CudaPlanRejection, AForcedPlanThatFailsIsADeviceError) {
  controls().failing = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
  const ForceCandidate force("conv2d", "cudnn");
  const std::string text = error_message<DeviceError>([] { (void)convolve(6); });
  for (const char* part : {"conv2d:cudnn, forward of bf16", "EXECUTION_FAILED"}) EXPECT_PRED2(contains, text, part);
}

// What runs in its place would be recorded behind what failed.
TEST_F(CudaPlanRejection, WhatFailsWhileItIsRecordedKeepsItsPlan) {
  const Tensor x = numbers({1, 7, 5, 8}, 1), w = numbers({16, 3, 3, 8}, 2);
  const auto work = [&] { (void)conv2d(x, w, {.padding = 1}); };
  cuda::Arena arena(gpu);
  arena.run(work);
  controls().failing = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
  const std::string text =
      error_message<DeviceError>([&] { (void)cuda::Graph::record(cuda::stream_of(gpu), arena, work); });
  EXPECT_PRED2(contains, text, "EXECUTION_FAILED");
  controls() = {};
  EXPECT_EQ(warnings_of(work), "");
  EXPECT_EQ(last_choice("conv2d"), "cudnn");
}

// Engines are loaded and compiled then, which a recording forbids.
TEST_F(CudaPlanRejection, NoPlanIsMadeWhileAStepIsRecorded) {
  const Tensor x = numbers({1, 12, 5, 8}, 1), w = numbers({16, 3, 3, 8}, 2), qkv = numbers({5, 128, 3 * 16}, 3);
  cuda::Arena arena(gpu);
  arena.run([] { (void)Tensor::empty({1 << 20}, bf16, gpu); });
  const std::vector<std::function<void()>> works{[&] { (void)conv2d(x, w, {.padding = 1}); },
                                                 [&] { (void)self_attention(qkv, 2, {.causal = true}); }};
  for (const auto& work : works) {
    const std::int64_t questions = controls().questions;
    const auto record = [&] { return cuda::Graph::record(cuda::stream_of(gpu), arena, work); };
    EXPECT_PRED2(contains, error_message<DeviceError>([&] { (void)record(); }), "choosing cuDNN's plan");
    EXPECT_EQ(controls().questions, questions);
    arena.run(work);
    EXPECT_GT(controls().questions, questions);
    EXPECT_NO_THROW((void)record());
  }
}

TEST_F(CudaPlanRejection, OfAttention) {
  const auto runs_of = [](const char* name, const ChoiceLog& log) {
    std::int64_t count = 0;
    for (const auto& [run, times] : log.runs()) count += run.first == name ? times : 0;
    return count;
  };
  std::vector<Tensor> found;
  {
    const ChoiceLog log;
    EXPECT_EQ(warnings_of([&] { found = attend(1); }), "");
    EXPECT_EQ(runs_of("attention:cudnn", log), 2);
    expect_same(found, native("attention", [] { return attend(1); }));
  }
  controls().failing = CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
  const ChoiceLog log;
  const std::string text = warnings_of([&] { found = attend(2); });
  EXPECT_PRED2(contains, text, "attention: cudnn is not used for gradient of bf16, 2 samples");
  EXPECT_EQ(count_of(text, "is not used for"), 2u) << text;
  EXPECT_EQ(runs_of("attention:mma", log), 2);
  controls() = {};
  expect_same(found, native("attention", [] { return attend(2); }));
}

}  // namespace
}  // namespace hearth::test
