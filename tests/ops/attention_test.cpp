// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "core/cpu/amx.h"
#include "ops/dispatch/candidates.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/dropout.h"
#include "ops/pointwise/operators.h"
#include "ops/shape/view.h"
#include "ops/softmax/softmax.h"
#include "tests/ops/attention_reference.h"
#include "tests/support/op_test.h"

namespace hearth::test::attention_test {
namespace {

void check_plain(const Case& c, AttentionOptions options, const CheckOptions& checks = rounded) {
  const Naive naive{
      .c = c, .causal = options.causal, .offset = options.query_offset, .scale = options.scale.value_or(0)};
  check(
      [&](Draw& draw) {
        const Tensor q = draw.normal({c.n, c.tq, c.h, c.d}), k = draw.normal({c.n, c.tk, c.h, c.d});
        return attention(q, k, draw.normal({c.n, c.tk, c.h, c.d}), options);
      },
      [&](Draw& draw) {
        const auto q = draw.normal({c.n, c.tq, c.h, c.d}).to_doubles(),
                   k = draw.normal({c.n, c.tk, c.h, c.d}).to_doubles();
        return naive(q, k, draw.normal({c.n, c.tk, c.h, c.d}).to_doubles());
      },
      checks);
}

OP_TEST(Attention) {
  for (const Case& c :
       {Case{1, 1, 1, 1, 1}, {2, 7, 7, 3, 8}, {1, 49, 49, 2, 32}, {2, 5, 70, 2, 13}, {1, 130, 3, 1, 33}})
    for (const bool causal : {false, true}) check_plain(c, {.causal = causal});
}

OP_TEST(AttentionOfLongSequences) {
  check_plain({1, 128, 128, 2, 64}, {.causal = true});
  check_plain({1, 333, 333, 1, 16}, {.causal = true});
  check_plain({1, 333, 200, 1, 80}, {});
}

OP_TEST(AttentionOfWideHeads) {
  check_plain({1, 19, 21, 2, 128}, {});
  check_plain({1, 20, 35, 1, 129}, {.causal = true, .query_offset = 15});
  check_plain({1, 3, 18, 1, 256}, {});
}

OP_TEST(AttentionOfNothing) {
  for (const Case& c : {Case{0, 3, 4, 2, 8}, {2, 0, 4, 2, 8}, {2, 3, 4, 0, 8}, {2, 3, 0, 2, 8}}) check_plain(c, {});
}

// One query a step over a cache: the offset says how far it is filled.
OP_TEST(AttentionFromACache) {
  for (const std::int64_t offset : {1, 63, 64, 99})
    check_plain({2, 1, 100, 2, 24}, {.causal = true, .query_offset = offset});
  check_plain({1, 3, 70, 1, 16}, {.causal = true, .query_offset = 66});
  check_plain({1, 3, 10, 1, 16}, {.causal = true, .query_offset = 66});
}

OP_TEST(AttentionScale) {
  check_plain({1, 6, 9, 2, 5}, {.scale = 0.75});
  check_plain({1, 6, 9, 2, 5}, {.causal = true, .scale = -0.1});
}

void check_padded(const Case& c, const std::vector<double>& lengths) {
  for (const bool causal : {false, true}) {
    const Naive naive{.c = c, .causal = causal, .offset = causal ? 60 : 0, .lengths = lengths};
    check(
        [&](Draw& draw) {
          const Tensor q = draw.normal({c.n, c.tq, c.h, c.d}), k = draw.normal({c.n, c.tk, c.h, c.d});
          const Tensor v = draw.normal({c.n, c.tk, c.h, c.d});
          return attention(q, k, v,
                           {.causal = causal, .query_offset = naive.offset, .key_lengths = lengths_of(draw, lengths)});
        },
        [&](Draw& draw) {
          const auto q = draw.normal({c.n, c.tq, c.h, c.d}).to_doubles(),
                     k = draw.normal({c.n, c.tk, c.h, c.d}).to_doubles();
          return naive(q, k, draw.normal({c.n, c.tk, c.h, c.d}).to_doubles());
        },
        rounded);
  }
}

OP_TEST(AttentionOfPaddedKeys) {
  check_padded({5, 9, 70, 2, 12}, {70, 1, 65, 0, 33});
  check_padded({4, 150, 150, 1, 8}, {150, 40, 0, 100});
}

OP_TEST(AttentionBias) {
  for (const Case& c : {Case{3, 7, 9, 2, 8}, {9, 49, 49, 2, 8}, {2, 70, 130, 1, 11}, {1, 150, 170, 1, 40}})
    for (const bool shared : {false, true})
      for (const Width width : {Width::site, Width::wide}) {
        const Shape shape{shared ? 1 : c.h, c.tq, c.tk};
        check(
            [&](Draw& draw) {
              const Tensor q = draw.normal({c.n, c.tq, c.h, c.d}), k = draw.normal({c.n, c.tk, c.h, c.d});
              const Tensor v = draw.normal({c.n, c.tk, c.h, c.d});
              return attention(q, k, v, {.causal = c.h == 1, .bias = draw.normal(shape, 1.0, width)});
            },
            [&](Draw& draw) {
              const auto q = draw.normal({c.n, c.tq, c.h, c.d}).to_doubles(),
                         k = draw.normal({c.n, c.tk, c.h, c.d}).to_doubles();
              const auto v = draw.normal({c.n, c.tk, c.h, c.d}).to_doubles();
              const auto once = draw.normal(shape, 1.0, width).to_doubles();
              Naive naive{.c = c, .causal = c.h == 1};
              for (std::int64_t h = 0; h < c.h; ++h)
                naive.bias.insert(naive.bias.end(), once.begin() + (shared ? 0 : h * c.tq * c.tk),
                                  once.begin() + ((shared ? 0 : h) + 1) * c.tq * c.tk);
              return naive(q, k, v);
            },
            rounded);
      }
}

// 16-bit heads of a multiple of 8 go to the tensor cores otherwise, and bf16 on the CPU to its vectors.
OP_TEST(AttentionByThePortableKernel) {
  if (size_of(site_dtype()) != 2) return;
  const ForceCandidate force("attention", "portable");
  check_plain({2, 49, 70, 2, 32}, {});
  check_plain({1, 70, 70, 1, 64}, {.causal = true});
  check_plain({1, 5, 20, 1, 128}, {.causal = true, .query_offset = 9});
}

// Tiles of every width that the tensor cores' kernels have, and heads that fill them in part.
OP_TEST(AttentionOfManyTiles) {
  for (const std::int64_t width : {16, 32, 40, 64, 104, 128}) {
    check_plain({1, 130, 150, 1, width}, {});
    check_plain({1, 150, 130, 1, width}, {.causal = true});
  }
}

/// The same from primitive ops, which keep all the weights.
Tensor composite(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, double dropped) {
  const Tensor queries = transpose(q, {0, 2, 1, 3}), keys = transpose(k, {0, 2, 1, 3}),
               values = transpose(v, {0, 2, 1, 3});
  const std::int64_t tq = q.dim(1), tk = k.dim(1);
  Tensor scores = matmul(queries, keys, {.transpose_b = true}) * (1.0 / std::sqrt(static_cast<double>(q.dim(3))));
  if (causal) {
    std::vector<double> hidden(static_cast<std::size_t>(tq * tk), 0.0);
    for (std::int64_t i = 0; i < tq; ++i)
      for (std::int64_t j = i + 1; j < tk; ++j)
        hidden[static_cast<std::size_t>(i * tk + j)] = -std::numeric_limits<double>::infinity();
    scores = scores + Tensor::of<double>({tq, tk}, hidden).to(q.dtype()).to(q.device());
  }
  return transpose(matmul(dropout(softmax(scores), dropped, true), values), {0, 2, 1, 3});
}

/// Results and gradients of f(q, k, v) for fixed values.
std::vector<Tensor> run_all(const Case& c, DType dtype, Device device,
                            const std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)>& f) {
  std::vector<Tensor> x;
  Random random(7, 1);
  for (const std::int64_t t : {c.tq, c.tk, c.tk}) {
    std::vector<double> values(static_cast<std::size_t>(c.n * t * c.h * c.d));
    for (double& value : values) value = random.normal();
    x.push_back(requires_grad(Tensor::of<double>({c.n, t, c.h, c.d}, values).to(dtype).to(device)));
  }
  const RandomScope scope(11, 5);
  const Tensor y = f(x[0], x[1], x[2]);
  std::vector<double> slopes(static_cast<std::size_t>(y.size()));
  for (double& value : slopes) value = random.normal();
  backward(y, Tensor::of<double>(y.shape(), slopes).to(dtype).to(device));
  return {y.detach(), grad_of(x[0]), grad_of(x[1]), grad_of(x[2])};
}

OP_TEST(AttentionBesidePrimitiveOps) {
  if (site_dtype() != DType::f64 && site_dtype() != DType::f32) return;
  const Device device = current_site().device;
  const double tolerance = site_dtype() == DType::f64 ? 1e-12 : 1e-5;
  for (const Case& c : {Case{2, 49, 49, 3, 32}, {1, 100, 131, 2, 9}, {3, 1, 7, 2, 64}})
    for (const bool causal : {false, true})
      for (const double dropped : {0.0, 0.3}) {
        const auto own = run_all(c, site_dtype(), device, [&](const Tensor& q, const Tensor& k, const Tensor& v) {
          return attention(q, k, v, {.causal = causal, .dropout = dropped});
        });
        const auto primitive = run_all(c, site_dtype(), device, [&](const Tensor& q, const Tensor& k, const Tensor& v) {
          return composite(q, k, v, causal, dropped);
        });
        for (std::size_t i = 0; i < own.size(); ++i) expect_close(own[i], primitive[i].contiguous(), tolerance);
      }
}

OP_TEST(AttentionDropout) {
  for (const Case& c : {Case{2, 7, 9, 2, 8}, {1, 70, 130, 2, 16}})
    for (const double dropped : {0.1, 0.6})
      check(
          [&](Draw& draw) {
            const Tensor q = draw.normal({c.n, c.tq, c.h, c.d}), k = draw.normal({c.n, c.tk, c.h, c.d});
            const RandomScope scope(3, 4);
            return attention(q, k, draw.normal({c.n, c.tk, c.h, c.d}), {.dropout = dropped});
          },
          rounded);
}

OP_TEST(SelfAttention) {
  for (const Case& c : {Case{2, 7, 7, 3, 8}, {1, 70, 70, 2, 15}}) {
    check(
        [&](Draw& draw) {
          return self_attention(draw.normal({c.n, c.tq, 3 * c.h * c.d}), c.h, {.causal = true});
        },
        [&](Draw& draw) {
          const Tensor qkv = draw.normal({c.n, c.tq, 3 * c.h * c.d}).as_shape({c.n, c.tq, 3, c.h * c.d});
          std::vector<std::vector<double>> parts;
          for (const int i : {0, 1, 2}) parts.push_back(slice(qkv, 2, i, i + 1).to_doubles());
          return Naive{.c = c, .causal = true}(parts[0], parts[1], parts[2]);
        },
        rounded);
  }
}

OP_TEST(CrossAttention) {
  const Case c{2, 6, 11, 2, 10};
  const std::vector<double> lengths{11, 4};
  check(
      [&](Draw& draw) {
        const Tensor q = draw.normal({c.n, c.tq, c.h * c.d}), kv = draw.normal({c.n, c.tk, 2 * c.h * c.d});
        return cross_attention(q, kv, c.h, {.key_lengths = lengths_of(draw, lengths)});
      },
      [&](Draw& draw) {
        const auto q = draw.normal({c.n, c.tq, c.h * c.d}).to_doubles();
        const Tensor kv = draw.normal({c.n, c.tk, 2 * c.h * c.d}).as_shape({c.n, c.tk, 2, c.h * c.d});
        return Naive{.c = c, .lengths = lengths}(q, slice(kv, 2, 0, 1).to_doubles(), slice(kv, 2, 1, 2).to_doubles());
      },
      rounded);
}

// Heads of queries that share one head of keys and values: a view with strides of 0, read where it lies.
OP_TEST(AttentionToOneHeadOfKeys) {
  check(
      [](Draw& draw) {
        const auto shared = [&] { return expand(draw.normal({2, 9, 1, 16}), {2, 9, 3, 16}); };
        const Tensor q = draw.normal({2, 5, 3, 16}), k = shared();
        return attention(q, k, shared());
      },
      rounded);
}

/// Heads in front of the sequence, as another library has them: strided views, read where they lie.
TEST(Attention, TakesStridedViewsWithoutCopies) {
  const Case c{2, 5, 5, 3, 8};
  const auto views = run_all(c, DType::f64, {}, [](const Tensor& q, const Tensor& k, const Tensor& v) {
    const auto swapped = [](const Tensor& x) {
      return transpose(transpose(x, {0, 2, 1, 3}).contiguous(), {0, 2, 1, 3});
    };
    return attention(q, swapped(k), swapped(v));
  });
  const auto plain =
      run_all(c, DType::f64, {}, [](const Tensor& q, const Tensor& k, const Tensor& v) { return attention(q, k, v); });
  expect_close(views[0], plain[0], 0.0);
  expect_close(views[1], plain[1], 0.0);
}

TEST(Attention, SlopesOfOneInputOnlyWhereNothingElseIsWanted) {
  const Tensor q = requires_grad(Tensor::full({1, 3, 2, 4}, 0.5)), kv = Tensor::full({1, 6, 2, 4}, 0.25);
  backward(attention(q, kv, kv), Tensor::full({1, 3, 2, 4}, 1.0));
  // All values are equal, so the weights have no influence.
  expect_close(grad_of(q), Tensor::zeros({1, 3, 2, 4}), 1e-6);
}

// What lies behind the last key does not matter at all, nor does how much of it there is.
TEST(Attention, PaddingChangesNoBit) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    const auto run = [&](std::int64_t tk, double behind) {
      Random random(5, 5);
      const auto filled = [&](std::int64_t t, std::int64_t valid) {
        std::vector<double> values(static_cast<std::size_t>(t * 16), behind);
        for (std::int64_t i = 0; i < valid * 16; ++i) values[static_cast<std::size_t>(i)] = random.normal();
        return requires_grad(Tensor::of<double>({1, t, 2, 8}, values).to(dtype));
      };
      const Tensor q = filled(9, 9), k = filled(tk, 37), v = filled(tk, 37);
      const Tensor y = attention(q, k, v, {.key_lengths = Tensor::of<std::int32_t>({1}, {37})});
      backward(y, q.detach());
      std::vector<std::vector<double>> all{y.to_doubles(), grad_of(q).to_doubles()};
      for (const Tensor& x : {k, v}) {
        const Tensor gradient = grad_of(x);
        all.push_back(slice(gradient, 1, 0, 37).to_doubles());
        for (const double value : slice(gradient, 1, 37, tk).to_doubles()) EXPECT_EQ(value, 0.0);
      }
      return all;
    };
    const auto bare = run(37, 0);
    EXPECT_EQ(bare, run(64, 1e30));
    EXPECT_EQ(bare, run(200, std::numeric_limits<double>::quiet_NaN()));
  }
}

