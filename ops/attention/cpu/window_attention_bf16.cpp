// SPDX-License-Identifier: Apache-2.0
// Attention within windows in bf16 by the processor's products of pairs, with f32 sums: one window of one head at a
// time, as the pieces of work of window_attention_cpu.cpp are, in blocks of queries of their own, by tiles
// (window_tile_bf16.inc). Scores are in powers of two, as the biases come (window_bias_unit). What comes behind
// the image is rounded to bf16 as what is in it. The gradient of the keys and values is multiplied once for all blocks.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "core/cpu/amx.h"
#include "core/cpu/lanes.h"
#include "ops/attention/cpu/problem_cpu.h"
#include "ops/attention/cpu/window_problem_cpu.h"
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
#include "ops/attention/cpu/window_tile_bf16.inc"
#include "ops/attention/cpu/window_tile_bf16_last.inc"

/// A block of queries: its scores [key][query], and what the softmax makes of them.
template <int lanes>
struct WindowBlock {
  static constexpr int vectors = lanes / vector;
  const Window<bf16>& w;
  Word* q_turned;
  float *scores, *memory, *factors = nullptr;
  alignas(64) float most[lanes], inverse[lanes + vector];  ///< behind the lanes, of the last query

  explicit WindowBlock(const Window<bf16>& of) : w(of) {}

  bool drops() const { return w.draws.threshold > 0; }
  /// What it needs from take_parts().
  Part turned_part() { return {q_turned, words_of(w.width) * lanes}; }
  Part scores_part() { return {scores, rounded_up(w.tokens, 2) * lanes}; }
  Part memory_part() { return {memory, drops() ? block_keys * lanes : 0}; }
  Part factors_part() { return {factors, drops() ? rounded_up(w.tokens + 1, block_keys) * lanes : 0}; }

  /// The scores of the queries from `first` on. Where keys are odd, there is one more of no weight.
  void score(const PackedRows& q, const PackedRows& k, std::int64_t first, const TokensAhead (&ahead)[2]) {
    turn_words<lanes>(q, first, q_turned);
    if (w.regions == nullptr)
      score_turned<false>(k, first, ahead);
    else
      score_turned<true>(k, first, ahead);
    if (w.tokens % 2 != 0) std::fill_n(scores + w.tokens * lanes, lanes, minus_infinity);
    if (drops()) draw(first);
  }

  /// f(place, exponentials) for pairs of keys of the scores, and `inverse` one over their sums. `place` is that of the
  /// even key's scores.
  template <class F>
  HEARTH_ALWAYS_INLINE void each_pair(const TokensAhead& ahead, const F& f) {
    const float* const all = scores;
    const std::int64_t end = rounded_up(w.tokens, 2) * lanes;
    __m512 largest[vectors], total[vectors] = {};
    for (int v = 0; v < vectors; ++v) largest[v] = _mm512_load_ps(most + v * vector);
    for (std::int64_t at = 0; at < end; at += 2 * lanes) {
      __m512 x[2 * vectors];
#pragma GCC unroll 6
      for (int v = 0; v < 2 * vectors; ++v)
        x[v] = _mm512_sub_ps(_mm512_loadu_ps(all + at + v * vector), largest[v % vectors]);
      raise_two(x);
#pragma GCC unroll 3
      for (int v = 0; v < vectors; ++v) total[v] = _mm512_add_ps(total[v], _mm512_add_ps(x[v], x[vectors + v]));
      f(at, x);
      ahead.fetch(at / lanes, std::min<std::int64_t>(2, w.tokens - at / lanes));
    }
    for (int v = 0; v < vectors; ++v)
      _mm512_store_ps(inverse + v * vector, _mm512_div_ps(_mm512_set1_ps(1.0f), total[v]));
  }

  /// The words of the pairs of keys' weights, before they are divided by their sums: [pairs][pitch].
  void pair_weights(Word* to, std::int64_t pitch, const TokensAhead& ahead) {
    const float* const factor = drops() ? factors : nullptr;
    each_pair(ahead, [&](std::int64_t at, __m512(&x)[2 * vectors]) {
      if (factor != nullptr)
#pragma GCC unroll 6
        for (int v = 0; v < 2 * vectors; ++v) x[v] = _mm512_mul_ps(x[v], _mm512_loadu_ps(factor + at + v * vector));
#pragma GCC unroll 3
      for (int v = 0; v < vectors; ++v) _mm512_storeu_si512(to + v * vector, paired(x[v], x[vectors + v]));
      to += pitch;
    });
  }

