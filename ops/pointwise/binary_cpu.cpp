// SPDX-License-Identifier: Apache-2.0
// Broadcasting arithmetic: axes that lie one after the other in both operands are merged, and the innermost merged
// axis runs in one of three vector loops (vector with vector, with a scalar on the right, with a scalar on the left).
// Operands of other strides are gathered into short strips first.
#include <algorithm>
#include <utility>

#include "core/cpu/parallel.h"
#include "ops/pointwise/binary.h"
#include "ops/pointwise/binary_step.h"
#include "ops/pointwise/walk.h"

namespace hearth {}

#define HEARTH_ISA_SOURCE "ops/pointwise/binary_cpu.cpp"
#include "core/cpu/foreach_isa.h"

#ifdef HEARTH_ISA_NAMESPACE
namespace hearth::kernels::HEARTH_ISA_NAMESPACE {

template <Binary step, class T>
void vector_vector(const T* a, const T* b, const T* dy, T* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i)
    write_element(y + i, evaluate<step>(read_element(a + i), read_element(b + i), read_element(dy + i)));
}

template <Binary step, class T>
void vector_scalar(const T* a, acc_t<T> b, const T* dy, T* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i)
    write_element(y + i, evaluate<step>(read_element(a + i), b, read_element(dy + i)));
}

template <Binary step, class T>
void scalar_vector(acc_t<T> a, const T* b, const T* dy, T* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i)
    write_element(y + i, evaluate<step>(a, read_element(b + i), read_element(dy + i)));
}

/// One operand of a run: elements `stride` apart, or one number for all.
template <class T>
struct Run {
  const T* first;
  std::int64_t stride;
  bool is_number;
  acc_t<T> number;

  bool is_scalar() const { return is_number || stride == 0; }
  acc_t<T> scalar() const { return is_number ? number : read_element(first); }
  /// n consecutive elements, in `strip` unless they already lie side by side.
  const T* vector(std::int64_t begin, std::int64_t n, T* strip) const {
    if (stride == 1) return first + begin;
    for (std::int64_t i = 0; i < n; ++i) strip[i] = first[(begin + i) * stride];
    return strip;
  }
  std::int64_t longest() const { return is_number || stride == 1 ? INT64_MAX : 256; }
};

template <Binary step, class T>
void run(const Run<T>& a, const Run<T>& b, const T* dy, T* y, std::int64_t n) {
  T strip_a[256];
  T strip_b[256];
  if (b.is_scalar() && !a.is_number) {
    const std::int64_t piece = std::min(n, a.longest());
    for (std::int64_t i = 0; i < n; i += piece) {
      const std::int64_t count = std::min(piece, n - i);
      vector_scalar<step>(a.vector(i, count, strip_a), b.scalar(), dy + i, y + i, count);
    }
    return;
  }
  const std::int64_t piece = std::min({n, a.is_scalar() ? n : a.longest(), b.longest()});
  for (std::int64_t i = 0; i < n; i += piece) {
    const std::int64_t count = std::min(piece, n - i);
    const T* const vector_b = b.vector(i, count, strip_b);
    if (a.is_scalar())
      scalar_vector<step>(a.scalar(), vector_b, dy + i, y + i, count);
    else
      vector_vector<step>(a.vector(i, count, strip_a), vector_b, dy + i, y + i, count);
  }
}

/// Elements [begin, end) of the output in row-major order.
template <Binary step, class T, class Walk>
void walk_range(const Walk& walk, const Run<T>& a, const Run<T>& b, const T* dy, T* y, std::int64_t begin,
                std::int64_t end) {
  const int last = walk.rank - 1;
  const std::int64_t inner = walk.extents[last];
  std::int64_t index[8] = {};
  std::int64_t rest = begin;
  std::int64_t at_a = 0, at_b = 0;
  for (int axis = last; axis >= 0; --axis) {
    index[axis] = rest % walk.extents[axis];
    rest /= walk.extents[axis];
    at_a += index[axis] * walk.strides_a[axis];
    at_b += index[axis] * walk.strides_b[axis];
  }
  for (std::int64_t position = begin; position < end;) {
    const std::int64_t count = std::min(inner - index[last], end - position);
    const Run<T> run_a{a.is_number ? nullptr : a.first + at_a, walk.strides_a[last], a.is_number, a.number};
    const Run<T> run_b{b.is_number ? nullptr : b.first + at_b, walk.strides_b[last], b.is_number, b.number};
    run<step>(run_a, run_b, dy + position, y + position, count);
    position += count;
    // On to the next row: back to the start of this one, then one step along the axes above.
    at_a -= index[last] * walk.strides_a[last];
    at_b -= index[last] * walk.strides_b[last];
    index[last] = 0;
    for (int axis = last - 1; axis >= 0; --axis) {
      at_a += walk.strides_a[axis];
      at_b += walk.strides_b[axis];
      if (++index[axis] < walk.extents[axis]) break;
      at_a -= walk.extents[axis] * walk.strides_a[axis];
      at_b -= walk.extents[axis] * walk.strides_b[axis];
      index[axis] = 0;
    }
  }
}

template <Binary step, class T, class Walk>
void step_range(const Walk& walk, const T* a, acc_t<T> number_a, const T* b, acc_t<T> number_b, const T* dy, T* y,
                std::int64_t begin, std::int64_t end) {
  if constexpr (is_defined<step, acc_t<T>>)
    walk_range<step>(walk, Run<T>{a, 0, a == nullptr, number_a}, Run<T>{b, 0, b == nullptr, number_b}, dy, y, begin,
                     end);
}

}  // namespace hearth::kernels::HEARTH_ISA_NAMESPACE
#else
namespace hearth::kernels {
namespace {

constexpr std::int64_t grain = 1 << 14;
using AllArithmetic = Types<float, double, f16, bf16, std::int32_t, std::int64_t>;

bool is_number(const Tensor& tensor, const Tensor& y) {
  return tensor.rank() == 0 && (tensor.dtype() != y.dtype() || y.rank() > 0);
}

}  // namespace

void binary(cpu::Stream&, Binary function, const Tensor& a, const Tensor& b, const Tensor& y, const Tensor& dy) {
  if (y.size() == 0) return;
  const Walk walk = walk_over(y.shape(), a, b);
  visit_dtype("binary", y.dtype(), AllArithmetic{}, [&]<class T>() {
    const auto number_of = [&](const Tensor& tensor) {
      return tensor.dtype() == y.dtype() ? static_cast<acc_t<T>>(*tensor.data<T>()) : *tensor.data<acc_t<T>>();
    };
    const T* const first_a = is_number(a, y) ? nullptr : a.data<T>();
    const T* const first_b = is_number(b, y) ? nullptr : b.data<T>();
    const acc_t<T> number_a = first_a ? acc_t<T>{} : number_of(a);
    const acc_t<T> number_b = first_b ? acc_t<T>{} : number_of(b);
    T* const to = y.data<T>();
    // Functions that need no dy never look at it; the pointer is advanced with the others.
    const T* const from_dy = dy.defined() ? dy.data<T>() : to;
    visit_binary(function, [&]<Binary step>() {
      cpu::parallel_for(y.size(), grain, [&](std::int64_t begin, std::int64_t end) {
        HEARTH_ISA_CALL(step_range<step>, walk, first_a, number_a, first_b, number_b, from_dy, to, begin, end);
      });
    });
  });
}

}  // namespace hearth::kernels
#endif
