// SPDX-License-Identifier: Apache-2.0
// Attention block by block: 2 vectors of queries lie in the lanes, so that maxima, sums and exponentials of the softmax
// are plain vector arithmetic, and 64 keys at a time are multiplied with them. Scores never leave the L1 cache. All
// products are one register tile of rows x 2 vectors; keys and values are packed once for a head, queries once for a
// block, both widened to the type of sums. A piece of parallel work is a head, or a run of queries of one where there
// are few heads; its partial gradients of keys and values are added in order.
#include <algorithm>
#include <cmath>
#include <limits>

#include "hearth/core/cpu/element.h"
#include "hearth/core/cpu/parallel.h"
#include "hearth/core/cpu/scratch.h"
#include "hearth/ops/attention/attention.h"
#include "hearth/ops/attention/problem_cpu.h"
#include "hearth/ops/pointwise/dropout_strip.h"

#define HEARTH_ISA_SOURCE "hearth/ops/attention/attention_cpu.cpp"
#include "hearth/core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

constexpr int vector_bytes = HEARTH_ISA_VECTOR_BYTES;
// Rows of the register tile: 8 x 2 or 4 x 2 sums hide the latency of the multiply-adds and leave registers for
// operands.
constexpr int tile_rows = vector_bytes == 64 ? 8 : 4;
constexpr std::int64_t block_keys = 64;

template <class P>
struct Vector {
  static constexpr int lanes = vector_bytes / static_cast<int>(sizeof(P));
  typedef P Aligned __attribute__((vector_size(vector_bytes)));
  typedef P Unaligned __attribute__((vector_size(vector_bytes), aligned(sizeof(P)), may_alias));
};

/// Queries of a block.
template <class P>
constexpr int block_queries = 2 * Vector<P>::lanes;

inline std::int64_t rounded_up(std::int64_t size, std::int64_t step) { return (size + step - 1) / step * step; }

/// Row pitch of packed rows: whole vectors and whole register tiles.
template <class P>
std::int64_t pitch_of(std::int64_t width) {
  return rounded_up(width, std::max(Vector<P>::lanes, tile_rows));
}

/// c[tile_rows][vectors of lanes] = or += sum over p of a(row, p) b[p]. a(row, p) is a[row * across + p] where `across`
/// is given, else a[p * a_step + row].
template <int vectors, int across, class P>
inline void multiply(std::int64_t terms, const P* a, std::int64_t a_step, const P* b, std::int64_t b_step, P* c,
                     std::int64_t c_step, bool accumulate) {
  using U = typename Vector<P>::Unaligned;
  typename Vector<P>::Aligned sum[tile_rows][vectors];
#pragma GCC unroll 8
  for (int i = 0; i < tile_rows; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < vectors; ++j) sum[i][j] = typename Vector<P>::Aligned{};
  for (std::int64_t p = 0; p < terms; ++p) {
    typename Vector<P>::Aligned line[vectors];
#pragma GCC unroll 2
    for (int j = 0; j < vectors; ++j) line[j] = reinterpret_cast<const U*>(b)[j];
#pragma GCC unroll 8
    for (int i = 0; i < tile_rows; ++i) {
      const P value = across > 0 ? a[i * across] : a[i];
#pragma GCC unroll 2
      for (int j = 0; j < vectors; ++j) sum[i][j] += value * line[j];
    }
    a += across > 0 ? 1 : a_step;
    b += b_step;
  }
#pragma GCC unroll 8
  for (int i = 0; i < tile_rows; ++i) {
    U* const row = reinterpret_cast<U*>(c + i * c_step);
#pragma GCC unroll 2
    for (int j = 0; j < vectors; ++j) row[j] = accumulate ? row[j] + sum[i][j] : sum[i][j];
  }
}

/// Rows [0, count) of x, `step` apart, as [count][pitch]; what is missing to `rows` rows and to the pitch is zero.
template <class T, class P>
void pack_rows(const T* x, std::int64_t step, std::int64_t count, std::int64_t rows, std::int64_t width, P factor,
               P* to) {
  const std::int64_t pitch = pitch_of<P>(width);
  for (std::int64_t t = 0; t < rows; ++t, to += pitch) {
    const std::int64_t inside = t < count ? width : 0;
    const T* const from = x + (t < count ? t * step : 0);
#pragma omp simd
    for (std::int64_t d = 0; d < inside; ++d) to[d] = cpu::load(from + d) * factor;
    for (std::int64_t d = inside; d < pitch; ++d) to[d] = P(0);
  }
}

