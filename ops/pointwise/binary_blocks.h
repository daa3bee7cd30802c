// SPDX-License-Identifier: Apache-2.0
// The functions of two tensors on the CPU, for blocks of elements on the calling thread.
#pragma once

#include <cstdint>

#include "ops/pointwise/binary_function.h"
#include "ops/pointwise/comparison.h"

namespace hearth::kernels {

/// y[i] = f(a[i], b[i]), or f(a[i], b[i], dy[i]) of a gradient, for n elements; y may be any operand. A is float,
/// double, std::int32_t or std::int64_t.
template <class A>
using BinaryBlock = void (*)(const A* a, const A* b, const A* dy, A* y, std::int64_t n);
/// The function's block for the ISA level in use; null where whole numbers have no such function.
template <class A>
BinaryBlock<A> binary_block(Binary function);

/// y[i] = a[i] ? b[i], for n elements. A is one of the above, or std::uint8_t, which bool is compared as.
template <class A>
using CompareBlock = void (*)(const A* a, const A* b, bool* y, std::int64_t n);
template <class A>
CompareBlock<A> compare_block(Comparison comparison);

/// y[i] = condition[i] ? a[i] : b[i] for n elements of a width, as unsigned integers.
template <class W>
void select_block(const std::uint8_t* condition, const W* a, const W* b, W* y, std::int64_t n);

}  // namespace hearth::kernels
