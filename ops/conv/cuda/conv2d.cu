// SPDX-License-Identifier: Apache-2.0
// The portable convolution of the device: implicit GEMM in tiles of 64 x 64 with sums in f32 (f64 for f64), every type
// and option.
// Reference: conv2d_cpu.cpp.
#include "core/cuda/kernel.h"
#include "ops/conv/cuda/moments.cuh"
#include "ops/conv/cuda/operands.cuh"
#include "ops/conv/kernels.h"
#include "ops/epilogue/epilogue.h"
#include "ops/matmul/cuda/tile.cuh"

namespace hearth::kernels {
namespace {

using namespace conv_operands;

/// Puts the thread's values of columns [first, first + Memory::columns) to shared memory: value(column, sum).
template <class T, class A, class Value>
__device__ void put_tile(const A (&sum)[share][share], int first, T* memory, const Value& value) {
  using Memory = MomentsTile<T, tile::side>;
  HEARTH_UNROLL
  for (int i = 0; i < share; ++i) {
    HEARTH_UNROLL
    for (int j = 0; j < share; ++j) {
      const int column = tile::own_column(j);
      if (column < first || column >= first + Memory::columns) continue;
      memory[tile::own_row(i) * Memory::pitch + column - first] = value(column, sum[i][j]);
    }
  }
}

/// The moments of a tile of y, as it was stored: one run of rows.
template <class T, class A>
__device__ void leave_moments_of(const Moments& moments, const TilePart& part, const tile::Store<T>& store,
                                 const A (&sum)[share][share]) {
  using Memory = MomentsTile<T, tile::side>;
  HEARTH_SHARED(T, memory, [Memory::elements]);
  HEARTH_SHARED(A, sums, [Memory::threads]);
  const auto put = [&](int first) {
    put_tile(sum, first, memory, [&](int column, A total) { return stored_value(store, part, column, total); });
  };
  leave_moments<tile::side, T>(moments, part, put, memory, sums);
}

/// Makes one pass. A block makes a tile and goes on with the grid's stride. `left` is x, dy, dy; `right` is w, w, x.
/// Each element of an image is read once for each tap and tile of 64 columns, mostly from the caches. With several
/// parts `store` goes to their own memory, [parts, elements].
template <Pass pass, class TA, class TB, class Into>
__global__ void __launch_bounds__(tile::threads)
    conv2d_tiles_kernel(HEARTH_GRID_CONSTANT(Geometry) g, HEARTH_GRID_CONSTANT(Tiles) t, const TA* left,
                        const TB* right, std::int64_t elements, Into store, Moments moments) {
  using T = typename Into::Element;
  using A = acc_t<T>;
  for (std::int64_t at = blockIdx.x; at < t.count; at += gridDim.x) {
    const Tile z(t, g, at);
    const std::int64_t taps = static_cast<std::int64_t>(g.r) * g.s, first_filter = z.group * g.filters;
    const std::int64_t first_channel = z.group * g.channels, width = taps * g.channels;
    A sum[share][share] = {};
    std::int64_t origin = z.part * elements, row_step = 0;
    if constexpr (pass == Pass::forward) {
      const Patches<TA> a{{g, left + first_channel, t.rows}};
      const tile::Stored<TB> b{right + first_filter * width, g.filters, width, 1};
      tile::multiply(a, b, z.row, z.column, z.begin, z.end, sum);
      origin += first_filter;
      row_step = g.k;
    } else if constexpr (pass == Pass::backward_data) {
      const Windows<TA> a{{g, left + first_filter, t.rows}};
      const FilterTaps<TB> b{g, right + first_filter * width};
      tile::multiply(a, b, z.row, z.column, z.begin, z.end, sum);
      origin += first_channel;
      row_step = g.c;
    } else {
      const tile::Stored<TA> a{left + first_filter, g.filters, 1, g.k};
      const PatchColumns<TB> b{g, right + first_channel, width};
      tile::multiply(a, b, z.row, z.column, z.begin, z.end, sum);
      origin += first_filter * width;
      row_step = width;
    }
    tile::visit_own(sum, z.row, z.column, t.rows, t.columns, [&](std::int64_t r, std::int64_t c, A value) {
      store(origin + r * row_step + c, first_filter + c, value);
    });
    if constexpr (pass == Pass::forward) {
      if (moments.parts != nullptr) leave_moments_of(moments, tile_part(t, z, first_filter), store, sum);
    }
  }
}

template <Pass pass, class TA, class TB, class Into>
void run_pass(cuda::Stream& stream, const ConvShape& shape, const Geometry& g, const Tiles& t, const Tensor& left,
              const Tensor& right, const Tensor& result, const Into& into, Conv2dEpilogue* epilogue = nullptr) {
  const cuda::LaunchShape launch{cuda::blocks_for(t.count, 1), tile::threads};
  tile::launch_split(stream, {"conv2d", "conv2d parts", "conv2d sum"}, t.split, result,
                     pass == Pass::forward ? g.k : result.size(), into,
                     [&]<class To>(const char* name, const To& store, std::int64_t part_elements) {
                       const std::int64_t moved = bytes_of_pass(shape, pass, left, right, into.accumulate, t.split,
                                                                result, part_elements, sizeof(typename To::Element));
                       cuda::launch(stream, name, launch.moving(moved), conv2d_tiles_kernel<pass, TA, TB, To>, g, t,
                                    left.data<TA>(), right.data<TB>(), part_elements, store,
                                    part_elements == 0 ? takes_moments(epilogue, t, result) : Moments{});
                     });
}

template <class T, class W>
void run(cuda::Stream& stream, const ConvProblem& problem, const Conv2dOperands& o) {
  const ConvShape& shape = problem.shape;
  Geometry g = geometry_of(shape);
  if (problem.pass != Pass::backward_data) g.c = static_cast<int>(pixel_stride(o.x));
  const Tiles t = tiles_of(shape, problem.pass, tile::side, tile::depth);
  if (problem.pass == Pass::backward_data)
    return run_pass<Pass::backward_data, T, W>(stream, shape, g, t, o.y, o.w, o.x,
                                               tile::store_of<T>(o.x, Tensor(), o.accumulate));
  if (problem.pass == Pass::forward) {
    const Tensor row = tile::bias_row(o.b, o.y);
    const auto store = tile::store_of<T>(o.y, row, false, takes_relu(o.epilogue));
    return run_pass<Pass::forward, T, W>(stream, shape, g, t, o.x, o.w, o.y, store, o.epilogue);
  }
  run_pass<Pass::backward_weights, T, T>(stream, shape, g, t, o.y, o.x, o.w, tile::store_of<W>(o.w, Tensor(), false));
  if (o.b.defined()) sum_rows(stream, o.y, o.b);
}

}  // namespace

void conv2d_tiles(cuda::Stream& stream, const ConvProblem& problem, const Conv2dOperands& o) {
  const bool f32_weights = o.w.dtype() == DType::f32;
  switch (o.x.dtype()) {
    case DType::f64:
      return run<double, double>(stream, problem, o);
    case DType::f16:
      return f32_weights ? run<f16, float>(stream, problem, o) : run<f16, f16>(stream, problem, o);
    case DType::bf16:
      return f32_weights ? run<bf16, float>(stream, problem, o) : run<bf16, bf16>(stream, problem, o);
    default:
      return run<float, float>(stream, problem, o);
  }
}

}  // namespace hearth::kernels
