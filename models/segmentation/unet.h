// SPDX-License-Identifier: Apache-2.0
// U-Net: maps of an encoder are joined with those of a decoder of the same size.
// Source: Ronneberger et al. 2015 (arXiv:1505.04597), with padded convolutions and batch norm.
#pragma once

#include <cstdint>

#include "models/nn/nn.h"

namespace hearth::models {

struct UnetOptions {
  std::int64_t in_channels = 3;
  std::int64_t classes = 2;
  std::int64_t width = 64;  ///< channels at full size, twice as many at each level below
  std::int64_t levels = 5;  ///< sizes of maps, each with half the rows and columns of the one before
};

class HEARTH_API Unet : public nn::Module {
 public:
  /// ShapeError for sizes below 1, or more than 10 levels.
  explicit Unet(const UnetOptions& options);
  /// Images [N, H, W, in_channels] to scores [N, H, W, classes]. ShapeError for fewer than 2^(levels - 1) rows or
  /// columns. Halves are rounded down; what the decoder lacks by that is filled with zeros behind the last row and
  /// column.
  Tensor forward(const Tensor& x) override;

 private:
  nn::ModuleList encoder_, up_, decoder_;
  nn::Conv2d head_;
};

}  // namespace hearth::models
