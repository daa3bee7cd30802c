// SPDX-License-Identifier: Apache-2.0
// Stochastic gradient descent with momentum.
#include "optim/sgd.h"

#include "core/run_on.h"

namespace hearth::optim {

Sgd::Sgd(FlatParameters& parameters, const SgdOptions& options)
    : Optimizer(parameters, options.lr,
                {options.weight_decay, options.decay_norm_bias, options.groups, options.layer_decay}),
      options_(options),
      coefficients_(parameters.values().device()) {
  HEARTH_CHECK(ConfigError, options.momentum >= 0 && options.momentum < 1, "sgd: momentum ", options.momentum,
               " is outside [0, 1)");
  HEARTH_CHECK(ConfigError, options.dampening >= 0 && options.dampening <= 1, "sgd: dampening ", options.dampening,
               " is outside [0, 1]");
  HEARTH_CHECK(ConfigError, !options.nesterov || (options.momentum > 0 && options.dampening == 0),
               "sgd: nesterov needs momentum above 0 and dampening 0; momentum is ", options.momentum, ", dampening ",
               options.dampening);
  HEARTH_CHECK(ConfigError,
               !options.momentum_in_gradients ||
                   (options.momentum > 0 && options.dampening == 0 && parameters.grads().device().is_cpu()),
               "sgd: momentum_in_gradients needs momentum above 0 and dampening 0, on the CPU; momentum is ",
               options.momentum, ", dampening ", options.dampening, ", on ", parameters.grads().device());
  if (options.momentum > 0) make_moment("optimizer.momentum", momentum_);
}

void Sgd::prepare(double lr, double grad_scale) {
  coefficients_.set({.lr = lr,
                     .grad_scale = grad_scale,
                     .momentum = options_.momentum,
                     .one_minus_dampening = steps() == 0 ? 1.0 : 1.0 - options_.dampening,
                     .nesterov = options_.nesterov,
                     .decay_alone = options_.momentum_in_gradients});
}

UpdateCells Sgd::cells() {
  using C = SgdCoefficients;
  return {.grad_scale = coefficients_.cell(&C::grad_scale),
          .skip = coefficients_.cell(&C::skip),
          .one_minus_dampening = coefficients_.cell(&C::one_minus_dampening),
          .one_minus_dampening_later = 1.0 - options_.dampening};
}

void Sgd::update(const UpdateBuffers& on) {
  run_on(on.values.device(), [&](auto& stream) { kernels::sgd_update(stream, on, momentum_, coefficients_); });
}

}  // namespace hearth::optim
