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

/// A pass: its tiles, and what they are made from and go to. `left` is x, dy, dy; `right` is w, w, x. With several
/// parts `store` goes to their own memory, [parts, elements].
template <Pass kind, class Type, class Store, class Reading = AsStored<Type>>
struct Work {
  static constexpr Pass pass = kind;
  using T = Type;
  using Into = Store;
  using Read = Reading;
  Geometry g;
  Tiles t;
  const T *left, *right;
  std::int64_t elements;
  Into store;
  Read read{};
  Moments moments{};
};

/// Makes a tile. Each element of an image is read once for each tap and tile of 128 columns, mostly from the caches.
template <class Of>
__device__ __forceinline__ void make_tile(const Of& of, std::int64_t at, typename Of::T* memory) {
  using T = typename Of::T;
  using Into = typename Of::Into;
  using Read = typename Of::Read;
  constexpr Pass pass = Of::pass;
  const Geometry& g = of.g;
  const Tiles& t = of.t;
  const Tile z(t, g, at);
  const std::int64_t taps = static_cast<std::int64_t>(g.r) * g.s, first_filter = z.group * g.filters;
  const std::int64_t first_channel = z.group * g.channels, width = taps * g.channels;
  float sum[mma_tile::row_fragments][mma_tile::column_fragments][4] = {};
  std::int64_t origin = z.part * of.elements, row_step = 0;
  if constexpr (pass == Pass::forward) {
    const Patches<T, Read> a{{g, of.left + first_channel, t.rows}, of.read};
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
    const PatchColumns<T, Read> b{g, of.right + first_channel, width, of.read};
    mma_tile::multiply(a, b, z.row, z.column, z.begin, z.end, memory, sum);
    origin += first_filter * width;
    row_step = width;
  }
  if constexpr (std::is_same_v<Into, BehindNorm<T>>) {
    store_tile(of.store, tile_part(t, z, first_channel), sum, memory);
  } else {
    // A filter gradient has neither bias nor activation, and no registers to look.
    Into own = of.store;
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
    if (of.moments.parts != nullptr) leave_moments_of(of.moments, tile_part(t, z, first_filter), of.store, sum, memory);
  }
}

/// Makes one pass, a tile a block: a loop over tiles would take registers that sums need.
template <class Of>
__global__ void __launch_bounds__(mma_tile::threads, 2) conv2d_mma_kernel(HEARTH_GRID_CONSTANT(Of) of) {
  make_tile(of, blockIdx.x, cuda::dynamic_shared<typename Of::T>());
}

/// Makes the gradients of filters, in parts, and of images, a tile a block. Filters' tiles, whose sums are long, begin.
template <class Filters, class Images>
__global__ void __launch_bounds__(mma_tile::threads, 2)
    conv2d_gradients_mma(HEARTH_GRID_CONSTANT(Filters) filters, HEARTH_GRID_CONSTANT(Images) images) {
  auto* const memory = cuda::dynamic_shared<typename Images::T>();
  const std::int64_t at = blockIdx.x;
  if (at < filters.t.count)
    make_tile(filters, at, memory);
  else
    make_tile(images, at - filters.t.count, memory);
}

