// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/window_attention.h"

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "core/cpu/amx.h"
#include "ops/attention/cpu/window_problem_cpu.h"
#include "ops/dispatch/candidates.h"
#include "ops/index/index.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/dropout.h"
#include "ops/pointwise/operators.h"
#include "ops/shape/concat.h"
#include "ops/shape/view.h"
#include "ops/softmax/softmax.h"
#include "tests/support/op_test.h"

namespace hearth::test::window_attention_test {
namespace {

/// Scores, softmax and values hold rounding errors of their own.
constexpr CheckOptions rounded{.tolerance_scale = 4.0};

struct Case {
  std::int64_t n, height, width, heads, head_width, window, shift;
  bool padding = false;

  Shape qkv() const { return {n, height, width, 3 * heads * head_width}; }
  Shape table() const { return {(2 * window - 1) * (2 * window - 1), heads}; }
  WindowAttentionOptions options(const Tensor& behind = {}, double dropped = 0.0) const {
    return {.heads = heads, .window = window, .shift = shift, .dropout = dropped, .padding = behind};
  }
};

/// The definition, in plain loops over row-major values.
std::vector<double> naive(const Case& c, const std::vector<double>& qkv, const std::vector<double>& table,
                          const std::vector<double>& behind) {
  const std::int64_t w = c.window, channels = c.heads * c.head_width, tokens = w * w;
  const std::int64_t rows = (c.height + w - 1) / w * w, columns = (c.width + w - 1) / w * w;
  const std::int64_t shift_y = rows > w ? c.shift : 0, shift_x = columns > w ? c.shift : 0;
  std::vector<double> y(static_cast<std::size_t>(c.n * c.height * c.width * channels));
  const auto zone = [&](std::int64_t at, std::int64_t size, std::int64_t shift) {
    return shift == 0 || at < size - w ? 0 : at < size - shift ? 1 : 2;
  };
  for (std::int64_t n = 0; n < c.n; ++n)
    for (std::int64_t top = 0; top < rows; top += w)
      for (std::int64_t left = 0; left < columns; left += w)
        for (std::int64_t h = 0; h < c.heads; ++h) {
          // Where token t is in the rolled and in the padded image.
          const auto rolled_y = [&](std::int64_t t) { return top + t / w; };
          const auto rolled_x = [&](std::int64_t t) { return left + t % w; };
          const auto row = [&](std::int64_t t) { return (rolled_y(t) + shift_y) % rows; };
          const auto column = [&](std::int64_t t) { return (rolled_x(t) + shift_x) % columns; };
          const auto inside = [&](std::int64_t t) { return row(t) < c.height && column(t) < c.width; };
          const auto value = [&](int part, std::int64_t t, std::int64_t d) {
            const std::int64_t channel = part * channels + h * c.head_width + d;
            if (!inside(t)) return behind.empty() ? 0.0 : behind[static_cast<std::size_t>(channel)];
            const std::int64_t pixel = (n * c.height + row(t)) * c.width + column(t);
            return qkv[static_cast<std::size_t>(pixel * 3 * channels + channel)];
          };
          for (std::int64_t i = 0; i < tokens; ++i) {
            if (!inside(i)) continue;
            std::vector<double> weight(static_cast<std::size_t>(tokens));
            double sum = 0;
            for (std::int64_t j = 0; j < tokens; ++j) {
              double score = 0;
              for (std::int64_t d = 0; d < c.head_width; ++d) score += value(0, i, d) * value(1, j, d);
              score /= std::sqrt(static_cast<double>(c.head_width));
              const std::int64_t entry = (i / w - j / w + w - 1) * (2 * w - 1) + i % w - j % w + w - 1;
              score += table[static_cast<std::size_t>(entry * c.heads + h)];
              if (zone(rolled_y(i), rows, shift_y) != zone(rolled_y(j), rows, shift_y) ||
                  zone(rolled_x(i), columns, shift_x) != zone(rolled_x(j), columns, shift_x))
                score -= 100;
              sum += weight[static_cast<std::size_t>(j)] = std::exp(score);
            }
            for (std::int64_t d = 0; d < c.head_width; ++d) {
              double mean = 0;
              for (std::int64_t j = 0; j < tokens; ++j)
                mean += weight[static_cast<std::size_t>(j)] / sum * value(2, j, d);
              const std::int64_t pixel = (n * c.height + row(i)) * c.width + column(i);
              y[static_cast<std::size_t>(pixel * channels + h * c.head_width + d)] = mean;
            }
          }
        }
  return y;
}

void check_case(const Case& c, Width width = Width::site) {
  const Shape behind{c.qkv()[3]};
  check(
      [&](Draw& draw) {
        const Tensor qkv = draw.normal(c.qkv()), table = draw.normal(c.table(), 1.0, width);
        return window_attention(qkv, table, c.options(c.padding ? draw.normal(behind, 1.0, width) : Tensor()));
      },
      [&](Draw& draw) {
        const auto qkv = draw.normal(c.qkv()).to_doubles(), table = draw.normal(c.table(), 1.0, width).to_doubles();
        return naive(c, qkv, table, c.padding ? draw.normal(behind, 1.0, width).to_doubles() : std::vector<double>());
      },
      rounded);
}

OP_TEST(WindowAttention) {
  for (const std::int64_t shift : {0, 2}) {
    check_case({1, 8, 8, 2, 8, 4, shift});
    check_case({8, 4, 8, 1, 3, 4, shift});
    check_case({2, 6, 9, 3, 5, 4, shift});
    check_case({2, 6, 9, 3, 5, 4, shift, true});
  }
  for (const Width width : {Width::site, Width::wide}) check_case({1, 7, 5, 2, 4, 4, 1, true}, width);
}

OP_TEST(WindowAttentionOfSwin) {
  check_case({1, 14, 14, 1, 32, 7, 3});
  check_case({1, 7, 7, 3, 32, 7, 3});
  check_case({1, 10, 8, 1, 32, 7, 3, true});
  check_case({1, 4, 4, 24, 4, 4, 2});
}

OP_TEST(WindowAttentionOfLargeWindows) {
  check_case({1, 9, 16, 1, 8, 8, 4, true});
  check_case({1, 12, 13, 1, 4, 12, 6, true});
  // With what a block has beside it, more than the 48 KiB of shared memory that need no asking.
  if (site_dtype() == DType::f32) check_case({1, 9, 10, 1, 32, 9, 4, true});
  if (size_of(site_dtype()) != 2) return;
  check_case({1, 12, 13, 1, 32, 12, 6, true});
  check_case({1, 10, 9, 2, 40, 9, 4, true});
}

// Windows larger than the image, of one token, and images without pixels.
OP_TEST(WindowAttentionAtTheEdges) {
  check_case({2, 2, 3, 2, 4, 5, 2, true});
  check_case({2, 1, 9, 1, 4, 4, 3, true});
  check_case({1, 3, 2, 2, 2, 1, 0});
  check_case({0, 4, 4, 1, 4, 4, 0});
  check_case({1, 0, 4, 1, 4, 4, 2, true});
}

OP_TEST(WindowAttentionOfWideHeads) {
  check_case({1, 5, 5, 1, 64, 3, 1, true});
  check_case({1, 6, 8, 1, 40, 6, 3, true});
}

// More windows than there are shares of them in the gradient, and more shares than warps add them.
OP_TEST(WindowAttentionOfManyWindows) {
  if (site_dtype() == DType::f32) check_case({2, 14, 14, 24, 1, 2, 1});
  if (site_dtype() == DType::f16 && !current_site().device.is_cpu()) check_case({1, 14, 14, 96, 8, 2, 1});
}

// 16-bit heads of a multiple of 8 go to the tensor cores otherwise, and bf16 on the CPU to its vectors.
OP_TEST(WindowAttentionByThePortableKernel) {
  if (size_of(site_dtype()) != 2) return;
  const ForceCandidate force("window_attention", "portable");
  check_case({1, 6, 9, 2, 8, 4, 2, true});
}

/// The same from primitive ops, which pad, roll, cut, attend, and put together again.
Tensor composite(const Case& c, const Tensor& qkv, const Tensor& table, const Tensor& behind, double dropped) {
  const std::int64_t w = c.window, tokens = w * w, channels = c.heads * c.head_width;
  const kernels::WindowGrid grid(c.height, c.width, w, c.shift);
  const std::int64_t rows = grid.down * w, columns = grid.across * w;
  const auto roll = [](const Tensor& x, int axis, std::int64_t by) {
    const std::int64_t size = x.dim(axis), at = (size - by) % size;
    return at == 0 ? x : concat({slice(x, axis, at, size), slice(x, axis, 0, at)}, axis);
  };
  Tensor x = qkv;
  if (columns > c.width)
    x = concat({x, expand(reshape(behind, {1, 1, 1, 3 * channels}), {c.n, c.height, columns - c.width, 3 * channels})},
               2);
  if (rows > c.height)
    x = concat({x, expand(reshape(behind, {1, 1, 1, 3 * channels}), {c.n, rows - c.height, columns, 3 * channels})}, 1);
  x = roll(roll(x, 1, -grid.shift_y), 2, -grid.shift_x);
  x = transpose(reshape(x, {c.n, grid.down, w, grid.across, w, 3 * channels}), {0, 1, 3, 2, 4, 5});
  x = reshape(x, {c.n * grid.windows(), tokens, 3, c.heads, c.head_width});
  const auto part = [&](std::int64_t i) {
    return transpose(reshape(slice(x, 2, i, i + 1), {c.n * grid.windows(), tokens, c.heads, c.head_width}),
                     {0, 2, 1, 3});
  };
  std::vector<std::int64_t> entries;
  std::vector<double> mask;
  for (std::int64_t i = 0; i < tokens; ++i)
    for (std::int64_t j = 0; j < tokens; ++j)
      entries.push_back((i / w - j / w + w - 1) * (2 * w - 1) + i % w - j % w + w - 1);
  for (std::int64_t at = 0; at < grid.windows(); ++at)
    for (std::int64_t i = 0; i < tokens; ++i)
      for (std::int64_t j = 0; j < tokens; ++j) mask.push_back(grid.region(at, i) == grid.region(at, j) ? 0.0 : -100.0);
  const Tensor index = Tensor::of<std::int64_t>({tokens * tokens}, entries).to(qkv.device());
  const Tensor bias = reshape(transpose(index_select(table, 0, index), {1, 0}), {1, c.heads, tokens, tokens});
  const Tensor hidden =
      Tensor::of<double>({1, grid.windows(), 1, tokens, tokens}, mask).to(qkv.dtype()).to(qkv.device());
  Tensor scores =
      matmul(part(0) * (1.0 / std::sqrt(static_cast<double>(c.head_width))), part(1), {.transpose_b = true});
  scores = reshape(scores + bias, {c.n, grid.windows(), c.heads, tokens, tokens}) + hidden;
  const Tensor weights = dropout(softmax(scores), dropped, true);
  Tensor y = matmul(reshape(weights, {c.n * grid.windows(), c.heads, tokens, tokens}), part(2));
  y = reshape(transpose(y, {0, 2, 1, 3}), {c.n, grid.down, grid.across, w, w, channels});
  y = reshape(transpose(y, {0, 1, 3, 2, 4, 5}), {c.n, rows, columns, channels});
  y = roll(roll(y, 1, grid.shift_y), 2, grid.shift_x);
  return slice(slice(y, 1, 0, c.height), 2, 0, c.width);
}

/// Result and gradients of f(qkv, table, padding) for fixed values.
std::vector<Tensor> run_all(const Case& c, DType dtype, Device device,
                            const std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)>& f) {
  Random random(7, 1);
  const auto values = [&](const Shape& shape) {
    std::vector<double> all(static_cast<std::size_t>(shape.size()));
    for (double& value : all) value = random.normal();
    return Tensor::of<double>(shape, all).to(dtype).to(device);
  };
  const Tensor qkv = requires_grad(values(c.qkv())), table = requires_grad(values(c.table())),
               behind = requires_grad(values({c.qkv()[3]}));
  const RandomScope scope(11, 5);
  const Tensor y = f(qkv, table, behind);
  backward(y, values(y.shape()));
  return {y.detach(), grad_of(qkv), grad_of(table), grad_of(behind)};
}

OP_TEST(WindowAttentionBesidePrimitiveOps) {
  if (site_dtype() != DType::f64 && site_dtype() != DType::f32) return;
  const Device device = current_site().device;
  const double tolerance = site_dtype() == DType::f64 ? 1e-12 : 1e-5;
  for (const Case& c : {Case{2, 11, 17, 3, 32, 7, 3}, {1, 10, 6, 2, 8, 8, 4}, {8, 6, 5, 2, 4, 4, 2}})
    for (const double dropped : {0.0, 0.3}) {
      const auto own =
          run_all(c, site_dtype(), device, [&](const Tensor& qkv, const Tensor& table, const Tensor& behind) {
            return window_attention(qkv, table, c.options(behind, dropped));
          });
      const auto primitive =
          run_all(c, site_dtype(), device, [&](const Tensor& qkv, const Tensor& table, const Tensor& behind) {
            return composite(c, qkv, table, behind, dropped);
          });
      for (std::size_t i = 0; i < own.size(); ++i) expect_close(own[i], primitive[i].contiguous(), tolerance);
    }
}

/// Beside primitive ops in f64, which draw the same.
void check_dropout(const Case& c, double dropped) {
  const Shape behind{c.qkv()[3]};
  check(
      [&](Draw& draw) {
        const Tensor qkv = draw.normal(c.qkv()), table = draw.normal(c.table());
        const RandomScope scope(3, 4);
        return window_attention(qkv, table, c.options(draw.normal(behind), dropped));
      },
      [&](Draw& draw) {
        const auto wide = [&](const Shape& shape) {
          return Tensor::of<double>(shape, draw.normal(shape).to_doubles());
        };
        const Tensor qkv = wide(c.qkv()), table = wide(c.table()), padding = wide(behind);
        const RandomScope scope(3, 4);
        return composite(c, qkv, table, padding, dropped).to_doubles();
      },
      rounded);
}

// Tiles of 16, 64 and 144 tokens on tensor cores, and on the CPU more keys than are drawn at once.
OP_TEST(WindowAttentionDropout) {
  for (const double dropped : {0.1, 0.6}) check_dropout({2, 9, 8, 2, 8, 4, 3, true}, dropped);
  check_dropout({1, 9, 8, 1, 8, 7, 3, true}, 0.3);
  if (size_of(site_dtype()) != 2) return;
  check_dropout({1, 12, 13, 1, 8, 12, 6, true}, 0.3);
  check_dropout({1, 10, 9, 1, 40, 9, 4, true}, 0.3);
}

// A weight of 0.7 is 0.69921875 in bf16: 1 - 0.7 * 1.4296875 is negative, and positive where weights are rounded for
// the processor's products.
TEST(WindowAttention, RoundsWeightsWhereTheProcessorMultipliesBf16) {
  std::vector<double> qkv(4 * 9), table(9);
  for (const std::size_t channel : {6, 8}) {
    qkv[channel] = 1;
    qkv[9 + channel] = -1.4296875;
  }
  table[3] = std::log(0.7);  // of the first token to the second
  const std::vector<double> y =
      window_attention(Tensor::of<double>({1, 2, 2, 9}, qkv).to(DType::bf16),
                       Tensor::of<double>({9, 1}, table).to(DType::f32), {.heads = 1, .window = 2})
          .to_doubles();
  for (const std::size_t channel : {0, 2}) {
    EXPECT_EQ(y[channel] > 0, cpu::amx::has_bf16_vectors()) << y[channel];
    EXPECT_NEAR(y[channel], 0, 1e-3);
  }
}

// Not a number comes through where it is seen, and memory that held it is not read as if it were written.
TEST(WindowAttention, NotANumberStaysInItsWindow) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const double dropped : {0.0, 0.3}) {
      const Case c{1, 14, 14, 1, 8, 7, 0}, larger{1, 8, 8, 1, 8, 8, 0};
      const auto run = [&](const Case& of, double factor) {
        return run_all(of, dtype, {}, [&](const Tensor& qkv, const Tensor& table, const Tensor& behind) {
          return window_attention(qkv * factor, table, of.options(behind, dropped));
        });
      };
      const auto before = run(c, 1), broken = run(larger, std::numeric_limits<double>::quiet_NaN()), after = run(c, 1);
      for (const double value : broken[0].to_doubles()) EXPECT_TRUE(std::isnan(value));
      for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i].to_doubles(), after[i].to_doubles());
      std::vector<double> values(14 * 14 * 24);
      values[15 * 24 + 9] = std::numeric_limits<double>::quiet_NaN();  // of a key
      const Tensor qkv = Tensor::of<double>(c.qkv(), values).to(dtype);
      const std::vector<double> y =
          window_attention(qkv, Tensor::zeros(c.table()), c.options({}, dropped)).to_doubles();
      for (std::int64_t pixel = 0; pixel < 14 * 14; ++pixel)
        EXPECT_EQ(std::isnan(y[static_cast<std::size_t>(pixel * 8)]), pixel / 14 < 7 && pixel % 14 < 7) << pixel;
    }
}