// A weight of 0.7 is 0.69921875 in bf16: 1 - 0.7 * 1.4296875 is negative, and positive where weights are rounded for
// the processor's products.
TEST(Attention, RoundsWeightsWhereTheProcessorMultipliesBf16) {
  const Tensor q = Tensor::zeros({1, 5, 1, 3}, DType::bf16), k = Tensor::zeros({1, 2, 1, 3}, DType::bf16);
  const Tensor v = Tensor::of<double>({1, 2, 1, 3}, {1, 0, 1, -1.4296875, 0, -1.4296875}).to(DType::bf16);
  std::vector<float> bias;
  for (int i = 0; i < 5; ++i) bias.insert(bias.end(), {0.0f, std::log(0.7f)});
  const std::vector<double> y = attention(q, k, v, {.bias = Tensor::of<float>({1, 5, 2}, bias)}).to_doubles();
  for (const std::size_t i : {0, 2, 12, 14}) {
    EXPECT_EQ(y[i] > 0, cpu::amx::has_bf16_vectors()) << y[i];
    EXPECT_NEAR(y[i], 0, 1e-3);
  }
}

TEST(Attention, NotANumberComesThroughWhereItIsSeen) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const double bad : {nan, infinity, -infinity}) {
      const std::int64_t t = 70, broken = 40;
      const auto values = [&](std::uint64_t number, bool breaks) {
        Random random(3, number);
        std::vector<double> all(static_cast<std::size_t>(t * 8));
        for (double& value : all) value = random.normal();
        if (breaks) all[broken * 8 + 3] = bad;
        return requires_grad(Tensor::of<double>({1, t, 1, 8}, all).to(dtype));
      };
      for (const bool of_queries : {true, false}) {
        const Tensor q = values(1, of_queries), k = values(2, !of_queries), v = values(3, false);
        const Tensor y = attention(q, k, v, {.causal = true});
        backward(y, v.detach());
        const std::vector<double> result = y.to_doubles(), slopes = grad_of(q).to_doubles();
        for (std::int64_t i = 0; i < t; ++i) {
          const auto at = static_cast<std::size_t>(i * 8);
          const bool sees = of_queries ? i == broken : i >= broken;
          // A key of infinite weight, or of none, where only one channel is infinite.
          if (!std::isnan(bad) && sees) continue;
          EXPECT_EQ(std::isnan(result[at]), sees) << i;
          EXPECT_EQ(std::isnan(slopes[at]), sees) << i;
        }
      }
    }
}

