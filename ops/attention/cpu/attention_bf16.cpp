// SPDX-License-Identifier: Apache-2.0
// Attention in bf16 by the processor's products of pairs, with f32 sums: block by block as attention_cpu.cpp and
// attention_grad_cpu.cpp, whose pieces of work these are. Scores and their softmax are f32; the weights, and the slopes
// of the scores, are rounded to bf16 where they are multiplied again. What is summed over comes in pairs: of channels
// for the scores, which are side by side in memory, of keys for y and dq, of queries for dk and dv.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/cpu/amx.h"
#include "core/cpu/lanes.h"
#include "core/error.h"
#include "ops/attention/cpu/problem_cpu.h"
#include "ops/pointwise/dropout_strip.h"
#include "ops/scratch.h"

namespace hearth::kernels {

#if HEARTH_BF16_VECTORS

// Compiled for the processors that has_bf16_vectors() answers for.
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512,avx512bf16")
#pragma GCC diagnostic push
// Registers that GCC 12's own headers leave undefined on purpose.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#define HEARTH_ISA_VECTOR_BYTES 64

namespace {

#include "core/cpu/lanes.inc"
#include "ops/attention/cpu/tile_bf16.inc"

/// The running softmax of a block of queries.
struct RunningSoftmax {
  __m512 most[2], sum[2];
  alignas(64) float fade[block_lanes];  ///< what the sums so far are multiplied with

  RunningSoftmax() {
    for (int v = 0; v < 2; ++v) {
      most[v] = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
      sum[v] = _mm512_setzero_ps();
    }
  }

  /// Weights relative to the new maximum, times `factors` unless that is null, in pairs of keys
  /// [pairs][block_lanes]. There are scores, and factors, for whole pairs.
  void weigh(const float* scores, const float* factors, std::int64_t pairs, Word* weights) {
    for (int v = 0; v < 2; ++v) {
      const float* const from = scores + v * vector;
      __m512 next[2] = {most[v], most[v]};
      for (std::int64_t j = 0; j < 2 * pairs; j += 2)
        for (int of = 0; of < 2; ++of)
          next[of] = _mm512_max_ps(_mm512_loadu_ps(from + (j + of) * block_lanes), next[of]);
      next[0] = _mm512_max_ps(next[0], next[1]);
      // A query that has seen no key yet: any finite shift leaves its weights 0.
      const __mmask16 none =
          _mm512_cmp_ps_mask(next[0], _mm512_set1_ps(-std::numeric_limits<float>::infinity()), _CMP_EQ_OQ);
      const __m512 shift = _mm512_mask_mov_ps(next[0], none, _mm512_setzero_ps());
      const __m512 faded = exp_of_negative(_mm512_sub_ps(most[v], shift));
      _mm512_store_ps(fade + v * vector, faded);
      most[v] = next[0];
      __m512 total = _mm512_mul_ps(sum[v], faded);
      for (std::int64_t pair = 0; pair < pairs; ++pair) {
        const float* const at = from + pair * 2 * block_lanes;
        __m512 even = exp_of_negative(_mm512_sub_ps(_mm512_loadu_ps(at), shift));
        __m512 odd = exp_of_negative(_mm512_sub_ps(_mm512_loadu_ps(at + block_lanes), shift));
        total = _mm512_add_ps(total, _mm512_add_ps(even, odd));
        if (factors != nullptr) {
          const float* const factor = factors + pair * 2 * block_lanes + v * vector;
          even = _mm512_mul_ps(even, _mm512_loadu_ps(factor));
          odd = _mm512_mul_ps(odd, _mm512_loadu_ps(factor + block_lanes));
        }
        _mm512_storeu_si512(weights + pair * block_lanes + v * vector, paired(even, odd));
      }
      sum[v] = total;
    }
  }
};

/// Working memory of a block of queries, and what both passes do with it.
struct Block {
  float *scores, *memory, *factors;

