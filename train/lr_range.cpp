// SPDX-License-Identifier: Apache-2.0
#include "train/lr_range.h"

#include <algorithm>
#include <cmath>

#include "train/step/step.h"

namespace hearth::train {
namespace {

constexpr double smoothing = 0.98;
constexpr double divergence = 4;           // times the best loss
constexpr std::int64_t first_trials = 10;  // the smoothed loss has hardly seen anything by then

class Ramp : public Hook {
 public:
  explicit Ramp(const LrRangeOptions& options) : options_(options) {}

  /// Of `optimizer.lr` in a step.
  double at(std::int64_t step) const {
    const double part = static_cast<double>(step) / static_cast<double>(options_.steps - 1);
    return options_.min_lr * std::pow(options_.max_lr / options_.min_lr, part);
  }
  double lr(const Session& session, std::int64_t step, double) const override {
    return at(step) * lr_factor(session.config().train);
  }

 private:
  LrRangeOptions options_;
};

/// The mean loss of one step; nothing where its update was skipped, or the loss or a gradient is not finite.
std::optional<double> loss_of_step(Session& session, std::span<const data::Batch> batches) {
  session.clear_interval();
  try {
    session.position.interval.samples = training_step(session, batches).samples;
    ++session.position.step;
    session.read_interval();
  } catch (const DivergedError&) {
    return std::nullopt;
  }
  const Meter& meter = session.position.interval;
  return meter.samples > 0 ? std::optional(meter.loss()) : std::nullopt;
}

}  // namespace

std::optional<std::int64_t> steepest_descent(const std::vector<LrTrial>& trials) {
  const auto count = static_cast<std::int64_t>(trials.size());
  if (count < first_trials + 4) return std::nullopt;
  std::optional<std::int64_t> found;
  double least = 0;
  const auto at = [&](std::int64_t i) { return trials[static_cast<std::size_t>(i)]; };
  for (std::int64_t i = first_trials + 1; i + 2 < count; ++i) {
    const double slope = (at(i + 1).smoothed - at(i - 1).smoothed) / std::log(at(i + 1).lr / at(i - 1).lr);
    if (slope < least) least = slope, found = i;
  }
  return found;
}

LrRange test_lr_range(Session& session, const LrRangeOptions& options) {
  HEARTH_CHECK(ConfigError, options.min_lr > 0 && options.min_lr < options.max_lr && std::isfinite(options.max_lr),
               "learning rates from ", options.min_lr, " to ", options.max_lr,
               ": the first is above 0, the last larger");
  HEARTH_CHECK(ConfigError, options.steps >= 20, options.steps, " steps tell little; use at least 20");
  auto hook = std::make_unique<Ramp>(options);
  const Ramp& ramp = *hook;
  session.add_hook("lr_range", std::move(hook));
  LrRange result;
  data::Loader loader = session.make_train_loader();
  double mean = 0, weight = 0, best = 0;
  for (std::int64_t step = 0; step < options.steps; ++step) {
    std::vector<data::Batch> batches;
    for (std::int64_t i = 0; i < session.config().train.accumulate; ++i) batches.push_back(loader.next());
    const bool scales = session.loss_scale != nullptr;
    const std::optional<double> loss = loss_of_step(session, batches);
    // A loss scale begins too large and skips its first updates.
    if (!loss && scales && session.position.step == step + 1) continue;
    result.diverged = !loss;
    if (result.diverged) break;
    mean = smoothing * mean + (1 - smoothing) * *loss;
    weight = smoothing * weight + (1 - smoothing);
    const double smoothed = mean / weight;
    result.trials.push_back({ramp.at(step), *loss, smoothed});
    best = result.trials.size() == 1 ? smoothed : std::min(best, smoothed);
    result.diverged = best > 0 && smoothed > divergence * best;
    if (result.diverged) break;
  }
  result.steepest = steepest_descent(result.trials);
  return result;
}

}  // namespace hearth::train
