// SPDX-License-Identifier: Apache-2.0
// The decision on one scaled update, for every device.
#pragma once

#include <cmath>

#include "core/cpu/vector_math.h"
#include "optim/grad_scaler.h"

namespace hearth::kernels {

enum FoundInfCounter { clean_in_a_row, skipped_updates, skipped_at_floor };

/// Whether so many updates were skipped that none is to come: the host may not have looked yet.
HEARTH_ALWAYS_INLINE bool has_given_up(const FoundInfCheck& v) {
  return v.counters[skipped_at_floor] >= v.options.give_up_after;
}

/// Moves the scale after an update that was skipped or not.
HEARTH_ALWAYS_INLINE void move_scale(const FoundInfCheck& v, bool skip) {
  const optim::GradScalerOptions& options = v.options;
  if (skip) {
    v.counters[clean_in_a_row] = 0;
    ++v.counters[skipped_updates];
    if (has_given_up(v)) return;
    const bool lowest = !options.dynamic || *v.scale <= options.floor;
    v.counters[skipped_at_floor] = lowest ? v.counters[skipped_at_floor] + 1 : 0;
    if (lowest || ++*v.overflows < options.hysteresis) return;
    *v.scale = *v.scale * options.backoff > options.floor ? *v.scale * options.backoff : options.floor;
    return;
  }
  v.counters[skipped_at_floor] = 0;
  if (++v.counters[clean_in_a_row] < options.growth_steps || !options.dynamic) return;
  v.counters[clean_in_a_row] = 0;
  *v.overflows = 0;
  *v.scale = *v.scale * options.growth < options.ceiling ? *v.scale * options.growth : options.ceiling;
}

/// What depends on the number of the update. Updates that were skipped without the host knowing do not count.
HEARTH_ALWAYS_INLINE void set_numbered(const FoundInfCheck& v) {
  const std::int64_t unknown = v.counters[skipped_updates] - v.input->known_skipped;
  const std::int64_t step = v.input->step - unknown;
  const double t = static_cast<double>(step);
  if (v.update.correction1 != nullptr) *v.update.correction1 = 1.0 - std::pow(v.update.beta1, t);
  if (v.update.correction2 != nullptr) *v.update.correction2 = 1.0 - std::pow(v.update.beta2, t);
  if (v.update.one_minus_dampening != nullptr)
    *v.update.one_minus_dampening = step == 1 ? 1.0 : v.update.one_minus_dampening_later;
  if (v.average_weight != nullptr)
    *v.average_weight = optim::Ema::weight_of(v.average, v.input->average_step - unknown);
}

HEARTH_ALWAYS_INLINE void decide(const FoundInfCheck& v) {
  // f32 squares always fit f64, so that the sum is finite just where every gradient is.
  const double sum = *v.squares;
  const bool skip = has_given_up(v) || !(sum <= 1.7976931348623157e308);
  *v.update.skip = skip;
  if (skip) {
    if (v.average_weight != nullptr) *v.average_weight = 0;
    *v.uncounted += v.input->samples;
    // That of an earlier step would pass for this one's.
    if (v.norm != nullptr) *v.norm = -1;
  } else {
    const double norm = std::sqrt(sum) / *v.scale;
    const double room = v.max_norm / (norm + 1e-6);
    *v.update.grad_scale *= (v.max_norm > 0 && room < 1.0 ? room : 1.0) / *v.scale;
    if (v.norm != nullptr) *v.norm = norm;
    set_numbered(v);
  }
  if (v.step_loss != nullptr) {
    if (!skip) {
      *v.loss += *v.step_loss;
      *v.correct += *v.step_correct;
    }
    *v.step_loss = 0;
    *v.step_correct = 0;
  }
  move_scale(v, skip);
}

}  // namespace hearth::kernels