  explicit Block(cpu::Scratch& scratch) {
    scores = scratch.take<float>(block_keys * block_lanes);
    memory = scratch.take<float>(2 * block_keys * block_lanes);
    factors = memory + block_keys * block_lanes;
  }

  /// The scores of `count` keys, and of one more that is hidden where they are odd. Factors of dropout likewise.
  void score(const AttentionHead<float>& head, const Word* k_rows, const Word* q_turned, std::int64_t first,
             std::int64_t key, std::int64_t count) {
    const AttentionProblem& problem = *head.problem;
    multiply_words(k_rows, count, problem.width, q_turned, static_cast<float>(problem.scale), scores);
    mask_scores(head, first, key, count, memory, scores);
    if (problem.dropout > 0)
      draw_block<block_lanes>(head.draws(), problem.queries, problem.keys, first, key, count, memory, factors);
    if (count % 2 == 0) return;
    std::fill_n(scores + count * block_lanes, block_lanes, -std::numeric_limits<float>::infinity());
    std::fill_n(factors + count * block_lanes, block_lanes, 0.0f);
  }
};

}  // namespace

void attend_bf16(const AttentionHead<float>& head, const AttentionRows<bf16>& x, bf16* y, std::int64_t y_step,
                 float* lse, std::int64_t begin, std::int64_t end, RowsAhead ahead) {
  const AttentionProblem& problem = *head.problem;
  const std::int64_t width = problem.width, words = words_of(width), pitch = pitch_of<float>(width);
  // Those of the last block of the piece end last, those of the first begin first.
  const std::int64_t first_key = first_visible_key(head, begin);
  const std::int64_t keys = std::max(first_key, visible_keys(head, std::max(begin, end - 1)));
  const std::int64_t rows = rounded_up(keys - first_key, panel_rows<float>);
  cpu::Scratch scratch;
  Word* const k_rows = scratch.take<Word>(rows * words);
  Word* const v_pairs = scratch.take<Word>(rows * words);
  Word* const q_turned = scratch.take<Word>(words * block_lanes);
  Word* const weights = scratch.take<Word>(block_keys / 2 * block_lanes);
  float* const weighted = scratch.take<float>(block_lanes * pitch);
  Block block(scratch);
  const SourceRows q{x.q, x.q_step, end, width}, k{x.k, x.k_step, keys, width}, v{x.v, x.v_step, keys, width};
  std::int64_t packed = first_key;
  for (std::int64_t first = begin; first < end; first += block_lanes) {
    const std::int64_t inside = std::min<std::int64_t>(block_lanes, end - first);
    turn_words(q, first, q_turned);
    q.fetch(first + block_lanes, first + 2 * block_lanes);
    std::fill_n(weighted, block_lanes * pitch, 0.0f);
    RunningSoftmax running;
    const std::int64_t seen = std::min(keys, visible_keys(head, first));
    for (std::int64_t key = std::max(first_key, first_visible_key(head, first)); key < seen; key += block_keys) {
      const std::int64_t count = std::min(block_keys, seen - key), pairs = (count + 1) / 2;
      if (const std::int64_t needed = rounded_up(key + count, panel_rows<float>); packed < needed) {
        pack_words(k, packed, needed, k_rows + (packed - first_key) * words);
        pack_pairs(v, packed, needed, v_pairs + (packed - first_key) * words);
        packed = needed;
        for (const SourceRows* next : {&k, &v}) next->fetch(packed, packed + block_keys);
      }
      block.score(head, k_rows + (key - first_key) * words, q_turned, first, key, count);
      ahead.fetch_some();
      running.weigh(block.scores, problem.dropout > 0 ? block.factors : nullptr, pairs, weights);
      ahead.fetch_some();
      add_rows({weights, 1, block_lanes}, rounded_up(inside, 8), pairs, v_pairs + (key - first_key) * words, 2 * words,
               pitch, running.fade, weighted, pitch);
      ahead.fetch_some();
    }
    alignas(64) float most[block_lanes], sums[block_lanes], inverse[block_lanes];
    for (int half = 0; half < 2; ++half) {
      _mm512_store_ps(most + half * vector, running.most[half]);
      _mm512_store_ps(sums + half * vector, running.sum[half]);
    }
    for (std::int64_t i = 0; i < inside; ++i) {
      const bool none = sums[i] == 0.0f;
      inverse[i] = none ? 0.0f : 1.0f / sums[i];
      lse[first + i] = none ? std::numeric_limits<float>::infinity()
                            : most[i] + static_cast<float>(std::log(static_cast<double>(sums[i])));
    }
    for (std::int64_t i = 0; i < inside; ++i)
      store_rounded(weighted + i * pitch, inverse[i], width, y + (first + i) * y_step);
  }
}

namespace {

/// Queries that the gradients of keys and values are summed over at a time: so many blocks of them.
constexpr int span_blocks = 4;
constexpr int span_lanes = span_blocks * block_lanes, span_words = span_lanes / 2;
/// Keys at a time, so that blocks that do not see them are left out.
constexpr std::int64_t part_keys = block_lanes;

/// A span of queries as the gradient needs it.
struct GradSpan : Block {
  Word *q_turned, *q_pairs, *dy_turned, *dy_pairs;
  float *products, *dq;
  Word *weights, *slopes, *paired_slopes;  ///< the first two [key][span_words], the last of a block of queries
  alignas(64) float lse[span_lanes], delta[span_lanes];

