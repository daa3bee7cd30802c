// SPDX-License-Identifier: Apache-2.0
// A thread an element: the last merged axis of the walk runs along the threads' x, all others are rows. Traffic: each
// array once; repeated operands come from the caches.
#include "core/cuda/elementwise.h"
#include "ops/pointwise/compare.h"
#include "ops/pointwise/walk.h"

namespace hearth::kernels {
namespace {

using namespace cuda;

/// Elements in memory, or one number where `first` is null. A is the type it is read in.
template <class T, class A>
struct OperandOf {
  const T* first;
  A number;

  explicit OperandOf(const Operand& operand)
      : first(operand.tensor.defined() ? operand.tensor.data<T>() : nullptr), number(rounded(operand.number)) {}
  HEARTH_ALWAYS_INLINE A at(std::int64_t offset) const {
    return first == nullptr ? number : static_cast<A>(first[offset]);
  }

 private:
  static A rounded(double value) {
    if constexpr (sizeof(acc_t<A>) != sizeof(A))
      return A(static_cast<acc_t<A>>(value));
    else
      return static_cast<A>(value);
  }
};

/// Where the three operands stand at a position of the result.
struct Offsets {
  std::int64_t at[3];

  __device__ __forceinline__ Offsets(const Walk& walk, std::int64_t row, std::int64_t column) {
    const int last = walk.rank - 1;
    HEARTH_UNROLL
    for (int k = 0; k < 3; ++k) at[k] = column * walk.strides[k][last];
    for (int axis = last - 1; axis >= 0; --axis) {
      const std::int64_t index = row % walk.extents[axis];
      row /= walk.extents[axis];
      HEARTH_UNROLL
      for (int k = 0; k < 3; ++k) at[k] += index * walk.strides[k][axis];
    }
  }
};

template <class F, class T>
__global__ void compare_elements(HEARTH_GRID_CONSTANT(Walk) walk, OperandOf<T, acc_t<T>> a, OperandOf<T, acc_t<T>> b,
                                 bool* y, std::int64_t rows) {
  const std::int64_t length = walk.extents[walk.rank - 1];
  walk_rows(rows, length, [&](std::int64_t row, std::int64_t column) {
    const Offsets offsets(walk, row, column);
    y[row * length + column] = F::value(a.at(offsets.at[0]), b.at(offsets.at[1]));
  });
}

template <class T>
__global__ void select_elements(HEARTH_GRID_CONSTANT(Walk) walk, const bool* condition, OperandOf<T, T> a,
                                OperandOf<T, T> b, T* y, std::int64_t rows) {
  const std::int64_t length = walk.extents[walk.rank - 1];
  walk_rows(rows, length, [&](std::int64_t row, std::int64_t column) {
    const Offsets offsets(walk, row, column);
    y[row * length + column] = condition[offsets.at[0]] ? a.at(offsets.at[1]) : b.at(offsets.at[2]);
  });
}

}  // namespace

void compare(cuda::Stream& stream, Comparison comparison, const Operand& a, const Operand& b, const Tensor& y) {
  if (y.size() == 0) return;
  const Walk walk = walk_over(y.shape(), {a.tensor, b.tensor, Tensor()});
  const std::int64_t rows = y.size() / walk.length();
  visit_dtype("compare", a.tensor.dtype(), AllTypes{}, [&]<class T>() {
    visit_comparison(comparison, [&]<class F>(F, const char* name) {
      launch(stream, name, shape_over_rows(rows, walk.length()).moving(bytes_of(a.tensor, b.tensor, y)),
             compare_elements<F, T>, walk, OperandOf<T, acc_t<T>>(a), OperandOf<T, acc_t<T>>(b), y.data<bool>(), rows);
    });
  });
}

void select(cuda::Stream& stream, const Tensor& condition, const Operand& a, const Operand& b, const Tensor& y) {
  if (y.size() == 0) return;
  const Walk walk = walk_over(y.shape(), {condition, a.tensor, b.tensor});
  const std::int64_t rows = y.size() / walk.length();
  visit_dtype("where", y.dtype(), AllTypes{}, [&]<class T>() {
    launch(stream, "where", shape_over_rows(rows, walk.length()).moving(bytes_of(condition, a.tensor, b.tensor, y)),
           select_elements<T>, walk, condition.data<bool>(), OperandOf<T, T>(a), OperandOf<T, T>(b), y.data<T>(), rows);
  });
}

}  // namespace hearth::kernels