// Memory that held what is not a number is not read as if it were written.
TEST(Attention, NotANumberLeavesNothingBehind) {
  const Case c{1, 37, 69, 1, 20};
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const double dropped : {0.0, 0.3}) {
      const auto run = [&](bool breaks) {
        return run_all(c, dtype, {}, [&](const Tensor& q, const Tensor& k, const Tensor& v) {
          const Tensor bad = Tensor::full(v.shape(), std::numeric_limits<double>::quiet_NaN(), dtype);
          return attention(q, breaks ? bad : k, breaks ? bad : v, {.dropout = dropped});
        });
      };
      const auto before = run(false), broken = run(true), after = run(false);
      for (const double value : broken[0].to_doubles()) EXPECT_TRUE(std::isnan(value));
      for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i].to_doubles(), after[i].to_doubles());
    }
}

OP_TEST(AttentionOfHiddenRows) {
  const double hidden = -std::numeric_limits<double>::infinity();
  std::vector<double> bias(3 * 5, hidden);
  bias[5] = 0.5;  // query 1 sees key 0
  std::fill(bias.begin() + 10, bias.end(), 0.0);
  check(
      [&](Draw& draw) {
        const Tensor q = draw.normal({2, 3, 2, 8}), k = draw.normal({2, 5, 2, 8}), v = draw.normal({2, 5, 2, 8});
        return attention(q, k, v, {.bias = draw.constant({1, 3, 5}, bias)});
      },
      rounded);
  const Tensor x = Tensor::full({1, 3, 1, 4}, 1.0, site_dtype(), current_site().device);
  const Tensor none = Tensor::zeros({1}, DType::i32, current_site().device);
  for (const double value : attention(x, x, x, {.key_lengths = none}).to_doubles()) EXPECT_EQ(value, 0.0);
}

