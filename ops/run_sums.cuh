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

/// The sum of `count` values, in order; several are asked for at once.
__device__ inline double sum_in_order(const double* from, std::int64_t count, std::int64_t step) {
  constexpr int ahead = 16;
  double sum = 0;
  std::int64_t i = 0;
  for (; i + ahead <= count; i += ahead) {
    double value[ahead];
    HEARTH_UNROLL
    for (int k = 0; k < ahead; ++k) value[k] = from[(i + k) * step];
    HEARTH_UNROLL
    for (int k = 0; k < ahead; ++k) sum += value[k];
  }
  for (; i < count; ++i) sum += from[i * step];
  return sum;
}

/// This block has left its run's sums of the tile's columns [first, first + count). Whether it is the last of the tile:
/// then `totals`, shared memory [kinds, count], becomes the sums over all runs. All threads of the block call.
template <int kinds>
__device__ bool join_runs(const RunSums& sums, std::int64_t tile, std::int64_t run, std::int64_t first, int count,
                          double* totals) {
  unsigned* const counters = sums.counters + tile * (1 + sums.groups);
  const std::int64_t group = run / sums.group_runs, begin = group * sums.group_runs, rest = sums.runs - begin,
                     members = rest < sums.group_runs ? rest : sums.group_runs;
  const auto each = [&](auto&& f) {
    for (int i = static_cast<int>(threadIdx.x); i < kinds * count; i += static_cast<int>(blockDim.x))
      f(i, i / count * sums.columns + first + i % count);
  };
  if (!last_to_arrive(counters + 1 + group, static_cast<unsigned>(members))) return false;
  each([&](int, std::int64_t at) {
    sums.group_sums[group * sums.width + at] = sum_in_order(sums.parts + begin * sums.width + at, members, sums.width);
  });
  if (!last_to_arrive(counters, static_cast<unsigned>(sums.groups))) return false;
  each([&](int i, std::int64_t at) { totals[i] = sum_in_order(sums.group_sums + at, sums.groups, sums.width); });
  __syncthreads();
  return true;
}

}  // namespace hearth::cuda
