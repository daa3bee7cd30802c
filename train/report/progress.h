// SPDX-License-Identifier: Apache-2.0
// What a person sees of a running training: a live line on a terminal, one line per log interval elsewhere; either
// shows the first step at once.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "core/export.h"

namespace hearth::train {

class HEARTH_API Progress {
 public:
  /// `live`: the stream is a terminal, so the line may be redrawn and coloured.
  Progress(std::ostream& out, bool live) : out_(out), live_(live) {}

  /// Where the run is going; `done` steps were done by an earlier process.
  void start(std::int64_t done, std::int64_t total_steps, double steps_per_epoch);

  struct Step {
    std::int64_t step = 0;         ///< steps done
    std::optional<double> loss{};  ///< none where nothing was counted
    bool overflowed = false;       ///< why: every update was skipped; else no label counts
    double accuracy = 0;           ///< below 0: none
    double lr = 0;
    double images_per_second = 0;  ///< or tokens
    std::string unit = "images/s";
    double wait_fraction = 0;            ///< part of the time spent waiting for data, 0 to 1
    std::string waits_for{};             ///< the stage of loading that takes longest, where steps wait
    double communication_fraction = -1;  ///< the same of other ranks; below 0: one process, or not known
    double scaling_efficiency = -1;      ///< below 0: likewise
  };
  /// Whether step() would show something now, so that nothing need be collected for it otherwise.
  bool wants_step() const;
  /// After each step. Shows the first, and then redraws the live line each second; where the stream is no terminal,
  /// adds a line after a minute without one.
  void step(const Step& now);
  /// At a log interval; a line where the stream is no terminal, unless step() has shown this step.
  void interval(const Step& now);
  /// A line that stays: evaluations, checkpoints, warnings.
  void line(const std::string& text);

 private:
  std::string describe(const Step& now) const;
  void erase();

  std::ostream& out_;
  bool live_;
  bool drawn_ = false;
  std::int64_t first_step_ = 0, total_steps_ = 0;
  std::int64_t shown_step_ = -1;  // the last one
  double steps_per_epoch_ = 1, started_ = 0, shown_at_ = 0;
};

/// "1h 02m", "3m 20s", "4.2s".
HEARTH_API std::string duration_text(double seconds);

}  // namespace hearth::train