/// The packed rows turned: panels of `panel` rows, each [width][panel].
template <int panel, class P>
void turn_rows(const P* rows, std::int64_t count, std::int64_t width, P* to) {
  const std::int64_t pitch = pitch_of<P>(width);
  for (std::int64_t t = 0; t < count; t += panel, to += panel * width)
    for (std::int64_t d = 0; d < width; ++d)
#pragma GCC unroll 8
      for (int i = 0; i < panel; ++i) to[d * panel + i] = rows[(t + i) * pitch + d];
}

/// e^x for x <= 0, or not-a-number. 0 where f32 would be subnormal.
inline float exp_of_negative(float x) {
  const float clamped = x < -87.0f ? -87.0f : x;
  const cpu::math::detail::ExpParts parts = cpu::math::detail::split_exp(clamped);
  const float power = cpu::math::detail::power_of_two(parts.n_bits);
  return x < -87.0f ? 0.0f : parts.fraction * power + power;
}
inline double exp_of_negative(double x) { return std::exp(x); }

/// scores[key][query] of the block: the scaled products, with the bias, -infinity where a key is hidden. `count` keys
/// from number `first_key`, for the queries from `first_query` on.
template <class P>
void mask_scores(const AttentionHead<P>& head, std::int64_t first_query, std::int64_t first_key, std::int64_t count,
                 P* scores) {
  constexpr int lanes = block_queries<P>;
  const AttentionProblem& problem = *head.problem;
  if (head.bias != nullptr) {
    const std::int64_t inside = std::min<std::int64_t>(lanes, problem.queries - first_query);
    for (std::int64_t i = 0; i < inside; ++i) {
      const P* const bias = head.bias + (first_query + i) * problem.keys + first_key;
      for (std::int64_t j = 0; j < count; ++j) scores[j * lanes + i] += bias[j];
    }
  }
  // Query i sees key j from lane j - (offset + first query) on.
  const std::int64_t diagonal = first_key - (problem.query_offset + first_query);
  if (!problem.causal || diagonal + count - 1 <= 0) return;
  for (std::int64_t j = 0; j < count; ++j) {
    const int hidden = static_cast<int>(std::clamp<std::int64_t>(diagonal + j, 0, lanes));
#pragma omp simd
    for (int i = 0; i < lanes; ++i)
      scores[j * lanes + i] = i < hidden ? -std::numeric_limits<P>::infinity() : scores[j * lanes + i];
  }
}

/// What dropout multiplies the weights of the block with, [key][query]: 0 or 1 / (1 - p).
template <class P>
void draw_block(const AttentionHead<P>& head, std::int64_t first_query, std::int64_t first_key, std::int64_t count,
                P* factors) {
  constexpr int lanes = block_queries<P>;
  const AttentionProblem& problem = *head.problem;
  const P kept = static_cast<P>(1.0 / (1.0 - problem.dropout));
  std::uint32_t words[2 * dropout_strip];
  for (std::int64_t i = 0; i < lanes; ++i) {
    // Lanes behind the last query get any choice: their weights are not used.
    const std::int64_t query = std::min(first_query + i, problem.queries - 1);
    const std::int64_t element = head.first_element + query * problem.keys + first_key;
    const std::int64_t strip = element / dropout_strip, skipped = element % dropout_strip;
    strip_words(problem.key, static_cast<std::uint64_t>(strip), words);
    if (skipped + count > dropout_strip)
      strip_words(problem.key, static_cast<std::uint64_t>(strip) + 1, words + dropout_strip);
    for (std::int64_t j = 0; j < count; ++j)
      factors[j * lanes + i] = words[skipped + j] >= problem.threshold ? kept : P(0);
  }
}