  GradSpan(cpu::Scratch& scratch, std::int64_t width) : Block(scratch) {
    const std::int64_t words = words_of(width);
    for (Word** part : {&q_turned, &q_pairs, &dy_turned, &dy_pairs}) *part = scratch.take<Word>(span_lanes * words);
    for (Word** part : {&weights, &slopes}) *part = scratch.take<Word>(block_keys * span_words);
    paired_slopes = scratch.take<Word>(block_keys * vector);
    products = scratch.take<float>(block_keys * block_lanes);
    dq = scratch.take<float>(span_lanes * pitch_of<float>(width));
  }

  /// Block `index` of the span, the queries from `first` on; lanes behind the last one get no weight.
  void load(const SourceRows& q, const SourceRows& dy, const SourceRows& y, const float* lses, std::int64_t first,
            int index) {
    const std::int64_t width = q.width, inside = std::min<std::int64_t>(block_lanes, q.count - first);
    const std::int64_t lane = index * block_lanes, at = lane * words_of(width);
    turn_words(q, first, q_turned + at);
    pack_pairs(q, first, first + block_lanes, q_pairs + at);
    turn_words(dy, first, dy_turned + at);
    pack_pairs(dy, first, first + block_lanes, dy_pairs + at);
    std::fill_n(dq + lane * pitch_of<float>(width), block_lanes * pitch_of<float>(width), 0.0f);
    for (std::int64_t i = 0; i < block_lanes; ++i)
      lse[lane + i] = i < inside ? lses[first + i] : std::numeric_limits<float>::infinity();
    for (int half = 0; half < block_lanes; half += vector)
      _mm512_store_ps(delta + lane + half, dots(dy, y, first + half));
    for (const SourceRows* next : {&q, &dy, &y}) next->fetch(first + block_lanes, first + 2 * block_lanes);
  }

