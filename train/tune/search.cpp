// SPDX-License-Identifier: Apache-2.0
#include "train/tune/search.h"

#include <iomanip>

#include "core/error.h"
#include "core/text_stream.h"

namespace hearth::train {
namespace {

std::string times_text(double ratio) {
  return ratio < 1 ? join_text(std::fixed, std::setprecision(2), 1 / ratio, " times as fast")
                   : join_text(std::fixed, std::setprecision(2), ratio, " times the time");
}

/// Of a variant beside the best so far.
TuneDecision decide(const TuneChoice& choice, const TuneVariant& variant, const Overrides& best, TuneTrials& trials) {
  TuneDecision decision{.choice = choice.name, .variant = variant.text, .reason = ""};
  const Overrides candidate = merged(best, variant.overrides);
  try {
    decision.ratio = trials.ratio(best, candidate);
    decision.reason = times_text(*decision.ratio);
    if (*decision.ratio > worth_taking) return decision;
    if (variant.changes_numbers) {
      const std::string refusal = trials.refusal(candidate);
      if (!refusal.empty()) decision.reason += "; refused by the guard: " + refusal;
      decision.taken = refusal.empty();
    } else {
      decision.taken = true;
    }
  } catch (const PeerError&) {
    // Nothing more can be timed without the other ranks.
    throw;
  } catch (const Error& error) {
    const std::string text = error.what();
    decision.reason = "does not run: " + text.substr(0, text.find('\n'));
  }
  return decision;
}

}  // namespace

Overrides merged(const Overrides& base, const Overrides& more) {
  Overrides result = more;
  result.insert(base.begin(), base.end());
  return result;
}

std::vector<std::string> to_words(const Overrides& overrides) {
  std::vector<std::string> words;
  for (const auto& [path, value] : overrides) words.push_back(path + "=" + value);
  return words;
}

TuneResult search(const std::vector<TuneChoice>& choices, TuneTrials& trials,
                  const std::function<void(const TuneDecision&)>& tell) {
  TuneResult result;
  const auto add = [&](TuneDecision decision) {
    tell(decision);
    result.decisions.push_back(std::move(decision));
  };
  for (const TuneChoice& choice : choices) {
    if (!choice.why_not.empty()) add({.choice = choice.name, .variant = "", .reason = choice.why_not});
    for (const TuneVariant& variant : choice.variants) {
      const TuneDecision decision = decide(choice, variant, result.overrides, trials);
      if (decision.taken) result.overrides = merged(result.overrides, variant.overrides);
      add(decision);
      if (choice.is_ladder && !decision.taken) break;
    }
  }
  if (result.overrides.empty()) return result;
  const double ratio = trials.ratio({}, result.overrides);
  const bool is_faster = ratio <= worth_taking;
  add({.choice = "all of these", .variant = "", .ratio = ratio, .taken = is_faster, .reason = times_text(ratio)});
  if (is_faster)
    result.speed = 1 / ratio;
  else
    result.overrides.clear();
  return result;
}

}  // namespace hearth::train
