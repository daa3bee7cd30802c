// SPDX-License-Identifier: Apache-2.0
// Attention within windows as its kernels on a CUDA device see it. For kernel sources only.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/cuda/graph.h"
#include "core/cuda/kernel.h"
#include "ops/attention/cuda/problem.cuh"
#include "ops/attention/window_attention.h"

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
  constexpr std::int64_t most = std::int64_t{1} << 30;  // kernels count rows and columns in 32 bits
  HEARTH_CHECK(ShapeError, a.grid.height <= most && a.grid.width <= most, "window_attention: an image of ",
               a.grid.height, " x ", a.grid.width, " tokens; a CUDA device takes up to ", most, " each way");
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

/// Where a token is within its window. A block has those of all tokens in shared memory.
struct alignas(8) Spot {
  std::int32_t place;  ///< the table's row for a query and a key: query's place - key's place + middle_of(grid)
  std::uint8_t y, x;
  std::uint8_t zone;  ///< 2 in the rows, and 1 in the columns, that a shift moves to the other side of the image
  std::uint8_t real;  ///< 0 behind the last token
};

/// Spots of `room` tokens; a barrier must follow.
inline __device__ void place_tokens(const WindowGrid& grid, int room, Spot* spots) {
  const int side = static_cast<int>(grid.window);
  for (int t = static_cast<int>(threadIdx.x); t < room; t += static_cast<int>(blockDim.x)) {
    const int y = t / side, x = t % side;
    const int zone = (y >= side - grid.shift_y ? 2 : 0) + (x >= side - grid.shift_x ? 1 : 0);
    spots[t] = {y * (2 * side - 1) + x, static_cast<std::uint8_t>(y), static_cast<std::uint8_t>(x),
                static_cast<std::uint8_t>(zone), y < side};
  }
}

__device__ __forceinline__ int middle_of(const WindowGrid& grid) {
  const int side = static_cast<int>(grid.window);
  return 2 * side * (side - 1);
}

/// A window among those of all samples.
struct Place {
  std::int64_t before;  ///< pixels of all samples before
  int down, across;     ///< windows before it in its sample

  __device__ Place(const WindowGrid& grid, std::int64_t number)
      : before(number / grid.windows() * grid.height * grid.width),
        down(static_cast<int>(number % grid.windows() / grid.across)),
        across(static_cast<int>(number % grid.across)) {}
  /// To the next window.
  __device__ __forceinline__ void advance(const WindowGrid& grid) {
    if (++across < static_cast<int>(grid.across)) return;
    across = 0;
    if (++down < static_cast<int>(grid.down)) return;
    down = 0;
    before += grid.height * grid.width;
  }
  /// Position of a token's pixel, counted over samples; -1 behind the image and for no token.
  __device__ __forceinline__ std::int64_t row(const WindowGrid& grid, Spot spot) const {
    const int side = static_cast<int>(grid.window), width = static_cast<int>(grid.width);
    const int y = rolled(down * side + spot.y + static_cast<int>(grid.shift_y), static_cast<int>(grid.down) * side);
    const int x = rolled(across * side + spot.x + static_cast<int>(grid.shift_x), static_cast<int>(grid.across) * side);
    const bool inside = spot.real != 0 && y < static_cast<int>(grid.height) && x < width;
    return inside ? before + static_cast<std::int64_t>(y) * width + x : -1;
  }
  /// Tokens whose zones differ in these bits get the mask.
  __device__ __forceinline__ int seams(const WindowGrid& grid) const {
    return (grid.shift_y > 0 && down == static_cast<int>(grid.down) - 1 ? 2 : 0) +
           (grid.shift_x > 0 && across == static_cast<int>(grid.across) - 1 ? 1 : 0);
  }

 private:
  __device__ static int rolled(int moved, int all) { return moved < all ? moved : moved - all; }
};

/// Number of the weight of query 0 and key 0 of a head of window `at`.
template <class T>
__device__ __forceinline__ std::int64_t first_weight(const Problem<T>& p, std::int64_t at, std::int64_t h) {
  return (at * p.heads + h) * p.grid.tokens() * p.grid.tokens();
}

/// How the windows of all samples are shared among blocks of one head each; block share * heads + head.
struct Split {
  std::int64_t all;   ///< windows
  std::int64_t size;  ///< of one share
  std::int64_t shares;

  /// About `wanted` blocks.
  Split(const WindowAttentionArguments& a, std::int64_t wanted) : all(a.batch() * a.grid.windows()) {
    const std::int64_t most = std::clamp<std::int64_t>(wanted / a.heads, 1, all);
    size = (all + most - 1) / most;
    shares = (all + size - 1) / size;
  }
  __device__ std::int64_t begin(std::int64_t share) const { return share * size; }
  __device__ std::int64_t end(std::int64_t share) const { return (share + 1) * size < all ? (share + 1) * size : all; }
};

/// Sums that each block of the gradient makes of its share.
template <class P>
struct ShareSums {
  P* folded;    ///< [block][columns], or null: of the table's entries, then of k and of v behind the image
  int entries;  ///< of the columns; 0 where the table has no gradient
  int columns;  ///< with 2 width more where the padding has a gradient
  P* pairs;     ///< [block][tokens][tokens], or null: of the biases of queries and keys
  P* padding;   ///< [block][tokens][2][width], or null: of k and of v
};

/// Whether a kernel has the sums of pairs in global memory, or keeps them to itself.
enum class Pairs { in_memory, in_block };

/// Those sums and their memory.
template <class P>
struct Shares {
  ShareSums<P> sums{};
  Tensor folded, pairs, padding;

  Shares(const WindowAttentionArguments& a, const WindowAttentionGradients& g, const Split& split, Pairs kept) {
    const std::int64_t blocks = split.shares * a.heads;
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
                  std::int64_t shares, const WindowAttentionGradients& g);

}  // namespace hearth::kernels::window_problem
