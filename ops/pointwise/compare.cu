// SPDX-License-Identifier: Apache-2.0
// A thread an element: the last merged axis of the walk runs along the threads' x, all others are rows. Traffic: each
// array once; repeated operands come from the caches.
#include "core/cuda/elementwise.h"
#include "ops/pointwise/compare_step.h"

namespace hearth::kernels {
namespace {

using namespace cuda;

/// Where the three operands stand at a position of the result.
struct Offsets {
  std::int64_t at[3];

  __device__ __forceinline__ Offsets(const StridedWalk& walk, std::int64_t row, std::int64_t column) {
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
__global__ void compare_elements(HEARTH_GRID_CONSTANT(StridedWalk) walk, OperandOf<T, acc_t<T>> a,
                                 OperandOf<T, acc_t<T>> b, bool* y, std::int64_t rows) {
  const std::int64_t length = walk.extents[walk.rank - 1];
  walk_rows(rows, length, [&](std::int64_t row, std::int64_t column) {
    const Offsets offsets(walk, row, column);
    y[row * length + column] = F::value(a.at(offsets.at[0]), b.at(offsets.at[1]));
  });
}

template <class T>
__global__ void select_elements(HEARTH_GRID_CONSTANT(StridedWalk) walk, const bool* condition, OperandOf<T, T> a,
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
  const StridedWalk walk = strided_walk(y.shape(), {a.tensor, b.tensor, Tensor()});
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
  const StridedWalk walk = strided_walk(y.shape(), {condition, a.tensor, b.tensor});
  const std::int64_t rows = y.size() / walk.length();
  visit_dtype("where", y.dtype(), AllTypes{}, [&]<class T>() {
    launch(stream, "where", shape_over_rows(rows, walk.length()).moving(bytes_of(condition, a.tensor, b.tensor, y)),
           select_elements<T>, walk, condition.data<bool>(), OperandOf<T, T>(a), OperandOf<T, T>(b), y.data<T>(), rows);
  });
}

}  // namespace hearth::kernels
