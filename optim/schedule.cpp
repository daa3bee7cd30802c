// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules.
#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace hearth::optim {

namespace {

// What rounding may make of a whole number of steps.
constexpr double rounding = 1e-6;

/// Epochs as steps; ConfigError where that cannot be told.
std::int64_t steps_of(double epochs, const ScheduleInfo& info, const char* what) {
  if (epochs == 0) return 0;
  HEARTH_CHECK(ConfigError, info.steps_per_epoch > 0, "schedule: ", what, " is given in epochs (", epochs,
               "), but the run does not say how long one is; give steps");
  return steps_of_epochs(epochs, info.steps_per_epoch);
}

double checked_final_factor(double factor) {
  HEARTH_CHECK(ConfigError, std::isfinite(factor) && factor >= 0, "schedule: final_factor ", factor,
               "; it is finite and at least 0");
  return factor;
}

}  // namespace

std::int64_t steps_of_epochs(double epochs, double steps_per_epoch) {
  const double steps = epochs * steps_per_epoch;
  HEARTH_CHECK(ConfigError, std::isfinite(steps) && steps >= 0 && steps < 9e15, epochs, " epochs of ", steps_per_epoch,
               " steps are not a usable number of steps; it is at most 9e15");
  return static_cast<std::int64_t>(std::ceil(steps - rounding));
}

std::int64_t epochs_over(std::int64_t steps, double steps_per_epoch) {
  return static_cast<std::int64_t>(std::floor((static_cast<double>(steps) + rounding) / steps_per_epoch));
}

double lr_scaling_factor(LrScaling rule, std::int64_t batch, std::int64_t reference_batch) {
  HEARTH_CHECK(ConfigError, batch >= 1 && reference_batch >= 1, "learning rate: scaled from ", reference_batch, " to ",
               batch, " samples an update; both are at least 1");
  const double ratio = static_cast<double>(batch) / static_cast<double>(reference_batch);
  return rule == LrScaling::linear ? ratio : rule == LrScaling::sqrt ? std::sqrt(ratio) : 1.0;
}

Schedule::Schedule(const Warmup& warmup, const ScheduleInfo& info)
    : total_steps_(info.total_steps), warmup_start_(warmup.warmup_start) {
  HEARTH_CHECK(ConfigError, warmup.warmup_steps >= 0 && warmup.warmup_epochs >= 0 && info.total_steps >= 0,
               "schedule: warm-up of ", warmup.warmup_steps, " steps and ", warmup.warmup_epochs, " epochs in ",
               info.total_steps, " steps; all are at least 0");
  HEARTH_CHECK(ConfigError, warmup.warmup_start >= 0 && warmup.warmup_start <= 1, "schedule: warmup_start ",
               warmup.warmup_start, " is outside [0, 1]");
  const std::int64_t from_epochs = steps_of(warmup.warmup_epochs, info, "warmup_epochs");
  HEARTH_CHECK(ConfigError, warmup.warmup_steps <= INT64_MAX - from_epochs, "schedule: warm-up of ",
               warmup.warmup_steps, " steps is too long");
  warmup_steps_ = warmup.warmup_steps + from_epochs;
}

double Schedule::factor(std::int64_t step) const {
  HEARTH_CHECK(UsageError, step >= 0, "schedule: step ", step, " is negative");
  if (step >= warmup_steps_) return after_warmup(step);
  return warmup_start_ + (1.0 - warmup_start_) * static_cast<double>(step + 1) / static_cast<double>(warmup_steps_);
}

double Schedule::progress(std::int64_t step) const {
  const std::int64_t steps = total_steps_ - warmup_steps_;
  if (steps <= 0) return 1.0;
  return std::clamp(static_cast<double>(step - warmup_steps_) / static_cast<double>(steps), 0.0, 1.0);
}

ConstantSchedule::ConstantSchedule(const ConstantOptions& options, const ScheduleInfo& info)
    : Schedule(options, info) {}

StepSchedule::StepSchedule(const StepOptions& options, const ScheduleInfo& info)
    : Schedule(options, info), gamma_(options.gamma) {
  HEARTH_CHECK(ConfigError, std::isfinite(gamma_) && gamma_ > 0, "step schedule: gamma ", gamma_, "; it is above 0");
  for (const double milestone : options.milestones) {
    HEARTH_CHECK(ConfigError, milestone > 0 && milestone < 9e15, "step schedule: milestone ", milestone,
                 "; milestones are above 0");
    const std::int64_t step =
        options.unit == ScheduleUnit::epochs ? steps_of(milestone, info, "a milestone") : std::llround(milestone);
    HEARTH_CHECK(ConfigError, milestones_.empty() || step > milestones_.back(), "step schedule: milestone ", milestone,
                 " does not come after the one before it; list them in ascending order");
    milestones_.push_back(step);
  }
}

double StepSchedule::after_warmup(std::int64_t step) const {
  const auto reached = std::upper_bound(milestones_.begin(), milestones_.end(), step) - milestones_.begin();
  return std::pow(gamma_, static_cast<double>(reached));
}

CosineSchedule::CosineSchedule(const CosineOptions& options, const ScheduleInfo& info)
    : Schedule(options, info), final_factor_(checked_final_factor(options.final_factor)) {}

double CosineSchedule::after_warmup(std::int64_t step) const {
  return final_factor_ + (1.0 - final_factor_) * (1.0 + std::cos(std::numbers::pi * progress(step))) / 2.0;
}

PolynomialSchedule::PolynomialSchedule(const PolynomialOptions& options, const ScheduleInfo& info)
    : Schedule(options, info), power_(options.power), final_factor_(checked_final_factor(options.final_factor)) {
  HEARTH_CHECK(ConfigError, std::isfinite(power_) && power_ > 0, "polynomial schedule: power ", power_,
               "; it is above 0");
}

double PolynomialSchedule::after_warmup(std::int64_t step) const {
  return final_factor_ + (1.0 - final_factor_) * std::pow(1.0 - progress(step), power_);
}

InverseSqrtSchedule::InverseSqrtSchedule(const InverseSqrtOptions& options, const ScheduleInfo& info)
    : Schedule(options, info) {}

double InverseSqrtSchedule::after_warmup(std::int64_t step) const {
  const double reference = static_cast<double>(std::max<std::int64_t>(warmup_steps(), 1));
  return std::sqrt(reference / static_cast<double>(step + 1));
}

}  // namespace hearth::optim
