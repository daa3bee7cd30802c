// SPDX-License-Identifier: Apache-2.0
// What the input costs the steps of a run, which stage of loading they wait for, and what to change.
#pragma once

#include <string>

#include "core/export.h"
#include "core/io/json_text.h"
#include "data/loading/loader.h"

namespace hearth::train {

/// What the steps of a log interval got from the loader.
struct HEARTH_API InputUse {
  double seconds = 0;       ///< of the steps
  double copy_seconds = 0;  ///< in which the host brought batches to the device
  double cpu_seconds = 0;   ///< that the process computed meanwhile, on all cores
  int cores = 1;            ///< that the process may use
  bool images = false;      ///< the samples
  data::LoaderUse loader{};

  /// The part of the steps' time that waited for batches.
  double wait() const;
  /// The part that brought them to the device.
  double copy() const;
  /// The part of the workers' time in a stage. What they did not need for the steps is `room`.
  double share(data::Stage stage) const;
};

struct InputAdvice {
  data::Stage stage = data::Stage::room;  ///< that steps wait for; `room`: they do not wait
  std::string blame{};                    ///< "decode takes 91 % of 2 workers: add workers ..."
  std::string text{};                     ///< "input: the step waited 41 % of the time; decode takes ..."
};

/// The part of an interval's time, and the time, from which on waiting is told. What the warm-up takes is left out.
inline constexpr double wait_worth_telling = 0.1;
inline constexpr double seconds_worth_telling = 0.1;

/// The stage to blame where the steps wait, and what would help. `text` is empty.
HEARTH_API InputAdvice slowest_stage(const InputUse& use);
/// The same where the steps wait long enough to tell; else nothing to blame and no text.
HEARTH_API InputAdvice advice_on_input(const InputUse& use);

/// Sets data_wait, data_copy, data_stages, queue_..., and data_advice where there is some, of a line of metrics.
HEARTH_API void write_input(Json& record, const InputUse& use);

/// Measures the input of a run's steps.
class HEARTH_API InputMeter {
 public:
  explicit InputMeter(const data::Dataset& set);
  /// While it lives this thread makes a step.
  class HEARTH_API StepScope {
   public:
    explicit StepScope(InputMeter& meter);
    ~StepScope();
    StepScope(const StepScope&) = delete;
    StepScope& operator=(const StepScope&) = delete;

   private:
    InputMeter& meter_;
    data::StageClock::Use use_;
    double began_, cpu_began_;
  };
  /// Takes in what the loader did, and gives all since clear().
  const InputUse& collect(data::Loader& loader);
  const InputUse& use() const { return use_; }
  /// Begins an interval.
  void clear();

 private:
  data::StageClock clock_;  // of the thread that makes the steps
  data::StageTimes told_;
  InputUse use_;
};

}  // namespace hearth::train
