// SPDX-License-Identifier: Apache-2.0
// Ops that only change how elements are addressed. All take any element type; where no copy is needed the result is a
// view that shares x's storage, so writing to one shows in the other.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "core/tensor.h"

namespace hearth {

/// Extents as reshape takes them: those of a shape, or numbers of which one may be -1.
class HEARTH_API Extents {
 public:
  Extents(std::initializer_list<std::int64_t> values) : values_(values) {}
  Extents(const std::vector<std::int64_t>& values) : values_(values) {}  // NOLINT: to be written without a cast
  Extents(const Shape& shape) : values_(shape.begin(), shape.end()) {}   // NOLINT
  const std::vector<std::int64_t>& values() const { return values_; }

 private:
  std::vector<std::int64_t> values_;
};

/// The same elements in row-major order under other extents. One -1 is replaced by what makes the sizes agree.
/// A view if x is contiguous, else a copy. ShapeError if the sizes differ, for two -1, for -1 beside an extent of 0.
HEARTH_API Tensor reshape(const Tensor& x, const Extents& extents);

/// The axes from `first_axis` on merged into one: [n, h, w, c] becomes [n, h*w*c]. ShapeError for an axis out of range.
HEARTH_API Tensor flatten(const Tensor& x, int first_axis = 1);

/// Axis i of the result is axis permutation[i] of x; a view. ShapeError unless each axis is named once, from 0 up.
HEARTH_API Tensor transpose(const Tensor& x, const std::vector<int>& permutation);

/// Elements begin, begin + step, ... below `end` along `axis`; a view.
/// ShapeError unless 0 <= begin <= end <= extent and step >= 1.
HEARTH_API Tensor slice(const Tensor& x, int axis, std::int64_t begin, std::int64_t end, std::int64_t step = 1);

/// x repeated to `shape` by the broadcasting rule (extents of 1, and missing leading axes); a view with strides of 0.
/// ShapeError if x does not broadcast to it.
HEARTH_API Tensor expand(const Tensor& x, const Shape& shape);

template <std::integral First, std::integral... More>
Tensor Tensor::reshape(First first, More... more) const {
  return reshape(Extents{static_cast<std::int64_t>(first), static_cast<std::int64_t>(more)...});
}
template <std::integral First, std::integral... More>
Tensor Tensor::view(First first, More... more) const {
  return view(Extents{static_cast<std::int64_t>(first), static_cast<std::int64_t>(more)...});
}

}  // namespace hearth
