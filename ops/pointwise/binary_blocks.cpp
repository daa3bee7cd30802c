// SPDX-License-Identifier: Apache-2.0
#include "ops/pointwise/binary_blocks.h"

#include "ops/pointwise/binary_step.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/pointwise/binary_blocks.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

template <Binary step, class A>
void evaluated(const A* a, const A* b, const A* dy, A* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = evaluate<step>(a[i], b[i], is_gradient(step) ? dy[i] : A(0));
}

template <class A>
BinaryBlock<A> evaluated_of(Binary function) {
  BinaryBlock<A> block = nullptr;
  visit_binary(function, [&]<Binary step>() {
    if constexpr (is_defined<step, A>) block = evaluated<step, A>;
  });
  return block;
}

template <class F, class A>
void compared(const A* a, const A* b, bool* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = F::value(a[i], b[i]);
}

template <class A>
CompareBlock<A> compared_of(Comparison comparison) {
  CompareBlock<A> block = nullptr;
  visit_comparison(comparison, [&]<class F>(F, const char*) { block = compared<F, A>; });
  return block;
}

template <class W>
void selected(const std::uint8_t* condition, const W* a, const W* b, W* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = condition[i] != 0 ? a[i] : b[i];
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {

template <>
BinaryBlock<float> binary_block(Binary function) {
  return HEARTH_ISA_CALL(evaluated_of<float>, function);
}
template <>
CompareBlock<float> compare_block(Comparison comparison) {
  return HEARTH_ISA_CALL(compared_of<float>, comparison);
}

#define HEARTH_BLOCKS(A)                                         \
  template <>                                                    \
  BinaryBlock<A> binary_block(Binary function) {                 \
    return HEARTH_ISA_CALL_UP_TO_V3(evaluated_of<A>, function);  \
  }                                                              \
  template <>                                                    \
  CompareBlock<A> compare_block(Comparison comparison) {         \
    return HEARTH_ISA_CALL_UP_TO_V3(compared_of<A>, comparison); \
  }
HEARTH_BLOCKS(double)
HEARTH_BLOCKS(std::int32_t)
HEARTH_BLOCKS(std::int64_t)
#undef HEARTH_BLOCKS
template <>
CompareBlock<std::uint8_t> compare_block(Comparison comparison) {
  return HEARTH_ISA_CALL_UP_TO_V3(compared_of<std::uint8_t>, comparison);
}

template <class W>
void select_block(const std::uint8_t* condition, const W* a, const W* b, W* y, std::int64_t n) {
  HEARTH_ISA_CALL_UP_TO_V3(selected, condition, a, b, y, n);
}
template void select_block(const std::uint8_t*, const std::uint8_t*, const std::uint8_t*, std::uint8_t*, std::int64_t);
template void select_block(const std::uint8_t*, const std::uint16_t*, const std::uint16_t*, std::uint16_t*,
                           std::int64_t);
template void select_block(const std::uint8_t*, const std::uint32_t*, const std::uint32_t*, std::uint32_t*,
                           std::int64_t);
template void select_block(const std::uint8_t*, const std::uint64_t*, const std::uint64_t*, std::uint64_t*,
                           std::int64_t);

}  // namespace hearth::kernels
#endif
