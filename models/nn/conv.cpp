// SPDX-License-Identifier: Apache-2.0
// The two-dimensional convolution layers.
#include "models/nn/conv.h"

#include <algorithm>
#include <cmath>

#include "ops/conv/conv2d_moments.h"
#include "ops/conv/conv_transpose2d.h"

namespace hearth::nn {

Conv2d::Conv2d(std::int64_t in_channels, std::int64_t out_channels, const Conv2dLayerOptions& options)
    : options_(options) {
  const std::int64_t kernel = options.kernel;
  HEARTH_CHECK(ShapeError, in_channels >= 1 && out_channels >= 1 && kernel >= 1, "conv2d layer: ", in_channels,
               " input channels, ", out_channels, " output channels, kernel ", kernel, "; all are at least 1");
  HEARTH_CHECK(ShapeError, options.stride >= 1 && options.dilation >= 1 && options.padding >= 0,
               "conv2d layer: stride ", options.stride, ", dilation ", options.dilation, ", padding ", options.padding,
               "; stride and dilation are at least 1, padding at least 0");
  HEARTH_CHECK(ShapeError,
               options.groups >= 1 && in_channels % options.groups == 0 && out_channels % options.groups == 0,
               "conv2d layer: ", in_channels, " input and ", out_channels, " output channels do not divide into ",
               options.groups, " groups");
  weight = Tensor::zeros({out_channels, kernel, kernel, in_channels / options.groups});
  parameter("weight", weight, options.weight_init);
  if (!options.bias) return;
  bias = Tensor::zeros({out_channels});
  const double fan_in = static_cast<double>(init::fans_of(weight.shape()).in);
  parameter("bias", bias, options.bias_init ? options.bias_init : init::uniform(1.0 / std::sqrt(fan_in)));
}

Conv2dOptions Conv2d::options() const {
  return {.stride = options_.stride,
          .padding = options_.padding,
          .dilation = options_.dilation,
          .groups = options_.groups,
          .activation = options_.activation};
}

Tensor Conv2d::convolved(const Tensor& x, ChannelMoments* moments) {
  return detail::conv2d(x, weight, bias, options(), moments);
}

Tensor Conv2d::forward(const Tensor& x) { return convolved(x, nullptr); }

ConvTranspose2d::ConvTranspose2d(std::int64_t in_channels, std::int64_t out_channels,
                                 const ConvTranspose2dLayerOptions& options)
    : options_(options) {
  const char* const layer = "conv_transpose2d layer";
  const std::int64_t kernel = options.kernel, groups = options.groups;
  HEARTH_CHECK(ShapeError, in_channels >= 1 && out_channels >= 1 && kernel >= 1, layer, ": ", in_channels,
               " input channels, ", out_channels, " output channels, kernel ", kernel, "; all are at least 1");
  HEARTH_CHECK(ShapeError, options.stride >= 1 && options.dilation >= 1 && options.padding >= 0, layer, ": stride ",
               options.stride, ", dilation ", options.dilation, ", padding ", options.padding,
               "; stride and dilation are at least 1, padding at least 0");
  HEARTH_CHECK(ShapeError,
               options.output_padding >= 0 && options.output_padding < std::max(options.stride, options.dilation),
               layer, ": output padding ", options.output_padding, "; it is at least 0 and below the larger of stride ",
               options.stride, " and dilation ", options.dilation);
  HEARTH_CHECK(ShapeError, groups >= 1 && in_channels % groups == 0 && out_channels % groups == 0, layer, ": ",
               in_channels, " input and ", out_channels, " output channels do not divide into ", groups, " groups");
  weight = Tensor::zeros({in_channels, kernel, kernel, out_channels / groups});
  parameter("weight", weight, options.weight_init);
  if (!options.bias) return;
  bias = Tensor::zeros({out_channels});
  const double fan_in = static_cast<double>(init::fans_of(weight.shape()).in);
  parameter("bias", bias, options.bias_init ? options.bias_init : init::uniform(1.0 / std::sqrt(fan_in)));
}

Tensor ConvTranspose2d::forward(const Tensor& x) {
  return conv_transpose2d(x, weight, bias,
                          {.stride = options_.stride,
                           .padding = options_.padding,
                           .output_padding = options_.output_padding,
                           .dilation = options_.dilation,
                           .groups = options_.groups});
}

}  // namespace hearth::nn
