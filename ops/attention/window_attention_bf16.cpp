// SPDX-License-Identifier: Apache-2.0
// Attention within windows in bf16 by the processor's products of pairs, with f32 sums: one window of one head at a
// time, in the blocks of window_attention_cpu.cpp, whose pieces of work these are, by the tiles of attention
// (tile_bf16.inc). What comes behind the image is rounded to bf16 as what is in it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/cpu/lanes.h"
#include "ops/attention/problem_cpu.h"
#include "ops/attention/window_problem_cpu.h"
#include "ops/matmul/amx.h"
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
#include "ops/attention/tile_bf16.inc"

/// The rows of a window's tokens. Those behind the image are `behind`, or zeros; so are those behind the last token.
struct TokenRows {
  const bf16* x;
  std::int64_t step;
  const std::int64_t* pixels;
  std::int64_t count, width;
  const bf16* behind = nullptr;

  __m512i load(std::int64_t row, std::int64_t channel) const {
    if (row >= count) return _mm512_setzero_si512();
    const bf16* const from = pixels[row] >= 0 ? x + pixels[row] * step : behind;
    if (from == nullptr) return _mm512_setzero_si512();
    return _mm512_maskz_loadu_epi16(inside_of(width - channel), from + channel);
  }
};

/// q, k and v of a window.
struct Parts {
  TokenRows part[3];
  bf16 behind[3][max_window_head_width];

  explicit Parts(const Window<bf16>& w) {
    for (int i = 0; i < 3; ++i) {
      part[i] = {w.qkv + i * w.channels, w.step, w.pixels, w.tokens, w.width};
      if (w.padding == nullptr) continue;
      for (std::int64_t d = 0; d < w.width; ++d) cpu::store(behind[i] + d, w.padding[i * w.channels + d]);
      part[i].behind = behind[i];
    }
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;
};

/// Rows [count][pitch] times a factor to the pixels of those tokens that are in the image.
void scatter(const float* rows, std::int64_t pitch, const float* factors, const std::int64_t* pixels,
             std::int64_t count, std::int64_t width, bf16* to, std::int64_t step) {
  for (std::int64_t t = 0; t < count; ++t)
    if (pixels[t] >= 0)
      store_rounded(rows + t * pitch, factors != nullptr ? factors[t] : 1.0f, width, to + pixels[t] * step);
}

/// A block of queries: its scores [key][query], and what the softmax makes of them.
template <int lanes>
struct WindowBlock {
  static constexpr int vectors = lanes / vector;
  const Window<bf16>& w;
  Word* q_turned;
  float *scores, *memory, *factors;
  alignas(64) float inverse[lanes];

  WindowBlock(const Window<bf16>& of, cpu::Scratch& scratch) : w(of) {
    const bool drops = w.draws.threshold > 0;
    q_turned = scratch.take<Word>(words_of(w.width) * lanes);
    scores = scratch.take<float>(rounded_up(w.tokens, 16) * lanes);
    memory = drops ? scratch.take<float>(block_keys * lanes) : nullptr;
    factors = drops ? scratch.take<float>(rounded_up(w.tokens, block_keys) * lanes) : nullptr;
  }

