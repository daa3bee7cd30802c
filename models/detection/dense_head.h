// SPDX-License-Identifier: Apache-2.0
// The head of FCOS and RetinaNet: the same convolutions on each map of a feature pyramid. Parameter names are
// torchvision's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/nn/nn.h"

namespace hearth::models {

/// A layer as the only member of a list, whose parameters torchvision names "0.weight".
class ListedConv : public nn::Module {
 public:
  ListedConv(std::int64_t in_channels, std::int64_t out_channels, const nn::Conv2dLayerOptions& options)
      : convolution_(in_channels, out_channels, options) {
    register_module("0", convolution_);
  }
  Tensor forward(const Tensor& x) override { return convolution_(x); }

 private:
  nn::Conv2d convolution_;
};

/// Gives its parts a name in front of theirs.
struct NamedGroup : nn::Module {
  void add(const std::string& name, nn::Module& part) { register_module(name, part); }
};

struct DenseHeadOptions {
  std::int64_t channels;
  std::int64_t convolutions;  ///< before the outputs, each with a ReLU
  std::int64_t groups = 0;    ///< of group norms behind the convolutions; 0: without norms
};

/// Convolutions with ReLU, and one more for each output.
class HEARTH_API DenseHead : public nn::Module {
 public:
  struct Output {
    const char* name;
    std::int64_t anchors;  ///< at each position of a map
    std::int64_t numbers;  ///< of each anchor
    double bias = 0;
  };
  DenseHead(const DenseHeadOptions& options, const std::vector<Output>& outputs);
  /// The outputs for a map [N, H, W, channels], each [N, H W anchors, numbers].
  std::vector<Tensor> outputs_of(const Tensor& map);

 private:
  nn::ModuleList convolutions_;
  std::vector<std::unique_ptr<nn::Conv2d>> outputs_;
  std::vector<std::int64_t> numbers_;
  bool has_norms_;
};

/// The bias of logits that are objects with a probability of 0.01 at first (Lin et al. 2017, arXiv:1708.02002).
double rare_object_bias();

}  // namespace hearth::models
