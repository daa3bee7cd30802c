// SPDX-License-Identifier: Apache-2.0
// LARS and LAMB.
#include "optim/layerwise.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/run_on.h"
#include "optim/clip.h"
#include "optim/sgd.h"

namespace hearth::optim {
namespace {

constexpr double no_bound = std::numeric_limits<double>::infinity();

}  // namespace

LayerwiseOptimizer::LayerwiseOptimizer(FlatParameters& parameters, double base_lr, const GroupOptions& options)
    : Optimizer(parameters, base_lr, options, Ranges::by_parameter),
      ratios_(Tensor::full({static_cast<std::int64_t>(ranges().size())}, no_ratio, DType::f64,
                           parameters.values().device())) {}

std::vector<TrustRatios> LayerwiseOptimizer::read_trust_ratios() const {
  const std::vector<double> ratios = ratios_.to_doubles();
  std::vector<std::vector<double>> by_group(plan().groups().size());
  for (std::size_t i = 0; i < ratios.size(); ++i) {
    const ParameterRange& range = ranges()[i];
    if (range.adapts && ratios[i] != no_ratio)
      by_group[range.group].push_back(std::isfinite(ratios[i]) ? ratios[i] : no_bound);
  }
  std::vector<TrustRatios> result;
  for (std::size_t i = 0; i < by_group.size(); ++i) {
    std::vector<double>& of_group = by_group[i];
    if (of_group.empty()) continue;
    std::sort(of_group.begin(), of_group.end());
    const std::size_t middle = of_group.size() / 2;
    const double median = of_group.size() % 2 == 1 ? of_group[middle] : (of_group[middle - 1] + of_group[middle]) / 2;
    result.push_back({plan().groups()[i], of_group.front(), median, of_group.back()});
  }
  return result;
}

Lars::Lars(FlatParameters& parameters, const LarsOptions& options)
    : LayerwiseOptimizer(
          parameters, options.lr,
          {options.weight_decay, options.decay_norm_bias, options.groups, options.layer_decay, options.adapt}),
      options_(options),
      coefficients_(parameters.values().device()) {
  HEARTH_CHECK(ConfigError, options.momentum > 0 && options.momentum < 1, "lars: momentum ", options.momentum,
               " is outside (0, 1); 0.9 is usual, and sgd goes without momentum");
  HEARTH_CHECK(ConfigError, options.trust > 0 && options.eps >= 0, "lars: trust ", options.trust, " and eps ",
               options.eps, "; trust is above 0 and eps at least 0");
  make_moment("optimizer.momentum", momentum_);
}

void Lars::prepare(double lr, double grad_scale) {
  coefficients_.set({.lr = lr,
                     .grad_scale = grad_scale,
                     .momentum = options_.momentum,
                     .one_minus_dampening = 1.0,
                     .nesterov = false,
                     .lr_in_momentum = options_.lr_in_momentum});
}

UpdateCells Lars::cells() {
  using C = SgdCoefficients;
  return {.grad_scale = coefficients_.cell(&C::grad_scale), .skip = coefficients_.cell(&C::skip)};
}

void Lars::update(const UpdateBuffers& on) {
  run_on(on.values.device(), [&](auto& stream) {
    kernels::lars_update(stream, on, momentum_, coefficients_, {options_.trust, options_.eps, options_.clip_trust},
                         ratios());
  });
}

Lamb::Lamb(FlatParameters& parameters, const LambOptions& options)
    : LayerwiseOptimizer(
          parameters, options.lr,
          {options.weight_decay, options.decay_norm_bias, options.groups, options.layer_decay, options.adapt}),
      options_(options),
      coefficients_(parameters.values().device()) {
  HEARTH_CHECK(ConfigError, options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1,
               "lamb: beta1 ", options.beta1, " and beta2 ", options.beta2, "; both are in [0, 1)");
  check_eps("lamb", options.eps);
  const double max_grad_norm = options.max_grad_norm.value_or(1);
  HEARTH_CHECK(ConfigError, std::isfinite(max_grad_norm) && max_grad_norm > 0, "lamb: max_grad_norm ", max_grad_norm,
               "; it is above 0, 1 is usual");
  const double norm_max = options.norm_max.value_or(no_bound);
  HEARTH_CHECK(ConfigError, options.norm_min >= 0 && options.norm_min <= norm_max && norm_max > 0, "lamb: norm_min ",
               options.norm_min, " and norm_max ", norm_max,
               "; norm_min is at least 0 and at most norm_max, which is above 0");
  make_moment("optimizer.first_moment", first_);
  make_moment("optimizer.second_moment", second_);
}

void Lamb::prepare(double lr, double grad_scale) {
  squares_ = {};
  LambCoefficients next{adam_coefficients(options_, lr, grad_scale, steps() + 1, false), {}, {}, {}, {}};
  next.max_grad_norm = options_.max_grad_norm.value_or(0);
  next.norm_min = options_.norm_min;
  next.norm_max = options_.norm_max.value_or(no_bound);
  next.longest = options_.trust_clip ? 1.0 : no_bound;
  coefficients_.set(next);
}

UpdateCells Lamb::cells() {
  UpdateCells cells = bias_corrected_cells(coefficients_, options_.beta1, options_.beta2);
  if (options_.max_grad_norm) cells.squares = &squares_;
  return cells;
}

void Lamb::update(const UpdateBuffers& on) {
  Tensor squares = std::exchange(squares_, {});
  if (options_.max_grad_norm && !squares.defined()) {
    squares = Tensor::empty({}, DType::f64, on.grads.device());
    squares_of_grads(parameters(), squares);
  }
  run_on(on.values.device(),
         [&](auto& stream) { kernels::lamb_update(stream, on, first_, second_, coefficients_, ratios(), squares); });
}

}  // namespace hearth::optim
