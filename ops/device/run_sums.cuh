// SPDX-License-Identifier: Apache-2.0
// Sums by column that the blocks of a launch leave of their runs of rows, added in the same launch by whoever arrives
// last: runs in groups of about as many as there are groups, then the groups, each in order of their numbers, so that
// the bits do not depend on who that was. A block at the end of a launch reads a few kB in place of all that was left.
// For kernel sources only.
#pragma once

#include "core/cuda/arrivals.h"
#include "core/cuda/kernel.h"
#include "core/tensor.h"

namespace hearth::cuda {

/// Where they are. Columns are cut into tiles, and each run of rows is left once for each tile.
struct RunSums {
  double* parts;       ///< [runs, width]
  double* group_sums;  ///< [groups, width]
  unsigned* counters;  ///< [tiles, 1 + groups]
  std::int64_t width;  ///< kinds of sums * columns
  std::int64_t columns, runs, group_runs, groups;

  __device__ double* at(std::int64_t run, int kind, std::int64_t column) const {
    return parts + run * width + kind * columns + column;
  }
  /// What is written and read again.
  std::int64_t bytes() const { return 16 * (runs + groups) * width; }
};

/// `memory` becomes where they lie, and must outlive the launch's queueing.
inline RunSums run_sums(Stream& stream, int kinds, std::int64_t columns, std::int64_t runs, std::int64_t tiles,
                        Tensor& memory) {
  HEARTH_CHECK(ShapeError, 2 * tiles <= arrival_counters_there, "sums of ", columns,
               " channels: more than a device has counters for");
  const auto groups_of = [&](std::int64_t size) { return (runs + size - 1) / size; };
  std::int64_t group = 1;
  while (group * group < runs) ++group;
  while (tiles * (1 + groups_of(group)) > arrival_counters_there) group *= 2;
  const std::int64_t groups = groups_of(group), width = kinds * columns;
  memory = Tensor::empty({runs + groups, width}, DType::f64, stream.device());
  double* const parts = memory.data<double>();
  return {parts, parts + runs * width, arrival_counters(stream), width, columns, runs, group, groups};
}

/// The sums of `count` values of each kind, in order; `ahead` are asked for at once, of all kinds.
template <int kinds, int ahead>
__device__ __forceinline__ void sum_in_order(const double* from, std::int64_t columns, std::int64_t count,
                                             std::int64_t width, double (&sum)[kinds]) {
  for (std::int64_t i = 0; i < count; i += ahead) {
    double value[ahead][kinds];
    HEARTH_UNROLL
    for (int k = 0; k < ahead; ++k) {
      HEARTH_UNROLL
      for (int kind = 0; kind < kinds; ++kind)
        value[k][kind] = i + k < count ? from[(i + k) * width + kind * columns] : 0.0;
    }
    HEARTH_UNROLL
    for (int k = 0; k < ahead; ++k) {
      HEARTH_UNROLL
      for (int kind = 0; kind < kinds; ++kind) sum[kind] += value[k][kind];
    }
  }
}

/// This block has left its run's sums of the tile's columns [first, first + count). Whether it is the last of the tile:
/// then `totals`, shared memory [kinds, count], becomes the sums over all runs. All threads of the block call. Where
/// registers are free, runs of a group may all be asked for at once.
template <int kinds, int ahead = 8>
__device__ bool join_runs(const RunSums& sums, std::int64_t tile, std::int64_t run, std::int64_t first, int count,
                          double* totals) {
  unsigned* const counters = sums.counters + tile * (1 + sums.groups);
  const std::int64_t group = run / sums.group_runs, begin = group * sums.group_runs, rest = sums.runs - begin,
                     members = rest < sums.group_runs ? rest : sums.group_runs;
  // f(column of the tile, sums of the kinds over so many rows of `from`).
  const auto each = [&](const double* from, std::int64_t rows, auto&& f) {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
      double sum[kinds] = {};
      sum_in_order<kinds, ahead>(from + first + i, sums.columns, rows, sums.width, sum);
      HEARTH_UNROLL
      for (int kind = 0; kind < kinds; ++kind) f(i, kind, sum[kind]);
    }
  };
  if (!last_to_arrive(counters + 1 + group, static_cast<unsigned>(members))) return false;
  each(sums.parts + begin * sums.width, members, [&](int i, int kind, double sum) {
    sums.group_sums[group * sums.width + kind * sums.columns + first + i] = sum;
  });
  if (!last_to_arrive(counters, static_cast<unsigned>(sums.groups))) return false;
  each(sums.group_sums, sums.groups, [&](int i, int kind, double sum) { totals[kind * count + i] = sum; });
  __syncthreads();
  return true;
}

}  // namespace hearth::cuda
