// SPDX-License-Identifier: Apache-2.0
// The gradient of attention, block by block as the forward pass (attention_cpu.cpp): the weights are made again from
// the kept logarithms of their sums. A piece of parallel work is a head, or a run of queries of one where there are few
// heads; the partial gradients of keys and values of such runs are added in order.
// Reference, for each sample and head, with keep = kept(i, j) / (1 - dropout):
//   for query i: for key j it sees:
//     p = exp(scale * dot(q[i], k[j]) + bias[i, j] - lse[i])
//     dv[j] += p * keep * dy[i]
//     ds = p * (keep * dot(dy[i], v[j]) - dot(dy[i], y[i]))
//     dbias[i, j] += ds
//     dq[i] += scale * ds * k[j]
//     dk[j] += scale * ds * q[i]
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

#define HEARTH_ISA_SOURCE "ops/attention/cpu/attention_grad_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

#include "core/cpu/lanes.inc"
#include "ops/attention/cpu/tile_cpu.inc"

/// A block of queries as the gradient needs it.
template <class P>
struct QueryBlock {
  static constexpr int lanes = block_queries<P>;
  P *q_rows, *q_turned, *dy_rows, *dy_turned, *weights, *slopes, *memory, *factors, *dq;
  alignas(64) P lse[lanes], delta[lanes];

  QueryBlock(cpu::Scratch& scratch, std::int64_t pitch) {
    q_rows = scratch.take<P>(lanes * pitch);
    q_turned = scratch.take<P>(lanes * pitch);
    dy_rows = scratch.take<P>(lanes * pitch);
    dy_turned = scratch.take<P>(lanes * pitch);
    weights = scratch.take<P>(block_keys * lanes);
    slopes = scratch.take<P>(block_keys * lanes);
    memory = scratch.take<P>(2 * block_keys * lanes);
    factors = memory + block_keys * lanes;
    dq = scratch.take<P>(pitch * lanes);
  }

