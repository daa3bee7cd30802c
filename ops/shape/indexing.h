// SPDX-License-Identifier: Apache-2.0
// x[{0, all, Slice(1, 4)}]: parts of a tensor by position, for Tensor::operator[].
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <span>

#include "core/tensor.h"

namespace hearth {

/// A whole axis in an index.
struct All {};
inline constexpr All all;

/// Elements begin, begin + step, ... before `end` of an axis. Negative bounds count from the end of the axis; bounds
/// beyond it are cut to it, as in Python.
struct Slice {
  static constexpr std::int64_t to_end = std::numeric_limits<std::int64_t>::max();
  constexpr explicit Slice(std::int64_t begin_ = 0, std::int64_t end_ = to_end, std::int64_t step_ = 1)
      : begin(begin_), end(end_), step(step_) {}
  std::int64_t begin, end, step;
};

/// What an index says of one axis: a position, which drops the axis, all of it, or a slice.
class HEARTH_API Index {
 public:
  template <std::integral T>
  Index(T position) : slice_(static_cast<std::int64_t>(position)), is_position_(true) {}  // NOLINT: to be written as is
  Index(All) {}                                                                           // NOLINT
  Index(Slice slice) : slice_(slice) {}                                                   // NOLINT
  bool is_position() const { return is_position_; }
  /// `begin` is the position of one.
  const Slice& slice() const { return slice_; }

 private:
  Slice slice_;
  bool is_position_ = false;
};

/// The part of x that `indices` name, one for each axis from the first; axes without one are whole. A view that shares
/// x's storage, so that index(x, {0}).fill_(1) writes into x. ShapeError for more indices than axes, a position outside
/// its axis, and a step below 1.
HEARTH_API Tensor index(const Tensor& x, std::span<const Index> indices);

}  // namespace hearth