OP_TEST(AttentionOfLargeScores) {
  check(
      [&](Draw& draw) {
        const Tensor q = draw.normal({1, 5, 2, 8}, 40.0), k = draw.normal({1, 90, 2, 8}, 40.0);
        const NoGrad quiet;
        return attention(q, k, draw.normal({1, 90, 2, 8}));
      },
      {.tolerance_scale = 40.0, .no_gradient = true});  // scores of some thousands keep fewer digits
}

TEST(Attention, NarrowsUnderAutocast) {
  const Tensor qkv = Tensor::full({1, 4, 24}, 1.0), bias = requires_grad(Tensor::zeros({1, 4, 4}));
  const AutocastScope scope(DType::bf16);
  const Tensor y = self_attention(qkv, 2, {.bias = bias});
  EXPECT_EQ(y.dtype(), DType::bf16);
  backward(y, Tensor::full({1, 4, 8}, 1.0, DType::bf16));
  EXPECT_EQ(grad_of(bias).dtype(), DType::f32);
}

// Types are compared behind the conversion.
TEST(Attention, TakesMixedTypesUnderAutocast) {
  const Tensor wide = requires_grad(Tensor::full({1, 4, 2, 8}, 1.0)),
               narrow = Tensor::full({1, 4, 2, 8}, 1.0, DType::bf16);
  const AutocastScope scope(DType::bf16);
  const Tensor y = attention(wide, narrow, narrow, {.bias = Tensor::zeros({2, 4, 4}, DType::bf16)});
  EXPECT_EQ(y.dtype(), DType::bf16);
  backward(y, narrow);
  EXPECT_EQ(grad_of(wide).dtype(), DType::f32);
  EXPECT_EQ(cross_attention(wide.detach().as_shape({1, 4, 16}), Tensor::zeros({1, 3, 32}, DType::bf16), 2).dtype(),
            DType::bf16);
}

