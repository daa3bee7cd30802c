// SPDX-License-Identifier: Apache-2.0
// A convolution and the batch normalisation behind it.
#include "models/nn/conv_norm.h"

#include "ops/norm/batch_norm_pool.h"
#include "ops/norm/channel_moments.h"

namespace hearth::nn {

ConvNorm::ConvNorm(std::int64_t in_channels, std::int64_t out_channels, const Conv2dLayerOptions& convolution_options,
                   const BatchNormLayerOptions& norm_options, const ConvNormNames& names)
    : convolution(in_channels, out_channels, convolution_options), norm(out_channels, norm_options) {
  register_module(names.convolution, convolution);
  register_module(names.norm, norm);
}

Tensor ConvNorm::operator()(const Tensor& x, const Tensor& residual) {
  return observed([&] { return convolved_and_normalized(x, residual); });
}

Tensor ConvNorm::operator()(const Tensor& x, Module& shortcut, const Tensor& from) {
  return observed([&] { return convolved_and_normalized(x, from, &shortcut); });
}

Tensor ConvNorm::convolved_and_normalized(const Tensor& x, const Tensor& residual, Module* shortcut) {
  ChannelMoments moments;
  ChannelMoments* const wanted = norm.is_training() ? &moments : nullptr;
  const Tensor y = convolution.observed([&] { return convolution.convolved(x, wanted); });
  const Tensor added = shortcut == nullptr ? residual : (*shortcut)(residual);
  return norm.observed([&] { return norm.normalized(y, added, &moments); });
}

bool ConvNorm::is_watched() const { return Module::is_watched() || convolution.is_watched() || norm.is_watched(); }

Tensor ConvNorm::pooled(const Tensor& x, const MaxPool2dOptions& pool) {
  if (is_watched()) return max_pool2d((*this)(x), pool);
  ChannelMoments moments;
  const Tensor y =
      convolution.observed([&] { return convolution.convolved(x, norm.is_training() ? &moments : nullptr); });
  if (!detail::why_no_batch_norm_pool(y, norm.options(), pool).empty())
    return max_pool2d(norm.observed([&] { return norm.normalized(y, {}, &moments); }), pool);
  return norm.observed([&] {
    return detail::batch_norm_pool(y, norm.weight, norm.bias, norm.options(), norm.running_mean, norm.running_var, pool,
                                   &moments);
  });
}

}  // namespace hearth::nn
