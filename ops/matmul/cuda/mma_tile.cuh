// SPDX-License-Identifier: Apache-2.0
// One tile of a matrix product on tensor cores, for 16-bit operands of any form whose neighbours come in runs of eight.
// For kernel sources only.
//
// A block of 256 threads makes 128 x 128 values of C = A B from steps of 32 along the depth k; three steps are on their
// way from memory by cp.async while one is multiplied. The eight warps own 64 x 32 values each, as 4 x 4 products of 16
// x 8 (64 registers a thread). Per step and block: 2 x 128 x 32 elements read in chunks of 16 bytes. Sums are f32 in
// order of k.
#pragma once

#include "core/cuda/kernel.h"
#include "ops/device/mma.h"
#include "ops/matmul/cuda/tile.cuh"

namespace hearth::kernels::mma_tile {

inline constexpr int side = 128;
inline constexpr int depth = 32;
inline constexpr int threads = 256;
inline constexpr int run = 8;     ///< elements of a chunk of 16 bytes
inline constexpr int chunks = 2;  ///< of each operand that a thread brings a step
inline constexpr int stages = 3;
inline constexpr int row_fragments = 4, column_fragments = 4;  ///< of a warp: 16 rows, 8 columns each

// Pitches of a stored step, in elements: an odd number of 16-byte units, so that ldmatrix meets no bank twice.
inline constexpr int pitch_along = depth + run;  ///< stored [side][depth]
inline constexpr int pitch_across = side + run;  ///< stored [depth][side]
inline constexpr int step_elements = side * pitch_along;
static_assert(step_elements >= depth * pitch_across);
inline constexpr std::size_t shared_bytes = std::size_t{2} * stages * 2 * step_elements;

/// Rows and columns of the tile that this thread owns: of fragment i and half h, of fragment j.
__device__ __forceinline__ int own_row(int i, int h) {
  const int warp = static_cast<int>(threadIdx.x) / cuda::warp_size;
  return warp / 4 * 64 + i * 16 + h * 8 + cuda::lane_id() / 4;
}
__device__ __forceinline__ int own_column(int j) {
  const int warp = static_cast<int>(threadIdx.x) / cuda::warp_size;
  return warp % 4 * 32 + j * 8 + cuda::lane_id() % 4 * 2;
}

/// A stored matrix: element (row, k) at data[row * row_step + k * depth_step], one of the steps being 1 and that extent
/// a multiple of 8. An operand has these members: `begin` takes the (first) row of a chunk once for a tile, `chunk`
/// gives the address of the chunk that starts at k, or null outside.
template <class T>
struct Stored {
  const T* data;
  std::int64_t rows, row_step, depth_step;
  const T* line = nullptr;

  __device__ bool along_depth() const { return depth_step == 1; }
  __device__ const T* base() const { return data; }
  __device__ void begin(std::int64_t row) { line = row < rows ? data + row * row_step : nullptr; }
  __device__ const T* chunk(std::int64_t k, std::int64_t end) const {
    return line != nullptr && k < end ? line + k * depth_step : nullptr;
  }
};

/// This thread's part in bringing one operand to shared memory, and its view of what lies there.
template <class T, class Operand>
struct Carrier {
  Operand operand[chunks];
  bool along;
  T* shared;  ///< [stages][step_elements]

