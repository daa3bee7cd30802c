// SPDX-License-Identifier: Apache-2.0
// What the own matrix products of the device share: how a problem is cut into tiles, and what becomes of a sum where an
// activation follows. It is taken of the sum before that is rounded, and what went in is stored beside the result if
// the gradient wants it. For kernel sources only.
#pragma once

#include "ops/epilogue/functors.h"
#include "ops/matmul/cuda/tile.cuh"
#include "ops/matmul/product.h"

namespace hearth::kernels::tile {

/// The tiles of all matrices of a batch and of all parts.
struct ProductTiles {
  std::int64_t m, n, k;
  std::int64_t a_row_step, a_depth_step;  ///< of op(A) [m, k]
  std::int64_t b_row_step, b_depth_step;  ///< of op(B)^T [n, k]
  std::int64_t a_matrix, b_matrix;        ///< elements from one matrix of the batch to the next
  std::int64_t batch, row_tiles, column_tiles, count;
  Split split;
};

/// The problem in tiles of this side and depths of a multiple of `step`.
inline ProductTiles tiles_of(const MatmulProblem& problem, std::int64_t tile_side, std::int64_t step) {
  ProductTiles p{};
  p.m = problem.m;
  p.n = problem.n;
  p.k = problem.k;
  p.a_row_step = problem.transpose_a ? 1 : p.k;
  p.a_depth_step = problem.transpose_a ? p.m : 1;
  p.b_row_step = problem.transpose_b ? p.k : 1;
  p.b_depth_step = problem.transpose_b ? 1 : p.n;
  p.a_matrix = p.m * p.k;
  p.b_matrix = problem.batch_stride_b == 0 ? 0 : p.k * p.n;
  p.batch = problem.batch;
  p.row_tiles = (p.m + tile_side - 1) / tile_side;
  p.column_tiles = (p.n + tile_side - 1) / tile_side;
  const std::int64_t tiles = p.row_tiles * p.column_tiles * p.batch;
  p.split = split_of(tiles, p.k, step);
  p.count = tiles * p.split.count;
  return p;
}

/// One tile of one part of one matrix of the batch: depths [begin, end) of matrix `item`.
struct ProductTile {
  std::int64_t row, column, matrix, item, begin, end;
  __device__ ProductTile(const ProductTiles& p, std::int64_t tile_side, std::int64_t at) {
    column = at % p.column_tiles * tile_side;
    row = at / p.column_tiles % p.row_tiles * tile_side;
    matrix = at / p.column_tiles / p.row_tiles;  // part, then matrix of the batch
    const std::int64_t part = matrix / p.batch;
    item = matrix % p.batch;
    begin = part * p.split.size;
    end = begin + p.split.size < p.k ? begin + p.split.size : p.k;
  }
};

/// The branch is the same for the whole launch.
template <class A>
__device__ __forceinline__ A activation_value(Activation activation, A x) {
  switch (activation) {
    case Activation::relu:
      return functors::relu::value(x);
    case Activation::gelu:
      return functors::gelu::value(x);
    case Activation::gelu_tanh:
      return functors::gelu_tanh::value(x);
    case Activation::silu:
      return functors::silu::value(x);
    case Activation::none:
      break;
  }
  return x;
}

/// A Store (see there) whose c becomes activation(total), and pre the total, each rounded once.
template <class T>
struct ActivatedStore {
  using Element = T;
  using Sum = acc_t<T>;
  Store<T> store;
  T* pre;  ///< or null
  Activation activation;

  __device__ void operator()(std::int64_t at, std::int64_t column, Sum sum) const {
    const Sum total = store.total(at, column, sum);
    store.c[at] = cuda::cast_down<T>(activation_value(activation, total));
    if (pre != nullptr) pre[at] = cuda::cast_down<T>(total);
  }

  /// The same for two neighbours of a row, the second only if `both`; in one access each where the addresses allow.
  __device__ void pair(std::int64_t at, std::int64_t column, Sum first, Sum second, bool both) const {
    using Two = cuda::Pack<T, 2>;
    const auto fits = [](const T* p) { return reinterpret_cast<std::uintptr_t>(p) % sizeof(Two) == 0; };
    if (!both || !fits(store.c + at) || (pre != nullptr && !fits(pre + at))) {
      (*this)(at, column, first);
      if (both) (*this)(at + 1, column + 1, second);
      return;
    }
    const Sum total = store.total(at, column, first), next = store.total(at + 1, column + 1, second);
    cuda::store_pack(store.c + at, Two{cuda::cast_down<T>(activation_value(activation, total)),
                                       cuda::cast_down<T>(activation_value(activation, next))});
    if (pre != nullptr) cuda::store_pack(pre + at, Two{cuda::cast_down<T>(total), cuda::cast_down<T>(next)});
  }
};

/// f(store) for c of type T, with the problem's bias, sum and activation; an activation where `activates` only.
template <class T, bool activates, class F>
void with_store(const MatmulProblem& problem, const ProductOperands& o, F&& f) {
  const Tensor row = bias_row(o.bias, o.c);
  const Store<T> store = store_of<T>(o.c, row, problem.accumulate);
  if constexpr (activates)
    if (problem.activation != Activation::none)
      return f(ActivatedStore<T>{store, o.pre.defined() ? o.pre.data<T>() : nullptr, problem.activation});
  f(store);
}

}  // namespace hearth::kernels::tile