template <Pass pass, class T, class Into, class Read = AsStored<T>>
void run_pass(cuda::Stream& stream, const ConvShape& shape, const Tiles& t, const Tensor& left, const Tensor& right,
              const Tensor& result, const Into& into, const Read& read = {}, Conv2dEpilogue* epilogue = nullptr,
              Tensor* unfinished = nullptr) {
  const cuda::LaunchShape launch{cuda::blocks_for(t.count, 1), mma_tile::threads, mma_tile::shared_bytes};
  launch_tiles(stream, {"conv2d mma", "conv2d mma parts", "conv2d sum"}, t, result,
               pass == Pass::forward ? shape.k : result.size(), into, unfinished,
               [&]<class To>(const char* name, const To& store, std::int64_t part_elements) {
                 using Of = Work<pass, T, To, Read>;
                 const std::int64_t moved = bytes_of_pass<pass>(shape, left, right, into, t.split, result,
                                                                part_elements, sizeof(typename To::Element));
                 const Of of{geometry_of(shape),
                             t,
                             left.data<T>(),
                             right.data<T>(),
                             part_elements,
                             store,
                             read,
                             part_elements == 0 ? takes_moments(epilogue, t, result) : Moments{}};
                 cuda::launch(stream, name, launch.moving(moved), conv2d_mma_kernel<Of>, of);
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

/// f32 parts of a gradient of filters, one or more: w itself where that is the one.
Tensor room_for_parts(const Conv2dOperands& filters, const Tiles& t) {
  const Tensor& w = filters.w;
  if (t.split.count == 1 && w.dtype() == DType::f32) return w;
  *filters.unfinished = Tensor::empty({t.split.count, w.size()}, DType::f32, w.device());
  return *filters.unfinished;
}

template <class T>
void run_gradients(cuda::Stream& stream, const ConvShape& shape, const Conv2dOperands& filters,
                   const Conv2dOperands& images) {
  const auto tiles = [&](Pass pass) { return tiles_of(shape, pass, mma_tile::side, mma_tile::depth); };
  const Tiles of_filters = tiles(Pass::backward_weights);
  const Tensor parts = room_for_parts(filters, of_filters);
  const tile::Store<float> part_store{parts.data<float>(), nullptr, false, false};
  const Geometry g = geometry_of(shape);
  const auto launch = [&](const Tiles& of_images, const auto& image_store, const auto& read) {
    using Filters = Work<Pass::backward_weights, T, tile::Store<float>, std::decay_t<decltype(read)>>;
    using Images = Work<Pass::backward_data, T, std::decay_t<decltype(image_store)>>;
    const std::int64_t moved =
        bytes_of_pass<Pass::backward_weights>(shape, filters.y, filters.x, part_store, of_filters.split, filters.w,
                                              filters.w.size(), sizeof(float)) +
        bytes_of_pass<Pass::backward_data>(shape, images.y, images.w, image_store, of_images.split, images.x, 0, 0);
    const cuda::LaunchShape shape_of_both{cuda::blocks_for(of_filters.count + of_images.count, 1), mma_tile::threads,
                                          mma_tile::shared_bytes, moved};
    cuda::launch(stream, "conv2d mma gradients", shape_of_both, conv2d_gradients_mma<Filters, Images>,
                 Filters{g, of_filters, filters.y.data<T>(), filters.x.data<T>(), filters.w.size(), part_store, read},
                 Images{g, of_images, images.y.data<T>(), images.w.data<T>(), 0, image_store});
  };
  // A convolution inside of a block, or the first one.
  with_data_store<T>(stream, images, whole_depths(tiles(Pass::backward_data)),
                     [&]<class Into>(const Tiles& of_images, const Into& store) {
                       if constexpr (std::is_same_v<Into, BehindNorm<T>>)
                         launch(of_images, store, through_norm<T>(*filters.fusion));
                       else if constexpr (!std::is_same_v<Into, tile::Store<T>>)
                         launch(of_images, store, AsStored<T>{});
                     });
}

}  // namespace

void conv2d_mma_gradients(cuda::Stream& stream, const ConvShape& shape, const Conv2dOperands& filters,
                          const Conv2dOperands& images) {
  if (images.x.dtype() == DType::bf16) return run_gradients<bf16>(stream, shape, filters, images);
  run_gradients<f16>(stream, shape, filters, images);
}

void conv2d_mma(cuda::Stream& stream, const ConvProblem& problem, const Conv2dOperands& o) {
  if (o.x.dtype() == DType::bf16) return run<bf16>(stream, problem, o);
  run<f16>(stream, problem, o);
}

}  // namespace hearth::kernels
