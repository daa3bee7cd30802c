// SPDX-License-Identifier: Apache-2.0
// One head of an attention problem, as the CPU kernels see it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cpu/parallel.h"
#include "core/half.h"
#include "ops/attention/attention.h"
#include "ops/pointwise/dropout_strip.h"

namespace hearth::kernels {

/// What all heads have in common.
struct AttentionProblem {
  std::int64_t queries, keys, width;
  bool causal;
  std::int64_t query_offset;
  double scale, dropout;
  RandomKey key;
  std::uint32_t threshold;

  explicit AttentionProblem(const AttentionArguments& a)
      : queries(a.queries()),
        keys(a.keys()),
        width(a.width()),
        causal(a.causal),
        query_offset(a.query_offset),
        scale(a.scale),
        dropout(a.dropout),
        key(a.key),
        threshold(dropout_threshold(a.dropout)) {}
};

/// P: the type of sums.
template <class P>
struct AttentionHead {
  const AttentionProblem* problem;
  const P* bias;                           ///< [Tq, Tk], or null
  const std::int32_t* segments = nullptr;  ///< of each position, the first of its segment and the one behind; or null
  std::int64_t keys;                       ///< of this sample
  std::int64_t first_element;              ///< number of the head's first weight, for dropout

  AttentionHead(const AttentionProblem& of, const AttentionArguments& a, std::int64_t n, std::int64_t h)
      : problem(&of), bias(nullptr), keys(of.keys) {
    const std::int64_t weights = of.queries * of.keys;
    if (a.bias.defined()) bias = a.bias.data<P>() + (a.bias.dim(0) == 1 ? 0 : h * weights);
    if (a.key_lengths.defined()) keys = std::clamp<std::int64_t>(a.key_lengths.data<std::int32_t>()[n], 0, of.keys);
    if (a.segments.defined()) segments = a.segments.data<std::int32_t>() + n * of.queries * 2;
    first_element = a.key.first_element(a.batch() * a.heads() * weights) + (n * a.heads() + h) * weights;
  }

  /// The keys that a query's segment leaves: from the first to below the second. They are keys whatever the memory
  /// says.
  std::int64_t first_key(std::int64_t query) const {
    return segments == nullptr ? 0 : std::clamp<std::int64_t>(segments[2 * query], 0, query);
  }
  std::int64_t end_key(std::int64_t query) const {
    return segments == nullptr
               ? keys
               : std::min(keys, std::clamp<std::int64_t>(segments[2 * query + 1], query + 1, problem->keys));
  }

  DropoutFactors<P> draws() const {
    return {problem->key, first_element, problem->threshold, static_cast<P>(1.0 / (1.0 - problem->dropout))};
  }
};

/// Row 0 of head h of sample n of x [N, T, H, D].
template <class T>
T* head_of(const Tensor& x, std::int64_t n, std::int64_t h) {
  return x.data<T>() + n * x.strides()[0] + h * x.strides()[2];
}

/// The rows of one head; `step` elements from one to the next.
template <class T>
struct AttentionRows {
  const T *q, *k, *v;
  std::int64_t q_step, k_step, v_step;

  AttentionRows(const AttentionArguments& a, std::int64_t n, std::int64_t h)
      : q(head_of<T>(a.q, n, h)),
        k(head_of<T>(a.k, n, h)),
        v(head_of<T>(a.v, n, h)),
        q_step(a.q.strides()[1]),
        k_step(a.k.strides()[1]),
        v_step(a.v.strides()[1]) {}
};

template <class T>
struct AttentionGradRows {
  const T* y;
  std::int64_t y_step;
  const T* dy;
  std::int64_t dy_step;
  T* dq;
  std::int64_t dq_step;
};

/// Rows that are asked for while a head is computed: those of the next one, which come from main memory, and results'.
/// They lie too far apart for the processor to foresee them.
class RowsAhead {
 public:
  /// Those of head h of sample n of x [N, T, H, D].
  void add(const Tensor& x, std::int64_t n, std::int64_t h) {
    runs_[count_++] = {head_of<bf16>(x, n, h), x.strides()[1], x.dim(1), x.dim(3)};
  }
  /// Asks for a few more of each, to be in the second cache when they are needed. While many are on their way, what is
  /// computed waits.
  void fetch_some() {
    constexpr std::int64_t some = 4;
    for (int i = 0; i < count_; ++i) {
      const Run& run = runs_[i];
      for (std::int64_t t = asked_; t < std::min(asked_ + some, run.rows); ++t)
        for (std::int64_t d = 0; d < run.width; d += 32) __builtin_prefetch(run.x + t * run.step + d, 0, 2);
    }
    asked_ += some;
  }

 private:
  struct Run {
    const bf16* x;
    std::int64_t step, rows, width;
  };
  Run runs_[8];
  int count_ = 0;
  std::int64_t asked_ = 0;
};

/// attend() of attention_cpu.cpp and attend_grad() of attention_grad_cpu.cpp by the processor's products of pairs of
/// bf16, where cpu::amx::has_bf16_vectors(). dk and dv are written, not added to.
void attend_bf16(const AttentionHead<float>& head, const AttentionRows<bf16>& x, bf16* y, std::int64_t y_step,
                 float* lse, std::int64_t begin, std::int64_t end, RowsAhead ahead);
void attend_grad_bf16(const AttentionHead<float>& head, const AttentionRows<bf16>& x, const AttentionGradRows<bf16>& g,
                      const float* lse, std::int64_t begin, std::int64_t end, float* dk, float* dv, float* dbias,
                      RowsAhead ahead);

/// Pieces of parallel work that there are about, where a problem is large enough.
inline constexpr std::int64_t wanted_pieces = 32;

/// Queries of a piece where `heads` are side by side.
inline std::int64_t piece_queries(std::int64_t queries, std::int64_t heads) {
  constexpr std::int64_t least = 128;
  const std::int64_t pieces = std::max<std::int64_t>(1, wanted_pieces / std::max<std::int64_t>(1, heads));
  const std::int64_t share = (queries + pieces - 1) / pieces;
  return std::max(least, (share + 63) / 64 * 64);
}

/// Pieces that one thread takes at a time, so that tiny problems are not dealt out.
inline std::int64_t grain_of(const AttentionProblem& problem, std::int64_t piece) {
  constexpr double worth_sharing = 1 << 18;  // multiply-adds
  const double work = static_cast<double>(std::min(piece, problem.queries)) * static_cast<double>(problem.keys) *
                      static_cast<double>(problem.width);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(worth_sharing / std::max(1.0, work)));
}

/// f(index) for `count` pieces, spread over the thread pool.
template <class F>
void each_piece(std::int64_t count, std::int64_t grain, const F& f) {
  cpu::parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) f(i);
  });
}

}  // namespace hearth::kernels
