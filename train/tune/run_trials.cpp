// SPDX-License-Identifier: Apache-2.0
#include "train/tune/run_trials.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/run_on.h"
#include "core/text_stream.h"
#include "train/memory/step_memory.h"
#include "train/step/captured_step.h"
#include "train/step/step.h"

namespace hearth::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_from(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// What rank 0 has, so that all ranks go by it.
double of_first_rank(const Session& session, double mine) {
  const Tensor number = Tensor::of<double>({1}, {mine});
  session.ranks->group().broadcast(number).wait();
  return number.item();
}

/// A step of a training, without its trainer.
class Steps {
 public:
  explicit Steps(Session& session) : session_(session), loader_(session.make_train_loader()) {
    if (session.device().is_cuda() && why_not_replayed(session).empty()) captured_ = make_captured_step(session);
  }
  /// What it counts in throughput.
  std::int64_t take() {
    std::vector<data::Batch> batches;
    for (std::int64_t i = 0; i < session_.ranks->pieces(); ++i) batches.push_back(loader_.next());
    (void)session_.ranks->begin_step(batches, session_.loss, {});
    const std::int64_t samples = (captured_ ? captured_->run(batches) : training_step(session_, batches)).samples;
    session_.position.interval.samples += samples;
    ++session_.position.step;
    return samples;
  }

 private:
  Session& session_;
  data::Loader loader_;
  std::unique_ptr<CapturedStep> captured_;
};

/// A whole step and an evaluation of a batch of the longest samples, so that a size that is named has run.
void run_longest(Session& session) {
  const SwitchScope switches(session.switches());
  const std::int64_t rows = largest_rows(session);
  const std::int64_t cuts = session.ranks->part().cuts;
  const data::Batch batch = sample_batch(session, rows, session.device().type),
                    piece = sample_batch(session, (rows + cuts - 1) / cuts, session.device().type);
  const std::vector<data::Batch> batches(static_cast<std::size_t>(session.ranks->pieces()), piece);
  (void)session.ranks->begin_step(batches, session.loss, {});
  (void)training_step(session, batches);
  session.model->eval();
  (void)evaluation_step(session, on_device(session, batch), session.sums);
  wait_for(session.device());
  session.restart();
}

/// The run without an end: trials are of any length.
std::string without_end(const RunConfig& config) {
  return config.train.steps ? "train.steps=1000000000" : "train.epochs=1000000";
}

}  // namespace

LoadedConfig load_trial(const TrialOptions& options, const Overrides& overrides, const std::vector<std::string>& more) {
  std::vector<std::string> words = options.sets;
  for (const std::string& word : to_words(overrides)) words.push_back(word);
  words.insert(words.end(), more.begin(), more.end());
  LoadedConfig loaded = load_config(options.config, words);
  if (!options.device.empty()) loaded.config.device = options.device;
  return loaded;
}

GuardBand band_of(std::vector<double> losses) {
  const auto [low, high] = std::ranges::minmax(losses);
  double mean = 0;
  for (const double loss : losses) mean += loss / static_cast<double>(losses.size());
  constexpr double least_margin = 0.02;
  const double margin = std::max(high - low, least_margin * std::abs(mean));
  return {.losses = std::move(losses), .low = low - margin, .high = high + margin};
}

std::string refusal_of(double loss, const GuardBand& band, bool same_batches) {
  // A loss that is no number is in no band.
  if ((loss >= band.low || !same_batches) && loss <= band.high) return "";
  return join_text("its loss ", loss, " leaves the band of the f32 shadow, ", band.low, " to ", band.high);
}

/// A run of which blocks of steps are timed, its loader included.
class RunTrials::TimedRun {
 public:
  TimedRun(LoadedConfig config, Collective* group) : session_(std::move(config), group) {
    (void)session_.load_start_weights();
    run_longest(session_);
    steps_ = std::make_unique<Steps>(session_);
    // These choose implementations, ask for memory and record the step.
    constexpr int first_steps = 4;
    for (int i = 0; i < first_steps; ++i) (void)block(1);
    const auto begin = Clock::now();
    (void)block(1);
    step_seconds_ = of_first_rank(session_, seconds_from(begin));
  }
  const Session& session() const { return session_; }
  double step_seconds() const { return step_seconds_; }
  /// Seconds of a sample over so many steps.
  double block(std::int64_t steps) {
    const auto begin = Clock::now();
    std::int64_t samples = 0;
    for (std::int64_t i = 0; i < steps; ++i) samples += steps_->take();
    session_.read_interval();
    return of_first_rank(session_, seconds_from(begin)) / static_cast<double>(std::max<std::int64_t>(samples, 1));
  }

 private:
  Session session_;
  std::unique_ptr<Steps> steps_;
  double step_seconds_ = 0;
};

RunTrials::RunTrials(TrialOptions options, const Session& session)
    : options_(std::move(options)),
      seed_(session.config().seed),
      rows_(largest_rows(session) * session.config().train.accumulate),
      epoch_(session.data.train->size()) {}
