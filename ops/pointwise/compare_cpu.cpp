// SPDX-License-Identifier: Apache-2.0
// Row by row over the merged axes of the result; where all operands are dense or one element a row, the inner loop
// vectorises. Reference: for each position: y = f(a[place], b[place]), or y = condition ? a : b.
#include <algorithm>
#include <type_traits>

#include "core/cpu/parallel.h"
#include "core/dtype.h"
#include "ops/pointwise/compare_step.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/pointwise/compare_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

/// f(offsets of the three operands at a position, that position, how many follow in its row), for the rows and parts of
/// rows in [begin, end).
template <class Walk, class F>
void each_run(const Walk& walk, std::int64_t begin, std::int64_t end, const F& f) {
  const int last = walk.rank - 1;
  const std::int64_t length = walk.extents[last];
  for (std::int64_t place = begin; place < end;) {
    std::int64_t rest = place / length;
    const std::int64_t column = place % length, count = std::min(length - column, end - place);
    std::int64_t offsets[3];
    for (int k = 0; k < 3; ++k) offsets[k] = column * walk.strides[k][last];
    for (int axis = last - 1; axis >= 0; --axis) {
      const std::int64_t index = rest % walk.extents[axis];
      rest /= walk.extents[axis];
      for (int k = 0; k < 3; ++k) offsets[k] += index * walk.strides[k][axis];
    }
    f(offsets, place, count);
    place += count;
  }
}

template <class F, class Walk, class Source>
void compare_range(const Walk& walk, const Source& a, const Source& b, bool* y, std::int64_t begin, std::int64_t end) {
  using A = std::remove_const_t<decltype(a.number)>;
  const std::int64_t step_a = walk.strides[0][walk.rank - 1], step_b = walk.strides[1][walk.rank - 1];
  each_run(walk, begin, end, [&](const std::int64_t* offsets, std::int64_t place, std::int64_t count) {
    if (a.first != nullptr && step_a == 1 && (b.first == nullptr || step_b == 0)) {
      const A value = b.at(offsets[1]);
      for (std::int64_t i = 0; i < count; ++i) y[place + i] = F::value(static_cast<A>(a.first[offsets[0] + i]), value);
    } else if (a.first != nullptr && b.first != nullptr && step_a == 1 && step_b == 1) {
      for (std::int64_t i = 0; i < count; ++i)
        y[place + i] = F::value(static_cast<A>(a.first[offsets[0] + i]), static_cast<A>(b.first[offsets[1] + i]));
    } else {
      for (std::int64_t i = 0; i < count; ++i)
        y[place + i] = F::value(a.at(offsets[0] + i * step_a), b.at(offsets[1] + i * step_b));
    }
  });
}

template <class T, class Walk, class Source>
void select_range(const Walk& walk, const bool* condition, const Source& a, const Source& b, T* y, std::int64_t begin,
                  std::int64_t end) {
  const int last = walk.rank - 1;
  const std::int64_t step = walk.strides[0][last], step_a = walk.strides[1][last], step_b = walk.strides[2][last];
  each_run(walk, begin, end, [&](const std::int64_t* offsets, std::int64_t place, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i)
      y[place + i] = condition[offsets[0] + i * step] ? a.at(offsets[1] + i * step_a) : b.at(offsets[2] + i * step_b);
  });
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {
namespace {

constexpr std::int64_t grain = 1 << 14;

}  // namespace

void compare(cpu::Stream&, Comparison comparison, const Operand& a, const Operand& b, const Tensor& y) {
  const StridedWalk walk = strided_walk(y.shape(), {a.tensor, b.tensor, Tensor()});
  bool* const to = y.data<bool>();
  visit_dtype("compare", a.tensor.dtype(), AllTypes{}, [&]<class T>() {
    using A = acc_t<T>;
    const OperandOf<T, A> of_a(a), of_b(b);
    visit_comparison(comparison, [&]<class F>(F, const char*) {
      cpu::parallel_for(y.size(), grain, [&](std::int64_t begin, std::int64_t end) {
        HEARTH_ISA_CALL(compare_range<F>, walk, of_a, of_b, to, begin, end);
      });
    });
  });
}

void select(cpu::Stream&, const Tensor& condition, const Operand& a, const Operand& b, const Tensor& y) {
  const StridedWalk walk = strided_walk(y.shape(), {condition, a.tensor, b.tensor});
  const bool* const mask = condition.data<bool>();
  visit_dtype("where", y.dtype(), AllTypes{}, [&]<class T>() {
    const OperandOf<T, T> of_a(a), of_b(b);
    T* const to = y.data<T>();
    cpu::parallel_for(y.size(), grain, [&](std::int64_t begin, std::int64_t end) {
      HEARTH_ISA_CALL(select_range<T>, walk, mask, of_a, of_b, to, begin, end);
    });
  });
}

}  // namespace hearth::kernels
#endif
