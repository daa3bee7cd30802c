// SPDX-License-Identifier: Apache-2.0
#include "ops/loss/linear_cross_entropy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "autograd/recompute.h"
#include "core/build.h"
#include "core/cuda/stream.h"
#include "core/memory/memory.h"
#include "ops/linear/linear.h"
#include "ops/ops.h"
#include "tests/support/devices.h"
#include "tests/support/op_test.h"

namespace hearth::test::linear_cross_entropy_test {
namespace {

struct Case {
  Shape x;
  std::int64_t classes;
  LinearCrossEntropyOptions options;
  bool bias = false;
  Width width_of_w = Width::site;
};

struct Inputs {
  Tensor x, w, b, labels;
};

Inputs draw_inputs(Draw& draw, const Case& c) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(c.x.dim(-1)));
  Inputs in{draw.normal(c.x), draw.normal({c.classes, c.x.dim(-1)}, scale, c.width_of_w), {}, {}};
  if (c.bias) in.b = draw.normal({c.classes}, 1.0, c.width_of_w);
  const Shape rows(std::span(c.x.begin(), static_cast<std::size_t>(c.x.rank() - 1)));
  // Every fourth row is ignored.
  std::vector<double> labels;
  for (std::int64_t i = 0; i < rows.size(); ++i)
    labels.push_back(static_cast<double>(i % 4 == 3 ? c.options.ignore_index : i * 7 % c.classes));
  in.labels = draw.indices(rows, labels);
  return in;
}

Tensor apart(const Inputs& in, const Case& c) {
  return cross_entropy(linear(in.x, in.w, in.b), in.labels,
                       {.label_smoothing = c.options.label_smoothing,
                        .ignore_index = c.options.ignore_index,
                        .reduction = c.options.reduction});
}

// Twice, so that gradients come in with another scale than 1.
void check_case(const Case& c) {
  check(
      [&](Draw& draw) {
        const Inputs in = draw_inputs(draw, c);
        return linear_cross_entropy(in.x, in.w, in.b, in.labels, c.options) * 2.0;
      },
      [&](Draw& draw) { return (apart(draw_inputs(draw, c), c) * 2.0).to_doubles(); }, {.tolerance_scale = 4.0});
}

OP_TEST(LinearCrossEntropy) {
  // One chunk, chunks that divide the rows, and a last one that is shorter.
  for (const std::int64_t chunk : {0, 4, 5})
    for (const double smoothing : {0.0, 0.1})
      check_case({{3, 4, 24}, 37, {.label_smoothing = smoothing, .chunk_rows = chunk}});
  check_case({{1, 3}, 1, {}});
  check_case({{5, 3}, 7, {.chunk_rows = 2}});
  check_case({{9, 16}, 40, {.ignore_index = 0, .reduction = Reduction::sum, .chunk_rows = 4}});
  // Rows that a block shares, with whole units of columns and without.
  for (const std::int64_t classes : {1100, 1101})
    check_case({{5, 8}, classes, {.label_smoothing = 0.1, .chunk_rows = 3}});
}

OP_TEST(LinearCrossEntropyWithABias) {
  for (const std::int64_t chunk : {0, 2}) check_case({{7, 16}, 24, {.chunk_rows = chunk}, true});
}

// As under autocast on the CPU.
OP_TEST(LinearCrossEntropyOfAWideWeight) { check_case({{7, 16}, 24, {.chunk_rows = 3}, true, Width::wide}); }

