// SPDX-License-Identifier: Apache-2.0
// The statistics of a convolution's result by channel, taken from a tile while its block still holds it. For kernel
// sources only.
//
// The 256 threads of a block are 16 groups; each group owns all columns of the tile and a part of its rows. A column's
// mean comes first, then its squares around that mean: three sums over the groups, each in their order, so that a large
// mean costs no precision and bits repeat.
#pragma once

#include "hearth/core/cuda/kernel.h"
#include "hearth/ops/conv/kernels.h"
#include "hearth/ops/conv/operands.cuh"

namespace hearth::kernels::conv_operands {

/// Where they go: a ChannelMoments' parts [2, channels, runs], a run being the rows of a tile. Null: not wanted.
struct Moments {
  double* parts = nullptr;
  std::int64_t channels = 0, runs = 0;
};

inline constexpr int row_groups = 16;

/// Elements of shared memory that `leave_moments` works in.
template <int side>
inline constexpr int moments_elements = row_groups* side;

/// value[i], of the tile's column column[i], becomes its sum over the groups. All threads of the block call.
template <int side, int own, class A>
__device__ void sum_groups(A (&value)[own], const int (&column)[own], int group, A* shared) {
  HEARTH_UNROLL
  for (int i = 0; i < own; ++i) shared[group * side + column[i]] = value[i];
  __syncthreads();
  const int mine = static_cast<int>(threadIdx.x);
  if (mine < side) {
    A sum = shared[mine];
    HEARTH_UNROLL
    for (int of = 1; of < row_groups; ++of) sum += shared[of * side + mine];
    shared[mine] = sum;
  }
  __syncthreads();
  HEARTH_UNROLL
  for (int i = 0; i < own; ++i) value[i] = shared[column[i]];
  __syncthreads();
}

/// Whether the results are to pass a ReLU; it counts as applied.
inline bool takes_relu(Conv2dEpilogue* epilogue) {
  if (epilogue == nullptr || epilogue->activation != Activation::relu) return false;
  epilogue->activation = Activation::none;
  return true;
}

/// Room for the moments of y where they are wanted and are those of the plain sums.
inline Moments takes_moments(Conv2dEpilogue* epilogue, const Tiles& t, const Tensor& bias, const Tensor& y) {
  if (epilogue == nullptr || epilogue->moments == nullptr || bias.defined()) return {};
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

/// Leaves the moments of a tile. each(f) calls f(i, value) for all values that the thread has in the tile's rows, value
/// being of column column[i]. `shared` has moments_elements<side>; nobody may still read it, and it is free afterwards.
/// All threads of the block call.
template <int side, int own, class A, class Each>
__device__ void leave_moments(const Moments& to, const TilePart& tile, const Each& each, const int (&column)[own],
                              int group, A* shared) {
  A sum[own] = {}, centre[own], squares[own] = {};
  each([&](int i, A value) { sum[i] += value; });
  sum_groups<side>(sum, column, group, shared);
  const A rows = static_cast<A>(tile.rows);
  HEARTH_UNROLL
  for (int i = 0; i < own; ++i) {
    centre[i] = sum[i] / rows;
    sum[i] = 0;
  }
  each([&](int i, A value) {
    const A d = value - centre[i];
    sum[i] += d;
    squares[i] += d * d;
  });
  sum_groups<side>(sum, column, group, shared);
  sum_groups<side>(squares, column, group, shared);
  if (group != 0) return;
  const double n = tile.rows;
  HEARTH_UNROLL
  for (int i = 0; i < own; ++i) {
    if (column[i] >= tile.columns) continue;
    // What the mean's own rounding left over.
    const double rest = static_cast<double>(sum[i]);
    double* const at = to.parts + (tile.channel + column[i]) * to.runs + tile.run;
    at[0] = static_cast<double>(centre[i]) + rest / n;
    at[to.channels * to.runs] = static_cast<double>(squares[i]) - rest * rest / n;
  }
}

}  // namespace hearth::kernels::conv_operands
