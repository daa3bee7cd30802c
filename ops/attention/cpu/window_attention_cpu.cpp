// SPDX-License-Identifier: Apache-2.0
// Attention within windows: one window of one head at a time, gathered into the nearest cache. A window is small, so
// all scores of a block of queries are held at once; the gradient makes them again from the inputs. Products are tiles
// of a few rows, of as many tokens as there are: attention's own (tile_cpu.inc) work on whole blocks of keys. The table
// of biases is laid out once a call as the blocks of scores lie, and its gradient is summed in that layout, by shares
// of the windows that the shape decides on, added in order.
// Reference, for each sample, window and head, over its tokens; those behind the image have padding as q, k, v:
//   for token i:
//     for token j:
//       score[j] = dot(q[i], k[j]) / sqrt(D) + table[entry(i, j)] + (region(i) == region(j) ? 0 : -100)
//     p = softmax(score), keep = kept(i, j) / (1 - dropout)
//     y[i] = sum of p[j] * keep * v[j]
//   gradient: dv[j] += p[j] * keep * dy[i];  ds = p[j] * (keep * dot(dy[i], v[j]) - dot(dy[i], y[i]))
//     dtable[entry(i, j)] += ds;  dq[i] += ds / sqrt(D) * k[j];  dk[j] += ds / sqrt(D) * q[i]
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "core/cpu/lanes.h"
#include "ops/attention/cpu/kernels_cpu.h"
#include "ops/attention/cpu/problem_cpu.h"
#include "ops/attention/cpu/window_problem_cpu.h"
#include "ops/scratch.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/attention/cpu/window_attention_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

#include "core/cpu/lanes.inc"
#include "ops/attention/cpu/tile_cpu.inc"

/// Queries of a block: two vectors of them, or one where that holds a whole window.
template <class P>
std::int64_t lanes_of(std::int64_t tokens) {
  return tokens <= Vector<P>::lanes ? Vector<P>::lanes : 2 * Vector<P>::lanes;
}

/// f(place in the blocks, entry of the table) for every query and key.
template <class F>
void each_score(const WindowGrid& grid, const QueryBlocks& blocks, const F& f) {
  const std::int64_t side = grid.window;
  for (std::int64_t i = 0; i < grid.tokens(); ++i) {
    const std::int64_t first = blocks.begin(i), step = blocks.step(i), last = grid.entry(i, 0);
    for (std::int64_t y = 0; y < side; ++y)
      for (std::int64_t x = 0; x < side; ++x) f(first + (y * side + x) * step, last - y * (2 * side - 1) - x);
  }
}

/// The biases of one head, which has every `heads`-th value of the table, times `unit`, in blocks.
template <class P>
void arrange_bias(const WindowGrid& grid, const QueryBlocks& blocks, const P* table, std::int64_t heads, P unit,
                  P* biases) {
  std::fill_n(biases, blocks.size(), P(0));
  each_score(grid, blocks, [&](std::int64_t at, std::int64_t entry) { biases[at] = table[entry * heads] * unit; });
}

/// The gradient of one head's part of the table from `shares` sums in blocks, `share_step` apart.
template <class P>
void fold_bias(const WindowGrid& grid, const QueryBlocks& blocks, P* sums, std::int64_t shares, std::int64_t share_step,
               P* table, std::int64_t heads) {
  const std::int64_t count = blocks.size();
  for (std::int64_t begin = 0; begin < count; begin += 512)
    for (std::int64_t share = 1; share < shares; ++share) {
      const P* const from = sums + share * share_step;
#pragma omp simd
      for (std::int64_t e = begin; e < std::min<std::int64_t>(begin + 512, count); ++e) sums[e] += from[e];
    }
  P entries[(2 * max_window - 1) * (2 * max_window - 1)] = {};
  each_score(grid, blocks, [&](std::int64_t at, std::int64_t entry) { entries[entry] += sums[at]; });
  for (std::int64_t entry = 0; entry < grid.entries(); ++entry) table[entry * heads] = entries[entry];
}

