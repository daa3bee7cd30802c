// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the updates on one element, for every device, and the constants it takes for one range of the plan.
// T is float or double; constants are worked out in f64 and rounded once.
#pragma once

#include <cmath>
#include <limits>

#include "core/cpu/vector_math.h"
#include "optim/adam.h"
#include "optim/layerwise.h"
#include "optim/sgd.h"

namespace hearth::kernels {

template <class T>
struct SgdRange {
  T lr;
  T scale_1, scale_2;
  T decay;
  T momentum, one_minus_dampening;
  T ahead, nesterov_coefficient;  // of gradient and momentum in the step
};

/// `trust` is a factor on gradient and decay.
template <class T>
HEARTH_ALWAYS_INLINE SgdRange<T> sgd_range(const SgdCoefficients& coefficients, double lr_scale, double weight_decay,
                                           double trust) {
  const double lr = coefficients.lr * lr_scale;
  const double factor = coefficients.lr_in_momentum ? trust * lr : trust;
  const optim::SplitScale<T> scale(factor * coefficients.grad_scale);
  const T momentum = static_cast<T>(coefficients.momentum);
  return {.lr = static_cast<T>(coefficients.lr_in_momentum ? 1.0 : lr),
          .scale_1 = scale.first,
          .scale_2 = scale.second,
          .decay = static_cast<T>(factor * weight_decay),
          .momentum = momentum,
          .one_minus_dampening = static_cast<T>(coefficients.one_minus_dampening),
          .ahead = coefficients.nesterov ? T(1) : T(0),
          .nesterov_coefficient = coefficients.nesterov ? momentum : T(1)};
}

/// w without momentum.
template <class T>
HEARTH_ALWAYS_INLINE T sgd_step(T w, T g, const SgdRange<T>& c) {
  const T d = g * c.scale_1 * c.scale_2 + c.decay * w;
  return w - c.lr * d;
}

template <class T>
struct SgdState {
  T w, m;
};
template <class T>
HEARTH_ALWAYS_INLINE SgdState<T> sgd_step(SgdState<T> state, T g, const SgdRange<T>& c) {
  const T d = g * c.scale_1 * c.scale_2 + c.decay * state.w;
  const T moved = c.momentum * state.m + c.one_minus_dampening * d;
  return {state.w - c.lr * (c.ahead * d + c.nesterov_coefficient * moved), moved};
}

/// The scaled gradient, bounded so that its square stays finite. Infinite gradients and NaN are not bounded.
template <class T>
HEARTH_ALWAYS_INLINE T bounded_gradient(T g, T scale_1, T scale_2) {
  const T bound = sizeof(T) == 4 ? T(1e18) : T(1e150);
  const T d = g * scale_1 * scale_2;
  const T bounded = std::abs(d) > bound ? std::copysign(bound, d) : d;
  return std::abs(g) <= std::numeric_limits<T>::max() ? bounded : d;
}

template <class T>
struct AdamRange {
  T scale_1, scale_2;
  T coupled_decay, shrink;  // shrink is 1 - lr * decay
  T beta1, one_minus_beta1, beta2, one_minus_beta2;
  T step, inverse_root, eps;  // lr / correction1, 1 / sqrt(correction2)
};

template <class T>
HEARTH_ALWAYS_INLINE AdamRange<T> adam_range(const AdamCoefficients& coefficients, double lr_scale,
                                             double weight_decay) {
  const optim::SplitScale<T> scale(coefficients.grad_scale);
  const double lr = coefficients.lr * lr_scale;
  return {.scale_1 = scale.first,
          .scale_2 = scale.second,
          .coupled_decay = static_cast<T>(coefficients.decoupled ? 0.0 : weight_decay),
          .shrink = static_cast<T>(coefficients.decoupled ? 1.0 - lr * weight_decay : 1.0),
          .beta1 = static_cast<T>(coefficients.beta1),
          .one_minus_beta1 = static_cast<T>(1.0 - coefficients.beta1),
          .beta2 = static_cast<T>(coefficients.beta2),
          .one_minus_beta2 = static_cast<T>(1.0 - coefficients.beta2),
          .step = static_cast<T>(lr / coefficients.correction1),
          .inverse_root = static_cast<T>(1.0 / std::sqrt(coefficients.correction2)),
          .eps = static_cast<T>(coefficients.eps)};
}

template <class T>
struct AdamState {
  T w, m, v;
};
template <class T>
HEARTH_ALWAYS_INLINE AdamState<T> adam_step(AdamState<T> state, T g, const AdamRange<T>& c) {
  const T d = bounded_gradient(g, c.scale_1, c.scale_2) + c.coupled_decay * state.w;
  const T first = c.beta1 * state.m + c.one_minus_beta1 * d;
  const T second = c.beta2 * state.v + c.one_minus_beta2 * d * d;
  const T w = c.shrink * state.w - c.step * (first / (std::sqrt(second) * c.inverse_root + c.eps));
  return {w, first, second};
}

template <class T>
struct LambRange {
  T scale_1, scale_2;
  T decay;
  T beta1, one_minus_beta1, beta2, one_minus_beta2;
  T inverse1, inverse_root2, eps;  // 1 / correction1, 1 / sqrt(correction2)
};

/// The factor on gradients whose squares add up to `squares`; null where they are not normalised.
HEARTH_ALWAYS_INLINE double lamb_grad_scale(const LambCoefficients& coefficients, const double* squares) {
  if (squares == nullptr) return coefficients.grad_scale;
  const double norm = std::sqrt(*squares) * std::abs(coefficients.grad_scale);
  if (norm <= coefficients.max_grad_norm) return coefficients.grad_scale;
  // An infinite norm would make every step zero, and nobody would see.
  const bool finite = norm <= std::numeric_limits<double>::max();
  return finite ? coefficients.grad_scale / (norm / coefficients.max_grad_norm)
                : std::numeric_limits<double>::quiet_NaN();
}

template <class T>
HEARTH_ALWAYS_INLINE LambRange<T> lamb_range(const LambCoefficients& coefficients, double weight_decay,
                                             double grad_scale) {
  const optim::SplitScale<T> scale(grad_scale);
  return {.scale_1 = scale.first,
          .scale_2 = scale.second,
          .decay = static_cast<T>(weight_decay),
          .beta1 = static_cast<T>(coefficients.beta1),
          .one_minus_beta1 = static_cast<T>(1.0 - coefficients.beta1),
          .beta2 = static_cast<T>(coefficients.beta2),
          .one_minus_beta2 = static_cast<T>(1.0 - coefficients.beta2),
          .inverse1 = static_cast<T>(1.0 / coefficients.correction1),
          .inverse_root2 = static_cast<T>(1.0 / std::sqrt(coefficients.correction2)),
          .eps = static_cast<T>(coefficients.eps)};
}

/// The step before its length is chosen.
template <class T>
HEARTH_ALWAYS_INLINE T lamb_direction(T w, T m, T v, const LambRange<T>& c) {
  return m * c.inverse1 / (std::sqrt(v) * c.inverse_root2 + c.eps) + c.decay * w;
}

/// The moments after this gradient; w stays.
template <class T>
HEARTH_ALWAYS_INLINE AdamState<T> lamb_moments(AdamState<T> state, T g, const LambRange<T>& c) {
  const T d = bounded_gradient(g, c.scale_1, c.scale_2);
  return {state.w, c.beta1 * state.m + c.one_minus_beta1 * d, c.beta2 * state.v + c.one_minus_beta2 * d * d};
}

/// LAMB's ratio of norms, those of a range's values and of its direction; times the learning rate it is what the
/// direction is multiplied with.
HEARTH_ALWAYS_INLINE double lamb_ratio(const LambCoefficients& coefficients, bool adapts, double value_norm,
                                       double step_norm) {
  const double raised = value_norm < coefficients.norm_min ? coefficients.norm_min : value_norm;
  const double phi = raised > coefficients.norm_max ? coefficients.norm_max : raised;
  const bool has_norms = phi > 0 && step_norm > 0;
  const double ratio = adapts && has_norms ? phi / step_norm : 1.0;
  return ratio > coefficients.longest ? coefficients.longest : ratio;
}

/// LARS's factor on gradient and decay of a range; the norms are those of its values and of its scaled gradients, lr is
/// the range's.
HEARTH_ALWAYS_INLINE double lars_trust_of(const LarsConstants& constants, double lr, double weight_decay, bool adapts,
                                          double value_norm, double grad_norm) {
  if (!adapts) return 1.0;
  const bool has_norms = value_norm != 0 && grad_norm != 0;
  // An infinite norm would make every step zero, and nobody would see.
  if (has_norms && !(grad_norm <= std::numeric_limits<double>::max())) return std::numeric_limits<double>::quiet_NaN();
  const double trust =
      has_norms ? constants.trust * value_norm / (grad_norm + weight_decay * value_norm + constants.eps) : 1.0;
  if (!constants.clip) return trust;
  return trust < lr ? trust / lr : 1.0;
}

}  // namespace hearth::kernels