RunTrials::~RunTrials() = default;

std::unique_ptr<RunTrials::TimedRun> RunTrials::timed(const Overrides& overrides) const {
  return std::make_unique<TimedRun>(
      load_trial(options_, overrides, {without_end(load_trial(options_, overrides).config)}), options_.group);
}

RunTrials::TimedRun& RunTrials::base_run(const Overrides& base) {
  if (base_ == nullptr || base_overrides_ != base) {
    base_.reset();
    base_ = timed(base);
    base_overrides_ = base;
  }
  return *base_;
}

namespace {

/// Blocks of about a tenth of the time, and at least one step.
std::int64_t steps_of_block(double step_seconds, double seconds) {
  constexpr double blocks = 10;
  return std::max<std::int64_t>(1, std::llround(seconds / (2 * blocks * std::max(step_seconds, 1e-6))));
}

}  // namespace

double RunTrials::ratio(const Overrides& base, const Overrides& candidate) {
  std::unique_ptr<TimedRun> other;
  try {
    base_run(base);
    other = timed(candidate);
  } catch (const OutOfMemory&) {
    return ratio_apart(base, candidate);
  }
  constexpr int least_rounds = 3, most_rounds = 40;
  constexpr double hopeless = 1.25;
  const double half = options_.seconds / 2;
  const std::int64_t base_steps = steps_of_block(base_->step_seconds(), half),
                     other_steps = steps_of_block(other->step_seconds(), half);
  std::vector<double> of_base, of_other, ratios;
  const auto begin = Clock::now();
  for (int round = 0; round < most_rounds; ++round) {
    const double seconds = of_first_rank(base_->session(), seconds_from(begin));
    if (round >= least_rounds && seconds > options_.seconds) break;
    of_base.push_back(base_->block(base_steps));
    of_other.push_back(other->block(other_steps));
    ratios.push_back(of_other.back() / of_base.back());
    if (round + 1 == least_rounds && std::ranges::min(ratios) > hopeless) break;
  }
  return median_of(ratios);
}

// Where both do not fit beside each other.
double RunTrials::ratio_apart(const Overrides& base, const Overrides& candidate) {
  base_.reset();
  const auto time = [&](const Overrides& overrides) {
    const std::unique_ptr<TimedRun> run = timed(overrides);
    std::vector<double> all;
    constexpr int blocks = 5;
    for (int i = 0; i < blocks; ++i) all.push_back(run->block(steps_of_block(run->step_seconds(), options_.seconds)));
    return median_of(all);
  };
  const double of_candidate = time(candidate);
  return of_candidate / time(base);
}

RunTrials::Outcome RunTrials::try_out(const Overrides& overrides, std::uint64_t seed, std::int64_t samples) const {
  Session session(load_trial(options_, overrides, {join_text("seed=", seed)}), options_.group);
  (void)session.load_start_weights();
  const std::int64_t rows = largest_rows(session) * session.config().train.accumulate;
  // So that a large batch takes a few steps too.
  constexpr std::int64_t least_steps = 24;
  if (samples == 0) samples = std::max(std::min(options_.guard_steps * rows_, epoch_), least_steps * rows);
  const std::int64_t count = std::max<std::int64_t>(3, (samples + rows - 1) / rows);
  Steps steps(session);
  try {
    for (std::int64_t i = 0; i < count; ++i) {
      if (i == count - (count + 2) / 3) session.read_interval(), session.clear_interval();
      (void)steps.take();
    }
    session.read_interval();
  } catch (const DivergedError&) {
    return {std::numeric_limits<double>::infinity(), rows, samples};
  }
  return {session.position.interval.loss(), rows, samples};
}

const GuardBand& RunTrials::band(std::int64_t samples) {
  const auto place = bands_.find(samples);
  if (place != bands_.end()) return place->second;
  const Overrides shadow{{"precision.level", "\"O0\""}, {"precision.dtype", "\"f32\""}};
  std::vector<double> losses;
  for (int i = 0; i < options_.seeds; ++i)
    losses.push_back(try_out(shadow, seed_ + static_cast<unsigned>(i), samples).loss);
  return bands_.emplace(samples, band_of(std::move(losses))).first->second;
}

std::string RunTrials::refusal(const Overrides& candidate) {
  base_.reset();
  const Outcome outcome = try_out(candidate, seed_);
  const GuardBand& shadow = band(outcome.samples);
  const std::string refusal = refusal_of(outcome.loss, shadow, outcome.rows == rows_);
  Json set = Json::object();
  for (const auto& [path, value] : candidate) set.set(path, value);
  receipt_.push_back(Json::object()
                         .set("set", std::move(set))
                         .set("samples", outcome.samples)
                         .set("shadow_losses", Json::array_of(shadow.losses))
                         .set("band", Json::array_of(std::vector<double>{shadow.low, shadow.high}))
                         .set("loss", std::isfinite(outcome.loss) ? Json(outcome.loss) : Json("diverged"))
                         .set("accepted", refusal.empty()));
  return refusal;
}

}  // namespace hearth::train
