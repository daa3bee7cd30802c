// SPDX-License-Identifier: Apache-2.0
// What all optimizers share: they turn the flat gradients into a change of the flat values, one fused pass a step.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "autograd/parameters.h"
#include "core/io/state.h"
#include "optim/copies.h"
#include "optim/groups.h"
#include "optim/schedule.h"
#include "optim/staged.h"

namespace hearth::optim {

/// What of a staged update is settled where the parameters are, after the gradients are there and before apply(): the
/// factor on the gradients, whether the update is skipped, and what depends on the number of updates that were not.
/// Addresses in the memory of that device; null for what an optimizer does not have.
struct UpdateCells {
  double* grad_scale = nullptr;
  bool* skip = nullptr;
  double* correction1 = nullptr;  ///< 1 - beta1^t in update t = 1, 2, ...
  double beta1 = 0;
  double* correction2 = nullptr;  ///< 1 - beta2^t
  double beta2 = 0;
  double* one_minus_dampening = nullptr;  ///< 1 in the first update, `one_minus_dampening_later` in the rest
  double one_minus_dampening_later = 1;
  /// On the host: takes the sum of squares over all gradients, f64 [], from what has added them up, for apply().
  Tensor* squares = nullptr;
};

/// What an update reads and writes: the flat values, their gradients, the copies of the new values, and the plan. Where
/// ranks update a part each, tensors are this rank's part.
struct UpdateBuffers {
  const Tensor &values, &grads;
  const Copies& copies;
  const UpdatePlan& plan;
  Collective* group = nullptr;  ///< of the ranks that update a part each; null for none
};

class Ema;

/// Of the parameters of one group whose steps are set by norms: the factors on these steps.
struct TrustRatios {
  std::string group;        ///< as UpdatePlan::groups() has it
  double min, median, max;  ///< infinite where a ratio is not finite
};

class HEARTH_API Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates the values from the gradients with the learning rate lr(). Parameters without a contribution count as
  /// having gradient zero; gradients that were used before are used again. UsageError where the update would be lost or
  /// no gradient has arrived since zero_grad(): FlatParameters::begin_update(). Also while the averages of an Ema are
  /// in use, which it would train.
  void step() { step(lr()); }
  /// The same with this learning rate, from the gradients times `grad_scale` (the inverse of a loss scale). UsageError
  /// unless lr is finite and at least 0 and grad_scale is finite, and as above.
  void step(double lr, double grad_scale = 1.0);
  /// Marks all gradients as empty, those of parameters that had no part in the loss too.
  void zero_grad();
  /// From now on the learning rate follows `schedule`, which must outlive the optimizer: step s = 0, 1, ... has
  /// base_lr() * schedule.factor(s), those counted that were skipped. There is nothing to call after a step. Before the
  /// state is registered, saved or loaded.
  void attach(const Schedule& schedule) { schedule_ = &schedule; }
  void attach(const Schedule&&) = delete;
  /// The learning rate of the next step().
  double lr() const { return schedule_ == nullptr ? base_lr_ : base_lr_ * schedule_->factor(steps_ + skipped_); }
  /// UsageError if they are gone.
  const FlatParameters& parameters() const;
  /// Scales the gradients that the next step() sees so that their global norm is at most `max_norm`; the norm before.
  /// Called between backward() and step(). DivergedError for a norm that is not finite, ConfigError unless max_norm >
  /// 0. With a loss scale, clip by clip_scale() of the unscaled norm instead.
  double clip_grad_norm(double max_norm);

  // The same in two halves, for a step that is captured once and replayed: the first is the host's, each step; the
  // second is the device's, and what a replay repeats.

  /// Checks and sets what the coming update depends on, and counts it as done. Refuses like step().
  void begin_step(double lr, double grad_scale = 1.0);
  /// Queues the update itself; UsageError if none was begun. With `average`, begun for this update and of the same
  /// parameters (UsageError otherwise), its values are blended in the same pass; its buffers are left to
  /// Ema::apply_to_buffers().
  void apply(Ema* average = nullptr);
  /// For work between the two halves that clips or skips.
  virtual UpdateCells cells() = 0;