  /// The queries [first, first + inside); lanes behind them get no weight.
  template <class T>
  void load(const AttentionProblem& problem, const AttentionRows<T>& x, const AttentionGradRows<T>& g, const P* lses,
            std::int64_t first, std::int64_t inside) {
    const std::int64_t width = problem.width, pitch = pitch_of<P>(width);
    pack_rows(x.q + first * x.q_step, x.q_step, inside, lanes, width, static_cast<P>(problem.scale), q_rows);
    turn(q_rows, pitch, lanes, pitch, q_turned, lanes);
    pack_rows(g.dy + first * g.dy_step, g.dy_step, inside, lanes, width, P(1), dy_rows);
    turn(dy_rows, pitch, lanes, pitch, dy_turned, lanes);
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
  const std::int64_t first_key = first_visible_key(head, begin);
  const std::int64_t keys = std::max(first_key, visible_keys(head, std::max(begin, end - 1)));
  const std::int64_t rows = rounded_up(keys - first_key, panel_rows<P>);
  cpu::Scratch scratch;
  P* const v_rows = scratch.take<P>(rows * pitch);
  P* const v_turned = scratch.take<P>(rows * pitch);
  P* const k_rows = v_rows;  // the values are needed turned only
  P* const k_turned = scratch.take<P>(rows * pitch);
  const bool drops = problem.dropout > 0;
  QueryBlock<P> block(scratch, pitch);
  pack_rows(x.v + first_key * x.v_step, x.v_step, keys - first_key, rows, width, P(1), v_rows);
  turn_rows(v_rows, rows, pitch, v_turned);
  pack_rows(x.k + first_key * x.k_step, x.k_step, keys - first_key, rows, width, P(1), k_rows);
  turn_rows(k_rows, rows, pitch, k_turned);
  for (std::int64_t first = begin; first < end; first += lanes) {
    const std::int64_t inside = std::min<std::int64_t>(lanes, end - first);
    block.load(problem, x, g, lse, first, inside);
    const std::int64_t seen = std::min(keys, visible_keys(head, first));
    for (std::int64_t key = std::max(first_key, first_visible_key(head, first)); key < seen; key += block_keys) {
      const std::int64_t count = std::min(block_keys, seen - key);
      multiply_rows(k_turned, key - first_key, count, width, block.q_turned, block.weights);
      multiply_rows(v_turned, key - first_key, count, width, block.dy_turned, block.slopes);
      mask_scores(head, first, key, count, block.memory, block.weights);
      if (drops)
        draw_block<block_queries<P>>(head.draws(), problem.queries, problem.keys, first, key, count, block.memory,
                                     block.factors);
      block.differentiate(count, drops);
      add_outer(block.weights, block.dy_rows, count, pitch, dv + key * pitch);
      add_outer(block.slopes, block.q_rows, count, pitch, dk + key * pitch);
      for (std::int64_t d = 0; d < pitch; d += tile_rows)
        multiply_tile<tile_rows, 2, true, P>({k_rows + (key - first_key) * pitch + d, 1, pitch}, count, block.slopes,
                                             lanes, block.dq + d * lanes, lanes, true);
      if (dbias != nullptr) add_bias_slopes(problem, block.slopes, first, inside, key, count, block.memory, dbias);
    }
    alignas(64) P factors[lanes];
    std::fill_n(factors, lanes, static_cast<P>(problem.scale));
    store_rows(block.dq, factors, inside, width, block.q_rows, g.dq + first * g.dq_step, g.dq_step);
  }
}

/// Elements of a head's dk, or dv, in working memory.
template <class P>
std::int64_t padded_elements(std::int64_t keys, std::int64_t width) {
  return rounded_up(keys, panel_rows<P>) * pitch_of<P>(width);
}

/// to[key][d] = the sum of `parts` arrays of padded elements, `part_step` apart.
template <class T>
void store_sums(const acc_t<T>* from, std::int64_t parts, std::int64_t part_step, std::int64_t keys, std::int64_t width,
                T* to, std::int64_t step) {
  using P = acc_t<T>;
  const std::int64_t pitch = pitch_of<P>(width);
  P sums[max_head_width];
  for (std::int64_t t = 0; t < keys; ++t, from += pitch, to += step) {
    const P* row = from;
    for (std::int64_t part = 1; part < parts; ++part, row = sums) {
      const P* const more = from + part * part_step;
#pragma omp simd
      for (std::int64_t d = 0; d < width; ++d) sums[d] = row[d] + more[d];
    }
#pragma omp simd
    for (std::int64_t d = 0; d < width; ++d) cpu::store(to + d, row[d]);
  }
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {
namespace {

/// The gradients of every head: runs of queries side by side, each with dk and dv of its own where there are several.
/// Where the bias has a gradient, the heads that share it are dealt out to shares, each with a sum of its own; a piece
/// is a run of queries of a share's heads, one head after the other. The shape decides on shares and runs. `by_pairs`:
/// by attend_grad_bf16().
template <class T, bool by_pairs>
class GradientPieces {
 public:
  using P = acc_t<T>;

  GradientPieces(const AttentionArguments& a, const Tensor& y, const Tensor& lse, const Tensor& dy,
                 const AttentionGradients& gradients)
      : a_(a), problem_(a), y_(y), lse_(lse), dy_(dy), gradients_(gradients) {
    const std::int64_t all = a.batch() * a.heads();
    const Tensor& dbias = gradients.dbias;
    groups_ = dbias.defined() ? dbias.dim(0) : all;
    count_ = all / groups_;
    if (dbias.defined()) {
      // The bias's sums have no more elements than the inputs.
      const std::int64_t room = std::max<std::int64_t>(1, (a.q.size() + a.k.size() + a.v.size()) / dbias.size());
      const std::int64_t shares = std::min({count_, room, (wanted_pieces + groups_ - 1) / groups_});
      share_ = (count_ + shares - 1) / shares;
      shares_ = (count_ + share_ - 1) / share_;
    }
    piece_ = piece_queries(a.queries(), groups_ * shares_);
    pieces_ = (a.queries() + piece_ - 1) / piece_;
    padded_ = HEARTH_ISA_CALL_FOR(P, padded_elements<P>, a.keys(), a.width());
  }

  void run() const {
    cpu::Scratch scratch;
    const std::int64_t heads = groups_ * count_;
    P* const parts = pieces_ > 1 ? scratch.take<P>(checked_mul(heads * pieces_, 2 * padded_, "attention")) : nullptr;
    const Tensor& dbias = gradients_.dbias;
    P* const biases = shares_ > 1 ? scratch.take<P>(checked_mul(shares_ - 1, dbias.size(), "attention")) : nullptr;
    each_piece(groups_ * shares_ * pieces_, grain_of(problem_, piece_), [&](std::int64_t index) {
      const std::int64_t piece = index % pieces_, share = index / pieces_ % shares_, group = index / pieces_ / shares_;
      P* const sum = !dbias.defined() ? nullptr
                                      : (share == 0 ? dbias.data<P>() : biases + (share - 1) * dbias.size()) +
                                            group * a_.queries() * a_.keys();
      const std::int64_t begin = piece * piece_, end = std::min(begin + piece_, a_.queries());
      if (sum != nullptr) std::fill_n(sum + begin * a_.keys(), (end - begin) * a_.keys(), P(0));
      for (std::int64_t i = share * share_; i < std::min(count_, (share + 1) * share_); ++i) {
        // Heads of a group: n and h count up, or n alone.
        const std::int64_t head = group + i * groups_;
        cpu::Scratch own;
        P* const sums = parts != nullptr ? parts + (head * pieces_ + piece) * 2 * padded_ : own.take<P>(2 * padded_);
        differentiate(head, begin, end, sums, sum);
        if (parts == nullptr) store(head, sums, 1);
      }
    });
    if (biases != nullptr) add_shares(biases);
    if (parts == nullptr) return;
    each_piece(heads, grain_of(problem_, 16),
               [&](std::int64_t head) { store(head, parts + head * pieces_ * 2 * padded_, pieces_); });
  }

 private:
  /// The queries [begin, end) of a head. dbias, added to, may be null.
  void differentiate(std::int64_t index, std::int64_t begin, std::int64_t end, P* sums, P* dbias) const {
    const std::int64_t n = index / a_.heads(), h = index % a_.heads();
    const AttentionHead<P> head(problem_, a_, n, h);
    const AttentionGradRows<T> rows{head_of<T>(y_, n, h),
                                    y_.strides()[1],
                                    head_of<T>(dy_, n, h),
                                    dy_.strides()[1],
                                    head_of<T>(gradients_.dq, n, h),
                                    gradients_.dq.strides()[1]};
    const P* const lse = lse_.data<P>() + index * a_.queries();
    const AttentionRows<T> x(a_, n, h);
    if constexpr (by_pairs) {
      attend_grad_bf16(head, x, rows, lse, begin, end, sums, sums + padded_, dbias, rows_ahead(index));
    } else {
      std::fill_n(sums, 2 * padded_, P(0));
      HEARTH_ISA_CALL_FOR(P, attend_grad<T>, head, x, rows, lse, begin, end, sums, sums + padded_, dbias);
    }
  }

  /// Results of a head, and what the next one begins with.
  RowsAhead rows_ahead(std::int64_t index) const {
    RowsAhead ahead;
    const std::int64_t next = index + (gradients_.dbias.defined() ? groups_ : 1), heads = a_.heads();
    if (pieces_ > 1 || next >= heads * a_.batch()) return ahead;
    for (const Tensor* x : {&a_.q, &a_.k, &a_.v, &y_, &dy_}) ahead.add(*x, next / heads, next % heads);
    for (const Tensor* x : {&gradients_.dq, &gradients_.dk, &gradients_.dv})
      ahead.add(*x, index / heads, index % heads);
    return ahead;
  }

  /// The first share's sum of the bias's gradient becomes that of all, added in order.
  void add_shares(const P* others) const {
    const std::int64_t size = gradients_.dbias.size();
    P* const sum = gradients_.dbias.data<P>();
    cpu::parallel_for(size, 1 << 14, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t share = 0; share + 1 < shares_; ++share) {
        const P* const from = others + share * size;
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) sum[i] += from[i];
      }
    });
  }

  void store(std::int64_t index, const P* sums, std::int64_t parts) const {
    const std::int64_t n = index / a_.heads(), h = index % a_.heads();
    for (const auto& [to, from] : {std::pair{&gradients_.dk, sums}, {&gradients_.dv, sums + padded_}})
      HEARTH_ISA_CALL_FOR(P, store_sums<T>, from, parts, 2 * padded_, a_.keys(), a_.width(), head_of<T>(*to, n, h),
                          to->strides()[1]);
  }

  const AttentionArguments& a_;
  AttentionProblem problem_;
  const Tensor &y_, &lse_, &dy_;
  const AttentionGradients& gradients_;
  std::int64_t groups_;          ///< of heads that share a bias's gradient; else each its own
  std::int64_t count_;           ///< heads of a group
  std::int64_t share_ = 1;       ///< heads of a share
  std::int64_t shares_ = 1;      ///< of a group
  std::int64_t piece_, pieces_;  ///< queries of a run, and runs
  std::int64_t padded_;
};

}  // namespace

void attention_grad_portable(cpu::Stream&, const AttentionArguments& a, const Tensor& y, const Tensor& lse,
                             const Tensor& dy, const AttentionGradients& gradients) {
  visit_dtype("attention", y.dtype(), Floats{},
              [&]<class T>() { GradientPieces<T, false>(a, y, lse, dy, gradients).run(); });
}

void attention_grad_avx512_bf16(cpu::Stream&, const AttentionArguments& a, const Tensor& y, const Tensor& lse,
                                const Tensor& dy, const AttentionGradients& gradients) {
  GradientPieces<bf16, true>(a, y, lse, dy, gradients).run();
}

}  // namespace hearth::kernels
#endif
