// SPDX-License-Identifier: Apache-2.0
// A feature pyramid: maps of a trunk, each joined with what the smaller ones saw.
// Source: Lin et al. 2017 (arXiv:1612.03144). Parameter names are torchvision's.
#pragma once

#include <cstdint>
#include <vector>

#include "models/nn/nn.h"

namespace hearth::models {

class HEARTH_API FeaturePyramid : public nn::Module {
 public:
  /// Of maps with these channels, the largest map first; each result has `channels`. `extra` levels follow, each of
  /// half the rows and columns of the one before. ShapeError without maps, or for sizes below 1.
  FeaturePyramid(const std::vector<std::int64_t>& in_channels, std::int64_t channels, std::int64_t extra);
  /// Maps [N, H, W, channels], the largest first, then the extra ones.
  std::vector<Tensor> levels(const std::vector<Tensor>& maps);

 private:
  nn::ModuleList inner_, layer_, extra_;
};

}  // namespace hearth::models
