// SPDX-License-Identifier: Apache-2.0
// An exponential moving average of the weights, for evaluation.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "autograd/parameters.h"
#include "core/cpu/stream.h"
#include "core/cuda/stream.h"
#include "core/half.h"
#include "core/io/state.h"
#include "optim/staged.h"

namespace hearth::optim {

struct EmaOptions {
  double decay = 0.9999;
  /// Use min(decay, (1 + t) / (10 + t)) at update t, so that the first steps are forgotten sooner.
  bool warmup = false;
};

/// average = d * average + (1 - d) * values after each step, over the flat values and over floating buffers (running
/// statistics). Begins as a copy.
class HEARTH_API Ema {
 public:
  /// The weight of the values in update t = 0, 1, ...
  HEARTH_HD static double weight_of(const EmaOptions& options, std::int64_t update) {
    const double t = static_cast<double>(update);
    const double early = (1.0 + t) / (10.0 + t);
    return 1.0 - (options.warmup && early < options.decay ? early : options.decay);
  }

  /// `parameters` and `buffers` must outlive it: what uses the averages is a UsageError where the parameters are gone
  /// or moved. ConfigError unless decay is in [0, 1); DTypeError for f16 and bf16; UsageError for a buffer without a
  /// tensor.
  Ema(FlatParameters& parameters, std::vector<NamedTensor> buffers, const EmaOptions& options);
  ~Ema();
  Ema(const Ema&) = delete;
  Ema& operator=(const Ema&) = delete;

  /// Takes in the present values. UsageError while the averages are in use.
  void update() {
    begin_update();
    apply();
  }
  /// The two halves of update(), as of Optimizer::step(): counts and sets the weight of the present values; computes,
  /// which a CUDA graph may hold.
  void begin_update();
  void apply();
  /// The rest of apply(), where Optimizer::apply() has blended the values.
  void apply_to_buffers();
  /// The update that was begun last does not count, unless it has been applied.
  void abandon_update();
  /// Begins again, as a copy of the present values.
  void restart();
  /// Exchanges averages and values: the model computes with the averages until the next call. Where each rank has a
  /// part of the averages (FlatParameters::shard_updates()) all ranks call it.
  void swap();
  bool in_use() const { return in_use_; }
  /// Whether the averages of any Ema are in use in these parameters.
  static bool holds_averages(const FlatParameters& parameters);
  /// Updates done so far. Those that were skipped on the device count until forget_updates().
  std::int64_t updates() const { return updates_; }
  /// `count` of the updates were skipped.
  void forget_updates(std::int64_t count) { updates_ -= count; }
  /// Where the weight of the present values lies between the two halves, where the averages are: 0 skips the update.
  double* weight_cell() { return weight_.cell(); }
  /// The weight of the present values, for the pass of an optimizer's update; `update` is a number that no two of them
  /// share. UsageError unless begin_update() was called for it, and while the averages are in use.
  const Staged<double>& weight_for(std::int64_t update);
  const EmaOptions& options() const { return options_; }
  const FlatParameters& parameters() const { return parameters_; }
  /// The average of the flat values (after an odd number of swaps the values themselves), or of this rank's part.
  const Tensor& average() const { return average_; }

  /// Registers the averages under "ema.". UsageError where that state is saved, hashed or loaded while they are in use:
  /// weights and averages are exchanged then.
  void register_state(State& state);

 private:
  void check_parameters() const;

  FlatParameters& parameters_;
  std::weak_ptr<const void> parameters_alive_;
  std::vector<NamedTensor> buffers_;
  std::vector<Tensor> buffer_averages_;
  Tensor average_;
  EmaOptions options_;
  Staged<double> weight_;
  std::int64_t updates_ = 0;
  std::int64_t blended_for_ = 0;  // the update that weight_for() was last called for, from 1
  bool begun_ = false;            // since then
  bool in_use_ = false;
};

/// Uses the averages while it lives: evaluations only, as the optimizer refuses to train them.
class HEARTH_API EmaScope {
 public:
  /// UsageError if they are in use already, or those of another Ema of the same parameters.
  explicit EmaScope(Ema& ema);
  /// Keeps the averages in use where another rank has failed, or the parameters are gone.
  ~EmaScope();
  EmaScope(const EmaScope&) = delete;
  EmaScope& operator=(const EmaScope&) = delete;

 private:
  Ema& ema_;
};

}  // namespace hearth::optim

namespace hearth::kernels {

/// One element of blend().
template <class T>
HEARTH_HD T blended(T average, T value, double weight) {
  return weight == 0 ? average : average + static_cast<T>(weight) * (value - average);
}

/// n elements of blend(), on the calling thread, with a share that is not 0; T is float or double.
template <class T>
void blend(T* average, const T* values, std::int64_t n, T weight);

/// average += share * (values - average); as it is where share is 0. Both contiguous, of one shape, f32 or f64.
void blend(cpu::Stream& stream, const Tensor& average, const Tensor& values, const Staged<double>& weight);
void blend(cuda::Stream& stream, const Tensor& average, const Tensor& values, const Staged<double>& weight);
/// Exchanges the bytes of two contiguous tensors of one shape and type.
void exchange(cpu::Stream& stream, const Tensor& a, const Tensor& b);
void exchange(cuda::Stream& stream, const Tensor& a, const Tensor& b);

}  // namespace hearth::kernels
