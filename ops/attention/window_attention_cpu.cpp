// SPDX-License-Identifier: Apache-2.0
// Attention within windows: one window of one head at a time, gathered into the nearest cache, with the blocks that
// attention is made of (tile_cpu.inc). A window is small, so all scores of a block of queries are held at once; the
// gradient makes them again from the inputs. The table of biases is laid out once a call as the blocks of scores lie,
// and its gradient is summed in that layout, by shares of the windows that the shape decides on, added in order.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "hearth/core/cpu/element.h"
#include "hearth/core/cpu/scratch.h"
#include "hearth/ops/attention/problem_cpu.h"
#include "hearth/ops/attention/window_problem_cpu.h"

#define HEARTH_ISA_SOURCE "hearth/ops/attention/window_attention_cpu.cpp"
#include "hearth/core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

#include "hearth/ops/attention/tile_cpu.inc"

/// Scores of one block of queries.
template <class P>
std::int64_t block_scores(std::int64_t tokens) {
  return rounded_up(tokens, tile_rows) * block_queries<P>;
}

/// Scores, or biases, of all blocks of a head.
template <class P>
std::int64_t head_scores(std::int64_t tokens) {
  return (tokens + block_queries<P> - 1) / block_queries<P> * block_scores<P>(tokens);
}

/// f(place in the blocks, entry of the table) for every query and key.
template <class P, class F>
void each_score(const WindowGrid& grid, const F& f) {
  constexpr int lanes = block_queries<P>;
  const std::int64_t side = grid.window, tokens = grid.tokens();
  for (std::int64_t i = 0; i < tokens; ++i) {
    const std::int64_t first = i / lanes * block_scores<P>(tokens) + i % lanes, last = grid.entry(i, 0);
    for (std::int64_t y = 0; y < side; ++y)
      for (std::int64_t x = 0; x < side; ++x) f(first + (y * side + x) * lanes, last - y * (2 * side - 1) - x);
  }
}

/// The biases of one head, which has every `heads`-th value of the table, in blocks.
template <class P>
void arrange_bias(const WindowGrid& grid, const P* table, std::int64_t heads, P* blocks) {
  std::fill_n(blocks, head_scores<P>(grid.tokens()), P(0));
  each_score<P>(grid, [&](std::int64_t at, std::int64_t entry) { blocks[at] = table[entry * heads]; });
}

