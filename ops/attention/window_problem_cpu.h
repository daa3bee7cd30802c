// SPDX-License-Identifier: Apache-2.0
// One head of one window, as the CPU kernels of window_attention see it.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/half.h"
#include "ops/attention/window_attention.h"
#include "ops/pointwise/dropout_strip.h"

namespace hearth::kernels {

template <class T, class P = acc_t<T>>
struct Window {
  const T* qkv;                ///< the head's q of pixel 0 of the sample
  std::int64_t step;           ///< from pixel to pixel
  std::int64_t channels;       ///< from q to k, and to v
  const P* padding;            ///< the head's q of a position behind the image, laid out alike; null: zeros
  const std::int64_t* pixels;  ///< of the tokens; -1 behind the image
  const P* regions;            ///< of the tokens; null where all are one
  const P* bias;               ///< in blocks of queries: [block][key][query]
  std::int64_t tokens, width;
  P scale;
  DropoutFactors<P> draws;  ///< of the head's weights [tokens][tokens]
};

/// Where the gradients of a window go.
template <class T, class P = acc_t<T>>
struct WindowSlopes {
  const T* dy;  ///< the head's of pixel 0 of the sample; `channels` from pixel to pixel
  T* dqkv;      ///< as Window::qkv
  P* dbias;     ///< as Window::bias, added to; may be null
  P* dpadding;  ///< of k and then v, [2][width], added to; may be null
};

/// Tokens of a window in arrays of tokens: whole blocks of queries for every instruction set.
inline std::int64_t padded_tokens(const WindowGrid& grid) { return (grid.tokens() + 63) / 64 * 64; }

}  // namespace hearth::kernels
