// SPDX-License-Identifier: Apache-2.0
// Attention block by block: 2 vectors of queries lie in the lanes, so that maxima, sums and exponentials of the softmax
// are plain vector arithmetic, and 64 keys at a time are multiplied with them. Scores never leave the L1 cache. All
// products are one register tile of rows x 2 vectors; keys and values are packed once for a head, queries once for a
// block, both upcast to the type of sums. A piece of parallel work is a head, or a run of queries of one where there
// are few heads.
// Reference, for each sample and head:
//   for query i:
//     for key j it sees: score[j] = scale * dot(q[i], k[j]) + bias[i, j]
//     lse[i] = log(sum of exp(score[j]))
//     y[i] = sum of exp(score[j] - lse[i]) * kept(i, j) / (1 - dropout) * v[j]
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "core/cpu/lanes.h"
#include "ops/attention/cpu/kernels_cpu.h"
#include "ops/attention/cpu/problem_cpu.h"
#include "ops/pointwise/dropout_strip.h"
#include "ops/scratch.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/attention/cpu/attention_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

#include "core/cpu/lanes.inc"
#include "ops/attention/cpu/tile_cpu.inc"

/// The running softmax of a block of queries.
template <class P>
struct RunningSoftmax {
  static constexpr int lanes = block_queries<P>;
  alignas(64) P most[lanes], sum[lanes];

  RunningSoftmax() {
    std::fill_n(most, lanes, -std::numeric_limits<P>::infinity());
    std::fill_n(sum, lanes, P(0));
  }

  /// Scores become weights relative to the new maximum; `weighted` [rows][lanes], summed so far, follows it.
  void add(P* scores, std::int64_t count, P* weighted, std::int64_t rows) {
    alignas(64) P next[lanes], factor[lanes];
    std::copy_n(most, lanes, next);
    for (std::int64_t j = 0; j < count; ++j)
#pragma omp simd
      for (int i = 0; i < lanes; ++i) next[i] = scores[j * lanes + i] > next[i] ? scores[j * lanes + i] : next[i];
    const P least = -std::numeric_limits<P>::infinity();
#pragma omp simd
    for (int i = 0; i < lanes; ++i) {
      // A query that has seen no key yet: any finite shift leaves its weights 0.
      const P shift = next[i] == least ? P(0) : next[i];
      factor[i] = exp_of_negative(most[i] - shift);
      sum[i] *= factor[i];
      most[i] = next[i];
      next[i] = shift;
    }
    for (std::int64_t j = 0; j < count; ++j)
#pragma omp simd
      for (int i = 0; i < lanes; ++i) {
        const P weight = exp_of_negative(scores[j * lanes + i] - next[i]);
        scores[j * lanes + i] = weight;
        sum[i] += weight;
      }
    for (std::int64_t d = 0; d < rows; ++d)
#pragma omp simd
      for (int i = 0; i < lanes; ++i) weighted[d * lanes + i] *= factor[i];
  }
};

