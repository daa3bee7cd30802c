// SPDX-License-Identifier: Apache-2.0
// A feature pyramid: maps of a trunk, each joined with what the smaller ones saw.
// Source: Lin et al. 2017 (arXiv:1612.03144). Parameter names are torchvision's.
#pragma once

#include <cstdint>
#include <vector>

#include "models/nn/nn.h"
#include "models/resnet.h"

namespace hearth::models {

class HEARTH_API FeaturePyramid : public nn::Module {
 public:
  /// Of maps with these channels, the largest map first; each result has `channels`. `extra` levels follow, each of
  /// half the rows and columns of the one before. ShapeError without maps, or for sizes below 1.
  FeaturePyramid(const std::vector<std::int64_t>& in_channels, std::int64_t channels, std::int64_t extra);
  /// Maps [N, H, W, channels], the largest first, then the extra ones.
  std::vector<Tensor> levels(const std::vector<Tensor>& maps);
  /// Those of the trunk's maps behind its first stage.
  std::vector<Tensor> levels(ResNet& trunk, const Tensor& images);
  /// How many there are.
  std::size_t size() const { return inner_.size() + extra_.size(); }

 private:
  nn::ModuleList inner_, layer_, extra_;
};

/// Channels of the maps of a trunk that a model's pyramid is of: all but those of the first of four stages. UsageError,
/// naming the model, for a trunk of other stages or with a head.
std::vector<std::int64_t> pyramid_channels(const char* model, const ResNetOptions& options, const ResNet& trunk);

}  // namespace hearth::models