/// How many keys the block of queries from `first` on sees at most.
template <class P>
std::int64_t visible_keys(const AttentionHead<P>& head, std::int64_t first) {
  const AttentionProblem& problem = *head.problem;
  if (!problem.causal) return head.keys;
  const std::int64_t last = std::min(first + block_queries<P>, problem.queries) - 1;
  return std::min(head.keys, problem.query_offset + last + 1);
}

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
  // Of the last block of the piece, which sees the most keys.
  const std::int64_t keys = visible_keys(head, std::max(begin, end - 1));
  const std::int64_t rows = rounded_up(keys, tile_rows);
  cpu::Scratch scratch;
  P* const k_rows = scratch.take<P>(std::max(rows, std::int64_t{lanes}) * pitch);
  P* const k_turned = scratch.take<P>(rows * width);
  P* const v_rows = scratch.take<P>(rows * pitch);
  P* const q_turned = scratch.take<P>(width * lanes);
  P* const scores = scratch.take<P>(block_keys * lanes);
  P* const factors = scratch.take<P>(problem.dropout > 0 ? block_keys * lanes : 1);
  P* const weighted = scratch.take<P>(pitch * lanes);
  pack_rows(x.k, x.k_step, keys, rows, width, P(1), k_rows);
  turn_rows<tile_rows>(k_rows, rows, width, k_turned);
  pack_rows(x.v, x.v_step, keys, rows, width, P(1), v_rows);
  P* const q_rows = k_rows;  // not needed any more
  for (std::int64_t first = begin; first < end; first += lanes) {
    const std::int64_t inside = std::min<std::int64_t>(lanes, end - first);
    pack_rows(x.q + first * x.q_step, x.q_step, inside, lanes, width, static_cast<P>(problem.scale), q_rows);
    turn_rows<lanes>(q_rows, lanes, width, q_turned);
    std::fill_n(weighted, pitch * lanes, P(0));
    RunningSoftmax<P> running;
    const std::int64_t seen = visible_keys(head, first);
    for (std::int64_t key = 0; key < seen; key += block_keys) {
      const std::int64_t count = std::min(block_keys, seen - key);
      for (std::int64_t j = 0; j < count; j += tile_rows)
        multiply<2, 0>(width, k_turned + (key + j) * width, tile_rows, q_turned, lanes, scores + j * lanes, lanes,
                       false);
      mask_scores(head, first, key, count, scores);
      running.add(scores, count, weighted, width);
      if (problem.dropout > 0) {
        draw_block(head, first, key, count, factors);
#pragma omp simd
        for (std::int64_t e = 0; e < count * lanes; ++e) scores[e] *= factors[e];
      }
      for (std::int64_t d = 0; d < pitch; d += tile_rows)
        multiply<2, 0>(count, v_rows + key * pitch + d, pitch, scores, lanes, weighted + d * lanes, lanes, true);
    }
    for (std::int64_t i = 0; i < inside; ++i) {
      const P sum = running.sum[i];
      const P inverse = sum == P(0) ? P(0) : P(1) / sum;
      T* const row = y + (first + i) * y_step;
      for (std::int64_t d = 0; d < width; ++d) cpu::store(row + d, weighted[d * lanes + i] * inverse);
      lse[first + i] = sum == P(0) ? std::numeric_limits<P>::infinity()
                                   : running.most[i] + static_cast<P>(std::log(static_cast<double>(sum)));
    }
  }
}

/// A block of queries as the gradient needs it.
template <class P>
struct QueryBlock {
  static constexpr int lanes = block_queries<P>;
  P *q_rows, *q_turned, *dy_rows, *dy_turned, *weights, *slopes, *factors, *dq;
  alignas(64) P lse[lanes], delta[lanes];

  QueryBlock(cpu::Scratch& scratch, std::int64_t width, bool drops) {
    const std::int64_t pitch = pitch_of<P>(width);
    q_rows = scratch.take<P>(lanes * pitch);
    q_turned = scratch.take<P>(lanes * width);
    dy_rows = scratch.take<P>(lanes * pitch);
    dy_turned = scratch.take<P>(lanes * width);
    weights = scratch.take<P>(block_keys * lanes);
    slopes = scratch.take<P>(block_keys * lanes);
    factors = scratch.take<P>(drops ? block_keys * lanes : 1);
    dq = scratch.take<P>(pitch * lanes);
  }

