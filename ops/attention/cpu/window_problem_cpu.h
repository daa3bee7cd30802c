// SPDX-License-Identifier: Apache-2.0
// One head of one window, as the CPU kernels of window_attention see it.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/cpu/vector_math.h"
#include "core/half.h"
#include "ops/attention/window_attention.h"
#include "ops/pointwise/dropout_strip.h"

namespace hearth::kernels {

/// How the scores of a head lie, and its biases: in blocks of queries, [block][key][query], of which the last query may
/// be one, [key].
struct QueryBlocks {
  std::int64_t tokens, lanes;  ///< queries of a block
  bool last_alone = false;

  bool alone(std::int64_t query) const { return last_alone && query == tokens - 1; }
  /// Where those of a query begin, and from key to key.
  std::int64_t begin(std::int64_t query) const { return query / lanes * lanes * tokens + query % lanes; }
  std::int64_t step(std::int64_t query) const { return alone(query) ? 1 : lanes; }
  /// Values of a head, whole vectors.
  std::int64_t size() const {
    return last_alone ? (tokens - 1) * tokens + (tokens + 63) / 64 * 64 : (tokens + lanes - 1) / lanes * lanes * tokens;
  }
};

template <class T, class P = acc_t<T>>
struct Window {
  const T* qkv;                ///< the head's q of pixel 0 of the sample
  std::int64_t step;           ///< from pixel to pixel
  std::int64_t channels;       ///< from q to k, and to v
  const P* padding;            ///< the head's q of a position behind the image, laid out alike; null: zeros, or none
  const std::int64_t* pixels;  ///< of the tokens; -1 behind the image
  const P* regions;            ///< of the tokens; null where all are one
  const P* bias;               ///< in blocks of queries
  std::int64_t tokens, width;
  P scale;
  DropoutFactors<P> draws;  ///< of the head's weights [tokens][tokens]
};

/// Where the gradients of a window go.
template <class T, class P = acc_t<T>>
struct WindowSlopes {
  const T* dy;  ///< the head's of pixel 0 of the sample; `channels` from pixel to pixel
  T* dqkv;      ///< as Window::qkv
  P* dbias;     ///< as Window::bias, added to
  P* dpadding;  ///< of k and then v, [2][width], added to; may be null
};

/// Tokens of a window in arrays of tokens: whole blocks of queries for every instruction set.
inline std::int64_t padded_tokens(const WindowGrid& grid) { return (grid.tokens() + 63) / 64 * 64; }

/// Asks ahead for the rows of tokens that will be read, or written (`for_writing`): rows of a head are too short and
/// lie too far apart for the processor to foresee them. Always inline: GCC drops calls of functions that do nothing but
/// this.
template <int for_writing, class T>
HEARTH_ALWAYS_INLINE void fetch_rows(const T* x, std::int64_t step, const std::int64_t* pixels, std::int64_t count,
                                     std::int64_t width) {
  constexpr std::int64_t line = 64 / static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t d = 0; d < width; d += line)
    for (std::int64_t t = 0; t < count; ++t)
      if (pixels[t] >= 0) __builtin_prefetch(x + pixels[t] * step + d, for_writing, 3);
}

/// q (part 0), k or v of a window that comes soon.
template <class T>
HEARTH_ALWAYS_INLINE void fetch_part(const Window<T>& w, int part) {
  fetch_rows<0>(w.qkv + part * w.channels, w.step, w.pixels, w.tokens, w.width);
}

/// The sums of rows [count], `pitch` apart, behind the image are added to sums [width].
template <class P>
void add_padding(const P* rows, std::int64_t pitch, const std::int64_t* pixels, std::int64_t count, std::int64_t width,
                 P* sums) {
  for (std::int64_t t = 0; t < count; ++t)
    if (pixels[t] < 0)
      for (std::int64_t d = 0; d < width; ++d) sums[d] += rows[t * pitch + d];
}

/// attend_window() and differentiate_window() of window_attention_cpu.cpp by the processor's products of pairs of bf16,
/// where cpu::amx::has_bf16_vectors(). Biases come in these blocks, times window_bias_unit, so that exponentials are
/// powers of two.
QueryBlocks window_blocks_bf16(std::int64_t tokens);
inline constexpr float window_bias_unit = 1.44269504f;
void attend_window_bf16(const Window<bf16>& w, const Window<bf16>& next, bf16* y);
void differentiate_window_bf16(const Window<bf16>& w, const WindowSlopes<bf16>& g, const Window<bf16>& next,
                               const bf16* next_dy);

}  // namespace hearth::kernels