 private:
  template <bool mixes>
  void score_turned(const PackedRows& k, std::int64_t first, const TokensAhead (&ahead)[2]) {
    const float *const bias = w.bias + first * w.tokens, *const regions = w.regions;
    float *const all = scores, *const largest = most;
    const __m512 scale = _mm512_set1_ps(w.scale * window_bias_unit), apart = _mm512_set1_ps(mask_unit);
    for (int v = 0; v < vectors; ++v) _mm512_store_ps(largest + v * vector, _mm512_set1_ps(minus_infinity));
    each_tile<vectors>(
        k, w.tokens, w.width, q_turned,
        [&]<int tile>(std::int64_t j, __m512(&sum)[tile][vectors], std::int64_t inside) __attribute__((always_inline)) {
#pragma GCC unroll 3
          for (int v = 0; v < vectors; ++v) {
            __m512 up = _mm512_load_ps(largest + v * vector);
#pragma GCC unroll 16
            for (int r = 0; r < tile; ++r) {
              if (r >= inside) break;
              const std::int64_t at = (j + r) * lanes + v * vector;
              __m512 x = _mm512_fmadd_ps(sum[r][v], scale, _mm512_loadu_ps(bias + at));
              if constexpr (mixes) {
                const __m512 region = _mm512_loadu_ps(regions + first + v * vector);
                const __mmask16 other = _mm512_cmp_ps_mask(region, _mm512_set1_ps(regions[j + r]), _CMP_NEQ_UQ);
                x = _mm512_mask_add_ps(x, other, x, apart);
              }
              _mm512_storeu_ps(all + at, x);
              up = _mm512_max_ps(x, up);
            }
            _mm512_store_ps(largest + v * vector, up);
          }
          for (const TokensAhead& rows : ahead) rows.fetch(j, inside);
        });
  }
  void draw(std::int64_t first) {
    for (std::int64_t key = 0; key < w.tokens; key += block_keys)
      draw_block<lanes>(w.draws, w.tokens, w.tokens, first, key, std::min(block_keys, w.tokens - key), memory,
                        factors + key * lanes);
    if (w.tokens % 2 != 0) std::fill_n(factors + w.tokens * lanes, lanes, 0.0f);
  }
};

/// 16, 32 or 48 values in bf16.
template <int vectors>
HEARTH_ALWAYS_INLINE void store_narrowed(const __m512* x, Word* to) {
  if constexpr (vectors > 1) _mm512_storeu_si512(to, narrowed(x[0], x[1]));
  if constexpr (vectors % 2 != 0)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + (vectors - 1) * vector / 2),
                        reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x[vectors - 1])));
}

/// Words from a pair of keys to the next, where queries have one each.
template <int lanes>
std::int64_t pair_pitch(const QueryBlocks& blocks) {
  return blocks.last_alone ? lanes + vector : lanes;
}

template <int lanes>
void attend_in_blocks(const Window<bf16>& w, const QueryBlocks& blocks, const Window<bf16>& next, bf16* y) {
  const std::int64_t size = padded_rows(w.tokens) * words_of(w.width), pairs = (w.tokens + 1) / 2;
  const std::int64_t pitch = pair_pitch<lanes>(blocks);
  cpu::Scratch scratch;
  WindowBlock<lanes> block(w);
  Word *q_rows, *k_rows, *v_rows, *v_pairs, *weights;
  take_parts(scratch, {{q_rows, size},
                       {k_rows, size},
                       {v_rows, size},
                       {v_pairs, size},
                       {weights, pairs * pitch},
                       block.turned_part(),
                       block.scores_part(),
                       block.memory_part(),
                       block.factors_part()});
  const PackedRows k = gather_part(w, 1, k_rows), q = gather_part(w, 0, q_rows);
  pack_pairs(gather_part(w, 2, v_rows), 0, 2 * pairs, v_pairs);
  for (std::int64_t first = 0; first < w.tokens; first += lanes) {
    if (blocks.alone(first)) break;
    const auto once = [&](const TokensAhead& soon) { return first == 0 ? soon : TokensAhead(); };
    LastQuery last(w);
    if (blocks.last_alone) last.score(q, k);
    block.score(q, k, first, {once(part_ahead(next, next.qkv, 1)), once({y, w.channels, w.pixels, w.width})});
    if (blocks.last_alone) last.weigh();
    block.pair_weights(weights, pitch, once(part_ahead(next, next.qkv, 0)));
    std::int64_t inside = std::min<std::int64_t>(lanes, w.tokens - first);
    if (blocks.last_alone) {
      last.pair_weights(weights + lanes, pitch);
      block.inverse[inside++] = last.inverse;
    }
    multiply_to_rows({weights, 1, pitch}, inside, pairs, v_pairs,
                     {y, w.channels, w.pixels + first, w.width, block.inverse, 1}, once(part_ahead(next, next.qkv, 2)));
  }
}