Tensor numbers(const Shape& shape, Device device, double step, DType dtype = DType::f32) {
  std::vector<double> values(static_cast<std::size_t>(shape.size()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(i) * step);
  return Tensor::of<double>(shape, values).to(dtype).to(device);
}

Tensor labels_below(std::int64_t classes, std::int64_t rows, Device device) {
  const Tensor labels = Tensor::empty({rows}, DType::i64);
  for (std::int64_t i = 0; i < rows; ++i) labels.data<std::int64_t>()[i] = i % 5 == 4 ? -100 : i * 3 % classes;
  return labels.to(device);
}

// In 16 bits logits are often equal; then the first is the largest.
TEST(LinearCrossEntropyOnDevices, CountsWhatCountCorrectCounts) {
  for (const Device device : devices())
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const std::int64_t classes : {6, 1030}) {
        const Tensor x = numbers({50, 8}, device, 1.3, dtype), w = numbers({classes, 8}, device, 0.7, dtype);
        const Tensor logits = linear(x, w, {});
        // A class that is right, one that comes right behind it, or one that is ignored.
        const Tensor best = argmax(logits, -1).to(DType::i64).to(Device{});
        for (std::int64_t i = 0; i < 50; ++i)
          if (i % 3 != 0)
            best.data<std::int64_t>()[i] = i % 3 == 1 ? -100 : (best.data<std::int64_t>()[i] + 1) % classes;
        const Tensor labels = best.to(device);
        const std::int64_t expected = count_correct(logits, labels).to(Device{}).data<std::int64_t>()[0];
        ASSERT_EQ(expected, 17);
        const Tensor correct = Tensor::full({1}, 3, DType::i64, device);
        (void)linear_cross_entropy(x, w, {}, labels, {.chunk_rows = 16}, correct);
        EXPECT_EQ(correct.to(Device{}).data<std::int64_t>()[0], expected + 3) << device << dtype << classes;
      }
}

// Of 1,200 long rows at once a device's block has several, of 400 one.
TEST(LinearCrossEntropyOnDevices, ManyLongRowsGiveWhatFewGive) {
  constexpr std::int64_t rows = 1200, classes = 1101;
  for (const Device device : devices())
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensor w = numbers({classes, 8}, device, 0.7, dtype), labels = labels_below(classes, rows, device);
      const auto pass = [&](std::int64_t chunk) {
        const Tensor x = requires_grad(numbers({rows, 8}, device, 1.3, dtype));
        const Tensor correct = Tensor::zeros({1}, DType::i64, device);
        const Tensor loss = linear_cross_entropy(x, w, {}, labels, {.chunk_rows = chunk}, correct);
        backward(loss, static_cast<double>(rows));
        std::vector<double> all = grad_of(x).to_doubles();
        all.push_back(loss.item());
        all.push_back(static_cast<double>(correct.to(Device{}).data<std::int64_t>()[0]));
        return all;
      };
      const std::vector<double> many = pass(rows), few = pass(400);
      for (std::size_t i = 0; i < few.size(); ++i)
        EXPECT_NEAR(many[i], few[i], 1e-6 * std::max(1.0, std::abs(few[i]))) << device << dtype << i;
    }
}

// All logits are equal: the first class is right.
TEST(LinearCrossEntropyOnDevices, OfEqualLogitsTheFirstIsTheLargest) {
  for (const Device device : devices()) {
    const Tensor labels = Tensor::of<std::int64_t>({4}, {0, 1, 0, 36}).to(device);
    const Tensor correct = Tensor::zeros({1}, DType::i64, device);
    (void)linear_cross_entropy(numbers({4, 8}, device, 1.3, DType::bf16), Tensor::zeros({37, 8}, DType::bf16, device),
                               {}, labels, {}, correct);
    EXPECT_EQ(correct.to(Device{}).data<std::int64_t>()[0], 2) << device;
  }
}

// What lies behind the classes takes no part, though all logits are far below its zeros.
TEST(LinearCrossEntropyOnDevices, PaddingTakesNoPart) {
  for (const Device device : devices()) {
    const Tensor x = Tensor::full({3, 8}, 1.0, DType::bf16, device),
                 w = requires_grad(Tensor::full({37, 8}, -10.0, DType::bf16, device));
    const Tensor loss = linear_cross_entropy(x, w, {}, Tensor::zeros({3}, DType::i64, device));
    EXPECT_NEAR(loss.item(), std::log(37.0), 1e-4) << device;
    backward(loss);
    EXPECT_EQ(grad_of(w).shape(), (Shape{37, 8}));
    EXPECT_NEAR(grad_of(w).to_doubles()[8], 1.0 / 37, 1e-3) << device;
  }
}