/// Attention of the queries [begin, end) of one head.
template <class T>
void attend(const AttentionHead<acc_t<T>>& head, const AttentionRows<T>& x, T* y, std::int64_t y_step, acc_t<T>* lse,
            std::int64_t begin, std::int64_t end) {
  using P = acc_t<T>;
  constexpr int lanes = block_queries<P>;
  const AttentionProblem& problem = *head.problem;
  const std::int64_t width = problem.width, pitch = pitch_of<P>(width);
  // Those of the last block of the piece end last, those of the first begin first.
  const std::int64_t first_key = first_visible_key(head, begin);
  const std::int64_t keys = std::max(first_key, visible_keys(head, std::max(begin, end - 1)));
  const std::int64_t rows = rounded_up(keys - first_key, panel_rows<P>);
  cpu::Scratch scratch;
  P* const k_rows = scratch.take<P>(std::max(rows, std::int64_t{lanes}) * pitch);
  P* const k_turned = scratch.take<P>(rows * pitch);
  P* const v_rows = scratch.take<P>(rows * pitch);
  P* const q_turned = scratch.take<P>(pitch * lanes);
  P* const scores = scratch.take<P>(block_keys * lanes);
  P* const memory = scratch.take<P>(2 * block_keys * lanes);
  P* const factors = memory + block_keys * lanes;
  P* const weighted = scratch.take<P>(pitch * lanes);
  pack_rows(x.k + first_key * x.k_step, x.k_step, keys - first_key, rows, width, P(1), k_rows);
  turn_rows(k_rows, rows, pitch, k_turned);
  pack_rows(x.v + first_key * x.v_step, x.v_step, keys - first_key, rows, width, P(1), v_rows);
  P* const q_rows = k_rows;  // not needed any more
  for (std::int64_t first = begin; first < end; first += lanes) {
    const std::int64_t inside = std::min<std::int64_t>(lanes, end - first);
    pack_rows(x.q + first * x.q_step, x.q_step, inside, lanes, width, static_cast<P>(problem.scale), q_rows);
    turn(q_rows, pitch, lanes, pitch, q_turned, lanes);
    std::fill_n(weighted, pitch * lanes, P(0));
    RunningSoftmax<P> running;
    const std::int64_t seen = std::min(keys, visible_keys(head, first));
    for (std::int64_t key = std::max(first_key, first_visible_key(head, first)); key < seen; key += block_keys) {
      const std::int64_t count = std::min(block_keys, seen - key);
      multiply_rows(k_turned, key - first_key, count, width, q_turned, scores);
      mask_scores(head, first, key, count, memory, scores);
      running.add(scores, count, weighted, width);
      if (problem.dropout > 0) {
        draw_block<block_queries<P>>(head.draws(), problem.queries, problem.keys, first, key, count, memory, factors);
#pragma omp simd
        for (std::int64_t e = 0; e < count * lanes; ++e) scores[e] *= factors[e];
      }
      for (std::int64_t d = 0; d < pitch; d += tile_rows)
        multiply_tile<tile_rows, 2, true, P>({v_rows + (key - first_key) * pitch + d, 1, pitch}, count, scores, lanes,
                                             weighted + d * lanes, lanes, true);
    }
    alignas(64) P inverse[lanes];
    for (std::int64_t i = 0; i < inside; ++i) {
      const P sum = running.sum[i];
      inverse[i] = sum == P(0) ? P(0) : P(1) / sum;
      lse[first + i] = sum == P(0) ? std::numeric_limits<P>::infinity()
                                   : running.most[i] + static_cast<P>(std::log(static_cast<double>(sum)));
    }
    store_rows(weighted, inverse, inside, width, q_rows, y + first * y_step, y_step);
  }
}

/// Attention of one query of a head: for the few queries of a step of decoding, which would leave most lanes idle.
/// `weights` is for as many values as there are keys, `sums` for the width.
template <class T>
void attend_row(const AttentionHead<acc_t<T>>& head, const AttentionRows<T>& x, std::int64_t query, T* y, acc_t<T>* lse,
                acc_t<T>* weights, acc_t<T>* sums) {
  using P = acc_t<T>;
  const AttentionProblem& problem = *head.problem;
  const std::int64_t width = problem.width;
  const std::int64_t first = head.first_key(query), end = head.end_key(query);
  const std::int64_t keys = problem.causal ? std::min(end, problem.query_offset + query + 1) : end;
  const T* const q = x.q + query * x.q_step;
  const P scale = static_cast<P>(problem.scale);
  P most = -std::numeric_limits<P>::infinity();
  for (std::int64_t j = first; j < keys; ++j) {
    const T* const k = x.k + j * x.k_step;
    P score = 0;
#pragma omp simd reduction(+ : score)
    for (std::int64_t d = 0; d < width; ++d) score += cpu::load(q + d) * scale * cpu::load(k + d);
    if (head.bias != nullptr) score += head.bias[query * problem.keys + j];
    weights[j] = score;
    most = score > most ? score : most;
  }
  const P shift = most == -std::numeric_limits<P>::infinity() ? P(0) : most;
  P sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = first; j < keys; ++j) {
    weights[j] = exp_of_negative(weights[j] - shift);
    sum += weights[j];
  }
  std::fill_n(sums, width, P(0));
  for (std::int64_t j = first; j < keys; ++j) {
    const T* const v = x.v + j * x.v_step;
    const P weight = weights[j];
#pragma omp simd
    for (std::int64_t d = 0; d < width; ++d) sums[d] += weight * cpu::load(v + d);
  }
  const P inverse = sum == P(0) ? P(0) : P(1) / sum;
