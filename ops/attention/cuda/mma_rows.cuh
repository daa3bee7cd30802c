// SPDX-License-Identifier: Apache-2.0
// Products of the rows of two sequences on tensor cores, from shared memory and registers, as attention makes them.
// Rows lie width + run elements apart, an odd number of 16-byte units: ldmatrix meets no bank twice. For kernel sources
// only.
#pragma once

#include "ops/device/mma.h"

namespace hearth::kernels::attention_mma_rows {

using namespace cuda;

constexpr int run = 8;  ///< elements of a chunk of 16 bytes

/// sum [16 tiles, passing] = as many rows of this warp at `rows` times the transposed rows at `passed`.
template <int width, int passing, int tiles, class T>
__device__ __forceinline__ void multiply_rows(const T* rows, const T* passed, float (&sum)[tiles][passing / 8][4]) {
  constexpr int pitch = width + run;
  const int eighth = lane_id() / 8, line = lane_id() % 8;
  const T* const a = rows + (eighth % 2 * 8 + line) * pitch + eighth / 2 * 8;
  const T* const b = passed + (eighth / 2 * 8 + line) * pitch + eighth % 2 * 8;
  HEARTH_UNROLL
  for (int j = 0; j < tiles * (passing / 8) * 4; ++j) sum[j / (passing / 2)][j / 4 % (passing / 8)][j % 4] = 0;
  HEARTH_UNROLL
  for (int d = 0; d < width; d += 16) {
    unsigned left[tiles][4];
    HEARTH_UNROLL
    for (int tile = 0; tile < tiles; ++tile) ldmatrix(left[tile], a + tile * 16 * pitch + d);
    HEARTH_UNROLL
    for (int j = 0; j < passing; j += 16) {
      unsigned right[4];
      ldmatrix(right, b + j * pitch + d);
      const unsigned first[2] = {right[0], right[1]}, second[2] = {right[2], right[3]};
      HEARTH_UNROLL
      for (int tile = 0; tile < tiles; ++tile) {
        mma_m16n8k16<T>(sum[tile][j / 8], left[tile], first);
        mma_m16n8k16<T>(sum[tile][j / 8 + 1], left[tile], second);
      }
    }
  }
}

template <int width, int passing, class T>
__device__ __forceinline__ void multiply_rows(const T* rows, const T* passed, float (&sum)[passing / 8][4]) {
  multiply_rows<width, passing>(rows, passed, reinterpret_cast<float(&)[1][passing / 8][4]>(sum));
}

/// sum [16 tiles, columns] += weight [16 tiles, passing], rounded to T, times `columns` channels of the rows at
/// `passed`.
template <int width, int passing, int columns = width, int tiles, class T>
__device__ __forceinline__ void add_weighted(const float (&weight)[tiles][passing / 8][4], const T* passed,
                                             float (&sum)[tiles][columns / 8][4]) {
  constexpr int pitch = width + run;
  const int eighth = lane_id() / 8, line = lane_id() % 8;
  const T* const b = passed + (eighth % 2 * 8 + line) * pitch + eighth / 2 * 8;
  HEARTH_UNROLL
  for (int t = 0; t < passing; t += 16) {
    unsigned left[tiles][4];
    HEARTH_UNROLL
    for (int i = 0; i < tiles * 4; ++i) {
      const float(&pair)[4] = weight[i / 4][t / 8 + i % 4 / 2];
      left[i / 4][i % 4] = cast_down_two<T>(pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
    }
    HEARTH_UNROLL
    for (int d = 0; d < columns; d += 16) {
      unsigned right[4];
      ldmatrix_transposed(right, b + t * pitch + d);
      const unsigned first[2] = {right[0], right[1]}, second[2] = {right[2], right[3]};
      HEARTH_UNROLL
      for (int tile = 0; tile < tiles; ++tile) {
        mma_m16n8k16<T>(sum[tile][d / 8], left[tile], first);
        mma_m16n8k16<T>(sum[tile][d / 8 + 1], left[tile], second);
      }
    }
  }
}

template <int width, int passing, int columns = width, class T>
__device__ __forceinline__ void add_weighted(const float (&weight)[passing / 8][4], const T* passed,
                                             float (&sum)[columns / 8][4]) {
  add_weighted<width, passing, columns>(reinterpret_cast<const float(&)[1][passing / 8][4]>(weight), passed,
                                        reinterpret_cast<float(&)[1][columns / 8][4]>(sum));
}

/// Of the values that a lane has of a result [16, ...]: value e of fragment j lies in row own_row(e) of the warp's and
/// in column 8 j + own_column(e).
__device__ __forceinline__ int own_row(int e) { return lane_id() / 4 + e / 2 * 8; }
__device__ __forceinline__ int own_column(int e) { return lane_id() % 4 * 2 + e % 2; }
/// The reduction over the four lanes that share a row.
template <class Join>
__device__ __forceinline__ float reduce_row(float value) {
  value = Join::join(value, __shfl_xor_sync(all_lanes, value, 1));
  return Join::join(value, __shfl_xor_sync(all_lanes, value, 2));
}

}  // namespace hearth::kernels::attention_mma_rows