  /// The learning rate it was made with or was given since; a schedule multiplies it.
  double base_lr() const { return base_lr_; }
  /// Another base_lr() from the next step on. It is an option, not part of the saved state. ConfigError as the
  /// constructor.
  void set_lr(double lr);
  /// Steps done so far. Those that were skipped on the device count until forget_steps().
  std::int64_t steps() const { return steps_; }
  /// `count` of the steps were skipped.
  void forget_steps(std::int64_t count) {
    steps_ -= count;
    skipped_ += count;
  }
  /// The step that was begun last does not count, unless apply() has run for it: an exception ended it, as one of the
  /// forward pass.
  void abandon_step();
  const std::vector<ParameterRange>& ranges() const { return plan_.ranges(); }
  /// Values that make_moment() has made of each weight.
  std::int64_t moments() const { return static_cast<std::int64_t>(moments_.size()); }
  /// Whether ranks may update a part each (FlatParameters::shard_updates()): each element is updated by itself, or by
  /// sums that are added up over the ranks. An optimizer of one's own says so, too.
  virtual bool can_shard() const { return false; }

  /// The ratios of the last update by group, groups without any left out; empty before the first update and after one
  /// that was skipped, and for optimizers that set no step by norms. Waits for the device.
  virtual std::vector<TrustRatios> read_trust_ratios() const { return {}; }

  /// Registers the step count and what make_moment() made.
  virtual void register_state(State& state);

 protected:
  /// `parameters` must outlive the optimizer; f32 or f64 (DTypeError). ConfigError for a bad learning rate.
  Optimizer(FlatParameters& parameters, double base_lr, const GroupOptions& options, Ranges ranges = Ranges::merged);
  /// Stages the coefficients of the update numbered steps() + 1.
  virtual void prepare(double lr, double grad_scale) = 0;
  /// Writes the values and, of the new values, the copies.
  virtual void update(const UpdateBuffers& on) = 0;

  /// ConfigError, naming `op`, unless eps is above 0 and stays so, and finite, in the type of the values.
  void check_eps(const char* op, double eps) const;
  const UpdatePlan& plan() const { return plan_; }
  /// Makes a member zeros of the shape and type of the flat values, or of this rank's part of them, where they are, and
  /// state of that name.
  void make_moment(const char* name, Tensor& moment);

 private:
  void check_parameters() const;
  void check_values() const;

  FlatParameters* parameters_;
  std::weak_ptr<const void> parameters_alive_;
  UpdatePlan plan_;
  bool sharded_ = false;
  double base_lr_;
  std::vector<NamedTensor> moments_;
  const Schedule* schedule_ = nullptr;
  double clip_ = 1.0;  // what clip_grad_norm() found, for the next step()
  std::int64_t steps_ = 0;
  std::int64_t skipped_ = 0;
  std::int64_t begun_ = 0;    // updates begun by this object, skipped ones too
  std::int64_t applied_ = 0;  // the last of them that apply() was called for
};

/// The cells of coefficients with the bias corrections of Adam.
template <class Coefficients>
UpdateCells bias_corrected_cells(Staged<Coefficients>& coefficients, double beta1, double beta2) {
  return {.grad_scale = coefficients.cell(&Coefficients::grad_scale),
          .skip = coefficients.cell(&Coefficients::skip),
          .correction1 = coefficients.cell(&Coefficients::correction1),
          .beta1 = beta1,
          .correction2 = coefficients.cell(&Coefficients::correction2),
          .beta2 = beta2};
}

/// A gradient scale as two factors of type T, so that a scale below T's normal range loses no precision.
template <class T>
struct SplitScale {
  HEARTH_HD explicit SplitScale(double scale) {
    constexpr double smallest = std::numeric_limits<T>::min();
    const bool tiny = scale != 0 && std::abs(scale) < smallest;
    const double step = tiny ? std::sqrt(smallest) : 1.0;
    first = static_cast<T>(step);
    second = static_cast<T>(scale / step);
  }
  T first;
  T second;
};

/// Writes the state of the optimizer, its moments and its step count, to a safetensors file, with the names and shapes
/// of its parameters; with nn::save() of the model a loop can go on from both. FileError.
HEARTH_API void save(Optimizer& optimizer, const std::string& path);
/// Reads it back into one of the same kind over the same parameters; step count and schedule go on from there.
/// FileError, with nothing changed, for what is missing, unexpected or of another shape, and for other parameters,
/// naming the first that differs; older files do not say which they are of.
HEARTH_API void load(Optimizer& optimizer, const std::string& path);

}  // namespace hearth::optim
