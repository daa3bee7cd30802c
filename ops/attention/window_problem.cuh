// SPDX-License-Identifier: Apache-2.0
// Attention within windows as its kernels on a CUDA device see it. For kernel sources only.
#pragma once

#include <algorithm>
#include <cmath>

#include "hearth/core/cuda/graph.h"
#include "hearth/core/cuda/kernel.h"
#include "hearth/ops/attention/problem.cuh"
#include "hearth/ops/attention/window_attention.h"

namespace hearth::kernels::window_problem {

using attention_problem::draw;
using attention_problem::Draws;

template <class T, class P = acc_t<T>>
struct Problem {
  const T* qkv;
  const P *table, *padding;  ///< padding: null where there is none
  WindowGrid grid;
  std::int64_t heads, channels;
  int width;
  P scale;
  Draws draws;
};

template <class T>
Problem<T> problem_of(cuda::Stream& stream, const WindowAttentionArguments& a) {
  using P = acc_t<T>;
  Problem<T> p{};
  p.qkv = a.qkv.data<T>();
  p.table = a.table.data<P>();
  p.padding = a.padding.defined() ? a.padding.data<P>() : nullptr;
  p.grid = a.grid;
  p.heads = a.heads;
  p.channels = a.channels();
  p.width = static_cast<int>(a.head_width());
  p.scale = static_cast<P>(1.0 / std::sqrt(static_cast<double>(a.head_width())));
  p.draws.on = a.dropout > 0;
  if (p.draws.on) {
    p.draws.key = a.key;
    p.draws.step = cuda::recorded_random_step(stream);
    p.draws.first_element = a.key.first_element(a.batch() * a.grid.windows() * a.weights());
    p.draws.threshold = dropout_threshold(a.dropout);
    p.draws.kept = 1.0 / (1.0 - a.dropout);
  }
  return p;
}

/// One head of one window.
template <class T>
struct Window {
  std::int64_t n, w, h;
  bool mixes;  ///< has tokens of several regions

  __device__ Window(const Problem<T>& p, std::int64_t at, std::int64_t head)
      : n(at / p.grid.windows()), w(at % p.grid.windows()), h(head), mixes(p.grid.mixes(w)) {}
  /// Position of a pixel in the image, counted over samples.
  __device__ std::int64_t row(const Problem<T>& p, std::int64_t pixel) const {
    return n * p.grid.height * p.grid.width + pixel;
  }
  /// Number of the weight of query i and key 0.
  __device__ std::int64_t weight(const Problem<T>& p, int i) const {
    const std::int64_t tokens = p.grid.tokens();
    return (((n * p.grid.windows() + w) * p.heads + h) * tokens + i) * tokens;
  }
};

/// Sums that a block of the gradient keeps for itself, [share][head] of them each; null where not wanted.
template <class P>
struct ShareSums {
  P* bias;              ///< [tokens][tokens]
  P* padding;           ///< of k, and of v, of each token: [tokens][2][width]
  std::int64_t shares;  ///< of the windows
  std::int64_t size;    ///< windows of one
  std::int64_t all;     ///< windows
};

/// The shares of a gradient whose kernel has room for about `wanted` blocks, and their memory.
template <class P>
struct Shares {
  ShareSums<P> sums{};
  std::int64_t blocks;
  Tensor bias, padding;

  Shares(const WindowAttentionArguments& a, const WindowAttentionGradients& g, std::int64_t wanted) {
    sums.all = a.batch() * a.grid.windows();
    const std::int64_t most = std::clamp<std::int64_t>(wanted / a.heads, 1, sums.all);
    sums.size = (sums.all + most - 1) / most;
    sums.shares = (sums.all + sums.size - 1) / sums.size;
    blocks = sums.shares * a.heads;
    const std::int64_t tokens = a.grid.tokens();
    if (g.dtable.defined()) {
      bias = Tensor::empty({blocks, tokens * tokens}, dtype_of<P>(), a.qkv.device());
      sums.bias = bias.template data<P>();
    }
    if (g.dpadding.defined()) {
      padding = Tensor::empty({blocks, 2 * tokens * a.head_width()}, dtype_of<P>(), a.qkv.device());
      sums.padding = padding.template data<P>();
    }
  }
};

/// The gradients of the table and the padding from the shares' sums, in order (window_attention.cu). No launch where
/// neither is wanted.
template <class P>
void join_windows(cuda::Stream& stream, const WindowAttentionArguments& a, const ShareSums<P>& sums,
                  const WindowAttentionGradients& g);

}  // namespace hearth::kernels::window_problem
