// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/attention.h"

#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "ops/dispatch/candidates.h"
#include "ops/shape/view.h"
#include "tests/ops/attention_reference.h"
#include "tests/support/op_test.h"

namespace hearth::test::attention_segments_test {
namespace {

void check_segments(const Naive& naive, double dropout = 0) {
  const Case& c = naive.c;
  const auto run = [&](Draw& draw) {
    const Tensor q = draw.normal({c.n, c.tq, c.h, c.d}), k = draw.normal({c.n, c.tk, c.h, c.d});
    const Tensor v = draw.normal({c.n, c.tk, c.h, c.d});
    AttentionOptions options{.causal = naive.causal, .dropout = dropout, .segments = segments_of(draw, naive)};
    if (!naive.lengths.empty()) options.key_lengths = lengths_of(draw, naive.lengths);
    const RandomScope scope(3, 4);
    return attention(q, k, v, options);
  };
  if (dropout > 0) return check(run, rounded);
  check(
      run,
      [&](Draw& draw) {
        const auto q = draw.normal({c.n, c.tq, c.h, c.d}).to_doubles(),
                   k = draw.normal({c.n, c.tk, c.h, c.d}).to_doubles();
        return naive(q, k, draw.normal({c.n, c.tk, c.h, c.d}).to_doubles());
      },
      rounded);
}

// Cuts within a tile, at its edge, between tiles, and of single positions.
OP_TEST(AttentionOfSegments) {
  for (const bool causal : {false, true}) {
    check_segments({.c = {2, 9, 9, 2, 8}, .causal = causal, .cuts = {1, 2, 5}});
    check_segments({.c = {1, 3, 3, 1, 8}, .causal = causal, .cuts = {1}});
    check_segments({.c = {1, 150, 150, 2, 16}, .causal = causal, .cuts = {16, 17, 64, 130}});
    check_segments({.c = {2, 70, 70, 1, 64}, .causal = causal, .cuts = {33}});
    check_segments({.c = {1, 97, 97, 1, 24}, .causal = causal, .cuts = {}});
    check_segments({.c = {1, 40, 40, 1, 130}, .causal = causal, .cuts = {7, 32}});
    check_segments({.c = {3, 70, 70, 2, 12}, .causal = causal, .lengths = {70, 0, 40}, .cuts = {20, 36, 66}});
  }
}

OP_TEST(AttentionOfManySegments) {
  for (const std::int64_t width : {32, 64, 128})
    for (const bool causal : {false, true}) {
      check_segments({.c = {1, 290, 290, 1, width}, .causal = causal, .cuts = {3, 64, 90, 128, 129, 250}});
      check_segments({.c = {1, 140, 140, 1, width}, .causal = causal, .cuts = {50, 128}}, 0.3);
    }
}

OP_TEST(AttentionOfSegmentsByThePortableKernel) {
  if (size_of(site_dtype()) != 2) return;
  const ForceCandidate force("attention", "portable");
  check_segments({.c = {1, 150, 150, 1, 64}, .causal = true, .cuts = {16, 17, 64, 130}});
  check_segments({.c = {1, 150, 150, 1, 64}, .causal = false, .cuts = {16, 17, 64, 130}}, 0.2);
}

OP_TEST(AttentionBiasBesideSegments) {
  const Case c{2, 70, 70, 2, 8};
  check(
      [&](Draw& draw) {
        const Tensor q = draw.normal({c.n, c.tq, c.h, c.d}), k = draw.normal({c.n, c.tk, c.h, c.d});
        const Tensor v = draw.normal({c.n, c.tk, c.h, c.d}), bias = draw.normal({c.h, c.tq, c.tk});
        return attention(q, k, v, {.bias = bias, .segments = segments_of(draw, {.c = c, .cuts = {30, 64}})});
      },
      rounded);
}

// What the memory says is no reason to read outside of it.
OP_TEST(AttentionOfSegmentsThatAreNone) {
  const Device device = current_site().device;
  const Tensor qkv = Tensor::full({2, 40, 48}, 0.5, site_dtype(), device);
  Random random(1, 2);
  for (int round = 0; round < 8; ++round) {
    const Tensor segments = Tensor::empty({2, 40, 2}, DType::i32);
    for (std::int64_t i = 0; i < segments.size(); ++i)
      segments.data<std::int32_t>()[i] = round % 2 == 0
                                             ? static_cast<std::int32_t>(random.below(100)) - 30
                                             : static_cast<std::int32_t>(random.below(std::uint64_t{1} << 32));
    const Tensor x = requires_grad(qkv.to(site_dtype()));
    const Tensor y = self_attention(x, 2, {.causal = round % 4 < 2, .segments = segments.to(device)});
    EXPECT_EQ(y.shape(), (Shape{2, 40, 16}));
    backward(y, y.detach());
  }
}

// Segments are as good as sequences of their own.
TEST(Attention, SegmentsAreSequencesOfTheirOwn) {
  const std::vector<std::int64_t> cuts{0, 5, 6, 40, 77};
  for (const bool causal : {false, true}) {
    const auto values = [&](std::uint64_t number, std::int64_t channels) {
      Random random(9, number);
      std::vector<double> all(static_cast<std::size_t>(77 * channels));
      for (double& value : all) value = random.normal();
      return Tensor::of<double>({1, 77, channels}, all);
    };
    const Tensor qkv = requires_grad(values(1, 48)), dy = values(2, 16);
    std::vector<std::int32_t> ends;
    for (std::size_t s = 0; s + 1 < cuts.size(); ++s)
      for (std::int64_t i = cuts[s]; i < cuts[s + 1]; ++i)
        ends.insert(ends.end(), {static_cast<std::int32_t>(cuts[s]), static_cast<std::int32_t>(cuts[s + 1])});
    const Tensor y = self_attention(qkv, 2, {.causal = causal, .segments = Tensor::of<std::int32_t>({1, 77, 2}, ends)});
    backward(y, dy);
    for (std::size_t s = 0; s + 1 < cuts.size(); ++s) {
      const auto part = [&](const Tensor& x) { return slice(x, 1, cuts[s], cuts[s + 1]).contiguous(); };
      const Tensor own = requires_grad(part(qkv.detach()));
      const Tensor alone = self_attention(own, 2, {.causal = causal});
      backward(alone, part(dy));
      expect_close(part(y), alone, 1e-13);
      expect_close(part(grad_of(qkv)), grad_of(own), 1e-13);
    }
  }
}

}  // namespace
}  // namespace hearth::test::attention_segments_test
