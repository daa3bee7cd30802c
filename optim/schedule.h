// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules: the factor on the base learning rate as a function of the step alone, so that there is no
// state to save. Each begins with an optional linear warm-up.
#pragma once

#include <cstdint>
#include <vector>

#include "core/export.h"

namespace hearth::optim {

/// The length of a run in optimizer steps.
struct ScheduleInfo {
  std::int64_t total_steps = 0;
  double steps_per_epoch = 0;  ///< no whole number where the batches of a step do not divide an epoch
};

/// The steps after which so many epochs are over: the last one may go on into the next epoch. ConfigError if they are
/// more than 9e15.
HEARTH_API std::int64_t steps_of_epochs(double epochs, double steps_per_epoch);
/// The whole epochs that are over after so many steps.
HEARTH_API std::int64_t epochs_over(std::int64_t steps, double steps_per_epoch);

/// How a learning rate follows the number of samples in an update.
enum class LrScaling { none, linear, sqrt };

/// What to multiply a learning rate with that was chosen for `reference_batch` samples an update, if there are `batch`:
/// their ratio (linear: Goyal et al. 2017, arXiv:1706.02677), its root (sqrt: Krizhevsky 2014, arXiv:1404.5997, and
/// You et al. 2019 for LAMB), or 1. ConfigError unless both are at least 1.
HEARTH_API double lr_scaling_factor(LrScaling rule, std::int64_t batch, std::int64_t reference_batch);

/// Linear warm-up of w = warmup_steps + steps_of_epochs(warmup_epochs) steps: step s < w has the factor
/// start + (1 - start) * (s + 1) / w.
struct Warmup {
  std::int64_t warmup_steps = 0;
  double warmup_epochs = 0.0;
  double warmup_start = 0.0;
};

class HEARTH_API Schedule {
 public:
  virtual ~Schedule() = default;
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  /// The factor of step 0, 1, ...; UsageError for a negative step.
  double factor(std::int64_t step) const;
  std::int64_t warmup_steps() const { return warmup_steps_; }

 protected:
  /// ConfigError for negative lengths, a start outside [0, 1], or epochs where the run does not know their length.
  Schedule(const Warmup& warmup, const ScheduleInfo& info);
  /// The factor of a step after the warm-up; `step` counts from the start of the run.
  virtual double after_warmup(std::int64_t step) const = 0;
  /// Share of the steps after the warm-up that lie before `step`, in [0, 1].
  double progress(std::int64_t step) const;

 private:
  std::int64_t warmup_steps_;
  std::int64_t total_steps_;
  double warmup_start_;
};

struct ConstantOptions : Warmup {};

class HEARTH_API ConstantSchedule : public Schedule {
 public:
  ConstantSchedule(const ConstantOptions& options, const ScheduleInfo& info);

 private:
  double after_warmup(std::int64_t) const override { return 1.0; }
};

enum class ScheduleUnit { epochs, steps };

struct StepOptions : Warmup {
  std::vector<double> milestones = {};  ///< from the start of the run
  ScheduleUnit unit = ScheduleUnit::epochs;
  double gamma = 0.1;
};

/// gamma to the number of milestones reached.
class HEARTH_API StepSchedule : public Schedule {
 public:
  /// ConfigError unless the milestones ascend and gamma is above 0.
  StepSchedule(const StepOptions& options, const ScheduleInfo& info);

 private:
  double after_warmup(std::int64_t step) const override;

  std::vector<std::int64_t> milestones_;
  double gamma_;
};

struct CosineOptions : Warmup {
  double final_factor = 0.0;
};

/// final + (1 - final) * (1 + cos(pi * progress)) / 2. Source: Loshchilov and Hutter 2016 (arXiv:1608.03983).
class HEARTH_API CosineSchedule : public Schedule {
 public:
  CosineSchedule(const CosineOptions& options, const ScheduleInfo& info);

 private:
  double after_warmup(std::int64_t step) const override;
  double final_factor_;
};

struct PolynomialOptions : Warmup {
  double power = 1.0;
  double final_factor = 0.0;
};

/// final + (1 - final) * (1 - progress) ^ power.
class HEARTH_API PolynomialSchedule : public Schedule {
 public:
  PolynomialSchedule(const PolynomialOptions& options, const ScheduleInfo& info);

 private:
  double after_warmup(std::int64_t step) const override;
  double power_;
  double final_factor_;
};

struct InverseSqrtOptions : Warmup {};

/// sqrt(w / (step + 1)) with w the warm-up steps, at least 1. Source: Vaswani et al. 2017 (arXiv:1706.03762).
class HEARTH_API InverseSqrtSchedule : public Schedule {
 public:
  InverseSqrtSchedule(const InverseSqrtOptions& options, const ScheduleInfo& info);

 private:
  double after_warmup(std::int64_t step) const override;
};

}  // namespace hearth::optim