  /// The queries [first, first + inside); lanes behind them get no weight.
  template <class T>
  void load(const AttentionProblem& problem, const AttentionRows<T>& x, const AttentionGradRows<T>& g, const P* lses,
            std::int64_t first, std::int64_t inside) {
    const std::int64_t width = problem.width, pitch = pitch_of<P>(width);
    pack_rows(x.q + first * x.q_step, x.q_step, inside, lanes, width, static_cast<P>(problem.scale), q_rows);
    turn_rows<lanes>(q_rows, lanes, width, q_turned);
    pack_rows(g.dy + first * g.dy_step, g.dy_step, inside, lanes, width, P(1), dy_rows);
    turn_rows<lanes>(dy_rows, lanes, width, dy_turned);
    std::fill_n(dq, pitch * lanes, P(0));
    for (std::int64_t i = 0; i < lanes; ++i) {
      lse[i] = i < inside ? lses[first + i] : std::numeric_limits<P>::infinity();
      const T* const y = g.y + (first + std::min(i, inside - 1)) * g.y_step;
      P sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t d = 0; d < width; ++d) sum += dy_rows[i * pitch + d] * cpu::load(y + d);
      delta[i] = sum;
    }
  }

  /// From scores and products dy v to weights after dropout and to slopes of the scores.
  void differentiate(std::int64_t count, bool drops) {
    for (std::int64_t j = 0; j < count; ++j) {
      P* const weight = weights + j * lanes;
      P* const slope = slopes + j * lanes;
      const P* const factor = factors + j * lanes;
      if (drops) {
#pragma omp simd
        for (int i = 0; i < lanes; ++i) {
          const P value = exp_of_negative(weight[i] - lse[i]);
          weight[i] = value * factor[i];
          slope[i] = value * (slope[i] * factor[i] - delta[i]);
        }
      } else {
#pragma omp simd
        for (int i = 0; i < lanes; ++i) {
          const P value = exp_of_negative(weight[i] - lse[i]);
          weight[i] = value;
          slope[i] = value * (slope[i] - delta[i]);
        }
      }
    }
    // Rows of the register tile behind the last key.
    const std::int64_t padded = rounded_up(count, tile_rows);
    std::fill_n(weights + count * lanes, (padded - count) * lanes, P(0));
    std::fill_n(slopes + count * lanes, (padded - count) * lanes, P(0));
  }
};

/// rows[key][pitch] += sum over the block's queries of from[key][query] to[query][pitch].
template <class P>
void add_outer(const P* from, const P* to, std::int64_t count, std::int64_t pitch, P* rows) {
  constexpr int lanes = block_queries<P>, vector = Vector<P>::lanes;
  for (std::int64_t j = 0; j < count; j += tile_rows) {
    std::int64_t d = 0;
    for (; d + 2 * vector <= pitch; d += 2 * vector)
      multiply<2, lanes>(lanes, from + j * lanes, 0, to + d, pitch, rows + j * pitch + d, pitch, true);
    if (d < pitch) multiply<1, lanes>(lanes, from + j * lanes, 0, to + d, pitch, rows + j * pitch + d, pitch, true);
  }
}

template <class P>
void add_bias_slopes(const AttentionProblem& problem, const P* slopes, std::int64_t first_query, std::int64_t inside,
                     std::int64_t first_key, std::int64_t count, P* dbias) {
  for (std::int64_t i = 0; i < inside; ++i) {
    P* const row = dbias + (first_query + i) * problem.keys + first_key;
    for (std::int64_t j = 0; j < count; ++j) row[j] += slopes[j * block_queries<P> + i];
  }
}

/// The gradients of the queries [begin, end) of one head, and their contributions to those of its keys and values:
/// added to dk and dv, [rounded keys][pitch] each. dbias of the head, added to, may be null.
template <class T>
void attend_grad(const AttentionHead<acc_t<T>>& head, const AttentionRows<T>& x, const AttentionGradRows<T>& g,
                 const acc_t<T>* lse, std::int64_t begin, std::int64_t end, acc_t<T>* dk, acc_t<T>* dv,
                 acc_t<T>* dbias) {
  using P = acc_t<T>;
  constexpr int lanes = block_queries<P>;
  const AttentionProblem& problem = *head.problem;
  const std::int64_t width = problem.width, pitch = pitch_of<P>(width);
  const std::int64_t keys = visible_keys(head, std::max(begin, end - 1));
  const std::int64_t rows = rounded_up(keys, tile_rows);
  cpu::Scratch scratch;
  P* const v_rows = scratch.take<P>(rows * pitch);
  P* const v_turned = scratch.take<P>(rows * width);
  P* const k_rows = v_rows;  // the values are needed turned only
  P* const k_turned = scratch.take<P>(rows * width);
  const bool drops = problem.dropout > 0;
  QueryBlock<P> block(scratch, width, drops);
  pack_rows(x.v, x.v_step, keys, rows, width, P(1), v_rows);
  turn_rows<tile_rows>(v_rows, rows, width, v_turned);
  pack_rows(x.k, x.k_step, keys, rows, width, P(1), k_rows);
  turn_rows<tile_rows>(k_rows, rows, width, k_turned);
  for (std::int64_t first = begin; first < end; first += lanes) {
    const std::int64_t inside = std::min<std::int64_t>(lanes, end - first);
    block.load(problem, x, g, lse, first, inside);
    const std::int64_t seen = visible_keys(head, first);
    for (std::int64_t key = 0; key < seen; key += block_keys) {
      const std::int64_t count = std::min(block_keys, seen - key);
      for (std::int64_t j = 0; j < count; j += tile_rows) {
        multiply<2, 0>(width, k_turned + (key + j) * width, tile_rows, block.q_turned, lanes, block.weights + j * lanes,
                       lanes, false);
        multiply<2, 0>(width, v_turned + (key + j) * width, tile_rows, block.dy_turned, lanes, block.slopes + j * lanes,
                       lanes, false);
      }
      mask_scores(head, first, key, count, block.weights);
      if (drops) draw_block(head, first, key, count, block.factors);
      block.differentiate(count, drops);
      add_outer(block.weights, block.dy_rows, count, pitch, dv + key * pitch);
      add_outer(block.slopes, block.q_rows, count, pitch, dk + key * pitch);
      for (std::int64_t d = 0; d < pitch; d += tile_rows)
        multiply<2, 0>(count, k_rows + key * pitch + d, pitch, block.slopes, lanes, block.dq + d * lanes, lanes, true);
      if (dbias != nullptr) add_bias_slopes(problem, block.slopes, first, inside, key, count, dbias);
    }
    for (std::int64_t i = 0; i < inside; ++i)
      for (std::int64_t d = 0; d < width; ++d)
        cpu::store(g.dq + (first + i) * g.dq_step + d, block.dq[d * lanes + i] * static_cast<P>(problem.scale));
  }
}

