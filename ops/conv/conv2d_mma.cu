// SPDX-License-Identifier: Apache-2.0
// The convolution of 16-bit types on tensor cores: implicit GEMM in tiles of 128 x 128, f32 sums.
// Reference: conv2d_cpu.cpp.
#include "core/cuda/kernel.h"
#include "ops/conv/kernels.h"
#include "ops/conv/moments.cuh"
#include "ops/conv/operands.cuh"
#include "ops/epilogue/epilogue.h"
#include "ops/matmul/mma_tile.cuh"

namespace hearth::kernels {
namespace {

using namespace conv_operands;

/// The moments of a tile of y, as it was stored: one run of rows. `memory` is what the operands lay in.
template <class T>
__device__ void leave_moments_of(const Moments& moments, const Tiles& t, const Tile& z, std::int64_t first_filter,
                                 const tile::Store<T>& store,
                                 const float (&sum)[mma_tile::row_fragments][mma_tile::column_fragments][4],
                                 T* memory) {
  using Memory = MomentsTile<T, mma_tile::side>;
  static_assert(Memory::elements * sizeof(T) + Memory::threads * sizeof(float) <= mma_tile::shared_bytes);
  static_assert(Memory::elements * sizeof(T) % sizeof(float) == 0 && Memory::columns == mma_tile::side);
  const TilePart part = tile_part(t, z, first_filter);
  const auto put = [&](int) {
    HEARTH_UNROLL
    for (int i = 0; i < mma_tile::row_fragments; ++i) {
      HEARTH_UNROLL
      for (int h = 0; h < 2; ++h) {
        HEARTH_UNROLL
        for (int j = 0; j < mma_tile::column_fragments; ++j) {
          const int column = mma_tile::own_column(j);
          const cuda::Pack<T, 2> pair{stored_value(store, part, column, sum[i][j][2 * h]),
                                      stored_value(store, part, column + 1, sum[i][j][2 * h + 1])};
          cuda::store_pack(memory + mma_tile::own_row(i, h) * Memory::pitch + column, pair);
        }
      }
    }
  };
  leave_moments<mma_tile::side>(moments, part, put, static_cast<const T*>(memory),
                                reinterpret_cast<float*>(memory + Memory::elements));
}

/// Makes one pass. A block makes a tile and goes on with the grid's stride. `left` is x, dy, dy; `right` is w, w, x.
/// Each element of an image is read once for each tap and tile of 128 columns, mostly from the caches. With several
/// parts `store` goes to their own memory, [parts, elements].
template <Pass pass, class T, class TC>
__global__ void __launch_bounds__(mma_tile::threads, 2)
    conv2d_mma_kernel(HEARTH_GRID_CONSTANT(Geometry) g, HEARTH_GRID_CONSTANT(Tiles) t, const T* left, const T* right,
                      std::int64_t elements, tile::Store<TC> store, Moments moments) {
  T* const memory = cuda::dynamic_shared<T>();
  for (std::int64_t at = blockIdx.x; at < t.count; at += gridDim.x) {
    const Tile z(t, g, at);
    const std::int64_t taps = static_cast<std::int64_t>(g.r) * g.s, first_filter = z.group * g.filters;
    const std::int64_t first_channel = z.group * g.channels, width = taps * g.channels;
    float sum[mma_tile::row_fragments][mma_tile::column_fragments][4] = {};
    std::int64_t origin = z.part * elements, row_step = 0;
    if constexpr (pass == Pass::forward) {
      const Patches<T> a{{g, left + first_channel, t.rows}};
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
      const PatchColumns<T> b{g, right + first_channel, width};
      mma_tile::multiply(a, b, z.row, z.column, z.begin, z.end, memory, sum);
      origin += first_filter * width;
      row_step = width;
    }
    // A filter gradient has neither bias nor activation, and no registers to look.
    tile::Store<TC> own = store;
    if constexpr (pass == Pass::backward_weights) {
      own.bias = nullptr;
      own.relu = false;
    }
    mma_tile::visit_own(sum, z.row, z.column, t.rows, t.columns,
                        [&](std::int64_t r, std::int64_t c, float first, float second, bool both) {
                          own.pair(origin + r * row_step + c, first_filter + c, first, second, both);
                        });
    // Long sums come in parts, of f32, and leave none.
    if constexpr (pass == Pass::forward && std::is_same_v<T, TC>) {
      if (moments.parts != nullptr) leave_moments_of(moments, t, z, first_filter, store, sum, memory);
    }
  }
}

template <Pass pass, class T, class TC>
void run_pass(cuda::Stream& stream, const ConvShape& shape, const Tensor& left, const Tensor& right, const Tensor& bias,
              const Tensor& result, Conv2dEpilogue* epilogue = nullptr, bool accumulate = false) {
  const Geometry g = geometry_of(shape);
  const Tiles t = tiles_of(shape, pass, mma_tile::side, mma_tile::depth);
  const cuda::LaunchShape launch{cuda::blocks_for(t.count, 1), mma_tile::threads, mma_tile::shared_bytes};
  const Tensor row = tile::bias_row(bias, result);
  tile::launch_split(
      stream, {"conv2d mma", "conv2d mma parts", "conv2d sum"}, t.split, result,
      pass == Pass::forward ? shape.k : result.size(),
      tile::store_of<TC>(result, row, accumulate, takes_relu(epilogue)),
      [&]<class C>(const char* name, const tile::Store<C>& store, std::int64_t part_elements) {
        const std::int64_t in = cuda::bytes_of(left, right, bias) + (accumulate ? cuda::bytes_of(result) : 0);
        cuda::launch(stream, name, launch.moving(tile::moved_by(in, t.split, result, part_elements, sizeof(C))),
                     conv2d_mma_kernel<pass, T, C>, g, t, left.data<T>(), right.data<T>(), part_elements, store,
                     part_elements == 0 ? takes_moments(epilogue, t, result) : Moments{});
      });
}

template <class T>
void run(cuda::Stream& stream, const ConvProblem& problem, const Conv2dOperands& o) {
  const ConvShape& shape = problem.shape;
  switch (problem.pass) {
    case Pass::forward:
      return run_pass<Pass::forward, T, T>(stream, shape, o.x, o.w, o.b, o.y, o.epilogue);
    case Pass::backward_data:
      return run_pass<Pass::backward_data, T, T>(stream, shape, o.y, o.w, Tensor(), o.x, nullptr, o.accumulate);
    case Pass::backward_weights:
      if (o.w.dtype() == DType::f32)
        run_pass<Pass::backward_weights, T, float>(stream, shape, o.y, o.x, Tensor(), o.w);
      else
        run_pass<Pass::backward_weights, T, T>(stream, shape, o.y, o.x, Tensor(), o.w);
      if (o.b.defined()) sum_rows(stream, o.y, o.b);
  }
}

}  // namespace

void conv2d_mma(cuda::Stream& stream, const ConvProblem& problem, const Conv2dOperands& o) {
  if (o.x.dtype() == DType::bf16) return run<bf16>(stream, problem, o);
  run<f16>(stream, problem, o);
}

}  // namespace hearth::kernels