  /// Scores of the queries from `first` on become exponentials, and `inverse` one over their sums. Where keys are odd,
  /// there is one more of no weight.
  void weigh(const TokenRows& q, const Word* k_rows, std::int64_t first) {
    turn_words<lanes>(q, first, q_turned);
    multiply_words<lanes>(k_rows, w.tokens, w.width, q_turned, w.scale, scores);
    // Locals: vector stores may change members.
    const std::int64_t tokens = w.tokens;
    const float *bias = w.bias + first * tokens, *const regions = w.regions;
    float* const all = scores;
    __m512 most[vectors], sum[vectors], region[vectors];
    for (int v = 0; v < vectors; ++v) {
      most[v] = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
      sum[v] = _mm512_setzero_ps();
      region[v] = regions != nullptr ? _mm512_loadu_ps(regions + first + v * vector) : sum[v];
    }
    for (std::int64_t j = 0; j < tokens; ++j, bias += lanes)
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) {
        float* const at = all + j * lanes + v * vector;
        __m512 score = _mm512_add_ps(_mm512_loadu_ps(at), _mm512_loadu_ps(bias + v * vector));
        if (regions != nullptr) {
          const __mmask16 apart = _mm512_cmp_ps_mask(region[v], _mm512_set1_ps(regions[j]), _CMP_NEQ_UQ);
          score = _mm512_mask_add_ps(score, apart, score, _mm512_set1_ps(static_cast<float>(window_mask)));
        }
        _mm512_storeu_ps(at, score);
        most[v] = _mm512_max_ps(score, most[v]);
      }
    for (std::int64_t j = 0; j < tokens; ++j)
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) {
        float* const at = all + j * lanes + v * vector;
        const __m512 weight = exp_of_negative(_mm512_sub_ps(_mm512_loadu_ps(at), most[v]));
        _mm512_storeu_ps(at, weight);
        sum[v] = _mm512_add_ps(sum[v], weight);
      }
    for (int v = 0; v < vectors; ++v)
      _mm512_store_ps(inverse + v * vector, _mm512_div_ps(_mm512_set1_ps(1.0f), sum[v]));
    if (w.tokens % 2 != 0) std::fill_n(scores + w.tokens * lanes, lanes, 0.0f);
    if (factors != nullptr) draw(first);
  }

  /// The words of the pairs of keys' weights, before they are divided by their sums: [pairs][lanes].
  void pair_weights(Word* to) const {
    const float *score = scores, *factor = factors;
    const Word* const end = to + rounded_up(w.tokens, 2) / 2 * lanes;
    for (; to != end; to += lanes, score += 2 * lanes)
#pragma GCC unroll 2
      for (int v = 0; v < lanes; v += vector) {
        __m512 even = _mm512_loadu_ps(score + v), odd = _mm512_loadu_ps(score + lanes + v);
        if (factor != nullptr) {
          even = _mm512_mul_ps(even, _mm512_loadu_ps(factor + (score - scores) + v));
          odd = _mm512_mul_ps(odd, _mm512_loadu_ps(factor + (score - scores) + lanes + v));
        }
        _mm512_storeu_si512(to + v, paired(even, odd));
      }
  }

 private:
  void draw(std::int64_t first) {
    for (std::int64_t key = 0; key < w.tokens; key += block_keys)
      draw_block<lanes>(w.draws, w.tokens, w.tokens, first, key, std::min(block_keys, w.tokens - key), memory,
                        factors + key * lanes);
    if (w.tokens % 2 != 0) std::fill_n(factors + w.tokens * lanes, lanes, 0.0f);
  }
};

/// 16 or 32 values in bf16.
template <int vectors>
HEARTH_ALWAYS_INLINE void store_narrowed(const __m512 (&x)[vectors], Word* to) {
  if constexpr (vectors == 2)
    _mm512_storeu_si512(to, narrowed(x[0], x[1]));
  else
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x[0])));
}

/// What the gradient makes of a block.
template <int lanes>
struct SlopeBlock : WindowBlock<lanes> {
  using Base = WindowBlock<lanes>;
  using Base::vectors, Base::w, Base::scores, Base::factors, Base::inverse;
  float* products;                         ///< dy v, [key][query]
  Word *weights, *slopes, *paired_slopes;  ///< [key][lanes / 2] twice, and [pairs of keys][lanes]

  SlopeBlock(const Window<bf16>& of, cpu::Scratch& scratch) : Base(of, scratch) {
    const std::int64_t rows = rounded_up(w.tokens, 16);
    products = scratch.take<float>(rows * lanes);
    for (Word** part : {&weights, &slopes, &paired_slopes}) *part = scratch.take<Word>(rows * lanes / 2);
  }

