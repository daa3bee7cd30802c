// SPDX-License-Identifier: Apache-2.0
// Loss scaling, for gradients in f16: the loss is multiplied before backward and the gradients are divided before the
// update. An update whose gradients overflowed is skipped where it runs, without the host being asked.
#pragma once

#include <cstdint>
#include <vector>

#include "autograd/parameters.h"
#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/io/state.h"
#include "optim/ema.h"
#include "optim/optimizer.h"
#include "optim/staged.h"

namespace hearth::optim {

struct GradScalerOptions {
  /// Times `backoff` by an update that overflowed, times `growth` after `growth_steps` updates in a row that did not.
  /// Else `start` is kept.
  bool dynamic = true;
  double start = 65536;
  std::int64_t growth_steps = 2000;
  double growth = 2;
  double backoff = 0.5;
  /// The overflow, counted since the scale last grew, from which on each lowers the scale. 1: each does.
  std::int64_t hysteresis = 1;
  double floor = 1;
  double ceiling = 16777216;
  /// After so many updates skipped in a row, with the scale as low as it gets, all are skipped: a run that looks
  /// later ends as one that looks at once.
  std::int64_t give_up_after = 10;
};

/// What the host adds to the found-inf check of each step.
struct FoundInfInput {
  std::int64_t step;           ///< number of the update, from 1, if no update was skipped but those the host knows of
  std::int64_t average_step;   ///< likewise of the moving average, from 0
  std::int64_t known_skipped;  ///< skipped updates that the host knows of
  std::int64_t samples;
};

/// The loss scale and all that hangs on whether an update is skipped. In each step:
///
///   begin_step() of optimizer, begin_update() of the average, begin_step() of this; backward(loss, seed(loss,
///   weight)); check_found_inf(); settle_buffers(); optimizer.apply(average); apply_to_buffers() of the average.
///
/// All but the begin_step()s is work of the device, which may be recorded once and replayed. A skipped update leaves
/// weights, moments, step counts, averages and buffers as if the step had not been run.
/// Source: Micikevicius et al. 2018 (arXiv:1710.03740).
class HEARTH_API GradScaler {
 public:
  /// Sums of losses and correct predictions of a step, and of all steps that were not skipped.
  struct Sums {
    Tensor step_loss, loss;        ///< f64 [1]
    Tensor step_correct, correct;  ///< i64 [1]
  };
  struct Reading {
    double scale = 0;
    std::int64_t skipped = 0;    ///< updates, since the run began
    std::int64_t stuck = 0;      ///< updates skipped in a row, the scale being as low as it gets, up to `give_up_after`
    std::int64_t uncounted = 0;  ///< samples of skipped steps since the last reading
  };

  /// The parameters and buffers must outlive it. Buffers (running statistics), of whatever types, become views of one
  /// piece of memory.
  /// ConfigError unless 0 < floor <= start <= ceiling, growth > 1, all finite, 0 < backoff < 1, and growth_steps and
  /// hysteresis are at least 1.
  GradScaler(FlatParameters& parameters, const std::vector<NamedTensor>& buffers, const GradScalerOptions& options);
  GradScaler(const GradScaler&) = delete;
  GradScaler& operator=(const GradScaler&) = delete;

  /// After begin_step() of the optimizer and begin_update() of the average, which may be null; both outlive this.
  void begin_step(Optimizer& optimizer, Ema* average, std::int64_t samples);
  /// d(total)/d(loss) for backward, `weight` times the scale, and times `factor`, f64 [1] on that device, if there is
  /// one.
  Tensor seed(const Tensor& loss, double weight, const Tensor& factor = {}) const;
  /// Looks at the gradients and settles the update. `max_norm` 0: no clipping. `norm`, f64 [1], may be undefined; it
  /// becomes that of the gradients, or -1 where the update is skipped.
  void check_found_inf(Optimizer& optimizer, Ema* average, double max_norm, const Tensor& norm, const Sums& sums);
  /// Puts the buffers back if the update was skipped.
  void settle_buffers(Optimizer& optimizer);

  /// Waits for the device. Tells the optimizer and the average how many of their steps were skipped.
  Reading read(Optimizer& optimizer, Ema* average);
  /// After its state, parameters or buffers were loaded. A scale outside of floor and ceiling, which are one where it
  /// is fixed, becomes the nearer of them.
  void after_load();
  /// Registers the scale and the counts under "loss_scale.", the overflows where there is hysteresis. Before the state
  /// is saved or hashed, the optimizer and the average of the last begin_step() are told of skipped steps, as read()
  /// tells them.
  void register_state(State& state);
  const GradScalerOptions& options() const { return options_; }
  /// The scale of the coming step. Waits for the device.
  double item_scale() const { return scale_.item(); }

 private:
  void gather_buffers(const std::vector<NamedTensor>& buffers);
  /// Tells the optimizer and the average of the steps skipped so far; gives the counters.
  Tensor tell_skipped(Optimizer& optimizer, Ema* average);

  FlatParameters& parameters_;
  GradScalerOptions options_;
  Tensor scale_;      // f64 [1]
  Tensor counters_;   // i64 [3]: updates in a row without overflow, skipped updates, skipped in a row at the floor
  Tensor overflows_;  // i64 [1]: since the scale last grew
  Tensor uncounted_;  // i64 [1]
  Tensor buffers_, backup_;
  Staged<FoundInfInput> input_;
  std::int64_t known_skipped_ = 0;
  Optimizer* optimizer_ = nullptr;  ///< of the last step
  Ema* average_ = nullptr;
};

}  // namespace hearth::optim

namespace hearth::kernels {

using optim::FoundInfInput;

/// What one found-inf check reads and writes, all in the memory of one device.
struct FoundInfCheck {
  optim::GradScalerOptions options;
  const FoundInfInput* input;
  const double* squares;   ///< sum over all gradients
  double* scale;           ///< the loss scale
  std::int64_t* counters;  ///< as GradScaler keeps them
  std::int64_t* overflows;
  std::int64_t* uncounted;
  double max_norm;  ///< 0: no clipping
  double* norm;     ///< receives the norm of the gradients without the loss scale, or -1 if skipped; may be null
  optim::UpdateCells update;
  double* average_weight;  ///< null without a moving average
  optim::EmaOptions average;
  double* step_loss;  ///< sums of this step, cleared; null if nothing is summed
  std::int64_t* step_correct;
  double* loss;  ///< what they are added to, unless skipped
  std::int64_t* correct;
};

/// Decides whether the update happens, sets its coefficients, and moves the loss scale.
void check_found_inf(cpu::Stream& stream, const FoundInfCheck& check);
void check_found_inf(cuda::Stream& stream, const FoundInfCheck& check);
/// dy = weight * scale, times *factor unless that is null; dy has one element of any floating type.
void scale_seed(cpu::Stream& stream, const double* scale, double weight, const double* factor, const Tensor& dy);
void scale_seed(cuda::Stream& stream, const double* scale, double weight, const double* factor, const Tensor& dy);
/// Where skipped: values = backup; else backup = values. f32, contiguous, of one size; bits are copied as they are.
void keep_or_restore(cpu::Stream& stream, const bool* skip, const Tensor& values, const Tensor& backup);
void keep_or_restore(cuda::Stream& stream, const bool* skip, const Tensor& values, const Tensor& backup);

}  // namespace hearth::kernels
