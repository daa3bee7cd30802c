// SPDX-License-Identifier: Apache-2.0
// An attention problem as its kernels on a CUDA device see it. For kernel sources only.
#pragma once

#include <algorithm>

#include "core/cuda/graph.h"
#include "core/cuda/kernel.h"
#include "ops/attention/attention.h"
#include "ops/pointwise/dropout_strip.h"

namespace hearth::kernels::attention_problem {

/// [N, T, H, D] whose last axis is dense.
template <class T>
struct Heads {
  T* data = nullptr;
  std::int64_t sample_step = 0, row_step = 0, head_step = 0;

  __device__ T* head(std::int64_t n, std::int64_t h) const { return data + n * sample_step + h * head_step; }
};

/// T may be const.
template <class T>
Heads<T> heads_of(const Tensor& x) {
  return {x.data<std::remove_const_t<T>>(), x.strides()[0], x.strides()[1], x.strides()[2]};
}

/// Which weights dropout keeps; the choice of ops/pointwise/dropout on weights [N, H, Tq, Tk].
struct Draws {
  RandomKey key;
  const std::uint64_t* step;  ///< of recorded work: the number of the step
  std::int64_t first_element;
  std::uint32_t threshold;
  double kept;  ///< 1 / (1 - p)
  bool on;
};

/// P: the type of sums.
template <class T, class P = acc_t<T>>
struct Problem {
  Heads<const T> q, k, v;
  const P* bias;                 ///< [H or 1, Tq, Tk], or null
  std::int64_t bias_step;        ///< from the bias of a head to the next; 0 where they share one
  const std::int32_t* lengths;   ///< [N], or null
  const std::int32_t* segments;  ///< [N, T, 2], or null
  std::int64_t batch, heads, queries, keys;
  int width;
  bool causal;
  std::int64_t query_offset;
  P scale;
  Draws draws;
};

template <class T>
Problem<T> problem_of(cuda::Stream& stream, const AttentionArguments& a) {
  using P = acc_t<T>;
  Problem<T> p{};
  p.q = heads_of<const T>(a.q);
  p.k = heads_of<const T>(a.k);
  p.v = heads_of<const T>(a.v);
  p.batch = a.batch();
  p.heads = a.heads();
  p.queries = a.queries();
  p.keys = a.keys();
  p.width = static_cast<int>(a.width());
  p.bias = a.bias.defined() ? a.bias.data<P>() : nullptr;
  p.bias_step = a.bias.defined() && a.bias.dim(0) > 1 ? p.queries * p.keys : 0;
  p.lengths = a.key_lengths.defined() ? a.key_lengths.data<std::int32_t>() : nullptr;
  p.segments = a.segments.defined() ? a.segments.data<std::int32_t>() : nullptr;
  p.causal = a.causal;
  p.query_offset = a.query_offset;
  p.scale = static_cast<P>(a.scale);
  p.draws.on = a.dropout > 0;
  if (p.draws.on) {
    p.draws.key = a.key;
    p.draws.step = cuda::recorded_random_step(stream);
    p.draws.first_element = a.key.first_element(p.batch * p.heads * p.queries * p.keys);
    p.draws.threshold = dropout_threshold(a.dropout);
    p.draws.kept = 1.0 / (1.0 - a.dropout);
  }
  return p;
}

/// What the gradient's kernels are given beside the problem.
template <class T, class P = acc_t<T>>
struct Saved {
  Heads<const T> dy;
  const P *lse, *delta;  ///< [N, H, Tq]
};

/// The keys, or queries, from `begin` to below `end`.
struct Range {
  std::int64_t begin, end;

  __device__ bool has(std::int64_t i) const { return i >= begin && i < end; }
};

/// One head of one sample. `keys` are those that are not padding.
template <class T, class P = acc_t<T>>
struct Head {
  std::int64_t n, h, keys;
  const std::int32_t* segments;  ///< of this sample, or null

