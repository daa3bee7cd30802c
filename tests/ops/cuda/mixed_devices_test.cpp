// SPDX-License-Identifier: Apache-2.0
// Tensors on different devices: every op that takes several refuses them, naming itself, both devices and the remedy,
// whichever of its tensors is the one that is elsewhere.
#include <gtest/gtest.h>

#include <functional>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "autograd/parameters.h"
#include "autograd/record.h"
#include "ops/attention/attention.h"
#include "ops/attention/window_attention.h"
#include "ops/conv/conv2d.h"
#include "ops/image/normalize_images.h"
#include "ops/index/index.h"
#include "ops/linear/linear.h"
#include "ops/loss/cross_entropy.h"
#include "ops/loss/elementwise.h"
#include "ops/loss/linear_cross_entropy.h"
#include "ops/loss/loss_sum.h"
#include "ops/matmul/matmul.h"
#include "ops/norm/add_layer_norm.h"
#include "ops/norm/batch_norm.h"
#include "ops/norm/layer_norm.h"
#include "ops/norm/merge_layer_norm.h"
#include "ops/norm/rms_norm.h"
#include "ops/pointwise/binary.h"
#include "ops/pointwise/drop_path.h"
#include "ops/shape/concat.h"
#include "tests/support/error_message.h"

namespace hearth::test::mixed_devices_test {
namespace {

constexpr Device gpu{DeviceType::cuda, 0};

/// A call of an op, and the shapes of its tensors; integers are labels or indices.
struct OpCase {
  const char* op;
  std::vector<Shape> shapes;
  std::vector<bool> integers;
  std::function<void(const std::vector<Tensor>&)> call;
  std::vector<DType> types = {};  ///< of all tensors, where it is not f32 or i64
};

void PrintTo(const OpCase& of, std::ostream* out) { *out << of.op; }

std::vector<OpCase> op_cases() {
  using Tensors = const std::vector<Tensor>&;
  const Shape square{4, 4}, heads{1, 4, 2, 3};
  const auto binary = [&](const char* op, Tensor (*f)(const Tensor&, const Tensor&)) {
    return OpCase{op, {square, square}, {}, [f](Tensors t) { (void)f(t[0], t[1]); }};
  };
  return {
      binary("add", add),
      binary("sub", sub),
      binary("mul", mul),
      binary("div", div),
      binary("maximum", maximum),
      binary("minimum", minimum),
      {"mse", {square, square}, {}, [](Tensors t) { (void)mse(t[0], t[1]); }},
      {"bce_with_logits", {square, square}, {}, [](Tensors t) { (void)bce_with_logits(t[0], t[1]); }},
      {"matmul", {square, square}, {}, [](Tensors t) { (void)matmul(t[0], t[1]); }},
      {"linear", {square, square, {4}}, {}, [](Tensors t) { (void)linear(t[0], t[1], t[2]); }},
      {"conv2d", {{1, 5, 5, 2}, {3, 3, 3, 2}, {3}}, {}, [](Tensors t) { (void)conv2d(t[0], t[1], t[2]); }},
      {"batch_norm",
       {square, {4}, {4}, {4}, {4}, square},
       {},
       [](Tensors t) { (void)batch_norm(t[0], t[1], t[2], BatchNormOptions{}, t[3], t[4], t[5]); }},
      {"layer_norm", {square, {4}, {4}}, {}, [](Tensors t) { (void)layer_norm(t[0], t[1], t[2]); }},
      {"merge_layer_norm", {{1, 5, 5, 2}, {8}, {8}}, {}, [](Tensors t) { (void)merge_layer_norm(t[0], t[1], t[2]); }},
      {"cross_entropy", {square, {4}}, {false, true}, [](Tensors t) { (void)cross_entropy(t[0], t[1]); }},
      {"cross_entropy", {square, square}, {}, [](Tensors t) { (void)cross_entropy(t[0], t[1]); }},
      {"count_correct", {square, {4}}, {false, true}, [](Tensors t) { (void)count_correct(t[0], t[1]); }},
      {"embedding", {square, {3}}, {false, true}, [](Tensors t) { (void)embedding(t[0], t[1]); }},
      {"index_select", {square, {3}}, {false, true}, [](Tensors t) { (void)index_select(t[0], 1, t[1]); }},
      {"gather", {square, square}, {false, true}, [](Tensors t) { (void)gather(t[0], 1, t[1]); }},
      {"concat", {square, square, square}, {}, [](Tensors t) { (void)concat(t, 0); }},
      {"attention",
       {heads, heads, heads, {2, 4, 4}, {1}},
       {},
       [](Tensors t) { (void)attention(t[0], t[1], t[2], {.bias = t[3], .key_lengths = t[4]}); },
       {DType::f32, DType::f32, DType::f32, DType::f32, DType::i32}},
      {"self_attention",
       {{1, 4, 12}, {2, 4, 4}, {1}},
       {},
       [](Tensors t) { (void)self_attention(t[0], 2, {.bias = t[1], .key_lengths = t[2]}); },
       {DType::f32, DType::f32, DType::i32}},
      {"cross_attention",
       {{1, 4, 4}, {1, 4, 8}, {2, 4, 4}, {1}},
       {},
       [](Tensors t) { (void)cross_attention(t[0], t[1], 2, {.bias = t[2], .key_lengths = t[3]}); },
       {DType::f32, DType::f32, DType::f32, DType::i32}},
      // The padding also where the windows divide the image, so that it is not looked at.
      {"window_attention",
       {{1, 4, 4, 12}, {9, 2}, {12}},
       {},
       [](Tensors t) { (void)window_attention(t[0], t[1], {.heads = 2, .window = 2, .padding = t[2]}); }},
      {"window_attention",
       {{1, 3, 4, 12}, {9, 2}, {12}},
       {},
       [](Tensors t) { (void)window_attention(t[0], t[1], {.heads = 2, .window = 2, .padding = t[2]}); }},
      {"rms_norm", {square, {4}}, {}, [](Tensors t) { (void)rms_norm(t[0], t[1]); }},
      {"add_layer_norm",
       {square, square, {4}, {4}},
       {},
       [](Tensors t) { (void)add_layer_norm(t[0], t[1], t[2], t[3]); }},
      {"linear_cross_entropy",
       {square, square, {4}, {4}, {1}},
       {false, false, false, true, true},
       [](Tensors t) { (void)linear_cross_entropy(t[0], t[1], t[2], t[3], {}, t[4]); }},
      {"add_drop_path", {square, square}, {}, [](Tensors t) { (void)add_drop_path(t[0], t[1], 0.5, true); }},
      {"normalize_images",
       {{1, 2, 2, 3}, {3, 256}, {1, 4}, {5}},
       {},
       [](Tensors t) { (void)normalize_images(t[0], t[1], {.erased = t[2], .lambda = t[3]}); },
       {DType::u8, DType::f32, DType::i32, DType::f32}},
  };
}

class CudaMixedDevices : public testing::TestWithParam<OpCase> {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  }
};

void expect_refusal(const std::string& message, const std::string& op) {
  EXPECT_EQ(message.find(op + ": "), 0u) << message;
  for (const char* part : {"cpu", "cuda:0", "to(device)"}) EXPECT_PRED2(contains, message, part);
}

TEST_P(CudaMixedDevices, AreRefusedByOp) {
  const OpCase& of = GetParam();
  const auto tensors = [&](Device others, std::size_t elsewhere, Device there) {
    std::vector<Tensor> made;
    for (std::size_t i = 0; i < of.shapes.size(); ++i) {
      const bool integer = i < of.integers.size() && of.integers[i];
      const DType dtype = !of.types.empty() ? of.types[i] : integer ? DType::i64 : DType::f32;
      made.push_back(Tensor::full(of.shapes[i], 1, dtype, i == elsewhere ? there : others));
    }
    return made;
  };
  EXPECT_NO_THROW(of.call(tensors(gpu, 0, gpu)));
  for (std::size_t odd = 0; odd < of.shapes.size(); ++odd) {
    SCOPED_TRACE(testing::Message() << "tensor " << odd << " of " << of.shapes.size());
    expect_refusal(error_message<DeviceError>([&] { of.call(tensors(gpu, odd, Device{})); }), of.op);
    expect_refusal(error_message<DeviceError>([&] { of.call(tensors(Device{}, odd, gpu)); }), of.op);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, CudaMixedDevices, testing::ValuesIn(op_cases()),
                         [](const auto& of) { return std::string(of.param.op) + "_" + std::to_string(of.index); });

class CudaMixedParts : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  }
};

