// SPDX-License-Identifier: Apache-2.0
// The search over what a run may change without a change of what it learns: in order, one choice after the other, each
// timed in turn with the best so far. Given the same times it decides the same.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/export.h"

namespace hearth::train {

/// Values of a configuration by path, as of --set: {"train.batch_size", "64"}.
using Overrides = std::map<std::string, std::string>;
/// `base` with those of `more`.
HEARTH_API Overrides merged(const Overrides& base, const Overrides& more);
/// As words of --set, "train.batch_size=64".
HEARTH_API std::vector<std::string> to_words(const Overrides& overrides);

/// One way to set a choice.
struct TuneVariant {
  std::string text;  ///< "O1 bf16"
  Overrides overrides;
  bool changes_numbers = false;  ///< whether the guard has to accept what it computes
};

struct TuneChoice {
  std::string name;  ///< "precision"
  std::vector<TuneVariant> variants{};
  bool is_ladder = false;  ///< each variant goes further than the one before: after a failure none is tried
  std::string why_not{};   ///< why nothing is tried; empty otherwise
};

/// What the search asks of the machine.
class HEARTH_API TuneTrials {
 public:
  virtual ~TuneTrials() = default;
  /// Time of a sample with `candidate` over that with `base`, both timed in turn. Throws an Error with the reason where
  /// the candidate cannot run, and a PeerError, which ends the search, where another rank does not go along.
  virtual double ratio(const Overrides& base, const Overrides& candidate) = 0;
  /// Why the guard refuses what a run with these learns; empty where it accepts.
  virtual std::string refusal(const Overrides& candidate) = 0;
};

/// What became of a variant, and why.
struct TuneDecision {
  std::string choice, variant;
  std::optional<double> ratio{};  ///< of its time to that of the best before it
  bool taken = false;
  std::string reason;  ///< "1.62 times as fast"
};

struct TuneResult {
  Overrides overrides;  ///< empty where nothing is faster than the configuration as it is
  double speed = 1;     ///< times that of the configuration as it is
  std::vector<TuneDecision> decisions;
};

/// A variant whose time is above this part of the best one's is not worth a change.
inline constexpr double worth_taking = 0.97;

/// Takes a variant where it is faster and the guard accepts it. What is found is timed once more beside the
/// configuration as it is, and dropped unless it is worth taking. `tell` hears of each decision as it falls.
HEARTH_API TuneResult search(const std::vector<TuneChoice>& choices, TuneTrials& trials,
                             const std::function<void(const TuneDecision&)>& tell);

}  // namespace hearth::train