// A bias of -infinity takes a key's weight, whole blocks of queries and what is left of them.
// Windows of 49 are a block of three vectors and the last query, which the tests of Swin's shapes then run.
TEST(WindowAttention, CutsWindowsIntoBlocks) {
  if (!cpu::amx::has_bf16_vectors()) GTEST_SKIP() << "needs AVX-512 with bf16 products";
  const auto lanes = [](std::int64_t tokens) { return kernels::window_blocks_bf16(tokens).lanes; };
  EXPECT_EQ(lanes(16), 16);
  EXPECT_EQ(lanes(36), 48);
  EXPECT_EQ(lanes(49), 48);
  EXPECT_EQ(lanes(64), 32);
  EXPECT_EQ(lanes(144), 48);
  EXPECT_TRUE(kernels::window_blocks_bf16(49).last_alone);
  EXPECT_FALSE(kernels::window_blocks_bf16(144).last_alone);
}

TEST(WindowAttention, HidesKeysByTheirBiases) {
  for (const std::int64_t window : {4, 5, 6, 7, 8}) {
    const Case c{1, window, window, 1, 8, window, 0};
    std::vector<double> table(static_cast<std::size_t>(c.table().size()));
    for (std::size_t i = 0; i < table.size(); i += 3)
      if (i != table.size() / 2) table[i] = -std::numeric_limits<double>::infinity();
    const auto run = [&](DType dtype) {
      return run_all(c, dtype, {}, [&](const Tensor& qkv, const Tensor&, const Tensor&) {
        return window_attention(qkv, Tensor::of<double>(c.table(), table).to(dtype == DType::f64 ? dtype : DType::f32),
                                c.options());
      });
    };
    const auto exact = run(DType::f64), rough = run(DType::bf16);
    for (const std::size_t i : {0, 1}) {
      const std::vector<double> want = exact[i].to_doubles(), got = rough[i].to_doubles();
      for (std::size_t e = 0; e < want.size(); ++e) EXPECT_NEAR(got[e], want[e], 0.1) << window << " " << i << " " << e;
    }
  }
}

