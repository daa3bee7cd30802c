// SPDX-License-Identifier: Apache-2.0
// Features of boxes, cut from maps.
#pragma once

#include <cstdint>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/tensor.h"
#include "ops/boxes/roi_axis.h"
#include "ops/pair.h"

namespace hearth {

struct RoiAlignOptions {
  Pair size = 7;             ///< of the result, {height, width} in bins
  double scale = 1;          ///< pixels of x by pixels of the boxes: 1 / 16 for a map of stride 16
  std::int64_t samples = 0;  ///< along each axis of a bin; 0: as many as it has pixels, rounded up
  /// True: pixels are areas, with centres at halves. False: pixels are points, and boxes have at least one pixel's
  /// size.
  bool aligned = false;
};

/// The features of each box as a small map, as torchvision's roi_align: x [N, H, W, C], boxes [K, 4] as corners, images
/// [K] (i32 or i64) the image of each; y [K, rows, columns, C]. A bin is the mean of samples that read x bilinearly;
/// samples outside of x count as zeros.
///
/// x of any floating type, boxes of any; sums in f32, or f64 of f64. The gradient goes to x alone, in a fixed order.
/// UsageError, ShapeError, DTypeError, DeviceError; IndexError for an image that x does not have, on a CUDA device when
/// the host next waits. Source: He et al., "Mask R-CNN" (2017).
HEARTH_API Tensor roi_align(const Tensor& x, const Tensor& boxes, const Tensor& images,
                            const RoiAlignOptions& options = {});

namespace kernels {

/// y [K, rows, columns, C] of x [N, H, W, C], boxes [K, 4] (f32, of f64 maps f64) and images (i64 [K]). Contiguous,
/// with elements.
void roi_align(cpu::Stream&, const RoiGrid&, const Tensor& x, const Tensor& boxes, const Tensor& images,
               const Tensor& y);
void roi_align(cuda::Stream&, const RoiGrid&, const Tensor& x, const Tensor& boxes, const Tensor& images,
               const Tensor& y);
void roi_align_grad(cpu::Stream&, const RoiGrid&, const Tensor& boxes, const Tensor& images, const Tensor& dy,
                    const Tensor& dx);
void roi_align_grad(cuda::Stream&, const RoiGrid&, const Tensor& boxes, const Tensor& images, const Tensor& dy,
                    const Tensor& dx);

}  // namespace kernels
}  // namespace hearth