/// Elements of a head's dk, or dv, in working memory.
template <class P>
std::int64_t padded_elements(std::int64_t keys, std::int64_t width) {
  return rounded_up(keys, tile_rows) * pitch_of<P>(width);
}

/// to[key][d] = the sum of `parts` arrays of padded elements, `part_step` apart.
template <class T>
void store_sums(const acc_t<T>* from, std::int64_t parts, std::int64_t part_step, std::int64_t keys, std::int64_t width,
                T* to, std::int64_t step) {
  using P = acc_t<T>;
  const std::int64_t pitch = pitch_of<P>(width);
  for (std::int64_t t = 0; t < keys; ++t)
    for (std::int64_t d = 0; d < width; ++d) {
      P sum = from[t * pitch + d];
      for (std::int64_t part = 1; part < parts; ++part) sum += from[part * part_step + t * pitch + d];
      cpu::store(to + t * step + d, sum);
    }
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {
namespace {

/// Queries of a piece of parallel work, so that there are about 32 pieces; `heads` are worked on side by side anyway.
std::int64_t piece_queries(std::int64_t queries, std::int64_t heads) {
  constexpr std::int64_t wanted = 32, least = 128;
  const std::int64_t pieces = std::max<std::int64_t>(1, wanted / std::max<std::int64_t>(1, heads));
  const std::int64_t share = (queries + pieces - 1) / pieces;
  return std::max(least, (share + 63) / 64 * 64);
}

/// Pieces that one thread takes at a time, so that tiny problems are not dealt out.
std::int64_t grain_of(const AttentionProblem& problem, std::int64_t piece) {
  constexpr double worth_sharing = 1 << 18;  // multiply-adds
  const double work = static_cast<double>(std::min(piece, problem.queries)) * static_cast<double>(problem.keys) *
                      static_cast<double>(problem.width);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(worth_sharing / std::max(1.0, work)));
}

/// f(index) for `count` pieces, spread over the team.
template <class F>
void each_piece(std::int64_t count, std::int64_t grain, const F& f) {
  cpu::parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) f(i);
  });
}

}  // namespace

void attention(cpu::Stream&, const AttentionArguments& a, const Tensor& y, const Tensor& lse) {
  const AttentionProblem problem(a);
  visit_dtype("attention", y.dtype(), Floats{}, [&]<class T>() {
    using P = acc_t<T>;
    const std::int64_t heads = a.batch() * a.heads(), piece = piece_queries(a.queries(), heads);
    const std::int64_t pieces = (a.queries() + piece - 1) / piece;
    each_piece(heads * pieces, grain_of(problem, piece), [&](std::int64_t index) {
      const std::int64_t n = index / pieces / a.heads(), h = index / pieces % a.heads();
      const std::int64_t begin = index % pieces * piece, end = std::min(begin + piece, a.queries());
      const AttentionHead<P> head(problem, a, n, h);
      P* const sums = lse.data<P>() + (n * a.heads() + h) * a.queries();
      HEARTH_ISA_CALL(attend<T>, head, AttentionRows<T>(a, n, h), head_of<T>(y, n, h), y.strides()[1], sums, begin,
                      end);
    });
  });
}