TEST(LinearCrossEntropyEdges, ChunksFollowTheDevicesWholeMemory) {
  EXPECT_EQ(linear_cross_entropy_rows({}, 65536, 50257, DType::bf16), 256);
#if HEARTH_HAS_CUDA
  if (device_count(DeviceType::cuda) == 0) return;
  const Device device{DeviceType::cuda, 0};
  const auto rows_of = [&](std::int64_t rows) { return linear_cross_entropy_rows(device, rows, 50257, DType::bf16); };
  const std::int64_t held = cuda::device_info(device).memory_bytes / 12 / (50304 * 2);
  const std::int64_t most = std::max<std::int64_t>(held, 2048);
  EXPECT_GE(rows_of(most), most);
  // Two chunks of one size, in whole tiles.
  EXPECT_EQ(rows_of(most + 1), ((most + 2) / 2 + 127) / 128 * 128);
  const Tensor taken = Tensor::empty({1 << 20}, DType::f32, device);
  EXPECT_EQ(rows_of(most + 1), ((most + 2) / 2 + 127) / 128 * 128);
#endif
}

TEST(LinearCrossEntropyOnDevices, CountsOnceWhereItIsRecomputed) {
  for (const Device device : devices()) {
    const Tensor x = requires_grad(numbers({50, 8}, device, 1.3)), w = requires_grad(numbers({6, 8}, device, 0.7)),
                 labels = labels_below(6, 50, device);
    const Tensor correct = Tensor::zeros({1}, DType::i64, device);
    const auto head = [&](const Tensor& in) { return linear_cross_entropy(in, w, {}, labels, {}, correct); };
    const Tensor loss = recompute(head, x, {w});
    const std::int64_t counted = correct.to(Device{}).data<std::int64_t>()[0];
    ASSERT_GT(counted, 0);
    backward(loss);
    EXPECT_EQ(correct.to(Device{}).data<std::int64_t>()[0], counted) << device;
  }
}

// A chunk does not know which fraction of the labels counts, nor is the loss scale: gradients of f16 must not vanish on
// the way.
TEST(LinearCrossEntropyOnDevices, SmallGradientsOfF16Stay) {
  for (const Device device : devices()) {
    const std::int64_t classes = 300000;
    const Tensor x = Tensor::full({1, 2}, 1.0, DType::f16, device);
    const Tensor w = requires_grad(Tensor::zeros({classes, 2}, DType::f16, device));
    backward(linear_cross_entropy(x, w, {}, Tensor::zeros({1}, DType::i64, device)), 1024.0);
    const double value = grad_of(w).to_doubles().back();
    EXPECT_NEAR(value * static_cast<double>(classes) / 1024.0, 1.0, 2e-3) << device;
  }
}

