// SPDX-License-Identifier: Apache-2.0
#include "models/segmentation/dilated.h"

#include <string>

#include "ops/ops.h"

namespace hearth::models {
namespace {

const ResNetOptions& checked_trunk(const char* model, const ResNetOptions& trunk, std::int64_t classes) {
  HEARTH_CHECK(UsageError, trunk.classes == 0, model, ": the trunk has a head of ", trunk.classes,
               " classes; set its classes to 0");
  HEARTH_CHECK(ShapeError, classes >= 1, model, ": ", classes, " classes; there is one at least");
  return trunk;
}

nn::Conv2dLayerOptions head_conv(std::int64_t kernel, std::int64_t dilation = 1) {
  return {.kernel = kernel, .padding = kernel / 2 * dilation, .dilation = dilation, .bias = false};
}

constexpr nn::BatchNormLayerOptions relu_norm() { return {.activation = Activation::relu}; }

/// Scores of a map at the size of the images.
Tensor at_size_of(const Tensor& scores, const Tensor& x) {
  return interpolate(scores, {.size = Pair(x.dim(1), x.dim(2)), .mode = Interpolation::bilinear});
}

/// Atrous spatial pyramid pooling.
class AtrousPyramid : public nn::Module {
 public:
  AtrousPyramid(std::int64_t in_channels, const DeepLabOptions& options)
      : project_(static_cast<std::int64_t>(options.rates.size() + 2) * options.channels, options.channels, head_conv(1),
                 relu_norm(), {"0", "1"}),
        dropout_(options.dropout) {
    convs_.add<nn::ConvNorm>(in_channels, options.channels, head_conv(1), relu_norm(), nn::ConvNormNames{"0", "1"});
    for (const std::int64_t rate : options.rates)
      convs_.add<nn::ConvNorm>(in_channels, options.channels, head_conv(3, rate), relu_norm(),
                               nn::ConvNormNames{"0", "1"});
    // The pooling before it has number 0.
    convs_.add<nn::ConvNorm>(in_channels, options.channels, head_conv(1), relu_norm(), nn::ConvNormNames{"1", "2"});
    register_module("convs", convs_);
    register_module("project", project_);
    register_module("dropout", dropout_);
  }
  Tensor forward(const Tensor& x) override {
    const std::size_t pooling = convs_.size() - 1;
    std::vector<Tensor> parts;
    for (std::size_t i = 0; i < pooling; ++i) parts.push_back(convs_[i](x));
    const Tensor mean = convs_[pooling](reshape(global_avg_pool(x), {x.dim(0), 1, 1, x.dim(3)}));
    parts.push_back(expand(mean, {x.dim(0), x.dim(1), x.dim(2), mean.dim(3)}));
    return dropout_(project_(concat(parts, -1)));
  }

 private:
  nn::ModuleList convs_;
  nn::ConvNorm project_;
  nn::Dropout dropout_;
};

const DeepLabOptions& checked_deeplab(const DeepLabOptions& options) {
  HEARTH_CHECK(ShapeError, options.channels >= 1, "deeplabv3: ", options.channels, " channels; there is one at least");
  for (const std::int64_t rate : options.rates)
    HEARTH_CHECK(ShapeError, rate >= 1, "deeplabv3: a rate of ", rate, "; a dilation is 1 at least");
  return options;
}

}  // namespace

Fcn::Fcn(const FcnOptions& options) : backbone_(checked_trunk("fcn", options.trunk, options.classes)) {
  const std::int64_t in_channels = backbone_.feature_channels().back(), channels = in_channels / 4;
  HEARTH_CHECK(ShapeError, channels >= 1, "fcn: the trunk has ", in_channels, " channels; its head needs 4 at least");
  register_module("backbone", backbone_);
  classifier_.add_unnamed<nn::ConvNorm>(in_channels, channels, head_conv(3), relu_norm(), nn::ConvNormNames{"0", "1"});
  classifier_.add_named<nn::Dropout>("3", options.dropout);
  classifier_.add_named<nn::Conv2d>("4", channels, options.classes, nn::Conv2dLayerOptions{.kernel = 1});
  register_module("classifier", classifier_);
}

Tensor Fcn::forward(const Tensor& x) { return at_size_of(classifier_(backbone_.features(x).back()), x); }

DeepLabV3::DeepLabV3(const DeepLabOptions& options)
    : backbone_(checked_trunk("deeplabv3", options.trunk, options.classes)) {
  register_module("backbone", backbone_);
  classifier_.add_named<AtrousPyramid>("0", backbone_.feature_channels().back(), checked_deeplab(options));
  classifier_.add_unnamed<nn::ConvNorm>(options.channels, options.channels, head_conv(3), relu_norm(),
                                        nn::ConvNormNames{"1", "2"});
  classifier_.add_named<nn::Conv2d>("4", options.channels, options.classes, nn::Conv2dLayerOptions{.kernel = 1});
  register_module("classifier", classifier_);
}

Tensor DeepLabV3::forward(const Tensor& x) { return at_size_of(classifier_(backbone_.features(x).back()), x); }

}  // namespace hearth::models