  /// Exponentials and products become weights after dropout and slopes of the scores, which are added to `sums` unless
  /// that is null, and multiplied by the scale where they are rounded.
  void differentiate(float* sums) {
    // Locals: vector stores may change members.
    const std::int64_t tokens = w.tokens;
    const float *const score = scores, *const factor = factors;
    float* const product = products;
    Word *weight = weights, *slope = slopes, *pair = paired_slopes;
    const __m512 scale = _mm512_set1_ps(w.scale);
    if (tokens % 2 != 0) std::fill_n(product + tokens * lanes, lanes, 0.0f);
    __m512 delta[vectors] = {}, share[vectors];
    for (std::int64_t j = 0; j < tokens; ++j)
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) {
        const std::int64_t at = j * lanes + v * vector;
        __m512 dropped = _mm512_loadu_ps(product + at);
        if (factor != nullptr) {
          dropped = _mm512_mul_ps(dropped, _mm512_loadu_ps(factor + at));
          _mm512_storeu_ps(product + at, dropped);
        }
        delta[v] = _mm512_fmadd_ps(_mm512_loadu_ps(score + at), dropped, delta[v]);
      }
    for (int v = 0; v < vectors; ++v) {
      share[v] = _mm512_load_ps(inverse + v * vector);
      delta[v] = _mm512_mul_ps(delta[v], share[v]);
    }
    for (std::int64_t j = 0; j < tokens; j += 2, pair += lanes) {
      __m512 s[2][vectors];
#pragma GCC unroll 2
      for (int of = 0; of < 2; ++of, weight += lanes / 2, slope += lanes / 2) {
        __m512 kept[vectors];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v) {
          const std::int64_t at = (j + of) * lanes + v * vector;
          kept[v] = _mm512_mul_ps(_mm512_loadu_ps(score + at), share[v]);
          s[of][v] = _mm512_mul_ps(kept[v], _mm512_sub_ps(_mm512_loadu_ps(product + at), delta[v]));
          if (factor != nullptr) kept[v] = _mm512_mul_ps(kept[v], _mm512_loadu_ps(factor + at));
          if (sums != nullptr && j + of < tokens)
            _mm512_storeu_ps(sums + at, _mm512_add_ps(_mm512_loadu_ps(sums + at), s[of][v]));
          s[of][v] = _mm512_mul_ps(s[of][v], scale);
        }
        store_narrowed(kept, weight);
        store_narrowed(s[of], slope);
      }
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) _mm512_storeu_si512(pair + v * vector, paired(s[0][v], s[1][v]));
    }
  }
};

template <int lanes>
void attend_in_blocks(const Window<bf16>& w, const Window<bf16>& next, bf16* y) {
  const std::int64_t words = words_of(w.width), pitch = pitch_of<float>(w.width), rows = rounded_up(w.tokens, 16);
  cpu::Scratch scratch;
  Word* const k_rows = scratch.take<Word>(rows * words);
  Word* const v_pairs = scratch.take<Word>(rows * words);
  Word* const weights = scratch.take<Word>(rows / 2 * lanes);
  float* const y_rows = scratch.take<float>(lanes * pitch);
  WindowBlock<lanes> block(w, scratch);
  const Parts parts(w);
  pack_words(parts.part[1], 0, rows, k_rows);
  fetch_part(next, 1);
  pack_pairs(parts.part[2], 0, rounded_up(w.tokens, 2), v_pairs);
  fetch_part(next, 2);
  fetch_rows<1>(y, w.channels, w.pixels, w.tokens, w.width);
  for (std::int64_t first = 0; first < w.tokens; first += lanes) {
    const std::int64_t inside = std::min<std::int64_t>(lanes, w.tokens - first);
    block.weigh(parts.part[0], k_rows, first);
    if (first == 0) fetch_part(next, 0);
    block.pair_weights(weights);
    multiply_pairs({weights, 1, lanes}, inside, (w.tokens + 1) / 2, v_pairs, 2 * words, pitch, y_rows, pitch);
    scatter(y_rows, pitch, block.inverse, w.pixels + first, inside, w.width, y, w.channels);
  }
}

