// SPDX-License-Identifier: Apache-2.0
#include "ops/norm/merge_layer_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "core/memory/memory.h"
#include "ops/norm/layer_norm.h"
#include "ops/shape/concat.h"
#include "ops/shape/view.h"
#include "tests/support/devices.h"
#include "tests/support/op_test.h"

namespace hearth::test::merge_layer_norm_test {
namespace {

// Even and odd sides; lanes of a warp, blocks in two sizes, and rows that are read again; with and without 16-byte
// units.
const Shape shapes[] = {{2, 4, 6, 8},   {2, 5, 3, 8},   {1, 7, 4, 3},    {1, 2, 5, 96},   {3, 1, 1, 5},  {1, 3, 3, 32},
                        {1, 2, 3, 300}, {1, 3, 2, 768}, {1, 1, 3, 1031}, {1, 2, 1, 2304}, {1, 2, 3, 256}};

Tensor merged(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  return merge_layer_norm(x, gamma, beta, eps);
}

Tensor apart(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  const Tensor even = pad(x, {{}, {0, x.dim(1) % 2}, {0, x.dim(2) % 2}, {}});
  const std::int64_t n = x.dim(0), rows = even.dim(1) / 2, columns = even.dim(2) / 2, width = x.dim(3);
  const Tensor neighbours = transpose(reshape(even, {n, rows, 2, columns, 2, width}), {0, 1, 3, 4, 2, 5});
  return layer_norm(reshape(neighbours, {n, rows, columns, 4 * width}), gamma, beta, eps);
}

OP_TEST(MergeLayerNorm) {
  for (const Shape& shape : shapes) {
    // A sum over so long a row is too rough for central differences, and one path to a CPU.
    if (shape.dim(3) > 2048 && current_site().device.is_cpu()) continue;
    const auto run = [&](Draw& draw, auto op) {
      const Tensor x = draw.normal(shape), gamma = draw.away_from_zero({4 * shape.dim(3)}, Width::wide);
      return op(x, gamma, draw.normal({4 * shape.dim(3)}, 1.0, Width::wide), 0.1);
    };
    check([&](Draw& draw) { return run(draw, merged); }, [&](Draw& draw) { return run(draw, apart).to_doubles(); },
          {.tolerance_scale = 4.0});
  }
}

Tensor numbers(const Shape& shape, double step, DType dtype, Device device) {
  std::vector<double> values(static_cast<std::size_t>(shape.size()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(i) * step) * 2 + step;
  return requires_grad(Tensor::of<double>(shape, values).to(dtype).to(device));
}

// Of a batch of images, so that rows begin anywhere in them: values and gradients as the parts on their own give them.
TEST(MergeLayerNormOnDevices, HasTheBitsOfItsParts) {
  for (const Device device : devices())
    for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
      const DType wide = dtype == DType::f64 ? dtype : DType::f32;
      const auto results = [&](auto op) {
        const Tensor x = numbers({3, 7, 9, 24}, 1.3, dtype, device), gamma = numbers({96}, 0.3, wide, device),
                     beta = numbers({96}, 0.7, wide, device);
        const Tensor y = op(x, gamma, beta, 1e-5);
        backward(y, numbers({3, 4, 5, 96}, 2.1, dtype, device).detach());
        return std::vector{y.to_doubles(), grad_of(x).to_doubles(), grad_of(gamma).to_doubles(),
                           grad_of(beta).to_doubles()};
      };
      EXPECT_EQ(results(merged), results(apart)) << device << " " << dtype;
    }
}

TEST(MergeLayerNorm, OrderIsTorchvisions) {
  // Of a 2x2 image of one channel: itself, below, at the right, below at the right.
  const Tensor x = Tensor::of<float>({1, 2, 2, 1}, {1, 2, 3, 4}), one = Tensor::full({4}, 1.0);
  const std::vector<double> y = merge_layer_norm(x, one, Tensor::zeros({4})).to_doubles();
  EXPECT_LT(y[0], y[2]);
  EXPECT_LT(y[2], y[1]);
  EXPECT_LT(y[1], y[3]);
}

TEST(MergeLayerNormOnDevices, KeepsItsInputAndStatisticsOnly) {
  for (const Device device : devices()) {
    const Tensor x = numbers({2, 9, 9, 16}, 1.3, DType::f32, device), gamma = numbers({64}, 0.3, DType::f32, device);
    const Tensor beta = numbers({64}, 0.7, DType::f32, device);
    const std::int64_t before = memory_of(device).statistics().in_use;
    const Tensor y = merge_layer_norm(x, gamma, beta);
    // y has 50 rows, with two f32 numbers each; memory comes in rounded pieces.
    EXPECT_LE(memory_of(device).statistics().in_use - before, 50 * 64 * 4 + 50 * 8 + 4 * 512) << device;
  }
}

TEST(MergeLayerNorm, EmptyIsLegal) {
  const Tensor one = requires_grad(Tensor::full({12}, 1.0)), x = Tensor::zeros({0, 4, 5, 3});
  const Tensor y = merge_layer_norm(x, one, Tensor::zeros({12}));
  EXPECT_EQ(y.shape(), (Shape{0, 2, 3, 12}));
  backward(y, Tensor::zeros(y.shape()));
  EXPECT_EQ(grad_of(one).to_doubles(), std::vector<double>(12, 0.0));
  EXPECT_EQ(merge_layer_norm(Tensor::zeros({2, 3, 3, 0}), Tensor::zeros({0}), Tensor::zeros({0})).shape(),
            (Shape{2, 2, 2, 0}));
}

TEST(MergeLayerNorm, RefusesBadArguments) {
  const Tensor x = Tensor::zeros({2, 3, 4, 5}), one = Tensor::full({20}, 1.0);
  const char* op = "merge_layer_norm";
  refuses<UsageError>(op, [&] { return merge_layer_norm({}, one, one); });
  refuses<UsageError>(op, [&] { return merge_layer_norm(x, {}, one); });
  refuses<UsageError>(op, [&] { return merge_layer_norm(x, one, {}); });
  refuses<DTypeError>(op, [&] { return merge_layer_norm(x.to(DType::i64), one, one); });
  refuses<DTypeError>(op, [&] { return merge_layer_norm(x.to(DType::f64), one, one); });
  refuses<ShapeError>(op, [&] { return merge_layer_norm(Tensor::zeros({3, 4, 5}), one, one); });
  refuses<ShapeError>(op, [&] { return merge_layer_norm(x, Tensor::zeros({5}), one); });
  refuses<ShapeError>(op, [&] { return merge_layer_norm(x, one, Tensor::zeros({20, 1})); });
  for (const double eps : {-1e-5, std::nan("")})
    refuses<UsageError>(op, [&] { return merge_layer_norm(x, one, one, eps); });
}

}  // namespace
}  // namespace hearth::test::merge_layer_norm_test
