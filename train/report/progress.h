// SPDX-License-Identifier: Apache-2.0
// What a person sees of a running training: a live line on a terminal, one line per log interval elsewhere; either
// shows the first step at once.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "core/export.h"

namespace hearth::train {

/// What a stream leads to.
struct Terminal {
  bool live = false;               ///< it is one, so the line may be redrawn
  bool colour = true;              ///< and coloured
  std::function<int()> columns{};  ///< its width now; where there is none, or it gives 0, a line may be of any length
};
/// What a descriptor leads to: TERM=dumb cannot redraw, and NO_COLOR wants no colours.
HEARTH_API Terminal terminal_of(int descriptor);

class HEARTH_API Progress {
 public:
  Progress(std::ostream& out, bool live) : Progress(out, Terminal{.live = live}) {}
  Progress(std::ostream& out, Terminal terminal) : out_(out), terminal_(std::move(terminal)) {}

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
  struct Part {
    std::string text;
    int lasts = 0;  ///< parts with less go first where a line is too long
  };
  /// What a line says, in order.
  std::vector<Part> parts(const Step& now) const;
  std::string describe(const Step& now) const;
  std::string live_line(const Step& now) const;
  void erase();

  std::ostream& out_;
  Terminal terminal_;
  bool drawn_ = false;
  std::int64_t first_step_ = 0, total_steps_ = 0;
  std::int64_t shown_step_ = -1;  // the last one
  double steps_per_epoch_ = 1, started_ = 0, shown_at_ = 0;
};

/// "1h 02m", "3m 20s", "4.2s".
HEARTH_API std::string duration_text(double seconds);

}  // namespace hearth::train
