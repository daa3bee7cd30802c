// SPDX-License-Identifier: Apache-2.0
// The largest value of a row and the sum of exp(x - largest) in one reading (Milakov and Gimelshein, 2018).
#pragma once

#include <cmath>
#include <limits>

#include "ops/row_split.cuh"

namespace hearth::cuda {

/// A row without anything but -infinity has sum 0; NaN and +infinity make the sum NaN.
template <class P>
struct OnlineSum {
  P most = -std::numeric_limits<P>::infinity();
  P sum = 0;

  /// Where exponents are taken from: never -infinity, so that nothing becomes NaN on the way.
  __device__ static P reference(P most) { return most == -std::numeric_limits<P>::infinity() ? P(0) : most; }

  template <int n>
  __device__ __forceinline__ void add(const P (&value)[n]) {
    P top = most;
    HEARTH_UNROLL
    for (int k = 0; k < n; ++k) top = value[k] > top ? value[k] : top;
    const P from = reference(top);
    P part = 0;
    HEARTH_UNROLL
    for (int k = 0; k < n; ++k) part += std::exp(value[k] - from);
    sum = sum * std::exp(most - from) + part;
    most = top;
  }

  /// Over the threads of the group; all of them get the result.
  template <class Group>
  __device__ void join(const Group& group) {
    const P top = group.template reduce<Largest>(most, -std::numeric_limits<P>::infinity());
    sum = group.template reduce<Sum>(sum * std::exp(most - reference(top)), P(0));
    most = top;
  }
};

}  // namespace hearth::cuda
