// SPDX-License-Identifier: Apache-2.0
// The statistics of a convolution's result by channel, taken from a tile while its block still holds it. For kernel
// sources only.
//
// The block lays the tile in shared memory as it was stored; then its 256 threads walk down the columns, several groups
// of threads a column, first for the mean and then for the squares around it, so that a large mean costs no precision.
// Groups are added in order. The tile lies in memory rather than in registers because those are all taken.
#pragma once

#include "core/cuda/kernel.h"
#include "ops/conv/cuda/operands.cuh"
#include "ops/conv/kernels.h"
#include "ops/matmul/cuda/tile.cuh"

namespace hearth::kernels::conv_operands {

/// Where they go: a ChannelMoments' parts [2, channels, runs], a run being the rows of a tile. Null: not wanted.
struct Moments {
  double* parts = nullptr;
  std::int64_t channels = 0, runs = 0;
};

/// How a tile of `side` x `side` values lies in shared memory: all its columns at once, or half of them for f64.
template <class T, int side>
struct MomentsTile {
  static constexpr int threads = 256;
  static constexpr int columns = sizeof(T) == 8 ? side / 2 : side;
  static constexpr int pitch = columns + 16 / static_cast<int>(sizeof(T));
  static constexpr int elements = side * pitch;
};

/// The sum of `value` over the threads t, t + columns, ... that share a column. `shared` holds a value of each
/// thread. All threads of the block call. Ends with a barrier.
template <class Layout, class A>
__device__ A sum_groups(A value, A* shared) {
  const int mine = static_cast<int>(threadIdx.x);
  shared[mine] = value;
  __syncthreads();
  A sum = 0;
  for (int of = mine % Layout::columns; of < Layout::threads; of += Layout::columns) sum += shared[of];
  __syncthreads();
  return sum;
}

/// Whether the results are to pass a ReLU; it counts as applied.
inline bool takes_relu(Conv2dEpilogue* epilogue) {
  if (epilogue == nullptr || epilogue->activation != Activation::relu) return false;
  epilogue->activation = Activation::none;
  return true;
}

/// Room for the moments of y where they are wanted.
inline Moments takes_moments(Conv2dEpilogue* epilogue, const Tiles& t, const Tensor& y) {
  if (epilogue == nullptr || epilogue->moments == nullptr) return {};
  const std::int64_t channels = y.dim(-1);
  *epilogue->moments = {Tensor::empty({2, channels, t.row_tiles}, DType::f64, y.device()), t.side};
  return {epilogue->moments->parts.data<double>(), channels, t.row_tiles};
}

/// The part of a tile that has results: rows [0, rows) and columns [0, columns), the first being this run and channel.
struct TilePart {
  std::int64_t run, channel;
  int rows, columns;
};

__device__ inline TilePart tile_part(const Tiles& t, const Tile& z, std::int64_t first_filter) {
  const std::int64_t rows = t.rows - z.row, columns = t.columns - z.column;
  return {z.row / t.side, first_filter + z.column, static_cast<int>(rows < t.side ? rows : t.side),
          static_cast<int>(columns < t.side ? columns : t.side)};
}

/// A sum of the tile's column as it was stored; 0 beyond the last column.
template <class T>
__device__ T stored_value(const tile::Store<T>& store, const TilePart& part, int column, acc_t<T> sum) {
  return cuda::cast_down<T>(column < part.columns ? store.total(0, part.channel + column, sum) : acc_t<T>(0));
}

/// Leaves the moments of a tile. put(first) writes the thread's values of columns [first, first + Layout::columns) to
/// memory[row * Layout::pitch + column - first]. `memory` has Layout::elements and `sums` a value of each thread;
/// nobody may still read them, and they are free afterwards. All threads of the block call.
template <int side, class T, class Put>
__device__ void leave_moments(const Moments& to, const TilePart& part, const Put& put, const T* memory,
                              acc_t<T>* sums) {
  using A = acc_t<T>;
  using Layout = MomentsTile<T, side>;
  const int column = static_cast<int>(threadIdx.x) % Layout::columns,
            group = static_cast<int>(threadIdx.x) / Layout::columns;
  constexpr int step = Layout::threads / Layout::columns;
  for (int first = 0; first < side; first += Layout::columns) {
    put(first);
    __syncthreads();
    const auto each = [&](auto&& f) {
      for (int row = group; row < part.rows; row += step) f(cuda::upcast(memory[row * Layout::pitch + column]));
    };
    A sum = 0, rest = 0, squares = 0;
    each([&](A value) { sum += value; });
    const A centre = sum_groups<Layout>(sum, sums) / static_cast<A>(part.rows);
    each([&](A value) {
      const A d = value - centre;
      rest += d;
      squares += d * d;
    });
    rest = sum_groups<Layout>(rest, sums);
    squares = sum_groups<Layout>(squares, sums);
    if (group != 0 || first + column >= part.columns) continue;
    // `rest` is what the mean's own rounding left over.
    const double n = part.rows, left = static_cast<double>(rest);
    double* const at = to.parts + (part.channel + first + column) * to.runs + part.run;
    at[0] = static_cast<double>(centre) + left / n;
    at[to.channels * to.runs] = static_cast<double>(squares) - left * left / n;
  }
}

}  // namespace hearth::kernels::conv_operands
