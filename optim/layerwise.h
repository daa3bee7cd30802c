// SPDX-License-Identifier: Apache-2.0
// LARS and LAMB: steps whose size is in proportion to the norm of each parameter's weights, for very large batches.
// `adapt` chooses the parameters with such steps; by default norms and biases (rank 0 and 1) are left out.
#pragma once

#include <optional>

#include "optim/adam.h"
#include "optim/sgd.h"

namespace hearth::optim {

/// The decay is part of the direction in any case.
struct LambCoefficients : AdamCoefficients {
  double max_grad_norm;  ///< 0: gradients are not normalised
  double norm_min;
  double norm_max;
  double longest;  ///< the largest ratio of norms that counts
};

struct LarsOptions {
  double lr = 1.0;
  double momentum = 0.9;
  double trust = 0.001;
  double eps = 1e-8;
  bool clip_trust = false;      ///< as LARC does: no step is longer than that of SGD
  bool lr_in_momentum = false;  ///< as the paper and MLPerf have it; see Lars
  double weight_decay = 0.0;
  Adapt adapt = Adapt::matrices;
  bool decay_norm_bias = false;
  std::vector<ParameterGroup> groups = {};
  LayerDecay layer_decay = {};
};

/// In place of a ratio where there is none.
inline constexpr double no_ratio = -1;

/// Optimizers that keep the ratio of norms which each parameter's last step had.
class HEARTH_API LayerwiseOptimizer : public Optimizer {
 public:
  std::vector<TrustRatios> read_trust_ratios() const override;

 protected:
  LayerwiseOptimizer(FlatParameters& parameters, double base_lr, const GroupOptions& options);
  /// f64 [ranges], where the parameters are: what the update writes. Negative: nothing.
  const Tensor& ratios() const { return ratios_; }

 private:
  Tensor ratios_;
};

/// g = scale * grad + decay * w; r = trust * |w| / (|scale * grad| + decay * |w| + eps), 1 where a norm is zero;
/// m = momentum * m + r g; w -= lr * m. Norms are those of one parameter, in f64. A parameter whose gradient's norm is
/// not finite - in f64, if its squares are not - becomes NaN.
/// Source: You et al. 2017 (arXiv:1708.03888), the local learning rate of section 4. State: m.
///
/// With lr_in_momentum, m = momentum * m + lr r g; w -= m: algorithm 1 as it stands, and the reference of MLPerf. Then
/// a change of the learning rate leaves the steps that the momentum already holds as they were; without it, as in SGD
/// here and in PyTorch, it acts on them too (Kumar et al. 2019, arXiv:1909.09756, compare the two as "scaled" and
/// "unscaled" momentum). With clip_trust r is min(r / lr, 1), so that r itself is the learning rate where it is the
/// smaller one (LARC, of NVIDIA's Apex); also the r = 1 of a norm that is zero, as in timm, so that such a parameter
/// has a rate of at most 1 (in Apex it keeps lr).
class HEARTH_API Lars : public LayerwiseOptimizer {
 public:
  /// ConfigError unless momentum is in (0, 1), trust above 0 and eps at least 0.
  Lars(FlatParameters& parameters, const LarsOptions& options);
  bool can_shard() const override { return true; }

 private:
  void prepare(double lr, double grad_scale) override;
  void update(const UpdateBuffers& on) override;
  UpdateCells cells() override;

  LarsOptions options_;
  Staged<SgdCoefficients> coefficients_;
  Tensor momentum_;
};

struct LambOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-6;
  std::optional<double> max_grad_norm = std::nullopt;  ///< see Lamb
  double norm_min = 0.0;                               ///< gamma_l of the paper
  std::optional<double> norm_max = std::nullopt;       ///< gamma_u; none: the norm itself counts
  bool trust_clip = false;                             ///< the ratio of norms is at most 1, as with timm's trust_clip
  double weight_decay = 0.01;
  Adapt adapt = Adapt::matrices;
  bool decay_norm_bias = false;
  std::vector<ParameterGroup> groups = {};
  LayerDecay layer_decay = {};
};

/// m and v as in Adam, u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + decay * w;
/// w -= lr * phi(|w|) / |u| * u with phi(z) = min(max(z, norm_min), norm_max), the ratio being 1 where phi or |u| is
/// zero, and with trust_clip at most 1. Norms are those of one parameter, in f64. Gradient elements are bounded as in
/// Adam.
/// Source: You et al. 2019 (arXiv:1904.00962), algorithm 2; phi as in its section 3. State: m and v.
///
/// With max_grad_norm, gradients are first divided by max(1, n / max_grad_norm), n being the norm of all gradients
/// together after grad_scale: the normalisation of NVIDIA's FusedLAMB (Apex; 1 is its default). If n is not finite -
/// for f64 gradients, if their squares are not - all weights become NaN. One more pass over the gradients, unless
/// clipping or loss scaling has made it.
class HEARTH_API Lamb : public LayerwiseOptimizer {
 public:
  /// ConfigError unless beta1 and beta2 are in [0, 1), eps (in the type of the weights too) and max_grad_norm are above
  /// 0, and 0 <= norm_min <= norm_max with norm_max above 0.
  Lamb(FlatParameters& parameters, const LambOptions& options);
  bool can_shard() const override { return true; }

 private:
  void prepare(double lr, double grad_scale) override;
  void update(const UpdateBuffers& on) override;
  UpdateCells cells() override;

  LambOptions options_;
  Staged<LambCoefficients> coefficients_;
  Tensor squares_;  // of the coming update's gradients, if something has added them up
  Tensor first_;
  Tensor second_;
};

}  // namespace hearth::optim

namespace hearth::kernels {

using optim::LambCoefficients;
using optim::UpdateBuffers;

struct LarsConstants {
  double trust;
  double eps;
  bool clip;
};

/// One pass for the norms of values and gradients, one for the weights. `ratios`, f64 [ranges] there, receives the
/// factor on each range's gradient and decay; -1 if the update is skipped.
void lars_update(cpu::Stream& stream, const UpdateBuffers& on, const Tensor& moment,
                 const Staged<SgdCoefficients>& coefficients, const LarsConstants& constants, const Tensor& ratios);
void lars_update(cuda::Stream& stream, const UpdateBuffers& on, const Tensor& moment,
                 const Staged<SgdCoefficients>& coefficients, const LarsConstants& constants, const Tensor& ratios);

/// One pass for the moments and the norms, one for the weights. `squares`, f64 [1] there, is the sum over all
/// gradients; undefined where they are not normalised. `ratios` receives each range's ratio of norms.
void lamb_update(cpu::Stream& stream, const UpdateBuffers& on, const Tensor& first, const Tensor& second,
                 const Staged<LambCoefficients>& coefficients, const Tensor& ratios, const Tensor& squares = {});
void lamb_update(cuda::Stream& stream, const UpdateBuffers& on, const Tensor& first, const Tensor& second,
                 const Staged<LambCoefficients>& coefficients, const Tensor& ratios, const Tensor& squares = {});

}  // namespace hearth::kernels
