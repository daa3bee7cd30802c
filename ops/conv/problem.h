// SPDX-License-Identifier: Apache-2.0
// A convolution as its implementations see it, on every device.
#pragma once

#include <compare>
#include <cstdint>

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

/// A convolution problem; the key of its plans.
struct ConvProblem {
  ConvShape shape;
  DType activations = DType::f32;  ///< of x, y, dx, dy: f32 or bf16
  DType weights = DType::f32;      ///< of w and dw: f32, or bf16 where activations are bf16
  /// Bits independent of the number of threads: work is cut into pieces by shape, each done by a single-threaded
  /// plan, and partial sums are added in a fixed order. Same values otherwise, somewhat slower.
  bool deterministic = false;

  auto operator<=>(const ConvProblem&) const = default;
};

enum class Pass : std::uint8_t { forward, backward_data, backward_weights };

}  // namespace hearth