/// Tokens [first, first + count) of x, `step` from pixel to pixel, times a factor, as [count][pitch]; zeros from there
/// to `rows` rows. Positions behind the image come from `padding`, or are zero.
template <class T, class P>
void gather_rows(const T* x, std::int64_t step, const P* padding, const std::int64_t* pixels, std::int64_t count,
                 std::int64_t rows, std::int64_t width, P factor, P* to) {
  const std::int64_t pitch = pitch_of<P>(width);
  for (std::int64_t t = 0; t < rows; ++t, to += pitch) {
    std::int64_t filled = 0;
    if (t < count && pixels[t] >= 0) {
      const T* const from = x + pixels[t] * step;
#pragma omp simd
      for (std::int64_t d = 0; d < width; ++d) to[d] = cpu::load(from + d) * factor;
      filled = width;
    } else if (t < count && padding != nullptr) {
      for (std::int64_t d = 0; d < width; ++d) to[d] = padding[d] * factor;
      filled = width;
    }
    std::fill_n(to + filled, pitch - filled, P(0));
  }
}

/// q (part 0), k or v of the window's tokens.
template <class T, class P>
void gather_part(const Window<T>& w, int part, std::int64_t first, std::int64_t count, std::int64_t rows, P factor,
                 P* to) {
  const P* const padding = w.padding == nullptr ? nullptr : w.padding + part * w.channels;
  gather_rows(w.qkv + part * w.channels, w.step, padding, w.pixels + first, count, rows, w.width, factor, to);
}

/// Rows [count][pitch] times a factor to the pixels of those tokens that are in the image.
template <class T, class P>
void scatter_rows(const P* rows, const P* factors, const std::int64_t* pixels, std::int64_t count, std::int64_t width,
                  T* to, std::int64_t step) {
  const std::int64_t pitch = pitch_of<P>(width);
  for (std::int64_t t = 0; t < count; ++t, rows += pitch) {
    if (pixels[t] < 0) continue;
    T* const into = to + pixels[t] * step;
#pragma omp simd
    for (std::int64_t d = 0; d < width; ++d) cpu::store(into + d, rows[d] * factors[t]);
  }
}

/// A block of queries: its scores [key][query], and what the softmax makes of them.
template <class P, int lanes>
struct WindowBlock {
  P *rows, *turned, *scores, *memory, *factors;
  alignas(64) P inverse[lanes];

  WindowBlock(cpu::Scratch& scratch, std::int64_t tokens, std::int64_t pitch, bool drops) {
    rows = scratch.take<P>(lanes * pitch);
    turned = scratch.take<P>(lanes * pitch);
    scores = scratch.take<P>(tokens * lanes);
    memory = drops ? scratch.take<P>(block_keys * lanes) : nullptr;
    factors = drops ? scratch.take<P>(rounded_up(tokens, block_keys) * lanes) : nullptr;
  }

  /// Scores become exponentials, and `inverse` one over their sums, for the queries from `first` on.
  template <class T>
  void weigh(const Window<T>& w, const P* k_rows, std::int64_t first) {
    const std::int64_t inside = std::min<std::int64_t>(lanes, w.tokens - first);
    const std::int64_t pitch = pitch_of<P>(w.width);
    gather_part(w, 0, first, inside, lanes, w.scale, rows);
    turn(rows, pitch, lanes, pitch, turned, lanes);
    multiply_rows_with<false, P>({k_rows, pitch, 1}, w.tokens, w.width, turned, lanes, scores);
    const P* const bias = w.bias + first * w.tokens;
    alignas(64) P most[lanes], sum[lanes];
    std::fill_n(most, lanes, -std::numeric_limits<P>::infinity());
    std::fill_n(sum, lanes, P(0));
    for (std::int64_t j = 0; j < w.tokens; ++j) {
      P* const score = scores + j * lanes;
#pragma omp simd
      for (int i = 0; i < lanes; ++i) score[i] += bias[j * lanes + i];
      if (w.regions != nullptr) {
        const P region = w.regions[j];
        const P* const others = w.regions + first;
#pragma omp simd
        for (int i = 0; i < lanes; ++i) score[i] += others[i] == region ? P(0) : static_cast<P>(window_mask);
      }
#pragma omp simd
      for (int i = 0; i < lanes; ++i) most[i] = score[i] > most[i] ? score[i] : most[i];
    }
    for (std::int64_t j = 0; j < w.tokens; ++j) {
      P* const score = scores + j * lanes;
#pragma omp simd
      for (int i = 0; i < lanes; ++i) {
        score[i] = exp_of_negative(score[i] - most[i]);
        sum[i] += score[i];
      }
    }
#pragma omp simd
    for (int i = 0; i < lanes; ++i) inverse[i] = P(1) / sum[i];
  }