namespace {

/// The gradients of every head: runs of queries side by side, each with dk and dv of its own where there are several.
/// Where the bias has a gradient, one piece goes through all the samples (and heads) that share it, in order.
template <class T>
class GradientPieces {
 public:
  using P = acc_t<T>;

  GradientPieces(const AttentionArguments& a, const Tensor& y, const Tensor& lse, const Tensor& dy,
                 const AttentionGradients& gradients)
      : a_(a), problem_(a), y_(y), lse_(lse), dy_(dy), gradients_(gradients) {
    const std::int64_t all = a.batch() * a.heads();
    const bool shared = gradients.dbias.defined();
    groups_ = shared ? a.bias.dim(0) : all;
    piece_ = piece_queries(a.queries(), groups_);
    pieces_ = (a.queries() + piece_ - 1) / piece_;
    padded_ = HEARTH_ISA_CALL(padded_elements<P>, a.keys(), a.width());
  }

  void run() const {
    cpu::Scratch scratch;
    const std::int64_t heads = a_.batch() * a_.heads();
    P* const parts = pieces_ > 1 ? scratch.take<P>(checked_mul(heads * pieces_, 2 * padded_, "attention")) : nullptr;
    if (gradients_.dbias.defined()) gradients_.dbias.fill_(0);
    each_piece(groups_ * pieces_, grain_of(problem_, piece_), [&](std::int64_t index) {
      const std::int64_t group = index / pieces_, piece = index % pieces_;
      // Heads of a group: n and h count up, or n alone.
      for (std::int64_t head = group; head < heads; head += groups_) {
        cpu::Scratch own;
        P* const sums = parts != nullptr ? parts + (head * pieces_ + piece) * 2 * padded_ : own.take<P>(2 * padded_);
        differentiate(head, piece, group, sums);
        if (parts == nullptr) store(head, sums, 1);
      }
    });
    if (parts == nullptr) return;
    each_piece(heads, grain_of(problem_, 16),
               [&](std::int64_t head) { store(head, parts + head * pieces_ * 2 * padded_, pieces_); });
  }

 private:
  void differentiate(std::int64_t index, std::int64_t piece, std::int64_t group, P* sums) const {
    const std::int64_t n = index / a_.heads(), h = index % a_.heads();
    const AttentionHead<P> head(problem_, a_, n, h);
    const AttentionGradRows<T> rows{head_of<T>(y_, n, h),
                                    y_.strides()[1],
                                    head_of<T>(dy_, n, h),
                                    dy_.strides()[1],
                                    head_of<T>(gradients_.dq, n, h),
                                    gradients_.dq.strides()[1]};
    const std::int64_t begin = piece * piece_, end = std::min(begin + piece_, a_.queries());
    const P* const lse = lse_.data<P>() + index * a_.queries();
    P* const dbias =
        gradients_.dbias.defined() ? gradients_.dbias.data<P>() + group * a_.queries() * a_.keys() : nullptr;
    std::fill_n(sums, 2 * padded_, P(0));
    HEARTH_ISA_CALL(attend_grad<T>, head, AttentionRows<T>(a_, n, h), rows, lse, begin, end, sums, sums + padded_,
                    dbias);
  }

  void store(std::int64_t index, const P* sums, std::int64_t parts) const {
    const std::int64_t n = index / a_.heads(), h = index % a_.heads();
    for (const auto& [to, from] : {std::pair{&gradients_.dk, sums}, {&gradients_.dv, sums + padded_}})
      HEARTH_ISA_CALL(store_sums<T>, from, parts, 2 * padded_, a_.keys(), a_.width(), head_of<T>(*to, n, h),
                      to->strides()[1]);
  }

  const AttentionArguments& a_;
  AttentionProblem problem_;
  const Tensor &y_, &lse_, &dy_;
  const AttentionGradients& gradients_;
  std::int64_t groups_, piece_, pieces_, padded_;
};

}  // namespace

void attention_grad(cpu::Stream&, const AttentionArguments& a, const Tensor& y, const Tensor& lse, const Tensor& dy,
                    const AttentionGradients& gradients) {
  visit_dtype("attention", y.dtype(), Floats{}, [&]<class T>() { GradientPieces<T>(a, y, lse, dy, gradients).run(); });
}

}  // namespace hearth::kernels
#endif