  /// From scores and products dy v of `count` keys and block `index` to weights after dropout and to slopes of the
  /// scores, which are multiplied by the scale where they are rounded. Rows behind the last key become zero, up to a
  /// multiple of part_keys.
  void differentiate(std::int64_t count, int index, bool drops, float scale, bool keeps_slopes) {
    std::fill_n(products + count * block_lanes, count % 2 * block_lanes, 0.0f);
    // Locals: vector stores may change members.
    const float *score = scores, *factor = drops ? factors : nullptr;
    float* product = products;
    Word *weight = weights + index * vector, *slope = slopes + index * vector, *pair = paired_slopes;
    const float *const shifts = lse + index * block_lanes, *const means = delta + index * block_lanes;
    const __m512 shift[2] = {_mm512_load_ps(shifts), _mm512_load_ps(shifts + vector)};
    const __m512 mean[2] = {_mm512_load_ps(means), _mm512_load_ps(means + vector)};
    const __m512 scales = _mm512_set1_ps(scale);
    for (std::int64_t j = 0; j < count; j += 2, pair += block_lanes) {
      __m512i of_key[2];
#pragma GCC unroll 2
      for (int of = 0; of < 2; ++of) {
        __m512 w[2], s[2];
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) {
          w[v] = exp_of_negative(_mm512_sub_ps(_mm512_loadu_ps(score + v * vector), shift[v]));
          __m512 dropped = _mm512_loadu_ps(product + v * vector);
          s[v] = w[v];
          if (factor != nullptr) {
            const __m512 times = _mm512_loadu_ps(factor + (j + of) * block_lanes + v * vector);
            dropped = _mm512_mul_ps(dropped, times);
            w[v] = _mm512_mul_ps(w[v], times);
          }
          s[v] = _mm512_mul_ps(s[v], _mm512_sub_ps(dropped, mean[v]));
          if (keeps_slopes) _mm512_storeu_ps(product + v * vector, s[v]);
          s[v] = _mm512_mul_ps(s[v], scales);
        }
        of_key[of] = narrowed(s[0], s[1]);
        _mm512_storeu_si512(weight, narrowed(w[0], w[1]));
        _mm512_storeu_si512(slope, of_key[of]);
        score += block_lanes, product += block_lanes, weight += span_words, slope += span_words;
      }
      __m512i low, high;
      interleave(of_key[0], of_key[1], low, high);
      _mm512_storeu_si512(pair, low);
      _mm512_storeu_si512(pair + vector, high);
    }
    for (std::int64_t j = rounded_up(count, 2); j % part_keys != 0; ++j, weight += span_words, slope += span_words) {
      _mm512_storeu_si512(weight, _mm512_setzero_si512());
      _mm512_storeu_si512(slope, _mm512_setzero_si512());
    }
  }
};

}  // namespace