  template <class T>
  void draw(const Window<T>& w, std::int64_t first) {
    for (std::int64_t key = 0; key < w.tokens; key += block_keys)
      draw_block<lanes>(w.draws, w.tokens, w.tokens, first, key, std::min(block_keys, w.tokens - key), memory,
                        factors + key * lanes);
  }

  /// Exponentials and products dy v become weights after dropout and slopes of the scores, which are added to `sums`.
  void differentiate(std::int64_t tokens, P* slopes, P* sums) {
    alignas(64) P delta[lanes] = {};
    for (std::int64_t j = 0; j < tokens; ++j) {
      P* const weight = scores + j * lanes;
      P* const slope = slopes + j * lanes;
      if (factors != nullptr) {
        const P* const factor = factors + j * lanes;
#pragma omp simd
        for (int i = 0; i < lanes; ++i) slope[i] *= factor[i];
      }
#pragma omp simd
      for (int i = 0; i < lanes; ++i) {
        weight[i] *= inverse[i];
        delta[i] += weight[i] * slope[i];
      }
    }
    for (std::int64_t j = 0; j < tokens; ++j) {
      P* const weight = scores + j * lanes;
      P* const slope = slopes + j * lanes;
#pragma omp simd
      for (int i = 0; i < lanes; ++i) slope[i] = weight[i] * (slope[i] - delta[i]);
      if (factors != nullptr) {
        const P* const factor = factors + j * lanes;
#pragma omp simd
        for (int i = 0; i < lanes; ++i) weight[i] *= factor[i];
      }
      P* const into = sums + j * lanes;
#pragma omp simd
      for (int i = 0; i < lanes; ++i) into[i] += slope[i];
    }
  }
};

template <class T, int lanes, class P = acc_t<T>>
void attend_in_blocks(const Window<T>& w, const Window<T>& next, T* y) {
  const std::int64_t pitch = pitch_of<P>(w.width);
  const bool drops = w.draws.threshold > 0;
  cpu::Scratch scratch;
  P* const k_rows = scratch.take<P>(w.tokens * pitch);
  P* const v_rows = scratch.take<P>(w.tokens * pitch);
  P* const y_rows = scratch.take<P>(lanes * pitch);
  WindowBlock<P, lanes> block(scratch, w.tokens, pitch, drops);
  gather_part(w, 1, 0, w.tokens, w.tokens, P(1), k_rows);
  fetch_part(next, 1);
  gather_part(w, 2, 0, w.tokens, w.tokens, P(1), v_rows);
  fetch_part(next, 2);
  fetch_rows<1>(y, w.channels, w.pixels, w.tokens, w.width);
  for (std::int64_t first = 0; first < w.tokens; first += lanes) {
    const std::int64_t inside = std::min<std::int64_t>(lanes, w.tokens - first);
    block.weigh(w, k_rows, first);
    if (first == 0) fetch_part(next, 0);
    if (drops) {
      block.draw(w, first);
#pragma omp simd
      for (std::int64_t e = 0; e < w.tokens * lanes; ++e) block.scores[e] *= block.factors[e];
    }
    multiply_rows_with<true, P>({block.scores, 1, lanes}, inside, w.tokens, v_rows, pitch, y_rows);
    scatter_rows(y_rows, block.inverse, w.pixels + first, inside, w.width, y, w.channels);
  }
}

/// One head of one window. y: as Window::qkv, `channels` from pixel to pixel. `next` comes soon.
template <class T>
void attend_window(const Window<T>& w, const Window<T>& next, T* y) {
  constexpr int vector = Vector<acc_t<T>>::lanes;
  if (lanes_of<acc_t<T>>(w.tokens) == vector)
    attend_in_blocks<T, vector>(w, next, y);
  else
    attend_in_blocks<T, 2 * vector>(w, next, y);
}