template <int lanes>
void differentiate_in_blocks(const Window<bf16>& w, const WindowSlopes<bf16>& g, const Window<bf16>& next,
                             const bf16* next_dy) {
  const std::int64_t words = words_of(w.width), pitch = pitch_of<float>(w.width), rows = rounded_up(w.tokens, 16);
  cpu::Scratch scratch;
  Word* const k_rows = scratch.take<Word>(rows * words);
  Word* const k_pairs = scratch.take<Word>(rows * words);
  Word* const v_rows = scratch.take<Word>(rows * words);
  Word* const q_pairs = scratch.take<Word>(lanes * words);
  Word* const dy_turned = scratch.take<Word>(lanes * words);
  Word* const dy_pairs = scratch.take<Word>(lanes * words);
  float* const dk = scratch.take<float>(rows * pitch);
  float* const dv = scratch.take<float>(rows * pitch);
  float* const dq = scratch.take<float>(lanes * pitch);
  SlopeBlock<lanes> block(w, scratch);
  const Parts parts(w);
  const TokenRows &q = parts.part[0], &k = parts.part[1];
  const TokenRows dy{g.dy, w.channels, w.pixels, w.tokens, w.width};
  pack_words(parts.part[2], 0, rows, v_rows);
  fetch_part(next, 2);
  pack_words(k, 0, rows, k_rows);
  pack_pairs(k, 0, rounded_up(w.tokens, 2), k_pairs);
  fetch_part(next, 1);
  for (int part = 0; part < 3; ++part) fetch_rows<1>(g.dqkv + part * w.channels, w.step, w.pixels, w.tokens, w.width);
  for (std::int64_t first = 0; first < w.tokens; first += lanes) {
    const std::int64_t inside = std::min<std::int64_t>(lanes, w.tokens - first), pairs = (inside + 1) / 2;
    block.weigh(q, k_rows, first);
    pack_pairs(q, first, first + 2 * pairs, q_pairs);
    turn_words<lanes>(dy, first, dy_turned);
    pack_pairs(dy, first, first + 2 * pairs, dy_pairs);
    if (first == 0) {
      fetch_part(next, 0);
      fetch_rows<0>(next_dy, w.channels, next.pixels, w.tokens, w.width);
    }
    multiply_words<lanes>(v_rows, w.tokens, w.width, dy_turned, 1.0f, block.products);
    block.differentiate(g.dbias == nullptr ? nullptr : g.dbias + first * w.tokens);
    const auto sum_queries = [&](const Word* weights, const Word* of_queries, float* to) {
      const Spread<Word> words_of_keys{weights, lanes / 2, 1};
      if (first == 0)
        multiply_pairs(words_of_keys, w.tokens, pairs, of_queries, 2 * words, pitch, to, pitch);
      else
        add_rows(words_of_keys, w.tokens, pairs, of_queries, 2 * words, pitch, nullptr, to, pitch);
    };
    sum_queries(block.weights, dy_pairs, dv);
    sum_queries(block.slopes, q_pairs, dk);
    multiply_pairs({block.paired_slopes, 1, lanes}, inside, (w.tokens + 1) / 2, k_pairs, 2 * words, pitch, dq, pitch);
    scatter(dq, pitch, nullptr, w.pixels + first, inside, w.width, g.dqkv, w.step);
  }
  scatter(dk, pitch, nullptr, w.pixels, w.tokens, w.width, g.dqkv + w.channels, w.step);
  scatter(dv, pitch, nullptr, w.pixels, w.tokens, w.width, g.dqkv + 2 * w.channels, w.step);
  if (g.dpadding == nullptr) return;
  add_padding(dk, pitch, w.pixels, w.tokens, w.width, g.dpadding);
  add_padding(dv, pitch, w.pixels, w.tokens, w.width, g.dpadding + w.width);
}

}  // namespace

void attend_window_bf16(const Window<bf16>& w, const Window<bf16>& next, bf16* y) {
  if (w.tokens <= vector)
    attend_in_blocks<vector>(w, next, y);
  else
    attend_in_blocks<2 * vector>(w, next, y);
}

void differentiate_window_bf16(const Window<bf16>& w, const WindowSlopes<bf16>& g, const Window<bf16>& next,
                               const bf16* next_dy) {
  if (w.tokens <= vector)
    differentiate_in_blocks<vector>(w, g, next, next_dy);
  else
    differentiate_in_blocks<2 * vector>(w, g, next, next_dy);
}

#undef HEARTH_ISA_VECTOR_BYTES
#pragma GCC diagnostic pop
#pragma GCC pop_options

#else

void attend_window_bf16(const Window<bf16>&, const Window<bf16>&, bf16*) {}
void differentiate_window_bf16(const Window<bf16>&, const WindowSlopes<bf16>&, const Window<bf16>&, const bf16*) {}

#endif

}  // namespace hearth::kernels
