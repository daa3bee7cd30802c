// SPDX-License-Identifier: Apache-2.0
// Which of the plans that a library offers runs a problem: the fastest by timing, kept in one file for all libraries
// (docs/decisions/0013-timed-plans.md). Knows no library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ops/dispatch/plan_file.h"
#include "ops/dispatch/plan_timing.h"

namespace hearth {

/// How a plan came to be chosen.
enum class PlanChoice : std::uint8_t { only, heuristic, timed, kept };

/// One of several offers.
struct ChosenPlan {
  PlanChoice choice = PlanChoice::only;
  std::size_t place = 0;    ///< among the offers
  double microseconds = 0;  ///< when it was timed, now or in an earlier process; else 0
  std::string why;          ///< why nothing was timed; empty otherwise
};

/// Which of `offers` it is to be; they are in words, the library's own favourite first, and at least one. `time` says
/// which is the fastest, an infinite time if none could be timed. What a process chooses is what the file says from
/// then on, so that a run that is resumed meets the same choice; a choice that cannot be kept is not made. In
/// deterministic mode, and where HEARTH_PLAN_TIMING is off, it is the first.
ChosenPlan choose_plan(const PlanKey& key, const std::vector<std::string>& offers, bool deterministic,
                       const std::function<Fastest()>& time);

/// The file that keeps the choices, for reports.
struct PlanFileInfo {
  std::string path;  ///< empty if there is no folder for it
  std::size_t plans = 0;
  std::vector<std::string> remarks;  ///< what is wrong with it
};
PlanFileInfo plan_file();
/// Reads the file again when it is next needed, as another process would.
void forget_plan_file();

}  // namespace hearth