template <class T, int lanes, class P = acc_t<T>>
void differentiate_in_blocks(const Window<T>& w, const WindowSlopes<T>& g, const Window<T>& next, const T* next_dy) {
  const std::int64_t pitch = pitch_of<P>(w.width);
  const bool drops = w.draws.threshold > 0;
  cpu::Scratch scratch;
  P* const v_rows = scratch.take<P>(w.tokens * pitch);
  P* const k_rows = scratch.take<P>(w.tokens * pitch);
  P* const dk = scratch.take<P>(w.tokens * pitch);
  P* const dv = scratch.take<P>(w.tokens * pitch);
  P* const dy_rows = scratch.take<P>(lanes * pitch);
  P* const dy_turned = scratch.take<P>(lanes * pitch);
  P* const slopes = scratch.take<P>(w.tokens * lanes);
  WindowBlock<P, lanes> block(scratch, w.tokens, pitch, drops);
  gather_part(w, 2, 0, w.tokens, w.tokens, P(1), v_rows);
  fetch_part(next, 2);
  gather_part(w, 1, 0, w.tokens, w.tokens, P(1), k_rows);
  fetch_part(next, 1);
  for (int part = 0; part < 3; ++part) fetch_rows<1>(g.dqkv + part * w.channels, w.step, w.pixels, w.tokens, w.width);
  P factors[max_window * max_window];
  std::fill_n(factors, w.tokens, w.scale);
  for (std::int64_t first = 0; first < w.tokens; first += lanes) {
    const std::int64_t inside = std::min<std::int64_t>(lanes, w.tokens - first);
    block.weigh(w, k_rows, first);
    gather_rows(g.dy, w.channels, static_cast<const P*>(nullptr), w.pixels + first, inside, lanes, w.width, P(1),
                dy_rows);
    turn(dy_rows, pitch, lanes, pitch, dy_turned, lanes);
    if (first == 0) {
      fetch_part(next, 0);
      fetch_rows<0>(next_dy, w.channels, next.pixels, w.tokens, w.width);
    }
    multiply_rows_with<false, P>({v_rows, pitch, 1}, w.tokens, w.width, dy_turned, lanes, slopes);
    if (drops) block.draw(w, first);
    block.differentiate(w.tokens, slopes, g.dbias + first * w.tokens);
    multiply_rows_with<false, P>({block.scores, lanes, 1}, w.tokens, inside, dy_rows, pitch, dv, first > 0);
    multiply_rows_with<false, P>({slopes, lanes, 1}, w.tokens, inside, block.rows, pitch, dk, first > 0);
    // dq takes the position of dy.
    multiply_rows_with<true, P>({slopes, 1, lanes}, inside, w.tokens, k_rows, pitch, dy_rows);
    scatter_rows(dy_rows, factors, w.pixels + first, inside, w.width, g.dqkv, w.step);
  }
  std::fill_n(factors, w.tokens, P(1));
  scatter_rows(dk, factors, w.pixels, w.tokens, w.width, g.dqkv + w.channels, w.step);
  scatter_rows(dv, factors, w.pixels, w.tokens, w.width, g.dqkv + 2 * w.channels, w.step);
  if (g.dpadding == nullptr) return;
  add_padding(dk, pitch, w.pixels, w.tokens, w.width, g.dpadding);
  add_padding(dv, pitch, w.pixels, w.tokens, w.width, g.dpadding + w.width);
}