TEST_F(CudaMixedParts, AreRefusedByTheTapeAndTheSumOfLosses) {
  const Tensor x = Tensor::full({2}, 1, DType::f32, gpu);
  const Tensor w = requires_grad(Tensor::full({2}, 1, DType::f32, gpu));
  const Tensor y = mul(x, w);
  expect_refusal(error_message<DeviceError>([&] { backward(y, Tensor::full({2}, 1)); }), "backward");
  const Tensor sum = Tensor::zeros({}, DType::f64), loss = Tensor::zeros({}, DType::f32, gpu);
  expect_refusal(error_message<DeviceError>([&] { add_loss(sum, loss, 1); }), "add_loss");
  const Tensor share = Tensor::full({1}, 1, DType::f64, gpu);
  expect_refusal(error_message<DeviceError>([&] { add_loss(sum, Tensor::zeros({}), 1, share); }), "add_loss");
  expect_refusal(error_message<DeviceError>([&] { add_loss(sum.to(gpu), loss, 1, share.to(Device{})); }), "add_loss");
}

/// y = x, whose gradient is left on the host.
struct Astray {
  static constexpr OpInfo info{.name = "astray"};
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x) const { return x.clone(); }
  std::array<Tensor, 1> backward(const Saved&, Tensor dy, const NeedsGrad&) const { return {dy.to(Device{})}; }
};

