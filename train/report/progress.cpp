// SPDX-License-Identifier: Apache-2.0
#include "train/report/progress.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iomanip>

#include "core/io/printable.h"
#include "core/text_stream.h"
#include "optim/schedule.h"

namespace hearth::train {
namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string duration_text(double seconds) {
  TextStream out;
  seconds = seconds > 0 ? std::min(seconds, 1e9) : 0;  // an estimate may be anything, even not a number
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (seconds < 59.95)
    out << std::fixed << std::setprecision(1) << seconds << "s";
  else if (whole < 3600)
    out << whole / 60 << "m " << std::setw(2) << std::setfill('0') << whole % 60 << "s";
  else
    out << whole / 3600 << "h " << std::setw(2) << std::setfill('0') << whole % 3600 / 60 << "m";
  return out.str();
}

void Progress::start(std::int64_t done, std::int64_t total_steps, double steps_per_epoch) {
  first_step_ = done;
  total_steps_ = total_steps;
  steps_per_epoch_ = steps_per_epoch;
  started_ = now_seconds();
  shown_step_ = -1;
}

std::string Progress::describe(const Step& now) const {
  const std::int64_t done_here = std::max<std::int64_t>(1, now.step - first_step_);
  const double per_step = (now_seconds() - started_) / static_cast<double>(done_here);
  // The one in which the step began.
  const auto epoch_of = [&](std::int64_t step) { return optim::epochs_over(step - 1, steps_per_epoch_) + 1; };
  const std::int64_t epoch = epoch_of(now.step);
  const std::int64_t end = optim::steps_of_epochs(static_cast<double>(epoch), steps_per_epoch_);
  const double epoch_left = per_step * static_cast<double>(std::min(end, total_steps_) - now.step);
  TextStream out;
  out << "epoch " << epoch << "/" << epoch_of(total_steps_) << "  step " << now.step << "/" << total_steps_
      << std::fixed << std::setprecision(4);
  if (now.loss)
    out << "  loss " << *now.loss;
  else
    out << (now.overflowed ? "  every update skipped: gradients overflow" : "  no label counted");
  if (now.accuracy >= 0) out << std::setprecision(2) << "  accuracy " << 100 * now.accuracy << " %";
  out << std::setprecision(0) << "  " << now.images_per_second << ' ' << now.unit << std::defaultfloat
      << std::setprecision(3) << "  lr " << now.lr << std::fixed << std::setprecision(0) << "  data wait "
      << 100 * now.wait_fraction << " %";
  if (!now.waits_for.empty()) out << " (" << now.waits_for << ")";
  if (now.communication_fraction >= 0) out << "  comm wait " << 100 * now.communication_fraction << " %";
  if (now.scaling_efficiency >= 0) out << "  scaling " << 100 * now.scaling_efficiency << " %";
  out << "  left " << duration_text(per_step * static_cast<double>(total_steps_ - now.step)) << " (epoch "
      << duration_text(epoch_left) << ")";
  return out.str();
}

void Progress::erase() {
  if (drawn_) out_ << "\r\x1b[2K";
  drawn_ = false;
}

bool Progress::wants_step() const {
  constexpr double second = 1, minute = 60;
  return shown_step_ < 0 || now_seconds() - shown_at_ >= (live_ ? second : minute);
}

void Progress::step(const Step& now) {
  if (!wants_step() && !(live_ && now.step == total_steps_)) return;
  if (!live_) return interval(now);
  shown_step_ = now.step;
  shown_at_ = now_seconds();
  const double share = static_cast<double>(now.step) / static_cast<double>(std::max<std::int64_t>(1, total_steps_));
  constexpr int width = 20;
  const int filled = static_cast<int>(std::lround(share * width));
  erase();
  // Line wrapping off while drawing, so that a narrow terminal cuts the line instead of scrolling.
  out_ << "\x1b[?7l\x1b[36m[";
  for (int i = 0; i < width; ++i) out_ << (i < filled ? '=' : ' ');
  out_ << "]\x1b[0m " << describe(now) << "\x1b[?7h" << std::flush;
  drawn_ = true;
}

void Progress::interval(const Step& now) {
  if (live_ || now.step == shown_step_) return;
  shown_step_ = now.step;
  shown_at_ = now_seconds();
  out_ << describe(now) << std::endl;
}

void Progress::line(const std::string& text) {
  erase();
  out_ << printable(text) << std::endl;
}

}  // namespace hearth::train