/// The gradients of one head of one window. A query behind the image has no dy, and so no slopes. `next` and its dy
/// come soon.
template <class T>
void differentiate_window(const Window<T>& w, const WindowSlopes<T>& g, const Window<T>& next, const T* next_dy) {
  constexpr int vector = Vector<acc_t<T>>::lanes;
  if (lanes_of<acc_t<T>>(w.tokens) == vector)
    differentiate_in_blocks<T, vector>(w, g, next, next_dy);
  else
    differentiate_in_blocks<T, 2 * vector>(w, g, next, next_dy);
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {
namespace {

/// What all windows of a call have in common: where their tokens lie, and the biases in blocks. `by_pairs`: for
/// attend_window_bf16() and differentiate_window_bf16().
template <class T, bool by_pairs>
class Windows {
 public:
  using P = acc_t<T>;

  explicit Windows(const WindowAttentionArguments& a)
      : a_(a),
        head_weights_(a.weights() / a.heads),
        scale_(static_cast<P>(1.0 / std::sqrt(static_cast<double>(a.head_width())))),
        first_element_(a.key.first_element(a.batch() * a.grid.windows() * a.weights())),
        tokens_(padded_tokens(a.grid)) {
    const WindowGrid& grid = a.grid;
    blocks_ = by_pairs ? window_blocks_bf16(grid.tokens())
                       : QueryBlocks{grid.tokens(), HEARTH_ISA_CALL_FOR(P, lanes_of<P>, grid.tokens())};
    const P unit = by_pairs ? static_cast<P>(window_bias_unit) : P(1);
    pixels_ = scratch_.take<std::int64_t>(grid.windows() * tokens_);
    regions_ = scratch_.take<P>(grid.windows() * tokens_);
    biases_ = scratch_.take<P>(a.heads * bias_size());
    cpu::parallel_for(grid.windows(), 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t e = begin * tokens_; e < end * tokens_; ++e) {
        const std::int64_t w = e / tokens_, t = e % tokens_;
        pixels_[e] = t < grid.tokens() ? grid.pixel(w, t) : -1;
        regions_[e] = static_cast<P>(t < grid.tokens() ? grid.region(w, t) : 0);
      }
    });
    each_piece(a.heads, 4, [&](std::int64_t h) {
      HEARTH_ISA_CALL_FOR(P, arrange_bias<P>, grid, blocks_, a.table.data<P>() + h, a.heads, unit,
                          biases_ + h * bias_size());
    });
  }

  /// Head h of window w of sample n.
  Window<T> window(std::int64_t n, std::int64_t w, std::int64_t h) const {
    const std::int64_t c = a_.channels(), first = h * a_.head_width();
    Window<T> window{};
    window.qkv = a_.qkv.data<T>() + n * a_.pixels() * 3 * c + first;
    window.step = 3 * c;
    window.channels = c;
    window.padding = a_.padding.defined() && a_.grid.pads() ? a_.padding.data<P>() + first : nullptr;
    window.pixels = pixels_ + w * tokens_;
    window.regions = a_.grid.mixes(w) ? regions_ + w * tokens_ : nullptr;
    window.bias = biases_ + h * bias_size();
    window.tokens = a_.grid.tokens();
    window.width = a_.head_width();
    window.scale = scale_;
    window.draws = {a_.key, first_element_ + ((n * a_.grid.windows() + w) * a_.heads + h) * head_weights_,
                    dropout_threshold(a_.dropout), static_cast<P>(1.0 / (1.0 - a_.dropout))};
    return window;
  }

  /// Windows of one head that one thread takes at a time.
  std::int64_t grain() const {
    constexpr double worth_sharing = 1 << 18;  // multiply-adds
    const auto work = static_cast<double>(a_.weights() / a_.heads * a_.head_width());
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(worth_sharing / work));
  }
  const QueryBlocks& blocks() const { return blocks_; }
  /// Values of a head's biases in blocks.
  std::int64_t bias_size() const { return blocks_.size(); }

 private:
  const WindowAttentionArguments& a_;
  std::int64_t head_weights_;
  P scale_;
  std::int64_t first_element_;
  std::int64_t tokens_;
  QueryBlocks blocks_{};
  cpu::Scratch scratch_;
  std::int64_t* pixels_;
  P *regions_, *biases_;
};