/// What the gradient makes of a block.
template <int lanes>
struct SlopeBlock : WindowBlock<lanes> {
  using Base = WindowBlock<lanes>;
  using Base::vectors, Base::w, Base::scores, Base::factors, Base::inverse;
  float* products;                 ///< dy v, [key][query]
  Word* dy_turned;                 ///< [words][query]
  Word* paired_slopes;             ///< [pairs of keys][query]
  alignas(64) float delta[lanes];  ///< of a query, the sum of its weights times products

  explicit SlopeBlock(const Window<bf16>& of) : Base(of) {}

  Part dy_part() { return {dy_turned, words_of(w.width) * lanes}; }
  Part products_part() { return {products, rounded_up(w.tokens, 2) * lanes}; }
  Part slopes_part(std::int64_t pitch) { return {paired_slopes, (w.tokens + 1) / 2 * pitch}; }

  /// Scores become exponentials, and beside them come the products of the values with dy.
  void multiply(const PackedRows& dy, const PackedRows& v_rows, std::int64_t first, const TokensAhead (&ahead)[3]) {
    float *const score = scores, *const product = products;
    Base::each_pair(ahead[0], [&](std::int64_t at, __m512(&x)[2 * vectors]) {
#pragma GCC unroll 6
      for (int v = 0; v < 2 * vectors; ++v) _mm512_storeu_ps(score + at + v * vector, x[v]);
    });
    turn_words<lanes>(dy, first, dy_turned);
    float* const sums = delta;
    std::fill_n(sums, lanes, 0.0f);
    each_tile<vectors>(
        v_rows, w.tokens, w.width, dy_turned,
        [&]<int tile>(std::int64_t j, __m512(&sum)[tile][vectors], std::int64_t inside) __attribute__((always_inline)) {
#pragma GCC unroll 3
          for (int v = 0; v < vectors; ++v) {
            __m512 total = _mm512_load_ps(sums + v * vector);
#pragma GCC unroll 16
            for (int r = 0; r < tile; ++r) {
              if (r >= inside) break;
              const std::int64_t at = (j + r) * lanes + v * vector;
              _mm512_storeu_ps(product + at, sum[r][v]);
              total = _mm512_fmadd_ps(_mm512_loadu_ps(score + at), sum[r][v], total);
            }
            _mm512_store_ps(sums + v * vector, total);
          }
          for (const TokensAhead& rows : {ahead[1], ahead[2]}) rows.fetch(j, inside);
        });
    if (Base::drops()) drop_products();
    for (int v = 0; v < vectors; ++v)
      _mm512_store_ps(sums + v * vector,
                      _mm512_mul_ps(_mm512_load_ps(sums + v * vector), _mm512_load_ps(inverse + v * vector)));
    if (w.tokens % 2 != 0) std::fill_n(products + w.tokens * lanes, lanes, 0.0f);
  }

