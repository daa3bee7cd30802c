// SPDX-License-Identifier: Apache-2.0
#include "core/shape.h"

#include <algorithm>
#include <ostream>

namespace hearth {

std::int64_t checked_mul(std::int64_t a, std::int64_t b, const char* what) {
  std::int64_t result = 0;
  HEARTH_CHECK(ShapeError, !__builtin_mul_overflow(a, b, &result), what, ": ", a, " x ", b,
               " overflows 64 bits; use smaller extents");
  return result;
}

std::int64_t checked_add(std::int64_t a, std::int64_t b, const char* what) {
  std::int64_t result = 0;
  HEARTH_CHECK(ShapeError, !__builtin_add_overflow(a, b, &result), what, ": ", a, " + ", b,
               " overflows 64 bits; use smaller values");
  return result;
}

Shape::Shape(std::span<const std::int64_t> extents) {
  HEARTH_CHECK(ShapeError, extents.size() <= max_rank, "shape: rank ", extents.size(), " is above the limit of ",
               max_rank);
  rank_ = static_cast<int>(extents.size());
  std::int64_t nonzero_product = 1;
  for (int i = 0; i < rank_; ++i) {
    const std::int64_t extent = extents[static_cast<std::size_t>(i)];
    HEARTH_CHECK(ShapeError, extent >= 0, "shape: extent ", extent, " on axis ", i, "; extents must be at least 0");
    extents_[static_cast<std::size_t>(i)] = extent;
    nonzero_product = checked_mul(nonzero_product, std::max<std::int64_t>(extent, 1), "shape: element count");
  }
  // Eight bytes an element is the widest type, so the byte count of any dtype fits as well.
  (void)checked_mul(nonzero_product, 8, "shape: byte count");
  size_ = std::find(begin(), end(), 0) == end() ? nonzero_product : 0;
}

int Shape::normalize_axis(int axis) const {
  const int normalized = axis < 0 ? axis + rank_ : axis;
  HEARTH_CHECK(ShapeError, normalized >= 0 && normalized < rank_, "axis ", axis, " is outside a tensor of rank ", rank_,
               " (shape ", *this, ")");
  return normalized;
}

Shape Shape::with(int axis, std::int64_t extent) const {
  auto extents = extents_;
  extents[static_cast<std::size_t>(normalize_axis(axis))] = extent;
  return Shape(std::span<const std::int64_t>(extents.data(), static_cast<std::size_t>(rank_)));
}

bool Shape::operator==(const Shape& other) const {
  return rank_ == other.rank_ && std::equal(begin(), end(), other.begin());
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides{};
  std::int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[static_cast<std::size_t>(i)] = step;
    step *= std::max<std::int64_t>(shape[i], 1);
  }
  return strides;
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '[';
  for (int i = 0; i < shape.rank(); ++i) out << (i ? ", " : "") << shape[i];
  return out << ']';
}

Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  std::array<std::int64_t, Shape::max_rank> extents{};
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank());
    const int ib = i - (rank - b.rank());
    const std::int64_t ea = ia < 0 ? 1 : a[ia];
    const std::int64_t eb = ib < 0 ? 1 : b[ib];
    HEARTH_CHECK(ShapeError, ea == eb || ea == 1 || eb == 1, op, ": shapes ", a, " and ", b, " do not broadcast (axis ",
                 i, ": ", ea, " against ", eb, "); extents must be equal or 1");
    extents[static_cast<std::size_t>(i)] = ea == 1 ? eb : ea;
  }
  return Shape(std::span<const std::int64_t>(extents.data(), static_cast<std::size_t>(rank)));
}

}  // namespace hearth