// 257 has no bf16, and its low-precision copy is 256.
TEST(Attention, ABiasIsNotRoundedUnderAutocast) {
  const Tensor bias = requires_grad(Tensor::of<float>({1, 1, 2}, {256.0f, 257.0f}));
  bias.grad_state()->low_precision = bias.detach().to(DType::bf16);
  const Tensor q = Tensor::zeros({1, 1, 1, 1}), v = Tensor::of<float>({1, 2, 1, 1}, {0.0f, 1.0f});
  const AutocastScope scope(DType::bf16);
  const Tensor y = attention(q, v * 0.0, v, {.bias = bias});
  EXPECT_NEAR(y.to_doubles()[0], 1 / (1 + std::exp(-1.0)), 4e-3);
  backward(y, Tensor::full({1, 1, 1, 1}, 1.0, DType::bf16));
  EXPECT_NEAR(grad_of(bias).to_doubles()[1], 0.1966, 4e-3);
}

// Heads that share a bias, in several shares and runs of queries.
OP_TEST(AttentionBiasOfManySamples) {
  if (!current_site().device.is_cpu()) return;
  for (const Case& c : {Case{21, 9, 7, 3, 8}, {2, 260, 5, 2, 8}, {3, 140, 140, 1, 8}})
    check(
        [&](Draw& draw) {
          const Tensor q = draw.normal({c.n, c.tq, c.h, c.d}), k = draw.normal({c.n, c.tk, c.h, c.d});
          const Tensor v = draw.normal({c.n, c.tk, c.h, c.d});
          return attention(q, k, v, {.bias = draw.normal({1, c.tq, c.tk})});
        },
        rounded);
}

