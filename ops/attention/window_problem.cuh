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

/// Sums that each block of the gradient makes of its share of the windows of one head; block share * heads + head.
template <class P>
struct ShareSums {
  P* folded;            ///< [block][columns], or null: of the table's entries, then of k and of v behind the image
  int entries;          ///< of the columns; 0 where the table has no gradient
  int columns;          ///< with 2 width more where the padding has a gradient
  P* pairs;             ///< [block][tokens][tokens], or null: of the biases of queries and keys
  P* padding;           ///< [block][tokens][2][width], or null: of k and of v
  std::int64_t shares;  ///< of the windows
  std::int64_t size;    ///< windows of one
  std::int64_t all;     ///< windows
};

/// Whether a kernel has the sums of pairs in global memory, or keeps them to itself.
enum class Pairs { in_memory, in_block };

/// The shares of a gradient whose kernel has room for about `wanted` blocks, and their memory.
template <class P>
struct Shares {
  ShareSums<P> sums{};
  std::int64_t blocks;
  Tensor folded, pairs, padding;

  Shares(const WindowAttentionArguments& a, const WindowAttentionGradients& g, std::int64_t wanted, Pairs kept) {
    sums.all = a.batch() * a.grid.windows();
    const std::int64_t most = std::clamp<std::int64_t>(wanted / a.heads, 1, sums.all);
    sums.size = (sums.all + most - 1) / most;
    sums.shares = (sums.all + sums.size - 1) / sums.size;
    blocks = sums.shares * a.heads;
    const std::int64_t tokens = a.grid.tokens(), paddings = g.dpadding.defined() ? 2 * a.head_width() : 0;
    const auto memory = [&](Tensor& x, std::int64_t columns) {
      if (columns == 0) return static_cast<P*>(nullptr);
      x = Tensor::empty({blocks, columns}, dtype_of<P>(), a.qkv.device());
      return x.template data<P>();
    };
    sums.entries = static_cast<int>(g.dtable.defined() ? a.grid.entries() : 0);
    sums.columns = sums.entries + static_cast<int>(paddings);
    sums.folded = memory(folded, sums.columns);
    sums.pairs = memory(pairs, sums.entries > 0 && kept == Pairs::in_memory ? tokens * tokens : 0);
    sums.padding = memory(padding, tokens * paddings);
  }
};

/// Makes this block's row of `folded`; pair(i, j) is the sum of query i and key j. In a fixed order. The block's sums
/// must be there for all of its threads.
template <class P, class Pair>
__device__ void fold_share(const WindowGrid& grid, const ShareSums<P>& sums, int width, Pair&& pair) {
  const int side = static_cast<int>(grid.window), tokens = static_cast<int>(grid.tokens());
  const std::int64_t block = blockIdx.x;
  for (int c = static_cast<int>(threadIdx.x); c < sums.columns; c += static_cast<int>(blockDim.x)) {
    P sum = 0;
    if (c < sums.entries) {
      // The pairs whose query lies so far below, and to the right, of its key.
      const int below = c / (2 * side - 1) - (side - 1), right = c % (2 * side - 1) - (side - 1);
      for (int y = below > 0 ? below : 0; y < (below < 0 ? side + below : side); ++y)
        for (int x = right > 0 ? right : 0; x < (right < 0 ? side + right : side); ++x)
          sum += pair(y * side + x, (y - below) * side + x - right);
    } else {
      for (int t = 0; t < tokens; ++t) sum += sums.padding[(block * tokens + t) * 2 * width + c - sums.entries];
    }
    sums.folded[block * sums.columns + c] = sum;
  }
}

/// The gradients of the table and the padding from the rows of `folded`: one launch (window_attention.cu), none where
/// neither is wanted.
template <class P>
void join_windows(cuda::Stream& stream, const WindowAttentionArguments& a, const ShareSums<P>& sums,
                  const WindowAttentionGradients& g);

}  // namespace hearth::kernels::window_problem
