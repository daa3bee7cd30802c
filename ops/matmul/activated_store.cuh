// SPDX-License-Identifier: Apache-2.0
// What becomes of a sum of the products where an activation follows: it is taken of the sum before that is rounded, and
// what went in is stored beside the result if the gradient wants it. For kernel sources only.
#pragma once

#include "ops/epilogue/functors.h"
#include "ops/matmul/product.h"
#include "ops/matmul/tile.cuh"

namespace hearth::kernels::tile {

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
    store.c[at] = cuda::narrow<T>(activation_value(activation, total));
    if (pre != nullptr) pre[at] = cuda::narrow<T>(total);
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
    cuda::store_pack(store.c + at, Two{cuda::narrow<T>(activation_value(activation, total)),
                                       cuda::narrow<T>(activation_value(activation, next))});
    if (pre != nullptr) cuda::store_pack(pre + at, Two{cuda::narrow<T>(total), cuda::narrow<T>(next)});
  }
};

/// `store` with the problem's activation behind it.
template <class T>
ActivatedStore<T> activated(const Store<T>& store, const MatmulProblem& problem, const ProductOperands& operands) {
  return {store, operands.pre.defined() ? operands.pre.data<T>() : nullptr, problem.activation};
}

}  // namespace hearth::kernels::tile
