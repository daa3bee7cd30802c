// SPDX-License-Identifier: Apache-2.0
// Stochastic gradient descent with momentum.
#pragma once

#include <span>

#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "optim/optimizer.h"

namespace hearth::optim {

struct SgdCoefficients {
  double lr;
  double grad_scale;
  double momentum;
  double one_minus_dampening;  ///< share of the gradient that enters the momentum
  bool nesterov;
  bool lr_in_momentum = false;  ///< the momentum holds steps, learning rate included
  bool decay_alone = false;     ///< the momentum is of the decay alone
  bool skip = false;            ///< this update changes nothing
};

struct SgdOptions {
  double lr = 0.1;
  double momentum = 0.0;
  double dampening = 0.0;
  bool nesterov = false;
  double weight_decay = 0.0;
  bool decay_norm_bias = false;  ///< see GroupOptions
  std::vector<ParameterGroup> groups = {};
  LayerDecay layer_decay = {};
  /// Gradients come with their momentum, as compression that sends a part of it gives them (dist.compress dgc). On the
  /// CPU.
  bool momentum_in_gradients = false;
};

/// g = scale * grad + decay * w; m = momentum * m + (1 - dampening) * g, the first m being g;
/// w -= lr * (nesterov ? g + momentum * m : m). Without momentum w -= lr * g. PyTorch's definition.
/// With momentum_in_gradients m = momentum * m + decay * w, and w -= lr * (scale * grad + (nesterov ? decay * w +
/// momentum * m : m)), which is the same where grad is the momentum of gradients.
/// Source: Sutskever et al. 2013. State: m, only with momentum.
class HEARTH_API Sgd : public Optimizer {
 public:
  /// ConfigError unless momentum is in [0, 1), dampening in [0, 1], and nesterov comes with momentum and no dampening;
  /// momentum_in_gradients with dampening, without momentum, or on a CUDA device.
  Sgd(FlatParameters& parameters, const SgdOptions& options);
  bool can_shard() const override { return true; }

 private:
  void prepare(double lr, double grad_scale) override;
  void update(const UpdateBuffers& on) override;
  UpdateCells cells() override;

  SgdOptions options_;
  Staged<SgdCoefficients> coefficients_;
  Tensor momentum_;
};

}  // namespace hearth::optim

namespace hearth::kernels {

using optim::SgdCoefficients;
using optim::UpdateBuffers;

/// `moment` is undefined without momentum. Reads and writes each element once. `trust`, empty for none, is a factor on
/// gradient and decay of each range of the plan; on a device it is LARS's alone (lars_update).
void sgd_update(cpu::Stream& stream, const UpdateBuffers& on, const Tensor& moment,
                const Staged<SgdCoefficients>& coefficients, std::span<const double> trust = {});
void sgd_update(cuda::Stream& stream, const UpdateBuffers& on, const Tensor& moment,
                const Staged<SgdCoefficients>& coefficients);

}  // namespace hearth::kernels