// The table and the padding are added to sums in f32.
TEST(WindowAttention, NarrowsUnderAutocast) {
  const Tensor qkv = requires_grad(Tensor::full({1, 3, 4, 24}, 1.0));
  const Tensor table = requires_grad(Tensor::zeros({9, 2})), behind = requires_grad(Tensor::zeros({24}));
  const AutocastScope scope(DType::bf16);
  const Tensor y = window_attention(qkv, table, {.heads = 2, .window = 2, .padding = behind});
  EXPECT_EQ(y.dtype(), DType::bf16);
  backward(y, Tensor::full({1, 3, 4, 8}, 1.0, DType::bf16));
  for (const Tensor& leaf : {qkv, table, behind}) EXPECT_EQ(grad_of(leaf).dtype(), DType::f32);
}

TEST(WindowAttentionRefusal, Arguments) {
  const char* const op = "window_attention";
  const Tensor qkv = Tensor::zeros({1, 8, 8, 24}), table = Tensor::zeros({49, 2});
  const auto run = [&](const Tensor& x, const Tensor& biases, WindowAttentionOptions options) {
    return window_attention(x, biases, options);
  };
  const WindowAttentionOptions good{.heads = 2, .window = 4};
  EXPECT_EQ(run(qkv, table, good).shape(), (Shape{1, 8, 8, 8}));
  refuses<UsageError>(op, [&] { return run(Tensor(), table, good); });
  refuses<UsageError>(op, [&] { return run(qkv, Tensor(), good); });
  refuses<DTypeError>(op, [&] { return run(qkv.to(DType::i32), table, good); });
  refuses<DTypeError>(op, [&] { return run(qkv, table.to(DType::bf16), good); });
  refuses<ShapeError>(op, [&] { return run(qkv.as_shape({8, 8, 24}), table, good); });
  refuses<ShapeError>(op, [&] { return run(qkv, Tensor::zeros({49, 3}), good); });
  refuses<ShapeError>(op, [&] { return run(qkv, Tensor::zeros({64, 2}), good); });
  refuses<ShapeError>(op, [&] { return run(Tensor::zeros({1, 8, 8, 25}), table, good); });
  refuses<ShapeError>(op, [&] { return run(qkv, Tensor::zeros({49, 3}), {.heads = 3, .window = 4}); });
  refuses<ShapeError>(op, [&] { return run(Tensor::zeros({1, 4, 4, 3 * 65}), Tensor::zeros({49, 1}), {.window = 4}); });
  refuses<ShapeError>(op, [&] { return run(Tensor::zeros({1, 4, 4, 0}), table, good); });
  refuses<UsageError>(op, [&] { return run(qkv, table, {.heads = 0, .window = 4}); });
  refuses<UsageError>(op, [&] { return run(qkv, table, {.heads = 2, .window = 0}); });
  refuses<UsageError>(op, [&] { return run(qkv, table, {.heads = 2, .window = 13}); });
  refuses<UsageError>(op, [&] { return run(qkv, table, {.heads = 2, .window = 4, .shift = 4}); });
  refuses<UsageError>(op, [&] { return run(qkv, table, {.heads = 2, .window = 4, .shift = -1}); });
  refuses<UsageError>(op, [&] { return run(qkv, table, {.heads = 2, .window = 4, .dropout = 1.0}); });
  refuses<ShapeError>(op, [&] { return run(qkv, table, {.heads = 2, .window = 4, .padding = Tensor::zeros({8})}); });
  refuses<DTypeError>(
      op, [&] { return run(qkv, table, {.heads = 2, .window = 4, .padding = Tensor::zeros({24}, DType::f16)}); });
}

}  // namespace
}  // namespace hearth::test::window_attention_test
