// SPDX-License-Identifier: Apache-2.0
// Products of the rows of two sequences on tensor cores, from shared memory and registers, as attention makes them.
// Rows lie width + run elements apart, an odd number of 16-byte units: ldmatrix meets no bank twice. For kernel sources
// only.
#pragma once

#include "core/cuda/mma.h"

namespace hearth::kernels::attention_mma_rows {

using namespace cuda;

constexpr int run = 8;  ///< elements of a chunk of 16 bytes

/// sum [16, passing] = this warp's 16 rows at `rows` times the transposed rows at `passed`.
template <int width, int passing, class T>
__device__ __forceinline__ void multiply_rows(const T* rows, const T* passed, float (&sum)[passing / 8][4]) {
  constexpr int pitch = width + run;
  const int eighth = lane_id() / 8, line = lane_id() % 8;
  const T* const a = rows + (eighth % 2 * 8 + line) * pitch + eighth / 2 * 8;
  const T* const b = passed + (eighth / 2 * 8 + line) * pitch + eighth % 2 * 8;
  HEARTH_UNROLL
  for (int j = 0; j < passing / 8; ++j) {
    HEARTH_UNROLL
    for (int e = 0; e < 4; ++e) sum[j][e] = 0;
  }
  HEARTH_UNROLL
  for (int d = 0; d < width; d += 16) {
    unsigned left[4];
    ldmatrix(left, a + d);
    HEARTH_UNROLL
    for (int j = 0; j < passing; j += 16) {
      unsigned right[4];
      ldmatrix(right, b + j * pitch + d);
      const unsigned first[2] = {right[0], right[1]}, second[2] = {right[2], right[3]};
      mma_m16n8k16<T>(sum[j / 8], left, first);
      mma_m16n8k16<T>(sum[j / 8 + 1], left, second);
    }
  }
}

/// Two values as one word of the left operand.
template <class T>
__device__ __forceinline__ unsigned packed(float first, float second) {
  return static_cast<unsigned>(cast_down<T>(first).bits) | static_cast<unsigned>(cast_down<T>(second).bits) << 16;
}

/// sum [16, columns] += weight [16, passing], rounded to T, times `columns` channels of the rows at `passed`.
template <int width, int passing, int columns = width, class T>
__device__ __forceinline__ void add_weighted(const float (&weight)[passing / 8][4], const T* passed,
                                             float (&sum)[columns / 8][4]) {
  constexpr int pitch = width + run;
  const int eighth = lane_id() / 8, line = lane_id() % 8;
  const T* const b = passed + (eighth % 2 * 8 + line) * pitch + eighth / 2 * 8;
  HEARTH_UNROLL
  for (int t = 0; t < passing; t += 16) {
    const float(&low)[4] = weight[t / 8];
    const float(&high)[4] = weight[t / 8 + 1];
    const unsigned left[4] = {packed<T>(low[0], low[1]), packed<T>(low[2], low[3]), packed<T>(high[0], high[1]),
                              packed<T>(high[2], high[3])};
    HEARTH_UNROLL
    for (int d = 0; d < columns; d += 16) {
      unsigned right[4];
      ldmatrix_transposed(right, b + t * pitch + d);
      const unsigned first[2] = {right[0], right[1]}, second[2] = {right[2], right[3]};
      mma_m16n8k16<T>(sum[d / 8], left, first);
      mma_m16n8k16<T>(sum[d / 8 + 1], left, second);
    }
  }
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
