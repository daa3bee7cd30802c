// SPDX-License-Identifier: Apache-2.0
// How kernels that treat each column on its own (sums over rows, batch_norm) tile a matrix: a block of 256 threads owns
// `across` neighbouring units of columns and walks down a run of rows, `down` rows at a time, so that neighbouring
// threads read neighbouring memory and each thread keeps what belongs to its columns in registers.
#pragma once

#include "core/cuda/kernel.h"

namespace hearth::cuda {

inline constexpr int tile_block = 256;

/// How [rows, units] is cut. `segments` runs of `segment_rows` rows; blocks are numbered tile by tile within a segment.
struct ColumnTiles {
  int across, down;  ///< powers of two, across * down = 256
  std::int64_t tiles, segments, segment_rows, rows, units;

  HEARTH_HD std::int64_t blocks() const { return tiles * segments; }
};

/// Cuts into at most about `blocks` blocks, with at least `rows_each` rows a thread. Depends on the shape only.
inline ColumnTiles cut_columns(std::int64_t rows, std::int64_t units, std::int64_t blocks, std::int64_t rows_each) {
  ColumnTiles cut{};
  cut.rows = rows;
  cut.units = units;
  cut.across = 1;
  while (cut.across < warp_size && cut.across < units) cut.across *= 2;
  cut.down = tile_block / cut.across;
  cut.tiles = (units + cut.across - 1) / cut.across;
  const std::int64_t fewest_rows = rows_each * cut.down, most = (rows + fewest_rows - 1) / fewest_rows;
  std::int64_t segments = cut.tiles == 0 ? 1 : blocks / cut.tiles;
  segments = segments < most ? segments : most;
  segments = segments > 1 ? segments : 1;
  cut.segment_rows = (rows + segments - 1) / segments;
  cut.segments = cut.segment_rows == 0 ? 1 : (rows + cut.segment_rows - 1) / cut.segment_rows;
  return cut;
}

/// This thread's place in the tiles. Columns beyond the last one have unit >= units; their threads must still take part
/// in sums over the block.
struct TilePlace {
  std::int64_t unit, segment, first_row, end_row;
  int down;  ///< step between this thread's rows

  /// `block` counts the blocks of the tiles, and is below 2^31 as any grid is.
  __device__ TilePlace(const ColumnTiles& cut, std::int64_t block) {
    const int thread = static_cast<int>(threadIdx.x);
    const auto number = static_cast<unsigned>(block), tiles = static_cast<unsigned>(cut.tiles);
    segment = number / tiles;
    unit = static_cast<std::int64_t>(number % tiles) * cut.across + (thread & (cut.across - 1));
    const std::int64_t begin = segment * cut.segment_rows, end = begin + cut.segment_rows;
    down = cut.down;
    first_row = begin + thread / cut.across;
    end_row = unit >= cut.units ? begin : end < cut.rows ? end : cut.rows;
  }
};

/// Adds `value` over the threads of the block that own the same columns, in a fixed order; all of them get the sums.
/// All threads of the block call. `shared` holds 256 * width values.
template <int width>
__device__ void sum_down(double (&value)[width], double* shared, int across) {
  const int thread = static_cast<int>(threadIdx.x);
  double* const mine = shared + thread * width;
  HEARTH_UNROLL
  for (int k = 0; k < width; ++k) mine[k] = value[k];
  __syncthreads();
  for (int half = tile_block / 2; half >= across; half /= 2) {
    if (thread < half) {
      HEARTH_UNROLL
      for (int k = 0; k < width; ++k) mine[k] += mine[half * width + k];
    }
    __syncthreads();
  }
  const double* const total = shared + (thread & (across - 1)) * width;
  HEARTH_UNROLL
  for (int k = 0; k < width; ++k) value[k] = total[k];
  __syncthreads();
}

}  // namespace hearth::cuda
