// SPDX-License-Identifier: Apache-2.0
// The trunk of YOLOX: stages of cross stage partial (CSP) layers, and the convolutions that its neck and head are of.
// Source: Wang et al. 2019 (arXiv:1911.11929), Ge et al. 2021 (arXiv:2107.08430). Parameter names are YOLOX's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/nn/nn.h"

namespace hearth::models {

/// Convolution without bias, batch norm and SiLU; rows and columns are divided by the stride.
class SiluConv : public nn::Module {
 public:
  SiluConv(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel, std::int64_t stride = 1,
           std::int64_t groups = 1);
  Tensor forward(const Tensor& x) override;

 private:
  nn::ConvNorm layers_;
};

/// The same of 3x3 filters, or with `depthwise` one filter for each channel and a 1x1 convolution behind it.
std::unique_ptr<nn::Module> silu_conv(std::int64_t in_channels, std::int64_t out_channels, std::int64_t stride,
                                      bool depthwise);

/// Half of the channels go through a row of bottlenecks, the others by them.
class CspLayer : public nn::Module {
 public:
  CspLayer(std::int64_t in_channels, std::int64_t out_channels, std::int64_t bottlenecks, bool shortcut,
           bool depthwise);
  Tensor forward(const Tensor& x) override;

 private:
  SiluConv conv1_, conv2_, conv3_;
  nn::ModuleList bottlenecks_;
};

class CspDarknet : public nn::Module {
 public:
  /// `width` channels of the first stage, each later one having twice as many; `blocks` bottlenecks in the smallest.
  CspDarknet(std::int64_t in_channels, std::int64_t width, std::int64_t blocks, bool depthwise);
  /// Maps of strides 8, 16 and 32 with 4, 8 and 16 times `width` channels, of x [N, H, W, in_channels].
  std::vector<Tensor> features(const Tensor& x);

 private:
  /// Each 2 x 2 pixels as one of four times the channels, and a convolution.
  struct Focus : nn::Module {
    Focus(std::int64_t in_channels, std::int64_t out_channels);
    Tensor forward(const Tensor& x) override;
    SiluConv convolution;
  };

  Focus stem_;
  nn::ModuleList dark2_, dark3_, dark4_, dark5_;
};

}  // namespace hearth::models