  /// Exponentials and products become weights after dropout and slopes of the scores, both [key][query] with rows
  /// of `pitch` words, and the slopes also in pairs of keys. Slopes are added to `bias_sums`.
  void differentiate(float* bias_sums, Word* weight, Word* slope, std::int64_t pitch, std::int64_t pair_step) {
    // Locals: vector stores may change members.
    const float *const score = scores, *const product = products, *const factor = Base::drops() ? factors : nullptr;
    Word* pair = paired_slopes;
    __m512 mean[vectors], share[vectors];
    for (int v = 0; v < vectors; ++v) {
      share[v] = _mm512_load_ps(inverse + v * vector);
      mean[v] = _mm512_load_ps(delta + v * vector);
    }
    const auto two_keys = [&]<int keys>(std::int64_t j) __attribute__((always_inline)) {
      __m512 kept[2][vectors], s[2][vectors];
#pragma GCC unroll 2
      for (int of = 0; of < 2; ++of)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; ++v) {
          const std::int64_t at = (j + of) * lanes + v * vector;
          kept[of][v] = _mm512_mul_ps(_mm512_loadu_ps(score + at), share[v]);
          s[of][v] = _mm512_mul_ps(kept[of][v], _mm512_sub_ps(_mm512_loadu_ps(product + at), mean[v]));
          if (of < keys) _mm512_storeu_ps(bias_sums + at, _mm512_add_ps(_mm512_loadu_ps(bias_sums + at), s[of][v]));
        }
      if (factor != nullptr)
#pragma GCC unroll 2
        for (int of = 0; of < 2; ++of)
#pragma GCC unroll 3
          for (int v = 0; v < vectors; ++v)
            kept[of][v] = _mm512_mul_ps(kept[of][v], _mm512_loadu_ps(factor + (j + of) * lanes + v * vector));
#pragma GCC unroll 2
      for (int of = 0; of < 2; ++of, weight += pitch, slope += pitch) {
        store_narrowed<vectors>(kept[of], weight);
        store_narrowed<vectors>(s[of], slope);
      }
#pragma GCC unroll 3
      for (int v = 0; v < vectors; ++v) _mm512_storeu_si512(pair + v * vector, paired(s[0][v], s[1][v]));
      pair += pair_step;
    };
    std::int64_t j = 0;
    for (; j + 2 <= w.tokens; j += 2) two_keys.template operator()<2>(j);
    if (j < w.tokens) two_keys.template operator()<1>(j);
  }

 private:
  /// Products times the factors of dropout, and `delta` with them.
  void drop_products() {
    std::fill_n(delta, lanes, 0.0f);
    for (std::int64_t at = 0; at < w.tokens * lanes; at += vector) {
      float* const sum = delta + at % lanes;
      const __m512 dropped = _mm512_mul_ps(_mm512_loadu_ps(products + at), _mm512_loadu_ps(factors + at));
      _mm512_storeu_ps(products + at, dropped);
      _mm512_store_ps(sum, _mm512_fmadd_ps(_mm512_loadu_ps(scores + at), dropped, _mm512_load_ps(sum)));
    }
  }
};