void attend_grad_bf16(const AttentionHead<float>& head, const AttentionRows<bf16>& x, const AttentionGradRows<bf16>& g,
                      const float* lse, std::int64_t begin, std::int64_t end, float* dk, float* dv, float* dbias,
                      RowsAhead ahead) {
  const AttentionProblem& problem = *head.problem;
  const auto scale = static_cast<float>(problem.scale);
  const std::int64_t width = problem.width, words = words_of(width), pitch = pitch_of<float>(width);
  const std::int64_t first_key = first_visible_key(head, begin);
  const std::int64_t keys = std::max(first_key, visible_keys(head, std::max(begin, end - 1)));
  const std::int64_t rows = rounded_up(keys - first_key, panel_rows<float>);
  cpu::Scratch scratch;
  Word* const k_rows = scratch.take<Word>(rows * words);
  Word* const k_pairs = scratch.take<Word>(rows * words);
  Word* const v_rows = scratch.take<Word>(rows * words);
  GradSpan span(scratch, width);
  const SourceRows q{x.q, x.q_step, end, width}, k{x.k, x.k_step, keys, width}, v{x.v, x.v_step, keys, width};
  const SourceRows y{g.y, g.y_step, end, width}, dy{g.dy, g.dy_step, end, width};
  std::int64_t packed = first_key;
  for (std::int64_t first = begin; first < end; first += span_lanes) {
    const std::int64_t inside = std::min<std::int64_t>(span_lanes, end - first), pairs = (inside + 1) / 2;
    const int blocks = static_cast<int>((inside + block_lanes - 1) / block_lanes);
    std::int64_t seen_from[span_blocks], seen[span_blocks];
    for (int b = 0; b < blocks; ++b) {
      span.load(q, dy, y, lse, first + b * block_lanes, b);
      seen_from[b] = first_visible_key(head, first + b * block_lanes);
      seen[b] = std::min(keys, visible_keys(head, first + b * block_lanes));
    }
    const std::int64_t last = seen[blocks - 1];
    for (std::int64_t key = std::max(first_key, seen_from[0]); key < last; key += block_keys) {
      const std::int64_t most = std::min(block_keys, last - key), padded = rounded_up(most, 8);
      const std::int64_t offset = (key - first_key) * words;
      if (const std::int64_t needed = rounded_up(key + most, panel_rows<float>); packed < needed) {
        const std::int64_t at = (packed - first_key) * words;
        pack_words(k, packed, needed, k_rows + at);
        pack_pairs(k, packed, needed, k_pairs + at);
        pack_words(v, packed, needed, v_rows + at);
        for (float* sums : {dk, dv}) std::fill_n(sums + packed * pitch, (needed - packed) * pitch, 0.0f);
        packed = needed;
        for (const SourceRows* next : {&k, &v}) next->fetch(packed, packed + block_keys);
      }
      std::int64_t counts[span_blocks];
      for (int b = 0; b < blocks; ++b) {
        const std::int64_t count = counts[b] =
            seen_from[b] >= key + most ? 0 : std::clamp<std::int64_t>(seen[b] - key, 0, most);
        if (count == 0) continue;
        const std::int64_t lane = b * block_lanes, query = first + lane;
        span.score(head, k_rows + offset, span.q_turned + lane * words, query, key, count);
        ahead.fetch_some();
        multiply_words(v_rows + offset, count, width, span.dy_turned + lane * words, 1.0f, span.products);
        ahead.fetch_some();
        span.differentiate(count, b, problem.dropout > 0, scale, dbias != nullptr);
        ahead.fetch_some();
        const std::int64_t rows_here = std::min<std::int64_t>(block_lanes, inside - lane);
        add_rows({span.paired_slopes, 1, block_lanes}, rounded_up(rows_here, 8), (count + 1) / 2, k_pairs + offset,
                 2 * words, pitch, nullptr, span.dq + lane * pitch, pitch);
        ahead.fetch_some();
        if (dbias != nullptr) add_bias_slopes(problem, span.products, query, rows_here, key, count, span.memory, dbias);
      }
      for (std::int64_t part = 0; part < padded; part += part_keys) {
        // Blocks see from and up to keys that do not go back, so that those between two that see the part do.
        int low = 0, high = blocks;
        while (low < blocks && counts[low] <= part) ++low;
        while (high > low && counts[high - 1] <= part) --high;
        if (low == high) continue;
        const std::int64_t from = low * vector, terms = std::min<std::int64_t>(high * vector, pairs) - from;
        const std::int64_t at = part * span_words + from, row = (key + part) * pitch;
        add_rows({span.weights + at, span_words, 1}, std::min(part_keys, padded - part), terms,
                 span.dy_pairs + from * 2 * words, 2 * words, pitch, nullptr, dv + row, pitch);
        add_rows({span.slopes + at, span_words, 1}, std::min(part_keys, padded - part), terms,
                 span.q_pairs + from * 2 * words, 2 * words, pitch, nullptr, dk + row, pitch);
      }
    }
    for (std::int64_t i = 0; i < inside; ++i)
      store_rounded(span.dq + i * pitch, 1.0f, width, g.dq + (first + i) * g.dq_step);
  }
  // Keys that no query sees.
  for (float* sums : {dk, dv}) {
    std::fill_n(sums, first_key * pitch, 0.0f);
    std::fill_n(sums + packed * pitch, (rounded_up(problem.keys, panel_rows<float>) - packed) * pitch, 0.0f);
  }
}

#undef HEARTH_ISA_VECTOR_BYTES
#pragma GCC diagnostic pop
#pragma GCC pop_options

#else

void attend_bf16(const AttentionHead<float>&, const AttentionRows<bf16>&, bf16*, std::int64_t, float*, std::int64_t,
                 std::int64_t, RowsAhead) {}
void attend_grad_bf16(const AttentionHead<float>&, const AttentionRows<bf16>&, const AttentionGradRows<bf16>&,
                      const float*, std::int64_t, std::int64_t, float*, float*, float*, RowsAhead) {}

#endif

}  // namespace hearth::kernels