  __device__ Head(const Problem<T>& p, std::int64_t index)
      : n(index / p.heads),
        h(index % p.heads),
        keys(p.keys),
        segments(p.segments == nullptr ? nullptr : p.segments + 2 * n * p.queries) {
    if (p.lengths == nullptr) return;
    const std::int64_t length = p.lengths[n];
    keys = length < 0 ? 0 : length < keys ? length : keys;
  }
  /// Keys that the queries from `first` to below `end`, of which there is one, see at most.
  __device__ Range seen(const Problem<T>& p, std::int64_t first, std::int64_t end) const {
    const std::int64_t last = (end < p.queries ? end : p.queries) - 1;
    Range range{0, keys};
    if (p.causal && p.query_offset + last + 1 < keys) range.end = p.query_offset + last + 1;
    if (segments == nullptr) return range;
    if (segments[2 * first] > 0) range.begin = segments[2 * first];
    if (segments[2 * last + 1] < range.end) range.end = segments[2 * last + 1];
    return range;
  }
  /// Those that one query sees; none behind the last.
  __device__ Range seen(const Problem<T>& p, std::int64_t query) const {
    return query < p.queries ? seen(p, query, query + 1) : Range{0, 0};
  }
  /// Queries that see a key from `first` to below `end`, of which there is one, at most.
  __device__ Range seeing(const Problem<T>& p, std::int64_t first, std::int64_t end) const {
    Range range{p.causal && first > p.query_offset ? first - p.query_offset : 0, p.queries};
    if (first >= keys) return {0, 0};
    if (segments == nullptr) return range;
    const std::int64_t last = (end < p.keys ? end : p.keys) - 1;
    if (segments[2 * first] > range.begin) range.begin = segments[2 * first];
    if (segments[2 * last + 1] < range.end) range.end = segments[2 * last + 1];
    return range;
  }
  /// Position of a query in [N, H, Tq].
  __device__ std::int64_t row(const Problem<T>& p, std::int64_t query) const {
    return (n * p.heads + h) * p.queries + query;
  }
};

__device__ __forceinline__ std::array<std::uint32_t, 4> draw_words(const Draws& draws, std::int64_t strip, int lane) {
  const std::uint64_t step = draws.step != nullptr ? *draws.step : draws.key.step;
  const std::uint64_t block = static_cast<std::uint64_t>(strip) * 16 + static_cast<std::uint64_t>(lane);
  return philox({static_cast<std::uint32_t>(block), draws.key.op, static_cast<std::uint32_t>(step),
                 static_cast<std::uint32_t>(step >> 32) ^ (static_cast<std::uint32_t>(block >> 32) << 16)},
                {static_cast<std::uint32_t>(draws.key.seed), static_cast<std::uint32_t>(draws.key.seed >> 32)});
}

__device__ __forceinline__ std::uint32_t word_of(const std::array<std::uint32_t, 4>& words, int i) {
  // Not words[i]: that would put the words into memory.
  return i < 2 ? (i == 0 ? words[0] : words[1]) : (i == 2 ? words[2] : words[3]);
}

/// What the weights of elements first, first + 16, ... are multiplied with: 1 without dropout. One Philox block serves
/// up to four.
template <int count, class P>
__device__ __forceinline__ void draw(const Draws& draws, std::int64_t first, P (&factor)[count]) {
  if (!draws.on) {
    HEARTH_UNROLL
    for (int i = 0; i < count; ++i) factor[i] = P(1);
    return;
  }
  first += draws.first_element;
  const int lane = static_cast<int>(first % 16);
  std::int64_t strip = first / dropout_strip;
  std::array<std::uint32_t, 4> words = draw_words(draws, strip, lane);
  HEARTH_UNROLL
  for (int i = 0; i < count; ++i) {
    const std::int64_t element = first + 16 * i;
    if (element / dropout_strip != strip) {
      strip = element / dropout_strip;
      words = draw_words(draws, strip, lane);
    }
    const bool keeps = word_of(words, static_cast<int>(element % dropout_strip) / 16) >= draws.threshold;
    factor[i] = keeps ? static_cast<P>(draws.kept) : P(0);
  }
}

}  // namespace hearth::kernels::attention_problem
