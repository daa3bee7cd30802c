// SPDX-License-Identifier: Apache-2.0
// The convolution of 16-bit types on tensor cores: implicit GEMM in tiles of 128 x 128, f32 sums.
// Reference: conv2d_cpu.cpp.
#include "core/cuda/kernel.h"
#include "ops/conv/cuda/moments.cuh"
#include "ops/conv/cuda/operands.cuh"
#include "ops/conv/kernels.h"
#include "ops/epilogue/epilogue.h"
#include "ops/matmul/cuda/mma_tile.cuh"

namespace hearth::kernels {
namespace {

using namespace conv_operands;

/// How a tile of results lies in what the operands lay in.
template <class T>
using Memory = MomentsTile<T, mma_tile::side>;
static_assert(Memory<f16>::columns == mma_tile::side && Memory<f16>::elements * sizeof(f16) % sizeof(float) == 0);
static_assert(Memory<f16>::elements * sizeof(f16) + Memory<f16>::threads * sizeof(float) <= mma_tile::shared_bytes);

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

/// A pass: its tiles, and what they are made from and go to. `left` is x, dy, dy; `right` is w, w, x. With several
/// parts `store` goes to their own memory, [parts, elements].
template <Pass kind, class Type, class Store>
struct Work {
  static constexpr Pass pass = kind;
  using T = Type;
  using Into = Store;
  Geometry g;
  Tiles t;
  const T *left, *right;
  std::int64_t elements;
  Into store;
  Moments moments{};
};

/// Makes one pass, a tile a block: a loop over tiles would take registers that sums need. Each element of an image is
/// read once for each tap and tile of 128 columns, mostly from the caches.
template <class Of>
__global__ void __launch_bounds__(mma_tile::threads, 2) conv2d_mma_kernel(HEARTH_GRID_CONSTANT(Of) of) {
  using T = typename Of::T;
  using Into = typename Of::Into;
  constexpr Pass pass = Of::pass;
  const Geometry& g = of.g;
  const Tiles& t = of.t;
  T* const memory = cuda::dynamic_shared<T>();
  const Tile z(t, g, blockIdx.x);
  const std::int64_t taps = static_cast<std::int64_t>(g.r) * g.s, first_filter = z.group * g.filters;
  const std::int64_t first_channel = z.group * g.channels, width = taps * g.channels;
  float sum[mma_tile::row_fragments][mma_tile::column_fragments][4] = {};
  std::int64_t origin = z.part * of.elements, row_step = 0;
  if constexpr (pass == Pass::forward) {
    const Patches<T> a{{g, of.left + first_channel, t.rows}};
    const mma_tile::Stored<T> b{of.right + first_filter * width, g.filters, width, 1};
    mma_tile::multiply(a, b, z.row, z.column, z.begin, z.end, memory, sum);
    origin += first_filter;
    row_step = g.k;
  } else if constexpr (pass == Pass::backward_data) {
    const Windows<T> a{{g, of.left + first_filter, t.rows}};
    const FilterTaps<T> b{g, of.right + first_filter * width};
    mma_tile::multiply(a, b, z.row, z.column, z.begin, z.end, memory, sum);
    origin += first_channel;
    row_step = g.c;
  } else {
    const mma_tile::Stored<T> a{of.left + first_filter, g.filters, 1, g.k};
    const PatchColumns<T> b{g, of.right + first_channel, width};
    mma_tile::multiply(a, b, z.row, z.column, z.begin, z.end, memory, sum);
    origin += first_filter * width;
    row_step = width;
  }
  // A filter gradient has neither bias nor activation, and no registers to look.
  Into own = of.store;
  if constexpr (pass == Pass::backward_weights) {
    own.bias = nullptr;
    own.relu = false;
  }
  mma_tile::visit_own(sum, z.row, z.column, t.rows, t.columns,
                      [&](std::int64_t r, std::int64_t c, float first, float second, bool both) {
                        own.pair(origin + r * row_step + c, first_filter + c, first, second, both);
                      });
  // Long sums come in parts, of f32, and leave none.
  if constexpr (pass == Pass::forward && std::is_same_v<Into, tile::Store<T>>) {
    if (of.moments.parts != nullptr) leave_moments_of(of.moments, tile_part(t, z, first_filter), of.store, sum, memory);
  }
}

template <Pass pass, class T, class Into>
void run_pass(cuda::Stream& stream, const ConvShape& shape, const Tiles& t, const Tensor& left, const Tensor& right,
              const Tensor& result, const Into& into, Conv2dEpilogue* epilogue = nullptr) {
  const cuda::LaunchShape launch{cuda::blocks_for(t.count, 1), mma_tile::threads, mma_tile::shared_bytes};
  tile::launch_split(stream, {"conv2d mma", "conv2d mma parts", "conv2d sum"}, t.split, result,
                     pass == Pass::forward ? shape.k : result.size(), into,
                     [&]<class To>(const char* name, const To& store, std::int64_t part_elements) {
                       const std::int64_t moved = bytes_of_pass(shape, pass, left, right, into.accumulate, t.split,
                                                                result, part_elements, sizeof(typename To::Element));
                       using Of = Work<pass, T, To>;
                       const Of of{geometry_of(shape),
                                   t,
                                   left.data<T>(),
                                   right.data<T>(),
                                   part_elements,
                                   store,
                                   part_elements == 0 ? takes_moments(epilogue, t, result) : Moments{}};
                       cuda::launch(stream, name, launch.moving(moved), conv2d_mma_kernel<Of>, of);
                     });
}

template <class T>
void run(cuda::Stream& stream, const ConvProblem& problem, const Conv2dOperands& o) {
  const ConvShape& shape = problem.shape;
  const Tiles t = tiles_of(shape, problem.pass, mma_tile::side, mma_tile::depth);
  if (problem.pass == Pass::backward_data)
    return run_pass<Pass::backward_data, T>(stream, shape, t, o.y, o.w, o.x,
                                            tile::store_of<T>(o.x, Tensor(), o.accumulate));
  if (problem.pass == Pass::forward) {
    const Tensor row = tile::bias_row(o.b, o.y);
    const auto store = tile::store_of<T>(o.y, row, false, takes_relu(o.epilogue));
    return run_pass<Pass::forward, T>(stream, shape, t, o.x, o.w, o.y, store, o.epilogue);
  }
  const auto weights = [&]<class W>(const tile::Store<W>& store) {
    run_pass<Pass::backward_weights, T>(stream, shape, t, o.y, o.x, o.w, store);
  };
  if (o.w.dtype() == DType::f32)
    weights(tile::store_of<float>(o.w, Tensor(), false));
  else
    weights(tile::store_of<T>(o.w, Tensor(), false));
  if (o.b.defined()) sum_rows(stream, o.y, o.b);
}

}  // namespace

void conv2d_mma(cuda::Stream& stream, const ConvProblem& problem, const Conv2dOperands& o) {
  if (o.x.dtype() == DType::bf16) return run<bf16>(stream, problem, o);
  run<f16>(stream, problem, o);
}

}  // namespace hearth::kernels