TEST(AttentionRefusal, Arguments) {
  const Tensor x = Tensor::zeros({2, 3, 4, 8});
  refuses<UsageError>("attention", [&] { return attention(Tensor(), x, x); });
  refuses<UsageError>("attention", [&] { return attention(x, x, Tensor()); });
  refuses<DTypeError>("attention", [&] { return attention(x.to(DType::i32), x, x); });
  refuses<DTypeError>("attention", [&] { return attention(x, x.to(DType::bf16), x); });
  refuses<ShapeError>("attention", [&] { return attention(x.as_shape({6, 4, 8}), x, x); });
  refuses<ShapeError>("attention", [&] { return attention(x, x.as_shape({6, 4, 8}), x); });
  refuses<ShapeError>("attention", [&] { return attention(x, x, Tensor::zeros({2, 5, 4, 8})); });
  refuses<ShapeError>("attention", [&] {
    return attention(x, Tensor::zeros({3, 3, 4, 8}), Tensor::zeros({3, 3, 4, 8}));
  });
  const Tensor wide = Tensor::zeros({1, 1, 1, 257});
  refuses<ShapeError>("attention", [&] { return attention(wide, wide, wide); });
  refuses<UsageError>("attention", [&] { return attention(x, x, x, {.dropout = 1.0}); });
  refuses<UsageError>("attention", [&] { return attention(x, x, x, {.causal = true, .query_offset = -1}); });
  refuses<UsageError>("attention", [&] { return attention(x, x, x, {.query_offset = 1}); });
  refuses<UsageError>("attention", [&] { return attention(x, x, x, {.scale = NAN}); });
  refuses<ShapeError>("attention", [&] { return attention(x, x, x, {.bias = Tensor::zeros({3, 3})}); });
  refuses<ShapeError>("attention", [&] { return attention(x, x, x, {.bias = Tensor::zeros({2, 3, 3})}); });
  refuses<DTypeError>("attention", [&] { return attention(x, x, x, {.bias = Tensor::zeros({4, 3, 3}, DType::bf16)}); });
  refuses<DTypeError>("attention", [&] { return attention(x, x, x, {.key_lengths = Tensor::zeros({2}, DType::i64)}); });
  refuses<ShapeError>("attention", [&] { return attention(x, x, x, {.key_lengths = Tensor::zeros({3}, DType::i32)}); });
  const auto segmented = [&](const Tensor& segments, std::int64_t offset = 0) {
    return attention(x, x, x, {.causal = true, .query_offset = offset, .segments = segments});
  };
  const Tensor segments = Tensor::zeros({2, 3, 2}, DType::i32);
  refuses<DTypeError>("segments", [&] { return segmented(segments.to(DType::i64)); });
  refuses<ShapeError>("segments", [&] { return segmented(Tensor::zeros({2, 3}, DType::i32)); });
  refuses<ShapeError>("segments", [&] { return segmented(Tensor::zeros({2, 4, 2}, DType::i32)); });
  refuses<ShapeError>("segments", [&] { return segmented(Tensor::zeros({1, 3, 2}, DType::i32)); });
  refuses<UsageError>("segments", [&] { return segmented(segments, 1); });
  refuses<UsageError>("segments", [&] {
    const Tensor keys = Tensor::zeros({2, 5, 4, 8});
    return attention(x, keys, keys, {.segments = segments});
  });
  refuses<ShapeError>("self_attention", [&] { return self_attention(x, 4); });
  refuses<ShapeError>("self_attention", [&] { return self_attention(Tensor::zeros({2, 3, 25}), 4); });
  refuses<ShapeError>("self_attention", [&] { return self_attention(Tensor::zeros({2, 3, 24}), 3); });
  refuses<UsageError>("self_attention", [&] { return self_attention(Tensor::zeros({2, 3, 24}), 0); });
  refuses<ShapeError>("cross_attention", [&] {
    return cross_attention(Tensor::zeros({2, 3, 8}), Tensor::zeros({2, 3, 8}), 2);
  });
}

}  // namespace
}  // namespace hearth::test::attention_test