template <int lanes>
void differentiate_in_blocks(const Window<bf16>& w, const QueryBlocks& blocks, const WindowSlopes<bf16>& g,
                             const Window<bf16>& next, const bf16* next_dy) {
  const std::int64_t rows = padded_rows(w.tokens), size = rows * words_of(w.width), pairs = (w.tokens + 1) / 2;
  const std::int64_t pitch = rows / 2, pair_step = pair_pitch<lanes>(blocks);
  constexpr float one = 1.0f;
  cpu::Scratch scratch;
  SlopeBlock<lanes> block(w);
  Word *q_rows, *k_rows, *v_rows, *dy_rows, *q_pairs, *k_pairs, *dy_pairs, *weights, *slopes;
  take_parts(scratch, {{q_rows, size},
                       {k_rows, size},
                       {v_rows, size},
                       {dy_rows, size},
                       {q_pairs, size},
                       {k_pairs, size},
                       {dy_pairs, size},
                       {weights, rows * pitch},
                       {slopes, rows * pitch},
                       block.turned_part(),
                       block.scores_part(),
                       block.memory_part(),
                       block.factors_part(),
                       block.dy_part(),
                       block.products_part(),
                       block.slopes_part(pair_step)});
  const bf16 behind[max_window_head_width] = {};
  const PackedRows k = gather_part(w, 1, k_rows), q = gather_part(w, 0, q_rows), v = gather_part(w, 2, v_rows),
                   dy = gather(w, g.dy, w.channels, behind, dy_rows);
  pack_pairs(k, 0, 2 * pairs, k_pairs);
  pack_pairs(q, 0, 2 * pairs, q_pairs);
  pack_pairs(dy, 0, 2 * pairs, dy_pairs);
  const auto rows_of = [&](int part, std::int64_t first, const float& factor, float* padding) {
    return TokenRows{g.dqkv + part * w.channels, w.step, w.pixels + first, w.width, &factor, 0, padding};
  };
  for (std::int64_t first = 0; first < w.tokens; first += lanes) {
    if (blocks.alone(first)) break;
    const auto once = [&](const TokensAhead& soon) { return first == 0 ? soon : TokensAhead(); };
    LastQuery last(w);
    if (blocks.last_alone) last.score(q, k);
    block.score(q, k, first, {once(part_ahead(next, next.qkv, 1)), once(part_ahead(w, g.dqkv, 0))});
    if (blocks.last_alone) {
      last.weigh();
      last.multiply(dy, v);
    }
    block.multiply(
        dy, v, first,
        {once(part_ahead(next, next.qkv, 0)), once(part_ahead(next, next.qkv, 2)), once(part_ahead(w, g.dqkv, 1))});
    Word *const kept = weights + first / 2, *const slope = slopes + first / 2;
    std::int64_t inside = std::min<std::int64_t>(lanes, w.tokens - first);
    if (blocks.last_alone) {
      last.differentiate(g.dbias, kept + inside / 2, slope + inside / 2, pitch, block.paired_slopes + inside,
                         pair_step);
      ++inside;
    }
    block.differentiate(g.dbias + first * w.tokens, kept, slope, pitch, pair_step);
    multiply_to_rows({block.paired_slopes, 1, pair_step}, inside, pairs, k_pairs, rows_of(0, first, w.scale, nullptr),
                     once(part_ahead(w, g.dqkv, 2)));
  }
  float* const padding = g.dpadding;
  multiply_to_rows({slopes, pitch, 1}, w.tokens, pairs, q_pairs, rows_of(1, 0, w.scale, padding),
                   {next_dy, w.channels, next.pixels, w.width});
  multiply_to_rows({weights, pitch, 1}, w.tokens, pairs, dy_pairs,
                   rows_of(2, 0, one, padding == nullptr ? nullptr : padding + w.width));
}

/// f.template operator()<lanes>(blocks) for the blocks of a window.
template <class F>
void in_blocks(std::int64_t tokens, const F& f) {
  const QueryBlocks blocks = window_blocks_bf16(tokens);
  if (blocks.lanes == vector)
    f.template operator()<vector>(blocks);
  else if (blocks.lanes == 2 * vector)
    f.template operator()<2 * vector>(blocks);
  else
    f.template operator()<3 * vector>(blocks);
}

}  // namespace

QueryBlocks window_blocks_bf16(std::int64_t tokens) {
  if (tokens <= vector) return {tokens, vector};
  if (tokens == LastQuery::tokens) return {tokens, LastQuery::query, true};
  const bool threes = rounded_up(tokens, 3 * vector) <= rounded_up(tokens, 2 * vector);
  return {tokens, threes ? 3 * vector : 2 * vector};
}

void attend_window_bf16(const Window<bf16>& w, const Window<bf16>& next, bf16* y) {
  in_blocks(w.tokens, [&]<int lanes>(const QueryBlocks& blocks) { attend_in_blocks<lanes>(w, blocks, next, y); });
}

void differentiate_window_bf16(const Window<bf16>& w, const WindowSlopes<bf16>& g, const Window<bf16>& next,
                               const bf16* next_dy) {
  in_blocks(w.tokens,
            [&]<int lanes>(const QueryBlocks& blocks) { differentiate_in_blocks<lanes>(w, blocks, g, next, next_dy); });
}

#undef HEARTH_ISA_VECTOR_BYTES
#pragma GCC diagnostic pop
#pragma GCC pop_options

#else

QueryBlocks window_blocks_bf16(std::int64_t tokens) { return {tokens, tokens}; }
void attend_window_bf16(const Window<bf16>&, const Window<bf16>&, bf16*) {}
void differentiate_window_bf16(const Window<bf16>&, const WindowSlopes<bf16>&, const Window<bf16>&, const bf16*) {}

#endif

}  // namespace hearth::kernels
