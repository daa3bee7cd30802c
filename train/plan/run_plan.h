// SPDX-License-Identifier: Apache-2.0
// What a run costs, before it runs: arithmetic, memory, the time of a step by phase, communication, hours, energy and
// price. Needs no GPU: the ops are those of real steps of a few rows on the device at hand, and their times those of a
// description of the machine (train/plan/machine.h), or the ones just taken.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/export.h"
#include "models/nn/summary.h"
#include "train/memory/step_memory.h"
#include "train/plan/machine.h"
#include "train/plan/scaling.h"
#include "train/plan/step_ops.h"

namespace hearth::train {

/// What is asked of a plan.
struct PlanRequest {
  std::optional<Machine> machine{};  ///< none: the device at hand
  int ranks = 1;
  std::optional<Link> link{};  ///< none: communication is not predicted
  std::optional<double> price_per_hour{};
};

/// Milliseconds of a step. `data` is no part of it: loading runs ahead of the steps.
struct PhaseTimes {
  double copy = 0;  ///< of inputs to a GPU, beyond what steps hide
  double forward = 0;
  double backward = 0;
  double communication = 0;  ///< beyond what the backward pass hides
  double update = 0;
  double other = 0;
  double sum() const { return copy + forward + backward + communication + update + other; }
};

/// One step of one rank.
struct StepCost {
  std::int64_t rows = 0;  ///< of the rank
  StepOps ops;            ///< of one batch and the update, with predicted times
  double flops = 0;       ///< of the step, every batch of train.accumulate
  double bytes = 0;
  std::int64_t launches = 0;  ///< of one batch and the update, where they were recorded on a CUDA device; else 0
  PhaseTimes ms;
  std::optional<Communication> communication{};
};

/// From the first step to the last.
struct RunCost {
  std::int64_t steps = 0;
  double evaluated_samples = 0;  ///< in all evaluations
  double hours = 0;
  std::optional<double> kwh{};
  std::optional<double> price{};
};

struct RunPlan {
  std::vector<nn::ModuleReport> layers;
  std::map<std::string, std::int64_t> kept;  ///< bytes for backward, by path
  std::int64_t parameters = 0;
  std::string device;
  std::string precision;  ///< level and type, and why where "auto" chose them
  MemoryNeed need;
  std::vector<MemoryNeed> ranks;  ///< of each, for its rows; empty for one
  std::string method;
  MemoryBudget budget;
  std::optional<std::int64_t> largest_batch;
  std::optional<std::string> why_not_replayed;  ///< as why_not_replayed(), for a CUDA device
  std::string shortage;                         ///< why the run does not fit the process's limit; empty if it does

  std::string machine;       ///< whose times are predicted
  std::string basis;         ///< from what, in words
  std::string why_no_times;  ///< empty where times are predicted
  StepCost step;             ///< of one rank alone
  double items = 0;          ///< that throughput counts, of a whole step
  std::string unit;          ///< "images/s"
  int rank_count = 1;
  std::string link;                ///< as it was written; empty without one
  std::optional<StepCost> ranked;  ///< a step of one of several ranks, joined by a link
  RunCost run;

  double flops() const { return layers.empty() ? 0 : layers[0].flops; }
  std::int64_t kept_by(const nn::ModuleReport& row) const;
  /// The step that the run takes: `ranked` where there is one.
  const StepCost& planned_step() const { return ranked ? *ranked : step; }
  /// Of one rank's time alone, over that of all ranks together.
  double scaling_efficiency() const;
};

/// The plan of a run on `wanted`, which need not be here: the session is on a device that is. The session is of no use
/// for training afterwards.
HEARTH_API RunPlan plan_of(Session& session, Device wanted, const PlanRequest& request);

/// What `hearth plan --json` prints.
HEARTH_API Json to_json(const RunPlan& plan);
/// What `hearth plan` prints.
HEARTH_API std::string to_text(const RunPlan& plan);

}  // namespace hearth::train