/// The gradients by shares of the windows, each with sums of its own for the biases and the padding.
template <class T, bool by_pairs>
void differentiate_windows(const WindowAttentionArguments& a, const Tensor& dy, const WindowAttentionGradients& g) {
  using P = acc_t<T>;
  constexpr std::int64_t wanted = 64;  // pieces of work
  const Windows<T, by_pairs> windows(a);
  const std::int64_t count = a.grid.windows(), all = a.batch() * count, c = a.channels(), width = a.head_width();
  const std::int64_t size =
      (all + std::min(all, (wanted + a.heads - 1) / a.heads) - 1) / std::min(all, (wanted + a.heads - 1) / a.heads);
  const std::int64_t shares = (all + size - 1) / size;
  const std::int64_t bias = windows.bias_size(), padding = g.dpadding.defined() && a.grid.pads() ? 2 * width : 0;
  cpu::Scratch scratch;
  P* const biases = scratch.take<P>(checked_mul(shares * a.heads, bias, "window_attention"));
  P* const paddings = scratch.take<P>(shares * a.heads * padding);
  each_piece(shares * a.heads, 1, [&](std::int64_t piece) {
    const std::int64_t share = piece / a.heads, h = piece % a.heads;
    std::fill_n(biases + piece * bias, bias, P(0));
    std::fill_n(paddings + piece * padding, padding, P(0));
    const auto window = [&](std::int64_t at) { return windows.window(at / count, at % count, h); };
    const auto dy_of = [&](std::int64_t at) { return dy.data<T>() + at / count * a.pixels() * c + h * width; };
    const std::int64_t end = std::min(all, (share + 1) * size);
    Window<T> next = window(share * size);
    for (std::int64_t at = share * size; at < end; ++at) {
      const WindowSlopes<T> slopes{dy_of(at), g.dqkv.data<T>() + at / count * a.pixels() * 3 * c + h * width,
                                   biases + piece * bias, padding > 0 ? paddings + piece * padding : nullptr};
      const std::int64_t after = std::min(at + 1, all - 1);
      const Window<T> current = std::exchange(next, window(after));
      if constexpr (by_pairs)
        differentiate_window_bf16(current, slopes, next, dy_of(after));
      else
        HEARTH_ISA_CALL_FOR(P, differentiate_window<T>, current, slopes, next, dy_of(after));
    }
  });
  if (g.dtable.defined())
    each_piece(a.heads, 1, [&](std::int64_t h) {
      HEARTH_ISA_CALL_FOR(P, fold_bias<P>, a.grid, windows.blocks(), biases + h * bias, shares, a.heads * bias,
                          g.dtable.data<P>() + h, a.heads);
    });
  if (!g.dpadding.defined()) return;
  P* const sums = g.dpadding.data<P>();
  // A query behind the image has no gradient.
  std::fill_n(sums, 3 * c, P(0));
  for (std::int64_t piece = 0; piece < shares * a.heads; ++piece)
    for (std::int64_t e = 0; e < padding; ++e)
      sums[(1 + e / width) * c + piece % a.heads * width + e % width] += paddings[piece * padding + e];
}

template <class T, bool by_pairs>
void attend_windows(const WindowAttentionArguments& a, const Tensor& y) {
  const Windows<T, by_pairs> windows(a);
  const std::int64_t count = a.grid.windows(), c = a.channels();
  const std::int64_t all = a.batch() * count * a.heads;
  const auto window = [&](std::int64_t piece) {
    return windows.window(piece / a.heads / count, piece / a.heads % count, piece % a.heads);
  };
  cpu::parallel_for(all, windows.grain(), [&](std::int64_t begin, std::int64_t end) {
    Window<T> next = window(begin);
    for (std::int64_t piece = begin; piece < end; ++piece) {
      const Window<T> current = std::exchange(next, window(std::min(piece + 1, all - 1)));
      T* const into = y.data<T>() + piece / a.heads / count * a.pixels() * c + piece % a.heads * a.head_width();
      if constexpr (by_pairs)
        attend_window_bf16(current, next, into);
      else
        HEARTH_ISA_CALL_FOR(acc_t<T>, attend_window<T>, current, next, into);
    }
  });
}

}  // namespace

void window_attention_portable(cpu::Stream&, const WindowAttentionArguments& a, const Tensor& y) {
  visit_dtype("window_attention", y.dtype(), Floats{}, [&]<class T>() { attend_windows<T, false>(a, y); });
}

void window_attention_avx512_bf16(cpu::Stream&, const WindowAttentionArguments& a, const Tensor& y) {
  attend_windows<bf16, true>(a, y);
}

void window_attention_grad_portable(cpu::Stream&, const WindowAttentionArguments& a, const Tensor& dy,
                                    const WindowAttentionGradients& gradients) {
  visit_dtype("window_attention", dy.dtype(), Floats{},
              [&]<class T>() { differentiate_windows<T, false>(a, dy, gradients); });
}

void window_attention_grad_avx512_bf16(cpu::Stream&, const WindowAttentionArguments& a, const Tensor& dy,
                                       const WindowAttentionGradients& gradients) {
  differentiate_windows<bf16, true>(a, dy, gradients);
}

}  // namespace hearth::kernels
#endif
