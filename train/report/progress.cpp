// SPDX-License-Identifier: Apache-2.0
#include "train/report/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
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

Terminal terminal_of(int descriptor) {
  const auto variable = [](const char* name) {
    const char* const text = std::getenv(name);
    return std::string(text == nullptr ? "" : text);
  };
  return {.live = isatty(descriptor) == 1 && variable("TERM") != "dumb",
          .colour = variable("NO_COLOR").empty(),
          .columns = [descriptor] {
            winsize size{};
            return ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? static_cast<int>(size.ws_col) : 0;
          }};
}

std::vector<Progress::Part> Progress::parts(const Step& now) const {
  const std::int64_t done_here = std::max<std::int64_t>(1, now.step - first_step_);
  const double per_step = (now_seconds() - started_) / static_cast<double>(done_here);
  // The one in which the step began.
  const auto epoch_of = [&](std::int64_t step) { return optim::epochs_over(step - 1, steps_per_epoch_) + 1; };
  const std::int64_t epoch = epoch_of(now.step);
  const std::int64_t end = optim::steps_of_epochs(static_cast<double>(epoch), steps_per_epoch_);
  const double epoch_left = per_step * static_cast<double>(std::min(end, total_steps_) - now.step);
  const auto fixed = [](int digits, double value) { return join_text(std::fixed, std::setprecision(digits), value); };
  std::vector<Part> all;
  all.push_back({join_text("epoch ", epoch, "/", epoch_of(total_steps_)), 6});
  all.push_back({join_text("step ", now.step, "/", total_steps_), 8});
  all.push_back({now.loss         ? "loss " + fixed(4, *now.loss)
                 : now.overflowed ? "every update skipped: gradients overflow"
                                  : "no label counted",
                 9});
  if (now.accuracy >= 0) all.push_back({"accuracy " + fixed(2, 100 * now.accuracy) + " %", 7});
  all.push_back({fixed(0, now.images_per_second) + " " + now.unit, 10});
  all.push_back({join_text("lr ", std::setprecision(3), now.lr), 3});
  all.push_back({"data wait " + fixed(0, 100 * now.wait_fraction) + " %" +
                     (now.waits_for.empty() ? "" : " (" + now.waits_for + ")"),
                 5});
  if (now.communication_fraction >= 0)
    all.push_back({"comm wait " + fixed(0, 100 * now.communication_fraction) + " %", 4});
  if (now.scaling_efficiency >= 0) all.push_back({"scaling " + fixed(0, 100 * now.scaling_efficiency) + " %", 2});
  all.push_back({"left " + duration_text(per_step * static_cast<double>(total_steps_ - now.step)), 11});
  all.push_back({"(epoch " + duration_text(epoch_left) + ")", 1});
  return all;
}

std::string Progress::describe(const Step& now) const {
  std::string text;
  for (const Part& part : parts(now)) {
    if (!text.empty()) text += part.text.front() == '(' ? " " : "  ";
    text += part.text;
  }
  return text;
}

void Progress::erase() {
  if (drawn_) out_ << "\r\x1b[2K";
  drawn_ = false;
}

bool Progress::wants_step() const {
  constexpr double second = 1, minute = 60;
  return shown_step_ < 0 || now_seconds() - shown_at_ >= (terminal_.live ? second : minute);
}

void Progress::step(const Step& now) {
  if (!wants_step() && !(terminal_.live && now.step == total_steps_)) return;
  if (!terminal_.live) return interval(now);
  shown_step_ = now.step;
  shown_at_ = now_seconds();
  erase();
  // Line wrapping off while drawing: a width that is not known cuts the line instead of scrolling.
  out_ << "\x1b[?7l" << live_line(now) << "\x1b[?7h" << std::flush;
  drawn_ = true;
}

std::string Progress::live_line(const Step& now) const {
  const int columns = terminal_.columns ? terminal_.columns() : 0;
  std::vector<Part> all = parts(now);
  const auto length = [&] {
    std::size_t sum = 0;
    for (const Part& part : all) sum += part.text.size() + (part.text.front() == '(' ? 1 : 2);
    return static_cast<int>(sum) - 2;
  };
  // The bar goes before anything that it shares the line with is shorter than that.
  constexpr int bar_width = 20, narrowest = 80;
  const bool has_bar = columns == 0 || columns >= narrowest;
  const int room = columns - (has_bar ? bar_width + 3 : 0);
  while (columns > 0 && length() > room && all.size() > 1) all.erase(std::ranges::min_element(all, {}, &Part::lasts));
  std::string text;
  if (has_bar) {
    const double share = static_cast<double>(now.step) / static_cast<double>(std::max<std::int64_t>(1, total_steps_));
    const auto filled =
        static_cast<std::size_t>(std::clamp(static_cast<int>(std::lround(share * bar_width)), 0, bar_width));
    text = "[" + std::string(filled, '=') + std::string(bar_width - filled, ' ') + "]";
    text = (terminal_.colour ? "\x1b[36m" + text + "\x1b[0m" : text) + " ";
  }
  for (std::size_t i = 0; i < all.size(); ++i)
    text += (i == 0 ? "" : all[i].text.front() == '(' ? " " : "  ") + all[i].text;
  return text;
}

void Progress::interval(const Step& now) {
  if (terminal_.live || now.step == shown_step_) return;
  shown_step_ = now.step;
  shown_at_ = now_seconds();
  out_ << describe(now) << std::endl;
}

void Progress::line(const std::string& text) {
  erase();
  out_ << printable(text) << std::endl;
}

}  // namespace hearth::train
