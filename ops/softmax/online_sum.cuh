// SPDX-License-Identifier: Apache-2.0
// The largest value of a row and the sum of exp(x - largest) in one reading (Milakov and Gimelshein, 2018).
#pragma once

#include <cmath>
#include <limits>

#include "ops/device/mma.h"
#include "ops/device/row_split.cuh"

namespace hearth::cuda {

/// exp(x - above) as results of type T need it: beside 16 bits the bare power of two is exact enough, for a tenth of
/// the work.
template <class T>
__device__ __forceinline__ acc_t<T> exp_for(acc_t<T> x, acc_t<T> above = 0) {
  constexpr auto log2_e = static_cast<acc_t<T>>(1.4426950408889634);
  if constexpr (sizeof(T) == 2)
    return exp2_rounded(std::fma(x, log2_e, -(above * log2_e)));
  else
    return std::exp(x - above);
}

/// Of elements of type T. A row without anything but -infinity has sum 0; NaN and +infinity make the sum NaN.
template <class T>
struct OnlineSum {
  using P = acc_t<T>;
  P most = -std::numeric_limits<P>::infinity();
  P sum = 0;

  /// Where exponents are taken from: never -infinity, so that nothing becomes NaN on the way.
  __device__ static P reference(P most) { return most == -std::numeric_limits<P>::infinity() ? P(0) : most; }

  template <int n>
  __device__ __forceinline__ void add(const P (&value)[n]) {
    P top = most;
    HEARTH_UNROLL
    for (int k = 0; k < n; ++k) top = std::fmax(top, value[k]);
    const P from = reference(top);
    P part = 0;
    HEARTH_UNROLL
    for (int k = 0; k < n; ++k) part += exp_for<T>(value[k] - from);
    sum = sum * exp_for<T>(most - from) + part;
    most = top;
  }

  /// Over the threads of the group; all of them get the result.
  template <class Group>
  __device__ void join(const Group& group) {
    const P top = group.template reduce<Largest>(most, -std::numeric_limits<P>::infinity());
    sum = group.template reduce<Sum>(sum * exp_for<T>(most - reference(top)), P(0));
    most = top;
  }
};

}  // namespace hearth::cuda
