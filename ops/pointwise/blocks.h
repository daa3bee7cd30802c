// SPDX-License-Identifier: Apache-2.0
// The pointwise functions on the CPU, for blocks of elements on the calling thread. A is float or double.
#pragma once

#include <cstdint>

#include "ops/pointwise/function.h"

namespace hearth::kernels {

/// y[i] = f(x[i]) for n elements; y may be x. a and b are the function's numbers, if it has any.
template <class A>
using ValueBlock = void (*)(const A* x, A* y, std::int64_t n, A a, A b);
/// dx[i] = f' dy[i] for n elements, with f' from x or y, as the functor says; dx may be either operand.
template <class A>
using SlopeBlock = void (*)(const A* saved, const A* dy, A* dx, std::int64_t n, A a, A b);

/// The function's block for the ISA level in use.
template <class A>
ValueBlock<A> value_block(Pointwise function);
template <class A>
SlopeBlock<A> slope_block(Pointwise function);

}  // namespace hearth::kernels
