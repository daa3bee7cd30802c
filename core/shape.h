// SPDX-License-Identifier: Apache-2.0
// Tensor shapes: up to eight non-negative 64-bit extents with overflow-checked products.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>

#include "core/error.h"

namespace hearth {

/// a * b, or ShapeError naming `what` when the product leaves 63 bits.
HEARTH_API std::int64_t checked_mul(std::int64_t a, std::int64_t b, const char* what);
/// a + b, or ShapeError naming `what` when the sum leaves 63 bits.
HEARTH_API std::int64_t checked_add(std::int64_t a, std::int64_t b, const char* what);

/// Extents of a tensor, outermost first. Every extent is >= 0 and their product fits 63 bits
/// (checked on construction, zero extents included: [0, 2^40, 2^40] is refused by its strides).
class HEARTH_API Shape {
 public:
  static constexpr int max_rank = 8;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}
  explicit Shape(std::span<const std::int64_t> extents);

  int rank() const { return rank_; }
  /// Number of elements; 1 for a scalar.
  std::int64_t size() const { return size_; }
  /// Extent of an axis; negative axes count from the end. Throws ShapeError outside the rank.
  std::int64_t dim(int axis) const { return extents_[static_cast<std::size_t>(normalize_axis(axis))]; }
  std::int64_t operator[](int axis) const { return extents_[static_cast<std::size_t>(axis)]; }
  /// `axis` in [0, rank), negative ones counted from the end; ShapeError otherwise.
  int normalize_axis(int axis) const;
  /// This shape with one extent replaced.
  Shape with(int axis, std::int64_t extent) const;

  const std::int64_t* begin() const { return extents_.data(); }
  const std::int64_t* end() const { return extents_.data() + rank_; }
  bool operator==(const Shape& other) const;

 private:
  std::array<std::int64_t, max_rank> extents_{};
  int rank_ = 0;
  std::int64_t size_ = 1;
};

/// Row-major strides, in elements.
using Strides = std::array<std::int64_t, Shape::max_rank>;
HEARTH_API Strides contiguous_strides(const Shape& shape);

/// Prints "[8, 56, 56, 48]".
HEARTH_API std::ostream& operator<<(std::ostream& out, const Shape& shape);

/// The common shape of two operands by the usual broadcasting rule; ShapeError, naming `op`, if there is none.
HEARTH_API Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b);

}  // namespace hearth
