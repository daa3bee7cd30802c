// SPDX-License-Identifier: Apache-2.0
#include "ops/pointwise/walk.h"

namespace hearth::kernels {
namespace {

/// The stride of `tensor` along an axis of the result; 0 where it is repeated.
std::int64_t stride_along(const Tensor& tensor, int axis, int rank) {
  const int own = axis - (rank - tensor.rank());
  return own < 0 || tensor.shape()[own] == 1 ? 0 : tensor.strides()[static_cast<std::size_t>(own)];
}

}  // namespace

Walk walk_over(const Shape& shape, const Tensor& a, const Tensor& b) {
  Walk walk;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const std::int64_t extent = shape[axis];
    if (extent == 1) continue;
    const std::int64_t stride_a = stride_along(a, axis, shape.rank());
    const std::int64_t stride_b = stride_along(b, axis, shape.rank());
    const int last = walk.rank - 1;
    if (last >= 0 && walk.strides_a[last] == stride_a * extent && walk.strides_b[last] == stride_b * extent) {
      walk.extents[last] *= extent;
      walk.strides_a[last] = stride_a;
      walk.strides_b[last] = stride_b;
      continue;
    }
    walk.extents[walk.rank] = extent;
    walk.strides_a[walk.rank] = stride_a;
    walk.strides_b[walk.rank] = stride_b;
    ++walk.rank;
  }
  if (walk.rank == 0) {
    walk.rank = 1;
    walk.extents[0] = 1;
  }
  return walk;
}

}  // namespace hearth::kernels
