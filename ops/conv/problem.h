// SPDX-License-Identifier: Apache-2.0
// A convolution as its implementations see it, on every device: its sizes, and the key that one is chosen and planned
// by.
#pragma once

#include <compare>
#include <cstdint>
#include <iosfwd>
#include <optional>

#include "core/dtype.h"

namespace hearth {

/// Sizes of a 2-d convolution. Padding may differ at the far edges: p and q say how far the output goes.
struct ConvShape {
  std::int64_t n = 1, h = 1, w = 1, c = 1;  ///< input x [n, h, w, c]
  std::int64_t k = 1, r = 1, s = 1;         ///< filters w [k, r, s, c / groups]
  std::int64_t p = 1, q = 1;                ///< output y [n, p, q, k]
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t pad_h = 0, pad_w = 0;            ///< zeros before the first row and column
  std::int64_t dilation_h = 1, dilation_w = 1;  ///< 1: neighbouring taps are neighbouring pixels
  std::int64_t groups = 1;                      ///< divides c and k; group g uses filters [g k/groups, (g+1) k/groups)

  auto operator<=>(const ConvShape&) const = default;
};

/// Of any pass: a multiplication and an addition for each tap, channel, filter and output pixel.
double flops_of(const ConvShape& shape);
/// Of the pixels of x that no filter reads, as filters may be smaller than their stride. 0 for pixels of less than 64
/// bytes, which memory brings along.
std::int64_t skipped_bytes(const ConvShape& shape, DType dtype);

enum class Pass : std::uint8_t { forward, backward_data, backward_weights };

/// One pass of one convolution: what its implementation depends on, and the key of its plans.
struct ConvProblem {
  ConvShape shape;
  Pass pass = Pass::forward;
  DType activations = DType::f32;  ///< of x, y, dx, dy
  DType weights = DType::f32;      ///< of w and dw: that of the activations, or f32 beside 16-bit ones
  /// Bits independent of the number of threads: work is cut into pieces by shape, each done by a single-threaded
  /// plan, and partial sums are added in a fixed order. Same values otherwise, somewhat slower.
  bool deterministic = false;
  bool repeatable = true;          ///< a library's results are to have the same bits each time
  std::optional<DType> bias = {};  ///< of b, added to y, or of db, its gradient; neither in backward_data
  bool relu = false;               ///< forward: y is to pass a ReLU
  bool accumulate = false;         ///< backward_data: dx is added to what is there
  int device = 0;                  ///< which of its type

  auto operator<=>(const ConvProblem&) const = default;
};

/// In words: "backward_weights of bf16 to f32, 2x8x8x64 by 256x1x1x64 to 2x8x8x256".
std::ostream& operator<<(std::ostream& out, const ConvProblem& problem);

}  // namespace hearth
