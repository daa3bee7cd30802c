// SPDX-License-Identifier: Apache-2.0
// The two-dimensional convolution layers.
#pragma once

#include "models/nn/module.h"
#include "ops/activation.h"
#include "ops/conv/conv2d.h"

namespace hearth {
struct ChannelMoments;
}

namespace hearth::nn {

struct HEARTH_API Conv2dLayerOptions {
  std::int64_t kernel = 3;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  Activation activation = Activation::none;
  Init weight_init = init::kaiming_uniform();
  /// Default: uniform within 1 / sqrt(fan in).
  Init bias_init = {};
};

/// x [N, H, W, in], weight [out, kernel, kernel, in / groups], bias [out], y [N, P, Q, out].
class HEARTH_API Conv2d : public Module {
 public:
  /// ShapeError unless channels, kernel, stride, dilation and groups are at least 1, padding at least 0, and the groups
  /// divide both channel counts.
  Conv2d(std::int64_t in_channels, std::int64_t out_channels, const Conv2dLayerOptions& options);
  Tensor forward(const Tensor& x) override;
  Tensor operator()(const Tensor& x) { return Module::operator()(x); }

  Tensor weight;
  Tensor bias;

 private:
  friend class ConvNorm;
  Tensor convolved(const Tensor& x, ChannelMoments* moments);
  Conv2dOptions options() const;
  Conv2dLayerOptions options_;
};

struct HEARTH_API ConvTranspose2dLayerOptions {
  std::int64_t kernel = 3;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t output_padding = 0;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  /// Default: uniform within 1 / sqrt(kernel kernel out / groups), as PyTorch's.
  Init weight_init = init::kaiming_uniform();
  /// Default: the same.
  Init bias_init = {};
};

/// The transposed convolution: x [N, H, W, in], weight [in, kernel, kernel, out / groups], bias [out], y [N, P, Q, out]
/// with P = (H - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1, likewise Q. PyTorch's weight is
/// [in, out / groups, kernel, kernel].
class HEARTH_API ConvTranspose2d : public Module {
 public:
  /// ShapeError unless channels, kernel, stride, dilation and groups are at least 1, padding at least 0, output_padding
  /// at least 0 and below the larger of stride and dilation, and the groups divide both channel counts.
  ConvTranspose2d(std::int64_t in_channels, std::int64_t out_channels, const ConvTranspose2dLayerOptions& options);
  Tensor forward(const Tensor& x) override;

  Tensor weight;
  Tensor bias;

 private:
  ConvTranspose2dLayerOptions options_;
};

}  // namespace hearth::nn