  __device__ Carrier(const Operand& whole, std::int64_t first_row, T* memory)
      : operand{whole, whole}, along(whole.along_depth()), shared(memory) {
    for (int i = 0; i < chunks; ++i) operand[i].begin(first_row + row_of(i));
  }
  __device__ int row_of(int i) const {
    const int t = static_cast<int>(threadIdx.x);
    return along ? t / 4 + i * (side / chunks) : t % 16 * run;
  }
  __device__ int depth_of(int i) const {
    const int t = static_cast<int>(threadIdx.x);
    return along ? t % 4 * run : t / 16 + i * (depth / chunks);
  }
  __device__ void start(int stage, std::int64_t step, std::int64_t end) {
    HEARTH_UNROLL
    for (int i = 0; i < chunks; ++i) {
      const T* const from = operand[i].chunk(step + depth_of(i), end);
      cuda::cp_async(place(stage, i), from != nullptr ? from : operand[i].base(), from != nullptr);
    }
  }
  __device__ T* place(int stage, int i) const {
    return shared + stage * step_elements +
           (along ? row_of(i) * pitch_along + depth_of(i) : depth_of(i) * pitch_across + row_of(i));
  }
  /// Four matrices of 8 x 8: rows from `row` on and k from `k` on, the second 8 rows and the second 8 of k at the
  /// positions that the lane's address selects.
  __device__ void load(unsigned (&to)[4], int stage, int row, int k) const {
    const T* const from = shared + stage * step_elements;
    if (along)
      cuda::ldmatrix(to, from + row * pitch_along + k);
    else
      cuda::ldmatrix_transposed(to, from + k * pitch_across + row);
  }
};

/// sum[i][j] += the products over k in [begin, end), spread as mma_m16n8k16 has them. `memory` is dynamic shared memory
/// of shared_bytes. All threads of the block call. Ends with a barrier.
template <class T, class Left, class Right>
__device__ void multiply(const Left& left, const Right& right, std::int64_t row, std::int64_t column,
                         std::int64_t begin, std::int64_t end, T* memory,
                         float (&sum)[row_fragments][column_fragments][4]) {
  Carrier<T, Left> a(left, row, memory);
  Carrier<T, Right> b(right, column, memory + stages * step_elements);
  const int lane = cuda::lane_id(), eighth = lane / 8, line = lane % 8;
  // Lanes 0 to 7, 8 to 15, ... address the four matrices: A's second is 8 rows down and its third 8 of k on; B's second
  // is 8 of k on and its third 8 columns. The line counts along whichever axis is stored with the pitch.
  const int a_row = own_row(0, 0) - lane / 4 + eighth % 2 * 8 + (a.along ? line : 0);
  const int a_depth = eighth / 2 * 8 + (a.along ? 0 : line);
  const int b_row = own_column(0) - lane % 4 * 2 + eighth / 2 * 8 + (b.along ? line : 0);
  const int b_depth = eighth % 2 * 8 + (b.along ? 0 : line);
  const auto start = [&](std::int64_t step, int stage) {
    if (step < end) {
      a.start(stage, step, end);
      b.start(stage, step, end);
    }
    cuda::cp_async_commit();
  };
  HEARTH_UNROLL
  for (int stage = 0; stage < stages - 1; ++stage) start(begin + stage * depth, stage);
  int stage = 0;
  for (std::int64_t step = begin; step < end; step += depth) {
    cuda::cp_async_wait<stages - 2>();
    __syncthreads();
    start(step + (stages - 1) * depth, stage == 0 ? stages - 1 : stage - 1);
    HEARTH_UNROLL
    for (int k = 0; k < depth; k += 16) {
      unsigned x[row_fragments][4], y[column_fragments / 2][4];
      HEARTH_UNROLL
      for (int i = 0; i < row_fragments; ++i) a.load(x[i], stage, a_row + i * 16, a_depth + k);
      HEARTH_UNROLL
      for (int j = 0; j < column_fragments / 2; ++j) b.load(y[j], stage, b_row + j * 16, b_depth + k);
      HEARTH_UNROLL
      for (int i = 0; i < row_fragments; ++i) {
        HEARTH_UNROLL
        for (int j = 0; j < column_fragments; ++j) {
          const unsigned pair[2] = {y[j / 2][j % 2 * 2], y[j / 2][j % 2 * 2 + 1]};
          cuda::mma_m16n8k16<T>(sum[i][j], x[i], pair);
        }
      }
    }
    stage = stage == stages - 1 ? 0 : stage + 1;
  }
  cuda::cp_async_wait<0>();
  __syncthreads();
}

/// f(row, column, sum, next sum, whether the next column is inside) for the pairs of neighbouring columns that this
/// thread owns of the tile at (row, column) of a rows x columns matrix.
template <class F>
__device__ __forceinline__ void visit_own(const float (&sum)[row_fragments][column_fragments][4], std::int64_t row,
                                          std::int64_t column, std::int64_t rows, std::int64_t columns, F&& f) {
  HEARTH_UNROLL
  for (int i = 0; i < row_fragments; ++i) {
    HEARTH_UNROLL
    for (int h = 0; h < 2; ++h) {
      const std::int64_t r = row + own_row(i, h);
      HEARTH_UNROLL
      for (int j = 0; j < column_fragments; ++j) {
        const std::int64_t c = column + own_column(j);
        if (r < rows && c < columns) f(r, c, sum[i][j][2 * h], sum[i][j][2 * h + 1], c + 1 < columns);
      }
    }
  }
}

}  // namespace hearth::kernels::mma_tile