/// The gradient of one head's part of the table from `shares` sums in blocks, `share_step` apart.
template <class P>
void fold_bias(const WindowGrid& grid, P* blocks, std::int64_t shares, std::int64_t share_step, P* table,
               std::int64_t heads) {
  const std::int64_t count = head_scores<P>(grid.tokens());
  for (std::int64_t share = 1; share < shares; ++share) {
    const P* const from = blocks + share * share_step;
#pragma omp simd
    for (std::int64_t e = 0; e < count; ++e) blocks[e] += from[e];
  }
  for (std::int64_t entry = 0; entry < grid.entries(); ++entry) table[entry * heads] = P(0);
  each_score<P>(grid, [&](std::int64_t at, std::int64_t entry) { table[entry * heads] += blocks[at]; });
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
template <class P>
struct WindowBlock {
  static constexpr int lanes = block_queries<P>;
  P *rows, *turned, *scores, *memory, *factors;
  alignas(64) P inverse[lanes];

  WindowBlock(cpu::Scratch& scratch, std::int64_t tokens, std::int64_t pitch, bool drops) {
    rows = scratch.take<P>(lanes * pitch);
    turned = scratch.take<P>(lanes * pitch);
    scores = scratch.take<P>(block_scores<P>(tokens));
    memory = drops ? scratch.take<P>(block_keys * lanes) : nullptr;
    factors = drops ? scratch.take<P>(rounded_up(tokens, block_keys) * lanes) : nullptr;
  }

  /// Scores become exponentials, and `inverse` one over their sums, for the queries from `first` on.
  template <class T>
  void weigh(const Window<T>& w, const P* k_turned, std::int64_t first) {
    const std::int64_t inside = std::min<std::int64_t>(lanes, w.tokens - first);
    const std::int64_t pitch = pitch_of<P>(w.width);
    gather_part(w, 0, first, inside, lanes, w.scale, rows);
    turn(rows, pitch, lanes, pitch, turned, lanes);
    multiply_rows(k_turned, 0, w.tokens, w.width, turned, scores);
    const P* const bias = w.bias + first / lanes * block_scores<P>(w.tokens);
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
      draw_block(w.draws, w.tokens, w.tokens, first, key, std::min(block_keys, w.tokens - key), memory,
                 factors + key * lanes);
  }
};

/// One head of one window. y: as Window::qkv, `channels` from pixel to pixel.
template <class T>
void attend_window(const Window<T>& w, T* y) {
  using P = acc_t<T>;
  constexpr int lanes = block_queries<P>;
  const std::int64_t pitch = pitch_of<P>(w.width), rows = rounded_up(w.tokens, panel_rows<P>);
  const bool drops = w.draws.threshold > 0;
  cpu::Scratch scratch;
  P* const k_turned = scratch.take<P>(rows * pitch);
  P* const v_rows = scratch.take<P>(rows * pitch);
  P* const weighted = scratch.take<P>(pitch * lanes);
  WindowBlock<P> block(scratch, w.tokens, pitch, drops);
  gather_part(w, 1, 0, w.tokens, rows, P(1), v_rows);
  turn_rows(v_rows, rows, pitch, k_turned);
  gather_part(w, 2, 0, w.tokens, rows, P(1), v_rows);
  for (std::int64_t first = 0; first < w.tokens; first += lanes) {
    block.weigh(w, k_turned, first);
    if (drops) {
      block.draw(w, first);
#pragma omp simd
      for (std::int64_t e = 0; e < w.tokens * lanes; ++e) block.scores[e] *= block.factors[e];
    }
    for (std::int64_t d = 0; d < pitch; d += tile_rows)
      multiply<2, 0>(w.tokens, v_rows + d, pitch, block.scores, lanes, weighted + d * lanes, lanes, false);
    turn(weighted, lanes, pitch, lanes, block.rows, pitch);
    scatter_rows(block.rows, block.inverse, w.pixels + first, std::min<std::int64_t>(lanes, w.tokens - first), w.width,
                 y, w.channels);
  }
}

/// Exponentials and products dy v become weights after dropout and slopes of the scores.
template <class P>
void differentiate_block(const WindowBlock<P>& block, std::int64_t tokens, bool drops, P* slopes) {
  constexpr int lanes = block_queries<P>;
  alignas(64) P delta[lanes] = {};
  for (std::int64_t j = 0; j < tokens; ++j) {
    P* const weight = block.scores + j * lanes;
    P* const slope = slopes + j * lanes;
    if (drops) {
      const P* const factor = block.factors + j * lanes;
#pragma omp simd
      for (int i = 0; i < lanes; ++i) slope[i] *= factor[i];
    }
#pragma omp simd
    for (int i = 0; i < lanes; ++i) {
      weight[i] *= block.inverse[i];
      delta[i] += weight[i] * slope[i];
    }
  }
  for (std::int64_t j = 0; j < tokens; ++j) {
    P* const weight = block.scores + j * lanes;
    P* const slope = slopes + j * lanes;
#pragma omp simd
    for (int i = 0; i < lanes; ++i) slope[i] = weight[i] * (slope[i] - delta[i]);
    if (drops) {
      const P* const factor = block.factors + j * lanes;
#pragma omp simd
      for (int i = 0; i < lanes; ++i) weight[i] *= factor[i];
    }
  }
  // Rows of the register tile behind the last key.
  const std::int64_t behind = block_scores<P>(tokens) - tokens * lanes;
  std::fill_n(block.scores + tokens * lanes, behind, P(0));
  std::fill_n(slopes + tokens * lanes, behind, P(0));
}

/// The sums of rows [count][pitch] behind the image are added to sums [width].
template <class P>
void add_padding(const P* rows, const std::int64_t* pixels, std::int64_t count, std::int64_t width, P* sums) {
  const std::int64_t pitch = pitch_of<P>(width);
  for (std::int64_t t = 0; t < count; ++t)
    if (pixels[t] < 0)
      for (std::int64_t d = 0; d < width; ++d) sums[d] += rows[t * pitch + d];
}

/// The gradients of one head of one window. A query behind the image has no dy, and so no slopes.
template <class T>
void differentiate_window(const Window<T>& w, const WindowSlopes<T>& g) {
  using P = acc_t<T>;
  constexpr int lanes = block_queries<P>;
  const std::int64_t pitch = pitch_of<P>(w.width), rows = rounded_up(w.tokens, panel_rows<P>);
  const bool drops = w.draws.threshold > 0;
  cpu::Scratch scratch;
  P* const v_turned = scratch.take<P>(rows * pitch);
  P* const k_rows = scratch.take<P>(rows * pitch);
  P* const k_turned = scratch.take<P>(rows * pitch);
  P* const dk = scratch.take<P>(2 * rows * pitch);
  P* const dv = dk + rows * pitch;
  P* const dy_rows = scratch.take<P>(lanes * pitch);
  P* const dy_turned = scratch.take<P>(lanes * pitch);
  P* const slopes = scratch.take<P>(block_scores<P>(w.tokens));
  P* const dq = scratch.take<P>(pitch * lanes);
  WindowBlock<P> block(scratch, w.tokens, pitch, drops);
  gather_part(w, 2, 0, w.tokens, rows, P(1), k_rows);
  turn_rows(k_rows, rows, pitch, v_turned);
  gather_part(w, 1, 0, w.tokens, rows, P(1), k_rows);
  turn_rows(k_rows, rows, pitch, k_turned);
  std::fill_n(dk, 2 * rows * pitch, P(0));
  P factors[most_window * most_window];
  std::fill_n(factors, w.tokens, w.scale);
  for (std::int64_t first = 0; first < w.tokens; first += lanes) {
    const std::int64_t inside = std::min<std::int64_t>(lanes, w.tokens - first);
    block.weigh(w, k_turned, first);
    gather_rows(g.dy, w.channels, static_cast<const P*>(nullptr), w.pixels + first, inside, lanes, w.width, P(1),
                dy_rows);
    turn(dy_rows, pitch, lanes, pitch, dy_turned, lanes);
    multiply_rows(v_turned, 0, w.tokens, w.width, dy_turned, slopes);
    if (drops) block.draw(w, first);
    differentiate_block(block, w.tokens, drops, slopes);
    add_outer(block.scores, dy_rows, w.tokens, pitch, dv);
    add_outer(slopes, block.rows, w.tokens, pitch, dk);
    for (std::int64_t d = 0; d < pitch; d += tile_rows)
      multiply<2, 0>(w.tokens, k_rows + d, pitch, slopes, lanes, dq + d * lanes, lanes, false);
    if (g.dbias != nullptr) {
      P* const sums = g.dbias + first / lanes * block_scores<P>(w.tokens);
#pragma omp simd
      for (std::int64_t e = 0; e < w.tokens * lanes; ++e) sums[e] += slopes[e];
    }
    turn(dq, lanes, pitch, lanes, dy_rows, pitch);
    scatter_rows(dy_rows, factors, w.pixels + first, inside, w.width, g.dqkv, w.step);
  }
  std::fill_n(factors, w.tokens, P(1));
  scatter_rows(dk, factors, w.pixels, w.tokens, w.width, g.dqkv + w.channels, w.step);
  scatter_rows(dv, factors, w.pixels, w.tokens, w.width, g.dqkv + 2 * w.channels, w.step);
  if (g.dpadding == nullptr) return;
  add_padding(dk, w.pixels, w.tokens, w.width, g.dpadding);
  add_padding(dv, w.pixels, w.tokens, w.width, g.dpadding + w.width);
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {
namespace {

/// What all windows of a call have in common: where their tokens lie, and the biases in blocks.
template <class T>
class Windows {
 public:
  using P = acc_t<T>;

  explicit Windows(const WindowAttentionArguments& a)
      : a_(a), tokens_(padded_tokens(a.grid)), bias_(HEARTH_ISA_CALL(head_scores<P>, a.grid.tokens())) {
    const WindowGrid& grid = a.grid;
    pixels_ = scratch_.take<std::int64_t>(grid.windows() * tokens_);
    regions_ = scratch_.take<P>(grid.windows() * tokens_);
    biases_ = scratch_.take<P>(a.heads * bias_);
    cpu::parallel_for(grid.windows(), 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t e = begin * tokens_; e < end * tokens_; ++e) {
        const std::int64_t w = e / tokens_, t = e % tokens_;
        pixels_[e] = t < grid.tokens() ? grid.pixel(w, t) : -1;
        regions_[e] = static_cast<P>(t < grid.tokens() ? grid.region(w, t) : 0);
      }
    });
    each_piece(a.heads, 4, [&](std::int64_t h) {
      HEARTH_ISA_CALL(arrange_bias<P>, grid, a.table.data<P>() + h, a.heads, biases_ + h * bias_);
    });
  }

  /// Head h of window w of sample n.
  Window<T> window(std::int64_t n, std::int64_t w, std::int64_t h) const {
    const std::int64_t c = a_.channels(), first = h * a_.head_width(), head_weights = a_.weights() / a_.heads;
    Window<T> window{};
    window.qkv = a_.qkv.data<T>() + n * a_.pixels() * 3 * c + first;
    window.step = 3 * c;
    window.channels = c;
    window.padding = a_.padding.defined() ? a_.padding.data<P>() + first : nullptr;
    window.pixels = pixels_ + w * tokens_;
    window.regions = a_.grid.mixes(w) ? regions_ + w * tokens_ : nullptr;
    window.bias = biases_ + h * bias_;
    window.tokens = a_.grid.tokens();
    window.width = a_.head_width();
    window.scale = static_cast<P>(1.0 / std::sqrt(static_cast<double>(window.width)));
    const std::int64_t all = a_.batch() * a_.grid.windows() * a_.weights();
    window.draws = {a_.key, a_.key.first_element(all) + (n * a_.grid.windows() + w) * a_.weights() + h * head_weights,
                    dropout_threshold(a_.dropout), static_cast<P>(1.0 / (1.0 - a_.dropout))};
    return window;
  }

  /// Windows of one head that one thread takes at a time.
  std::int64_t grain() const {
    constexpr double worth_sharing = 1 << 18;  // multiply-adds
    const auto work = static_cast<double>(a_.weights() / a_.heads * a_.head_width());
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(worth_sharing / work));
  }
  /// Values of a head's biases in blocks.
  std::int64_t bias_size() const { return bias_; }

 private:
  const WindowAttentionArguments& a_;
  std::int64_t tokens_, bias_;
  cpu::Scratch scratch_;
  std::int64_t* pixels_;
  P *regions_, *biases_;
};

/// The gradients by shares of the windows, each with sums of its own for the biases and the padding.
template <class T>
void differentiate_windows(const WindowAttentionArguments& a, const Tensor& dy, const WindowAttentionGradients& g) {
  using P = acc_t<T>;
  constexpr std::int64_t wanted = 64;  // pieces of work
  const Windows<T> windows(a);
  const std::int64_t count = a.grid.windows(), all = a.batch() * count, c = a.channels(), width = a.head_width();
  const std::int64_t size =
      (all + std::min(all, (wanted + a.heads - 1) / a.heads) - 1) / std::min(all, (wanted + a.heads - 1) / a.heads);
  const std::int64_t shares = (all + size - 1) / size;
  const std::int64_t bias = g.dtable.defined() ? windows.bias_size() : 0,
                     padding = g.dpadding.defined() ? 2 * width : 0;
  cpu::Scratch scratch;
  P* const biases = scratch.take<P>(checked_mul(shares * a.heads, bias, "window_attention"));
  P* const paddings = scratch.take<P>(shares * a.heads * padding);
  each_piece(shares * a.heads, 1, [&](std::int64_t piece) {
    const std::int64_t share = piece / a.heads, h = piece % a.heads;
    std::fill_n(biases + piece * bias, bias, P(0));
    std::fill_n(paddings + piece * padding, padding, P(0));
    for (std::int64_t at = share * size; at < std::min(all, (share + 1) * size); ++at) {
      const std::int64_t n = at / count;
      const WindowSlopes<T> slopes{
          dy.data<T>() + n * a.pixels() * c + h * width, g.dqkv.data<T>() + n * a.pixels() * 3 * c + h * width,
          bias > 0 ? biases + piece * bias : nullptr, padding > 0 ? paddings + piece * padding : nullptr};
      HEARTH_ISA_CALL(differentiate_window<T>, windows.window(n, at % count, h), slopes);
    }
  });
  if (g.dtable.defined())
    each_piece(a.heads, 1, [&](std::int64_t h) {
      HEARTH_ISA_CALL(fold_bias<P>, a.grid, biases + h * bias, shares, a.heads * bias, g.dtable.data<P>() + h, a.heads);
    });
  if (!g.dpadding.defined()) return;
  P* const sums = g.dpadding.data<P>();
  // A query behind the image has no gradient.
  std::fill_n(sums, 3 * c, P(0));
  for (std::int64_t piece = 0; piece < shares * a.heads; ++piece)
    for (std::int64_t e = 0; e < padding; ++e)
      sums[(1 + e / width) * c + piece % a.heads * width + e % width] += paddings[piece * padding + e];
}

}  // namespace

void window_attention(cpu::Stream&, const WindowAttentionArguments& a, const Tensor& y) {
  visit_dtype("window_attention", y.dtype(), Floats{}, [&]<class T>() {
    const Windows<T> windows(a);
    const std::int64_t count = a.grid.windows(), c = a.channels();
    each_piece(a.batch() * count * a.heads, windows.grain(), [&](std::int64_t piece) {
      const std::int64_t h = piece % a.heads, w = piece / a.heads % count, n = piece / a.heads / count;
      HEARTH_ISA_CALL(attend_window<T>, windows.window(n, w, h), y.data<T>() + n * a.pixels() * c + h * a.head_width());
    });
  });
}

void window_attention_grad(cpu::Stream&, const WindowAttentionArguments& a, const Tensor& dy,
                           const WindowAttentionGradients& gradients) {
  visit_dtype("window_attention", dy.dtype(), Floats{}, [&]<class T>() { differentiate_windows<T>(a, dy, gradients); });
}

}  // namespace hearth::kernels
#endif
