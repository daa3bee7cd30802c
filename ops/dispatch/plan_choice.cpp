// SPDX-License-Identifier: Apache-2.0
#include "ops/dispatch/plan_choice.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <utility>

#include "core/error.h"

namespace hearth {
namespace {

struct Choices {
  std::mutex mutex;
  std::optional<PlanFile> kept;
  std::string why_unsaved;  ///< of a choice that was made and could not be written

  PlanFile& file() {
    if (!kept) {
      const std::filesystem::path folder = cache_folder();
      kept.emplace(folder.empty() ? folder : folder / "plans-1.jsonl");
    }
    return *kept;
  }
};

// Leaked, as libraries' plans may be asked for while static objects end.
Choices& choices() {
  static Choices& made = *new Choices;
  return made;
}

/// A kept text is never handed to a library: it only says which of its offers is meant.
std::optional<std::size_t> place_of(std::string_view text, const std::vector<std::string>& offers) {
  const auto found = std::find(offers.begin(), offers.end(), text);
  return found == offers.end() ? std::nullopt : std::optional(static_cast<std::size_t>(found - offers.begin()));
}

ChosenPlan first_of(std::string why) { return {PlanChoice::heuristic, 0, 0, std::move(why)}; }

}  // namespace

ChosenPlan choose_plan(const PlanKey& key, const std::vector<std::string>& offers, bool deterministic,
                       const std::function<Fastest()>& time) {
  if (offers.size() == 1) return {};
  if (deterministic) return first_of("deterministic mode");
  if (!plan_timing_is_on()) return first_of("HEARTH_PLAN_TIMING is off");
  Choices& state = choices();
  const std::lock_guard lock(state.mutex);
  std::string stale;
  if (const SavedPlan* kept = state.file().find(key); kept != nullptr) {
    if (const auto place = place_of(kept->plan, offers)) return {PlanChoice::kept, *place, kept->microseconds, ""};
    stale = kept->plan;
  }
  if (!state.why_unsaved.empty()) return first_of(state.why_unsaved);
  const Fastest fastest = time();
  const bool timed = std::isfinite(fastest.microseconds);
  // Also the first, where memory did not suffice for timing: in another process it might, and that one chose otherwise.
  const SavedPlan chosen{offers[fastest.index], timed ? fastest.microseconds : 0};
  const auto holds = state.file().keep(key, chosen, stale);
  if (!holds) {
    const auto& remarks = state.file().remarks();
    state.why_unsaved = "a choice could not be kept: " + (remarks.empty() ? std::string() : remarks.back());
    return first_of(state.why_unsaved);
  }
  const auto place = place_of(holds->plan, offers);
  if (!place) return first_of("another process keeps a plan that is not offered here");
  return {timed ? PlanChoice::timed : PlanChoice::heuristic, *place, holds->microseconds,
          timed ? "" : "too little free device memory for timing, or none of them runs"};
}

PlanFileInfo plan_file() {
  Choices& state = choices();
  const std::lock_guard lock(state.mutex);
  const PlanFile& file = state.file();
  return {file.file().string(), file.plans().size(), file.remarks()};
}

void forget_plan_file() {
  Choices& state = choices();
  const std::lock_guard lock(state.mutex);
  state.kept.reset();
  state.why_unsaved.clear();
}

}  // namespace hearth