#pragma omp simd
  for (std::int64_t d = 0; d < width; ++d) cpu::store(y + d, sums[d] * inverse);
  *lse = sum == P(0) ? std::numeric_limits<P>::infinity() : most + static_cast<P>(std::log(static_cast<double>(sum)));
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {
namespace {

template <class T>
void attend_rows(const AttentionProblem& problem, const AttentionArguments& a, const Tensor& y, const Tensor& lse) {
  using P = acc_t<T>;
  const std::int64_t rows = a.batch() * a.heads() * a.queries();
  each_piece(rows, grain_of(problem, 1), [&](std::int64_t index) {
    const std::int64_t query = index % a.queries(), h = index / a.queries() % a.heads();
    const std::int64_t n = index / a.queries() / a.heads();
    cpu::Scratch scratch;
    P* const weights = scratch.take<P>(a.keys());
    P* const sums = scratch.take<P>(a.width());
    const AttentionHead<P> head(problem, a, n, h);
    HEARTH_ISA_CALL_FOR(P, attend_row<T>, head, AttentionRows<T>(a, n, h), query,
                        head_of<T>(y, n, h) + query * y.strides()[1], lse.data<P>() + index, weights, sums);
  });
}

/// f(sample, head, first query, query behind the last) for every piece of the queries.
template <class F>
void each_run(const AttentionProblem& problem, const AttentionArguments& a, const F& f) {
  const std::int64_t heads = a.batch() * a.heads(), piece = piece_queries(a.queries(), heads);
  const std::int64_t pieces = (a.queries() + piece - 1) / piece;
  each_piece(heads * pieces, grain_of(problem, piece), [&](std::int64_t index) {
    const std::int64_t begin = index % pieces * piece, end = std::min(begin + piece, a.queries());
    f(index / pieces / a.heads(), index / pieces % a.heads(), begin, end);
  });
}

/// Of head h of sample n.
template <class P>
P* sums_of(const AttentionArguments& a, const Tensor& lse, std::int64_t n, std::int64_t h) {
  return lse.data<P>() + (n * a.heads() + h) * a.queries();
}

}  // namespace

void attention_rows(cpu::Stream&, const AttentionArguments& a, const Tensor& y, const Tensor& lse) {
  const AttentionProblem problem(a);
  visit_dtype("attention", y.dtype(), Floats{}, [&]<class T>() { attend_rows<T>(problem, a, y, lse); });
}

void attention_portable(cpu::Stream&, const AttentionArguments& a, const Tensor& y, const Tensor& lse) {
  const AttentionProblem problem(a);
  visit_dtype("attention", y.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    each_run(problem, a, [&](std::int64_t n, std::int64_t h, std::int64_t begin, std::int64_t end) {
      const AttentionHead<P> head(problem, a, n, h);
      P* const sums = sums_of<P>(a, lse, n, h);
      HEARTH_ISA_CALL_FOR(P, attend<T>, head, AttentionRows<T>(a, n, h), head_of<T>(y, n, h), y.strides()[1], sums,
                          begin, end);
    });
  });
}

void attention_avx512_bf16(cpu::Stream&, const AttentionArguments& a, const Tensor& y, const Tensor& lse) {
  const AttentionProblem problem(a);
  each_run(problem, a, [&](std::int64_t n, std::int64_t h, std::int64_t begin, std::int64_t end) {
    RowsAhead ahead;
    const std::int64_t next = n * a.heads() + h + 1;
    if (end - begin == a.queries() && next < a.batch() * a.heads())
      for (const Tensor* x : {&a.q, &a.k, &a.v}) ahead.add(*x, next / a.heads(), next % a.heads());
    attend_bf16(AttentionHead<float>(problem, a, n, h), AttentionRows<bf16>(a, n, h), head_of<bf16>(y, n, h),
                y.strides()[1], sums_of<float>(a, lse, n, h), begin, end, ahead);
  });
}

}  // namespace hearth::kernels
#endif
