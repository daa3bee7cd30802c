// SPDX-License-Identifier: Apache-2.0
// How the ranks of a run sum their gradients where dist.route or dist.bucket_mb is auto: chosen once, after the first
// steps, by what was measured in them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/io/json_text.h"
#include "dist/cost/choice.h"
#include "dist/cost/routed.h"
#include "dist/data_parallel.h"
#include "train/config/run_config.h"

namespace hearth::train {

struct SumChoiceOptions {
  bool any_route = false, any_size = false;  ///< what is to be chosen: dist.route, dist.bucket_mb
  bool repeatable = true;                    ///< a run has the same bits whatever is measured
};
HEARTH_API SumChoiceOptions sum_choice_options(const RunConfig& config);

class HEARTH_API SumChoice {
 public:
  /// For the sums of `parallel`, which outlives this.
  SumChoice(dist::DataParallel& parallel, const SumChoiceOptions& options);

  /// Why there is nothing to choose; "" where there is, before and after the choice.
  const std::string& why_none() const { return why_none_; }
  bool is_made() const { return made_.is_object(); }

  /// Every rank calls it after a step with sums. After enough steps it measures sums, chooses, and has later steps
  /// go by that; true then, once.
  bool after_step();
  /// What there is to choose from: one of each where that is nothing.
  const dist::SumChoices& choices() const { return choices_; }
  /// Chooses by these costs and times, which all ranks have agreed on.
  void choose(const dist::SumCosts& costs, const dist::PassTimes& times);
  /// Takes what a checkpoint noted, null for nothing, but not where the ranks are others, nor what the configuration
  /// now says itself. FileError for what it cannot be.
  void restore(const Json* noted);
  /// Has the steps to come go by what was restored. Every rank calls it, with the same checkpoint.
  void resume();

  /// {"route": "tree", "bucket_mb": 10, "ranks": 8, "hosts": 4, ...}, with costs and forecasts where they were measured
  /// here. Null before the choice.
  const Json& made() const { return made_; }
  /// What was chosen and why, in a line.
  std::string text() const;
  const std::vector<dist::SumForecast>& forecasts() const { return forecasts_; }

 private:
  void apply(dist::Route route, double bucket_mb, const std::vector<double>& arrivals);

  dist::DataParallel& parallel_;
  dist::Routed* routed_;
  dist::SumChoices choices_;
  std::string why_none_;
  std::int64_t steps_ = 0;
  Json made_;
  std::vector<dist::SumForecast> forecasts_;
};

/// What sums cost by each route: {"tree": {"latency_us": ..., "gbs": ...}}.
HEARTH_API Json to_json(const dist::SumCosts& costs);

}  // namespace hearth::train
