// SPDX-License-Identifier: Apache-2.0
// Trials of a run on this machine: short trainings with its own data, that are timed, or compared by their loss.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "train/session.h"
#include "train/tune/search.h"

namespace hearth::train {

struct TrialOptions {
  std::string config;               ///< path of the configuration
  std::vector<std::string> sets{};  ///< of the command line
  std::string device{};             ///< of this rank; empty: what the configuration says
  Collective* group = nullptr;      ///< of which this process is a rank; null: it trains alone
  double seconds = 3;               ///< for a pair that is timed, after its first steps
  int seeds = 3;                    ///< of the guard
  std::int64_t guard_steps = 128;   ///< of the configuration as it is, at most an epoch
};

/// The configuration that trials are of, on this rank's device; `more` are words of --set.
LoadedConfig load_trial(const TrialOptions& options, const Overrides& overrides = {},
                        const std::vector<std::string>& more = {});

/// Losses that the guard compares: the mean over the last third of a short training.
struct GuardBand {
  std::vector<double> losses;  ///< of the f32 shadow, by seed
  double low = 0, high = 0;    ///< the band: their range and, on each side, its width or 2 % of their mean
};
GuardBand band_of(std::vector<double> losses);
/// Why a loss is outside of the band; empty if it is inside. A loss below it is accepted where updates are of other
/// batches than the shadow's.
std::string refusal_of(double loss, const GuardBand& band, bool same_batches);

/// With a group every rank makes the same calls. All time the same steps and go by the clock of rank 0, so that each
/// decides the same.
class RunTrials final : public TuneTrials {
 public:
  /// `session` is of the configuration as it is.
  RunTrials(TrialOptions options, const Session& session);
  ~RunTrials() override;
  /// OutOfMemory where the candidate does not fit: of each run a whole step and an evaluation of the longest samples
  /// come first. Hopeless candidates end early.
  double ratio(const Overrides& base, const Overrides& candidate) override;
  /// Trains the candidate on as many samples as the shadow, the configuration as it is in f32, with several seeds.
  std::string refusal(const Overrides& candidate) override;
  /// Each band that the guard has used, by the number of samples, and what it has decided.
  const Json& receipt() const { return receipt_; }

 private:
  class TimedRun;
  struct Outcome {
    double loss;
    std::int64_t rows;     ///< of a step
    std::int64_t samples;  ///< that were trained
  };

  std::unique_ptr<TimedRun> timed(const Overrides& overrides) const;
  /// The base's trial, kept from the call before where it is the same.
  TimedRun& base_run(const Overrides& base);
  double ratio_apart(const Overrides& base, const Overrides& candidate);
  /// Trains so many samples, or, with 0, as many as the guard takes; the loss is infinite where the run diverges.
  Outcome try_out(const Overrides& overrides, std::uint64_t seed, std::int64_t samples = 0) const;
  const GuardBand& band(std::int64_t samples);

  TrialOptions options_;
  std::uint64_t seed_ = 0;
  std::int64_t rows_ = 0;   ///< of a step of the configuration as it is
  std::int64_t epoch_ = 0;  ///< samples
  std::unique_ptr<TimedRun> base_;
  Overrides base_overrides_;
  std::map<std::int64_t, GuardBand> bands_;
  Json receipt_ = Json::array();
};

}  // namespace hearth::train
