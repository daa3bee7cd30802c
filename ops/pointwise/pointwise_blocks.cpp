// SPDX-License-Identifier: Apache-2.0
#include "ops/pointwise/blocks.h"
#include "ops/pointwise/value_slope.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/pointwise/pointwise_blocks.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

template <class F, class A>
void values(const A* x, A* y, std::int64_t n, A a, A b) {
  const Value<F, A> value{a, b};
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = value(x[i]);
}

template <class F, class A>
void slopes(const A* saved, const A* dy, A* dx, std::int64_t n, A a, A b) {
  const Slope<F, A> slope{a, b};
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) dx[i] = slope(saved[i], dy[i]);
}

template <class A>
ValueBlock<A> values_of(Pointwise function) {
  ValueBlock<A> block = nullptr;
  visit_function(function, [&]<class F>(F, const char*, const char*) { block = values<F, A>; });
  return block;
}

template <class A>
SlopeBlock<A> slopes_of(Pointwise function) {
  SlopeBlock<A> block = nullptr;
  visit_function(function, [&]<class F>(F, const char*, const char*) { block = slopes<F, A>; });
  return block;
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {

template <>
ValueBlock<float> value_block(Pointwise function) {
  return HEARTH_ISA_CALL(values_of<float>, function);
}
template <>
ValueBlock<double> value_block(Pointwise function) {
  return HEARTH_ISA_CALL_UP_TO_V3(values_of<double>, function);
}
template <>
SlopeBlock<float> slope_block(Pointwise function) {
  return HEARTH_ISA_CALL(slopes_of<float>, function);
}
template <>
SlopeBlock<double> slope_block(Pointwise function) {
  return HEARTH_ISA_CALL_UP_TO_V3(slopes_of<double>, function);
}

}  // namespace hearth::kernels
#endif
