// SPDX-License-Identifier: Apache-2.0
// The phases of a training step: the one vocabulary of meters, markers, traces and reports.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/device.h"
#include "core/io/json_text.h"
#include "core/marker.h"
#include "core/tensor.h"

namespace hearth::train {

enum class Phase : std::uint8_t {
  data,           ///< waits for the loader
  copy,           ///< brings batches to the device
  forward,        ///< up to the loss
  backward,       ///< the gradients
  communication,  ///< waits for other ranks
  update,         ///< clipping, optimizer, moving average
  other,          ///< the rest of the step
};
inline constexpr std::size_t phase_count = 7;
/// "forward".
HEARTH_API const char* name_of(Phase phase);

/// Seconds by phase.
struct HEARTH_API PhaseSeconds {
  std::array<double, phase_count> seconds{};

  double& operator[](Phase phase) { return seconds[static_cast<std::size_t>(phase)]; }
  double operator[](Phase phase) const { return seconds[static_cast<std::size_t>(phase)]; }
  PhaseSeconds& operator+=(const PhaseSeconds& other);
  double total() const;
};
/// {"data": seconds, "copy": ...}, every phase.
HEARTH_API Json to_json(const PhaseSeconds& phases);

/// Measures how long steps are in each phase. On a CUDA device forward, backward, communication and update are the
/// device's time: a mark in its stream, also within a recorded step, adds it up there, and the host never waits.
/// Each phase is a marker for profilers as well.
class HEARTH_API PhaseMeter {
 public:
  /// From the next step on, of a run on this device; before, on the CPU.
  void use(Device device);

  /// A step is under way during its life. It begins in Phase::other. One at a time.
  class HEARTH_API StepScope {
   public:
    explicit StepScope(PhaseMeter& meter);
    ~StepScope();
    StepScope(const StepScope&) = delete;
    StepScope& operator=(const StepScope&) = delete;

   private:
    PhaseMeter& meter_;
  };

  /// From now on the step is in this phase. Outside of a step it does nothing.
  void enter(Phase phase);
  /// Absent outside of a step.
  std::optional<Phase> phase() const { return phase_; }
  /// Length of the steps since clear(), by the host's clock.
  double seconds() const;
  /// The same by phase; the sum is seconds(). Waits for the device.
  PhaseSeconds read() const;
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  void change(std::optional<Phase> to);

  std::optional<Phase> phase_;  ///< absent outside of a step
  Clock::time_point since_{};
  PhaseSeconds host_;
  Tensor device_;  ///< i64 [cuda::time_mark_words]; undefined on the CPU
  std::optional<Marker> marker_;
};

}  // namespace hearth::train