TEST_F(CudaMixedParts, AreRefusedAsGradientsAndAsViews) {
  const Tensor x = requires_grad(Tensor::full({2}, 1, DType::f32, gpu));
  const std::string message =
      error_message<DeviceError>([&] { backward(record(Astray{}, x), Tensor::full({2}, 1, DType::f32, gpu)); });
  for (const char* part : {"astray: ", "on cuda:0", "on cpu", "device of dy"}) EXPECT_PRED2(contains, message, part);
  expect_refusal(error_message<DeviceError>([&] { (void)Tensor::view(x.storage(), {2}, {1}, 0, DType::f32, {}); }),
                 "view");
}

TEST_F(CudaMixedParts, CopyWithinAStorageAsIfFromACopy) {
  const Tensor a = Tensor::of<float>({5}, {1, 2, 3, 4, 5}).to(gpu);
  const auto four = [&](std::int64_t from) { return Tensor::view(a.storage(), {2, 2}, {2, 1}, from, DType::f32, gpu); };
  four(1).copy_from(four(0));
  EXPECT_EQ(a.to_doubles(), (std::vector<double>{1, 1, 2, 3, 4}));
  four(0).copy_from(Tensor::view(a.storage(), {2, 2}, {1, 2}, 0, DType::f32, gpu));
  EXPECT_EQ(a.to_doubles(), (std::vector<double>{1, 2, 1, 3, 4}));
}

TEST_F(CudaMixedParts, AreRefusedByTheOptimizersBuffers) {
  Tensor a = Tensor::zeros({2}, DType::f32, gpu), b = Tensor::zeros({2});
  const std::string message = error_message<DeviceError>([&] {
    FlatParameters({{"first.weight", &a}, {"second.weight", &b}});
  });
  expect_refusal(message, "flat parameters");
  EXPECT_PRED2(contains, message, "second.weight");
}

}  // namespace
}  // namespace hearth::test::mixed_devices_test
