// SPDX-License-Identifier: Apache-2.0
// Normalisation layers.
#pragma once

#include "models/nn/module.h"
#include "ops/activation.h"
#include "ops/norm/add_layer_norm.h"
#include "ops/norm/batch_norm.h"

namespace hearth {
class Collective;
struct ChannelMoments;
}  // namespace hearth

namespace hearth::nn {

struct BatchNormLayerOptions {
  double momentum = 0.1;  ///< share of the new statistics in the running ones
  double eps = 1e-5;
  Activation activation = Activation::none;  ///< none or relu, applied within the same kernel
  double initial_weight = 1.0;
};

/// Batch normalisation over all but the last axis: y = act(weight * (x - mean) / sqrt(var + eps) + bias [+ residual]).
/// Training uses the statistics of the batch and updates running_mean and running_var; evaluation uses those.
/// Source: Ioffe and Szegedy 2015 (arXiv:1502.03167).
class HEARTH_API BatchNorm : public Module {
 public:
  /// ShapeError unless channels >= 1 and eps > 0.
  explicit BatchNorm(std::int64_t channels, const BatchNormLayerOptions& options = {});
  Tensor forward(const Tensor& x) override;
  bool keep_fp32() const override { return true; }
  Tensor operator()(const Tensor& x) { return Module::operator()(x); }
  /// The residual [same shape as x] is added before the activation, in the same pass.
  Tensor operator()(const Tensor& x, const Tensor& residual);

  Tensor weight;        ///< [channels]
  Tensor bias;          ///< [channels]
  Tensor running_mean;  ///< [channels]
  Tensor running_var;   ///< [channels], unbiased

 private:
  friend class ConvNorm;
  Tensor normalized(const Tensor& x, const Tensor& residual, const ChannelMoments* moments);
  BatchNormOptions options() const;
  friend void sync_batch_norm(Module& model, Collective* group);
  BatchNormLayerOptions options_;
  Collective* group_ = nullptr;
};

/// Makes every batch normalisation at or below `model` take its statistics of all ranks of `group` in training, as
/// PyTorch's SyncBatchNorm; null ends that. All ranks then compute the same layers in the same order. `group` must live
/// as long as the model trains.
HEARTH_API void sync_batch_norm(Module& model, Collective* group);

/// Layer normalisation over the last axis: weight, bias [channels]. Source: Ba et al. 2016 (arXiv:1607.06450).
class HEARTH_API LayerNorm : public Module {
 public:
  /// ShapeError unless channels >= 1 and eps > 0. `low_precision`: in O1 y has the low-precision type; for y that only
  /// products read (hearth::layer_norm).
  explicit LayerNorm(std::int64_t channels, double eps = 1e-5, bool low_precision = false);
  Tensor forward(const Tensor& x) override;
  bool keep_fp32() const override { return true; }
  Tensor operator()(const Tensor& x) { return Module::operator()(x); }
  /// sum = x + drop_path(dropout(f)), and y, its norm, in the same pass; f [same shape as x]. Rates in [0, 1), 0 in
  /// evaluation (Dropout::rate()); UsageError for others.
  SumAndNorm operator()(const Tensor& x, const Tensor& f, double dropout, double drop_path = 0);

  Tensor weight;
  Tensor bias;

 private:
  double eps_;
  bool low_precision_;
};

/// Group normalisation of each image [..., channels]: weight, bias [channels]. With groups = channels it is instance
/// normalisation, with groups = 1 layer normalisation over the whole image. Source: Wu and He 2018 (arXiv:1803.08494).
class HEARTH_API GroupNorm : public Module {
 public:
  /// ShapeError unless groups and channels are at least 1, groups divide channels, and eps > 0.
  GroupNorm(std::int64_t groups, std::int64_t channels, double eps = 1e-5);
  Tensor forward(const Tensor& x) override;
  bool keep_fp32() const override { return true; }

  Tensor weight;
  Tensor bias;

 private:
  std::int64_t groups_;
  double eps_;
};

}  // namespace hearth::nn
