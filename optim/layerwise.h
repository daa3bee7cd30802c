// SPDX-License-Identifier: Apache-2.0
// LARS and LAMB: steps whose size is in proportion to the norm of each parameter's weights, for very large batches.
// Both leave norms and biases (rank 0 and 1) without that proportion.
#pragma once

#include "hearth/core/cpu/stream.h"
#include "hearth/core/cuda/stream.h"
#include "hearth/optim/optimizer.h"
#include "hearth/optim/sgd.h"

namespace hearth::kernels {

struct LambCoefficients {
  double lr;
  double grad_scale;
  double beta1;
  double beta2;
  double eps;
  double correction1;  ///< 1 - beta1^t
  double correction2;  ///< 1 - beta2^t
  bool skip = false;   ///< this update changes nothing
};

}  // namespace hearth::kernels

namespace hearth::optim {

struct LarsOptions {
  double lr = 1.0;
  double momentum = 0.9;
  double trust = 0.001;
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool decay_norm_bias = false;
  std::vector<ParameterGroup> groups = {};
};

/// g = scale * grad + decay * w; r = trust * |w| / (|scale * grad| + decay * |w| + eps), 1 where a norm is zero;
/// m = momentum * m + r g; w -= lr * m. Norms are those of one parameter, in f64.
/// Source: You et al. 2017 (arXiv:1708.03888). State: m.
class Lars : public Optimizer {
 public:
  /// ConfigError unless momentum is in [0, 1), trust above 0 and eps at least 0.
  Lars(FlatParameters& parameters, const LarsOptions& options);
  void register_state(State& state) override;

 private:
  void prepare(double lr, double grad_scale) override;
  void update() override;
  UpdateCells cells() override;

  LarsOptions options_;
  Staged<kernels::SgdCoefficients> coefficients_;
  Tensor momentum_;
};

struct LambOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 0.01;
  bool decay_norm_bias = false;
  std::vector<ParameterGroup> groups = {};
};

/// m and v as in Adam, u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + decay * w;
/// w -= lr * |w| / |u| * u, the ratio being 1 where a norm is zero. Norms are those of one parameter, in f64.
/// Gradient elements are bounded as in Adam. Source: You et al. 2019 (arXiv:1904.00962). State: m and v.
class Lamb : public Optimizer {
 public:
  /// ConfigError unless beta1 and beta2 are in [0, 1) and eps is above 0.
  Lamb(FlatParameters& parameters, const LambOptions& options);
  void register_state(State& state) override;

 private:
  void prepare(double lr, double grad_scale) override;
  void update() override;
  UpdateCells cells() override;

  LambOptions options_;
  Staged<kernels::LambCoefficients> coefficients_;
  Tensor first_;
  Tensor second_;
};

}  // namespace hearth::optim

namespace hearth::kernels {

struct LarsConstants {
  double trust;
  double eps;
};

/// The factor r of each range of the plan: f64 [ranges], where the values are. Reads values and gradients once.
Tensor lars_trust(cpu::Stream& stream, const Tensor& values, const Tensor& grads, const optim::UpdatePlan& plan,
                  const Staged<SgdCoefficients>& coefficients, const LarsConstants& constants);
Tensor lars_trust(cuda::Stream& stream, const Tensor& values, const Tensor& grads, const optim::UpdatePlan& plan,
                  const Staged<SgdCoefficients>& coefficients, const LarsConstants& constants);

/// One pass for the moments and the norms, one for the weights. `narrow`, undefined for none, receives the new values
/// rounded.
void lamb_update(cpu::Stream& stream, const Tensor& values, const Tensor& grads, const Tensor& first,
                 const Tensor& second, const Tensor& narrow, const optim::UpdatePlan& plan,
                 const Staged<LambCoefficients>& coefficients);
void lamb_update(cuda::Stream& stream, const Tensor& values, const Tensor& grads, const Tensor& first,
                 const Tensor& second, const Tensor& narrow, const optim::UpdatePlan& plan,
                 const Staged<LambCoefficients>& coefficients);

}  // namespace hearth::kernels
