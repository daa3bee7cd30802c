// SPDX-License-Identifier: Apache-2.0
// What the kernels of attention on tensor cores know of their head. For kernel sources only.
#pragma once

#include "ops/attention/cuda/problem.cuh"

namespace hearth::kernels::attention_mma_head {

using namespace cuda;
using namespace attention_problem;

// What a kernel looks for at all. With a bias, which is rare, it looks for draws too.
struct Plain {
  static constexpr bool bias = false, draws = false, segments = false;
};
struct Dropping {
  static constexpr bool bias = false, draws = true, segments = false;
};
struct Biased {
  static constexpr bool bias = true, draws = true, segments = false;
};
struct Segmented {
  static constexpr bool bias = false, draws = false, segments = true;
};
struct SegmentedDropping {
  static constexpr bool bias = false, draws = true, segments = true;
};

/// What a block knows of its head, in few registers.
template <class T, class Form>
struct OwnHead {
  unsigned number;  ///< among all heads of the batch
  unsigned n, h;
  int queries, keys, offset;
  bool causal;
  const std::int32_t* segments;  ///< of this sample, where the kernel looks for them

  __device__ OwnHead(const Problem<T>& p, unsigned index)
      : number(index),
        n(index / static_cast<unsigned>(p.heads)),
        h(index % static_cast<unsigned>(p.heads)),
        queries(static_cast<int>(p.queries)),
        keys(static_cast<int>(p.keys)),
        offset(static_cast<int>(p.query_offset < p.keys ? p.query_offset : p.keys)),
        causal(p.causal),
        segments(Form::segments ? p.segments + 2 * p.queries * n : nullptr) {
    if (p.lengths == nullptr) return;
    const int length = p.lengths[n];
    keys = length < 0 ? 0 : length < keys ? length : keys;
  }
  /// Where the rows of one of the head's numbers begin.
  template <class E>
  __device__ E* row_of(E* rows) const {
    return rows + static_cast<std::int64_t>(number) * queries;
  }

  template <class E>
  __device__ E* of(const Heads<E>& heads) const {
    return heads.head(n, h);
  }
  /// The keys that the query sees: from first_seen() to below seen(). With segments queries behind the last count as
  /// that.
  __device__ int seen(int query) const {
    const int past = offset + query + 1;
    const int end = causal && past < keys ? past : keys;
    if constexpr (Form::segments) {
      const int other = segments[2 * last_of(query) + 1];
      return other < end ? other : end;
    }
    return end;
  }
  __device__ int first_seen(int query) const {
    if constexpr (Form::segments) {
      const int first = segments[2 * last_of(query)];
      return first > 0 ? first : 0;
    }
    return 0;
  }
  /// Keys that the queries below this one see.
  __device__ int seen_before(int query) const { return seen((query < queries ? query : queries) - 1); }
  /// The queries that see the key: from first_query() to below end_query().
  __device__ int first_query(int key) const {
    const int first = key >= keys ? queries : causal && key > offset ? key - offset : 0;
    if constexpr (Form::segments) {
      const int other = segments[2 * last_of(key)];
      return other > first ? other : first;
    }
    return first;
  }
  __device__ int end_query(int key) const {
    if constexpr (Form::segments) {
      const int end = segments[2 * last_of(key) + 1];
      return end < queries ? end : queries;
    }
    return queries;
  }
  /// A position, or the last one where it lies behind that.
  __device__ int last_of(int position) const { return position < queries ? position : queries - 1; }
};

/// The draws of a head: dropout multiplies the weight of element query * keys + key with 0 or `kept`.
struct HeadDraws {
  const Draws& draws;
  std::int64_t strip;
  unsigned offset, keys;
  float kept;

  template <class T>
  __device__ HeadDraws(const Problem<T>& p, std::int64_t head)
      : draws(p.draws), keys(static_cast<unsigned>(p.keys)), kept(static_cast<float>(p.draws.kept)) {
    const std::int64_t first = p.draws.first_element + head * p.queries * p.keys;
    strip = first / dropout_strip;
    offset = static_cast<unsigned>(first % dropout_strip);
  }
  /// f(i, factor) for the keys key, key + 16, ... of a query: one Philox block serves up to four.
  template <int count, class F>
  __device__ __forceinline__ void each(int query, int key, F&& f) const {
    constexpr unsigned length = dropout_strip;
    const unsigned first = offset + static_cast<unsigned>(query) * keys + static_cast<unsigned>(key);
    const int lane = static_cast<int>(first % 16);
    unsigned own = first / length;
    auto words = draw_words(draws, strip + own, lane);
    HEARTH_UNROLL
    for (int i = 0; i < count; ++i) {
      const unsigned element = first + 16 * static_cast<unsigned>(i);
      if (element / length != own) {
        own = element / length;
        words = draw_words(draws, strip + own, lane);
      }
      f(i, word_of(words, static_cast<int>(element % length) / 16) >= draws.threshold ? kept : 0.0f);
    }
  }
};

}  // namespace hearth::kernels::attention_mma_head