// Gradients of several passes add up in the leaf.
TEST(LinearCrossEntropyOnDevices, LaterPassesAddToTheGradient) {
  for (const Device device : devices()) {
    const Tensor w = requires_grad(numbers({6, 8}, device, 0.7)), x = numbers({10, 8}, device, 1.3);
    const Tensor labels = labels_below(6, 10, device);
    const auto pass = [&](double seed) { backward(linear_cross_entropy(x, w, {}, labels), seed); };
    pass(1);
    const std::vector<double> once = grad_of(w).to_doubles();
    pass(2);
    const std::vector<double> both = grad_of(w).to_doubles();
    for (std::size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(both[i], 3 * once[i], 1e-6) << device << i;
  }
}

TEST(LinearCrossEntropyOnDevices, AllIgnoredIsZeroWithZeroGradient) {
  for (const Device device : devices())
    for (const std::int64_t rows : {0, 3}) {
      const Tensor x = requires_grad(numbers({rows, 4}, device, 1.0)), w = requires_grad(numbers({5, 4}, device, 0.7));
      const Tensor loss = linear_cross_entropy(x, w, {}, Tensor::full({rows}, -100, DType::i64, device));
      EXPECT_EQ(loss.item(), 0.0);
      backward(loss);
      for (const Tensor& leaf : {x, w})
        for (const double value : grad_of(leaf).to_doubles()) EXPECT_EQ(value, 0.0);
    }
}

// Beside the gradients, at most the logits of one chunk; without a gradient, nothing else of that size.
TEST(LinearCrossEntropyOnDevices, HoldsTheLogitsOfOneChunkAtMost) {
  constexpr std::int64_t rows = 512, inputs = 16, classes = 4096, chunk = 32, slack = 200 * 1024;
  for (const Device device : devices()) {
    const Tensor x = requires_grad(numbers({rows, inputs}, device, 1.3)),
                 w = requires_grad(numbers({classes, inputs}, device, 0.7));
    const Tensor labels = labels_below(classes, rows, device);
    const auto peak_of = [&](auto&& f) {
      f();  // what is made at first use
      const auto before = memory_of(device).statistics().in_use;
      memory_of(device).reset_peak();
      f();
      return static_cast<std::int64_t>(memory_of(device).statistics().peak - before);
    };
    const std::int64_t logits = chunk * classes * 4, gradients = (rows + classes) * inputs * 4;
    {
      const NoGrad no_grad;
      EXPECT_LT(peak_of([&] { (void)linear_cross_entropy(x, w, {}, labels, {.chunk_rows = chunk}); }), logits + slack);
    }
    (void)grad_of(x), (void)grad_of(w);
    EXPECT_LT(peak_of([&] { backward(linear_cross_entropy(x, w, {}, labels, {.chunk_rows = chunk})); }),
              logits + 2 * gradients + slack)
        << device;
  }
}

TEST(LinearCrossEntropyEdges, RefusesBadArguments) {
  const Tensor x = Tensor::zeros({2, 3}), w = Tensor::zeros({5, 3}), labels = Tensor::of<std::int64_t>({2}, {0, 4});
  const char* op = "linear_cross_entropy";
  const auto run = [&](const Tensor& b, const LinearCrossEntropyOptions& options = {}, const Tensor& correct = {}) {
    return linear_cross_entropy(x, w, b, labels, options, correct);
  };
  refuses<UsageError>(op, [&] { return linear_cross_entropy({}, w, {}, labels); });
  refuses<UsageError>(op, [&] { return linear_cross_entropy(x, {}, {}, labels); });
  refuses<UsageError>(op, [&] { return linear_cross_entropy(x, w, {}, {}); });
  refuses<ShapeError>(op, [&] { return linear_cross_entropy(Tensor::zeros({}), w, {}, labels); });
  refuses<ShapeError>(op, [&] { return linear_cross_entropy(x, Tensor::zeros({5, 4}), {}, labels); });
  refuses<ShapeError>(op, [&] { return linear_cross_entropy(x, Tensor::zeros({0, 3}), {}, labels); });
  refuses<ShapeError>(op, [&] { return linear_cross_entropy(x, w, {}, Tensor::zeros({3}, DType::i64)); });
  refuses<ShapeError>(op, [&] { return run(Tensor::zeros({3})); });
  refuses<DTypeError>(op, [&] { return linear_cross_entropy(x, w, {}, Tensor::zeros({2})); });
  refuses<DTypeError>(op, [&] { return linear_cross_entropy(x, w.to(DType::f64), {}, labels); });
  refuses<DTypeError>(op, [&] { return linear_cross_entropy(x.to(DType::i64), w, {}, labels); });
  refuses<UsageError>(op, [&] { return run({}, {.label_smoothing = 1.5}); });
  refuses<UsageError>(op, [&] { return run({}, {.reduction = Reduction::none}); });
  refuses<UsageError>(op, [&] { return run({}, {.chunk_rows = -1}); });
  refuses<UsageError>(op, [&] { return run({}, {}, Tensor::zeros({2}, DType::i64)); });
  refuses<UsageError>(op, [&] { return run({}, {}, Tensor::zeros({1})); });
  refuses<IndexError>(op, [&] { return linear_cross_entropy(x, w, {}, Tensor::full({2}, 5, DType::i64)); });
}

}  // namespace
}  // namespace hearth::test::linear_cross_entropy_test
