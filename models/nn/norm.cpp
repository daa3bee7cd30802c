// SPDX-License-Identifier: Apache-2.0
// Normalisation layers.
#include "models/nn/norm.h"

#include "autograd/grad_mode.h"
#include "ops/norm/batch_norm_moments.h"
#include "ops/ops.h"

namespace hearth::nn {

BatchNorm::BatchNorm(std::int64_t channels, const BatchNormLayerOptions& options) : options_(options) {
  HEARTH_CHECK(ShapeError, channels >= 1 && options.eps > 0, "batch_norm layer: ", channels, " channels, eps ",
               options.eps, "; channels are at least 1 and eps is above 0");
  weight = Tensor::full({channels}, options.initial_weight);
  bias = Tensor::zeros({channels});
  running_mean = Tensor::zeros({channels});
  running_var = Tensor::full({channels}, 1.0);
  parameter("weight", weight, init::constant(options.initial_weight));
  parameter("bias", bias, init::zeros());
  buffer("running_mean", running_mean);
  buffer("running_var", running_var);
}

BatchNormOptions BatchNorm::options() const {
  // The running statistics have seen a batch that is recomputed.
  return {.training = is_training(),
          .momentum = is_recomputing() ? 0 : options_.momentum,
          .eps = options_.eps,
          .activation = options_.activation,
          .group = group_};
}

Tensor BatchNorm::normalized(const Tensor& x, const Tensor& residual, const ChannelMoments* moments) {
  return detail::batch_norm(x, weight, bias, options(), running_mean, running_var, residual, moments);
}

Tensor BatchNorm::forward(const Tensor& x) { return normalized(x, {}, nullptr); }

Tensor BatchNorm::operator()(const Tensor& x, const Tensor& residual) {
  return observed([&] { return normalized(x, residual, nullptr); });
}

void sync_batch_norm(Module& model, Collective* group) {
  model.for_each_module([group](Module& module) {
    if (auto* const norm = dynamic_cast<BatchNorm*>(&module)) norm->group_ = group;
  });
}

LayerNorm::LayerNorm(std::int64_t channels, double eps, bool low_precision) : eps_(eps), low_precision_(low_precision) {
  HEARTH_CHECK(ShapeError, channels >= 1 && eps > 0, "layer_norm layer: ", channels, " channels, eps ", eps,
               "; channels are at least 1 and eps is above 0");
  weight = Tensor::full({channels}, 1.0);
  bias = Tensor::zeros({channels});
  parameter("weight", weight, init::ones());
  parameter("bias", bias, init::zeros());
}

Tensor LayerNorm::forward(const Tensor& x) { return layer_norm(x, weight, bias, eps_, low_precision_); }

SumAndNorm LayerNorm::operator()(const Tensor& x, const Tensor& f, double dropout, double drop_path) {
  SumAndNorm result;
  observed([&] {
    result = add_layer_norm(x, f, weight, bias,
                            {.dropout = dropout, .eps = eps_, .drop_path = drop_path, .low_precision = low_precision_});
    return result.y;
  });
  return result;
}

GroupNorm::GroupNorm(std::int64_t groups, std::int64_t channels, double eps) : groups_(groups), eps_(eps) {
  HEARTH_CHECK(ShapeError, groups >= 1 && channels >= 1 && channels % groups == 0 && eps > 0,
               "group_norm layer: ", groups, " groups, ", channels, " channels, eps ", eps,
               "; groups and channels are at least 1, groups divide channels, and eps is above 0");
  weight = Tensor::full({channels}, 1.0);
  bias = Tensor::zeros({channels});
  parameter("weight", weight, init::ones());
  parameter("bias", bias, init::zeros());
}

Tensor GroupNorm::forward(const Tensor& x) { return group_norm(x, weight, bias, groups_, eps_); }

}  // namespace hearth::nn
