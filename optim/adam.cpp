// SPDX-License-Identifier: Apache-2.0
// Adam and AdamW.
#include "optim/adam.h"

#include "core/run_on.h"

namespace hearth::optim {

Adam::Adam(FlatParameters& parameters, const AdamOptions& options)
    : Optimizer(parameters, options.lr,
                {options.weight_decay.value_or(default_weight_decay(options.decay)), options.decay_norm_bias,
                 options.groups, options.layer_decay}),
      options_(options),
      coefficients_(parameters.values().device()) {
  HEARTH_CHECK(ConfigError, options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1,
               "adam: beta1 ", options.beta1, " and beta2 ", options.beta2, "; both are in [0, 1)");
  check_eps("adam", options.eps);
  make_moment("optimizer.first_moment", first_);
  make_moment("optimizer.second_moment", second_);
}

void Adam::prepare(double lr, double grad_scale) {
  coefficients_.set(adam_coefficients(options_, lr, grad_scale, steps() + 1, options_.decay == AdamDecay::decoupled));
}

UpdateCells Adam::cells() { return bias_corrected_cells(coefficients_, options_.beta1, options_.beta2); }

void Adam::update(const UpdateBuffers& on) {
  run_on(on.values.device(), [&](auto& stream) { kernels::adam_update(stream, on, first_, second_, coefficients_); });
}

}  // namespace hearth::optim
