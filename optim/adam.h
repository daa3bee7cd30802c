// SPDX-License-Identifier: Apache-2.0
// Adam, and AdamW with decoupled weight decay.
#pragma once

#include <cmath>
#include <concepts>
#include <optional>
#include <vector>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "optim/optimizer.h"

namespace hearth::optim {

struct AdamCoefficients {
  double lr;
  double grad_scale;
  double beta1;
  double beta2;
  double eps;
  double correction1;  ///< 1 - beta1^t
  double correction2;  ///< 1 - beta2^t
  bool decoupled;
  bool skip = false;  ///< this update changes nothing
};

/// Those of update t = 1, 2, ... of anything with options like Adam's.
template <class Options>
AdamCoefficients adam_coefficients(const Options& options, double lr, double grad_scale, std::int64_t t,
                                   bool decoupled) {
  return {.lr = lr,
          .grad_scale = grad_scale,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.eps,
          .correction1 = 1.0 - std::pow(options.beta1, static_cast<double>(t)),
          .correction2 = 1.0 - std::pow(options.beta2, static_cast<double>(t)),
          .decoupled = decoupled};
}

enum class AdamDecay {
  coupled,    ///< adam: the decay is part of the gradient
  decoupled,  ///< adamw: weights shrink by lr * decay beside the update (Loshchilov and Hutter, arXiv:1711.05101)
};

/// PyTorch's: 0.01 of AdamW, 0 of Adam.
constexpr double default_weight_decay(AdamDecay decay) { return decay == AdamDecay::decoupled ? 0.01 : 0.0; }

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  std::optional<double> weight_decay = std::nullopt;  ///< none: default_weight_decay()
  AdamDecay decay = AdamDecay::decoupled;
  bool decay_norm_bias = false;  ///< see GroupOptions
  std::vector<ParameterGroup> groups = {};
  LayerDecay layer_decay = {};
};

/// m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
/// w -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps). PyTorch's definition.
/// Source: Kingma and Ba 2014 (arXiv:1412.6980). State: m and v.
///
/// A finite gradient element that grad_scale takes beyond 1e18 (f32; 1e150 in f64), so that its square would overflow v
/// and freeze the weight for good, counts as that bound. Infinite and NaN elements are not hidden: they make the weight
/// NaN.
class HEARTH_API Adam : public Optimizer {
 public:
  /// ConfigError unless beta1 and beta2 are in [0, 1) and eps is above 0 in the type of the weights too.
  Adam(FlatParameters& parameters, const AdamOptions& options);
  template <std::floating_point Rate>
  Adam(FlatParameters& parameters, Rate) : Adam(parameters, AdamOptions{}) {
    static_assert(sizeof(Rate) == 0, "write {.lr = 1e-3}");
  }
  bool can_shard() const override { return true; }

 private:
  void prepare(double lr, double grad_scale) override;
  void update(const UpdateBuffers& on) override;
  UpdateCells cells() override;

  AdamOptions options_;
  Staged<AdamCoefficients> coefficients_;
  Tensor first_;
  Tensor second_;
};

/// Does not compile: Adam is it.
struct AdamW {
  template <class Parameters>
  AdamW(Parameters&, const AdamOptions&) {
    static_assert(sizeof(Parameters) == 0,
                  "write optim::Adam, whose weight decay is decoupled unless .decay says else");
  }
};

}  // namespace hearth::optim

namespace hearth::kernels {

using optim::AdamCoefficients;
using optim::UpdateBuffers;

/// Reads and writes each element once.
void adam_update(cpu::Stream& stream, const UpdateBuffers& on, const Tensor& first, const Tensor& second,
                 const Staged<AdamCoefficients>& coefficients);
void adam_update(cuda::Stream& stream, const UpdateBuffers& on, const Tensor& first, const Tensor& second,
                 const Staged<AdamCoefficients>& coefficients);

}  // namespace hearth::kernels
