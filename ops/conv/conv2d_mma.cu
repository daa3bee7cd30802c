// SPDX-License-Identifier: Apache-2.0
// The convolution of 16-bit types on tensor cores: implicit GEMM in tiles of 128 x 128, f32 sums.
// Reference: conv2d_cpu.cpp.
#include "core/cuda/kernel.h"
#include "ops/conv/fused.cuh"
#include "ops/conv/kernels.h"
#include "ops/conv/moments.cuh"
#include "ops/conv/operands.cuh"
#include "ops/epilogue/epilogue.h"
#include "ops/matmul/mma_tile.cuh"

namespace hearth::kernels {
namespace {

using namespace conv_operands;

/// How a tile of results lies in what the operands lay in.
template <class T>
using Memory = MomentsTile<T, mma_tile::side>;
static_assert(Memory<f16>::columns == mma_tile::side && Memory<f16>::elements * sizeof(f16) % sizeof(float) == 0);
static_assert(Memory<f16>::elements * sizeof(f16) + Memory<f16>::threads * 8 * sizeof(float) <= mma_tile::shared_bytes);

/// Puts the thread's values there: value(column, sum).
template <class T, class Value>
__device__ void put_tile(const float (&sum)[mma_tile::row_fragments][mma_tile::column_fragments][4], T* memory,
                         const Value& value) {
  HEARTH_UNROLL
  for (int i = 0; i < mma_tile::row_fragments; ++i) {
    HEARTH_UNROLL
    for (int h = 0; h < 2; ++h) {
      HEARTH_UNROLL
      for (int j = 0; j < mma_tile::column_fragments; ++j) {
        const int column = mma_tile::own_column(j);
        const cuda::Pack<T, 2> pair{value(column, sum[i][j][2 * h]), value(column + 1, sum[i][j][2 * h + 1])};
        cuda::store_pack(memory + mma_tile::own_row(i, h) * Memory<T>::pitch + column, pair);
      }
    }
  }
}

/// The moments of a tile of y, as it was stored: one run of rows. `memory` is what the operands lay in.
template <class T>
__device__ void leave_moments_of(const Moments& moments, const TilePart& part, const tile::Store<T>& store,
                                 const float (&sum)[mma_tile::row_fragments][mma_tile::column_fragments][4],
                                 T* memory) {
  const auto put = [&](int) {
    put_tile(sum, memory, [&](int column, float total) { return stored_value(store, part, column, total); });
  };
  leave_moments<mma_tile::side>(moments, part, put, static_cast<const T*>(memory),
                                reinterpret_cast<float*>(memory + Memory<T>::elements));
}

template <class T>
__device__ void store_tile(const BehindNorm<T>& store, const TilePart& part,
                           const float (&sum)[mma_tile::row_fragments][mma_tile::column_fragments][4], T* memory) {
  const auto put = [&](int) { put_tile(sum, memory, [](int, float total) { return cuda::cast_down<T>(total); }); };
  store_behind_norm<mma_tile::side>(store, part, put, static_cast<const T*>(memory),
                                    reinterpret_cast<float*>(memory + Memory<T>::elements));
}

/// Makes one pass. A block makes a tile and goes on with the grid's stride. `left` is x, dy, dy; `right` is w, w, x.
/// Each element of an image is read once for each tap and tile of 128 columns, mostly from the caches. With several
/// parts `store` goes to their own memory, [parts, elements].
template <Pass pass, class T, class Into, class Read>
__global__ void __launch_bounds__(mma_tile::threads, 2)
    conv2d_mma_kernel(HEARTH_GRID_CONSTANT(Geometry) g, HEARTH_GRID_CONSTANT(Tiles) t, const T* left, const T* right,
                      Read read, std::int64_t elements, Into store, Moments moments) {
  T* const memory = cuda::dynamic_shared<T>();
  for (std::int64_t at = blockIdx.x; at < t.count; at += gridDim.x) {
    const Tile z(t, g, at);
    const std::int64_t taps = static_cast<std::int64_t>(g.r) * g.s, first_filter = z.group * g.filters;
    const std::int64_t first_channel = z.group * g.channels, width = taps * g.channels;
    float sum[mma_tile::row_fragments][mma_tile::column_fragments][4] = {};
    std::int64_t origin = z.part * elements, row_step = 0;
    if constexpr (pass == Pass::forward) {
      const Patches<T, Read> a{{g, left + first_channel, t.rows}, read};
      const mma_tile::Stored<T> b{right + first_filter * width, g.filters, width, 1};
      mma_tile::multiply(a, b, z.row, z.column, z.begin, z.end, memory, sum);
      origin += first_filter;
      row_step = g.k;
    } else if constexpr (pass == Pass::backward_data) {
      const Windows<T> a{{g, left + first_filter, t.rows}};
      const FilterTaps<T> b{g, right + first_filter * width};
      mma_tile::multiply(a, b, z.row, z.column, z.begin, z.end, memory, sum);
      origin += first_channel;
      row_step = g.c;
    } else {
      const mma_tile::Stored<T> a{left + first_filter, g.filters, 1, g.k};
      const PatchColumns<T, Read> b{g, right + first_channel, width, read};
      mma_tile::multiply(a, b, z.row, z.column, z.begin, z.end, memory, sum);
      origin += first_filter * width;
      row_step = width;
    }
    if constexpr (std::is_same_v<Into, BehindNorm<T>>) {
      store_tile(store, tile_part(t, z, first_channel), sum, memory);
    } else {
      // A filter gradient has neither bias nor activation, and no registers to look.
      Into own = store;
      if constexpr (pass == Pass::backward_weights) {
        own.bias = nullptr;
        own.relu = false;
      }
      mma_tile::visit_own(sum, z.row, z.column, t.rows, t.columns,
                          [&](std::int64_t r, std::int64_t c, float first, float second, bool both) {
                            if constexpr (std::is_same_v<Into, AddingSubsampled<T>>)
                              own.pair_of(r, origin + r * row_step + c, c, first, second);
                            else
                              own.pair(origin + r * row_step + c, first_filter + c, first, second, both);
                          });
    }
    // Long sums come in parts, of f32, and leave none.
    if constexpr (pass == Pass::forward && std::is_same_v<Into, tile::Store<T>>) {
      if (moments.parts != nullptr) leave_moments_of(moments, tile_part(t, z, first_filter), store, sum, memory);
    }
  }
}

template <Pass pass, class T, class Into, class Read = AsStored<T>>
void run_pass(cuda::Stream& stream, const ConvShape& shape, const Tiles& t, const Tensor& left, const Tensor& right,
              const Tensor& result, const Into& into, const Read& read = {}, Conv2dEpilogue* epilogue = nullptr,
              Tensor* unfinished = nullptr) {
  const Geometry g = geometry_of(shape);
  const cuda::LaunchShape launch{cuda::blocks_for(t.count, 1), mma_tile::threads, mma_tile::shared_bytes};
  launch_tiles(stream, {"conv2d mma", "conv2d mma parts", "conv2d sum"}, t, result,
               pass == Pass::forward ? shape.k : result.size(), into, unfinished,
               [&]<class To>(const char* name, const To& store, std::int64_t part_elements) {
                 const std::int64_t moved = bytes_of_pass<pass>(shape, left, right, into, t.split, result,
                                                                part_elements, sizeof(typename To::Element));
                 cuda::launch(stream, name, launch.moving(moved), conv2d_mma_kernel<pass, T, To, Read>, g, t,
                              left.data<T>(), right.data<T>(), read, part_elements, store,
                              part_elements == 0 ? takes_moments(epilogue, t, result) : Moments{});
               });
}

template <class T>
void run(cuda::Stream& stream, const ConvProblem& problem, const Conv2dOperands& o) {
  const ConvShape& shape = problem.shape;
  const Tiles t = tiles_of(shape, problem.pass, mma_tile::side, mma_tile::depth);
  if (problem.pass == Pass::backward_data)
    return with_data_store<T>(stream, o, t, [&](const Tiles& tiles, const auto& store) {
      run_pass<Pass::backward_data, T>(stream, shape, tiles, o.y, o.w, o.x, store);
    });
  with_read<T>(o.fusion, [&](const auto& read) {
    if (problem.pass == Pass::forward) {
      const Tensor row = tile::bias_row(o.b, o.y);
      const auto store = tile::store_of<T>(o.y, row, false, takes_relu(o.epilogue));
      return run_pass<Pass::forward, T>(stream, shape, t, o.x, o.w, o.y, store, read, o.epilogue);
    }
    const auto weights = [&]<class W>(const tile::Store<W>& store) {
      run_pass<Pass::backward_weights, T>(stream, shape, t, o.y, o.x, o.w, store, read, nullptr, o.unfinished);
    };
    if (o.w.dtype() == DType::f32)
      weights(tile::store_of<float>(o.w, Tensor(), false));
    else
      weights(tile::store_of<T>(o.w, Tensor(), false));
    if (o.b.defined()) sum_rows(stream, o.y, o.b);
  });
}

}  // namespace

void conv2d_mma(cuda::Stream& stream, const ConvProblem& problem, const Conv2dOperands& o) {
  if (o.x.dtype() == DType::bf16) return run<bf16>(stream, problem, o);
  run<f16>(stream, problem, o);
}

}  // namespace hearth::kernels
