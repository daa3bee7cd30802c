// SPDX-License-Identifier: Apache-2.0
// Pooling of NHWC images.
#pragma once

#include <optional>

#include "core/tensor.h"
#include "ops/pair.h"

namespace hearth {

struct MaxPool2dOptions {
  Pair kernel;                      ///< window, >= 1
  std::optional<Pair> stride = {};  ///< >= 1; the window's size if absent
  Pair padding = 0;                 ///< 0 to kernel / 2; what lies outside is never the maximum
};

/// Largest value of each window: x [N,H,W,C], y [N,P,Q,C] with P = (H + 2 padding - kernel) / stride + 1, likewise Q.
/// The gradient goes to the first maximum of a window in row-major order; NaN wins. Any floating type.
HEARTH_API Tensor max_pool2d(const Tensor& x, const MaxPool2dOptions& options);

struct AvgPool2dOptions {
  Pair kernel;
  std::optional<Pair> stride = {};
  Pair padding = 0;
  bool count_include_pad = true;  ///< divide by the window's size; else by the number of pixels inside the image
};

/// Mean of each window, summed in f32 (f64 for f64); sizes as for max_pool2d.
HEARTH_API Tensor avg_pool2d(const Tensor& x, const AvgPool2dOptions& options);

/// Mean over all pixels: x [N,H,W,C], y [N,C]. ShapeError for an image without pixels.
HEARTH_API Tensor global_avg_pool(const Tensor& x);

}  // namespace hearth
