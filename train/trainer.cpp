// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iomanip>

#include "core/cpu/parallel.h"
#include "core/cuda/stream.h"
#include "core/text_stream.h"
#include "train/attach/live_run.h"
#include "train/attach/live_trace.h"
#include "train/checkpoint/bad_samples.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_set.h"
#include "train/checkpoint/run_info.h"
#include "train/checkpoint/run_topology.h"
#include "train/memory/step_memory.h"
#include "train/plan/run_peak.h"
#include "train/profile/trace/traced_steps.h"
#include "train/report/report.h"
#include "train/signals.h"
#include "train/step/agreement.h"
#include "train/step/captured_step.h"
#include "train/step/step.h"

namespace hearth::train {
namespace {

using Clock = std::chrono::steady_clock;
// Bad samples that run.json and the report list.
constexpr std::int64_t most_bad_samples = 100;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Whether a period of so many epochs ends with this step.
bool ends_period(const Plan& plan, std::int64_t step, std::int64_t epochs) {
  const auto periods = [&](std::int64_t steps) { return optim::epochs_over(steps, plan.steps_per_epoch) / epochs; };
  return periods(step) != periods(step - 1);
}

}  // namespace

bool Trainer::is_evaluation_due() const {
  return ends_period(session_.plan, session_.position.step, session_.config().eval.every_epochs);
}

Trainer::Trainer(Session& session, RunFolder& folder, Progress& progress)
    : session_(session),
      folder_(folder),
      progress_(progress),
      communication_(&session.ranks->group()),
      input_(*session.data.train),
      peak_(run_peak(session.device(), session.config().precision.dtype)) {
  if (folder.writes()) relink_copies(folder.checkpoints());
  // Rank 0 has made the folder, which the others look into.
  session.ranks->group().barrier();
}

Trainer::~Trainer() = default;

bool Trainer::resume(const std::string& directory, bool changed_data) {
  std::error_code absent;
  const bool own = std::filesystem::equivalent(directory + "/checkpoints", folder_.checkpoints(), absent);
  const Restored restored =
      restore_newest(session_, directory, {.other_precision = !own, .changed_data = changed_data});
  dist::require_same(session_.ranks->group(), "checkpoint to go on from", {{"checkpoint", restored.from}});
  for (const std::string& text : restored.damaged) progress_.line("warning: " + text + "; using an older checkpoint");
  for (const std::string& text : restored.warnings) progress_.line("warning: " + text);
  if (restored.from.empty()) return false;
  progress_.line(join_text("resumed at step ", session_.position.step, " from ", restored.from));
  if (session_.sum_choice && session_.sum_choice->is_made()) {
    session_.sum_choice->resume();
    progress_.line("sums: " + session_.sum_choice->text());
  }
  bad_samples_told_ = std::max<std::int64_t>(0, count_of_bad_samples(session_.data));
  if (own) {
    mend_checkpoints();
    return true;
  }
  moved_ = true;
  session_.position.metrics_bytes = 0;
  session_.position.best_step = -1;
  folder_.clear();
  return true;
}

void Trainer::mend_checkpoints() {
  Position& position = session_.position;
  const bool lost = best_is_lost(session_, folder_.checkpoints());
  // The others have looked at the links before they change.
  session_.ranks->group().barrier();
  if (lost) position.best_step = position.step;
  if (folder_.writes()) mend_links(session_, folder_.checkpoints());
  if (!lost) return;
  const std::string name = session_.monitored();
  const bool is_evaluated = position.evaluated_step == position.step && position.last_accuracy >= 0 &&
                            std::isfinite(position.last_loss) && (name == "loss" || name == "accuracy");
  if (!is_evaluated) position.best_step = -1;
  position.best_accuracy = position.last_accuracy;
  position.best_loss = position.last_loss;
  position.best_value = name == "loss" ? position.last_loss : position.last_accuracy;
}

bool Trainer::at_epoch_end(std::int64_t every) const {
  return session_.at_end() || ends_period(session_.plan, session_.position.step, every);
}

TrainResult Trainer::run(const std::string& command_line) {
  std::string text;
  try {
    return run_plan(command_line);
  } catch (const OutOfMemory& error) {
    text = error.what();
  }
  // All that a step held is free by now.
  captured_.reset();
  session_.feed.reset();
  // The advice takes trial steps, which other ranks know nothing of.
  const std::string advice = session_.ranks->alone() ? advice_on_batch(session_) : "";
  if (!advice.empty()) text.insert(std::min(text.find('\n'), text.size()), "; " + advice);
  throw OutOfMemory(text);
}

void Trainer::meet_ranks() {
  const bool alone = session_.ranks->alone();
  if (!alone)
    require_same_start(session_.ranks->group(), session_.data, session_.data_fingerprint(), session_.model_state,
                       session_.training_state);
  topology_ = run_topology(session_.ranks->group(), session_.device(), alone);
  if (session_.sum_choice && session_.sum_choice->is_made()) topology_.set("sums", session_.sum_choice->made());
}

TrainResult Trainer::run_plan(const std::string& command_line) {
  const RunConfig& config = session_.config();
  const Position& position = session_.position;
  TrainResult result;
  result.stop_reason = position.stop_reason;
  const std::string info_path = folder_.file("run.json");
  result.already_done = session_.at_end() && !moved_ && status_in(info_path) == "finished";
  if (result.already_done) {
    result.metrics = final_metrics();
    return result;
  }

  const Json cost_before = moved_ ? Json() : cost_in(info_path);
  energy_ = std::make_unique<EnergyMeters>(session_.device());
  const RunInfo info(info_path, {config.name, config.seed, name_of(session_.device()), command_line});
  const auto cost_with = [&](const std::vector<RankEnergy>& ranks) {
    return run_cost(cost_before, info.seconds(), ranks, config.log.price_per_hour);
  };
  const auto write_info = [&](const std::string& status, const Json& metrics, const Json& cost,
                              const Json& profile = {}) {
    // The machine's threads are those of the run.
    const SwitchScope switches(session_.switches());
    if (folder_.writes())
      info.write(status, {metrics, profile, bad_samples_to_json(session_.data, most_bad_samples), cost, topology_});
  };
  write_info("running", Json::object(), cost_before);
  meet_ranks();
  write_info("running", Json::object(), cost_before);
  capture_steps();

  const SignalScope signals;
  try {
    open_folder();
    take_steps();
    require_finite_end();
    result.stop_signal = session_.at_end() ? 0 : stop_signal();
    result.stop_reason = position.stop_reason;
    result.metrics = final_metrics();
    const Json cost = cost_with(energy_->read_all(session_.ranks->group()));
    write_info(result.stop_signal != 0 ? "stopped" : "finished", result.metrics, cost, profile_.to_json(session_));
    if (config.log.price_per_hour || cost.find("device_kwh") != nullptr) progress_.line("cost: " + cost_text(cost));
  } catch (...) {
    try {
      // Others may have nothing to do with this failure, and give no part of the state.
      write_info("failed", session_.parameters->shards() != nullptr ? Json::object() : final_metrics(),
                 cost_with({energy_->read()}));
      if (folder_.writes() && config.log.report) write_report(folder_.path());
    } catch (...) {
      // What stopped the training is what the caller has to hear of.
    }
    throw;
  }
  remove_leftovers();
  if (!config.log.report) return result;
  if (folder_.writes()) write_report(folder_.path());
  if (result.stop_signal == 0) report_model();
  return result;
}

void Trainer::capture_steps() {
  if (!session_.config().train.graph.value_or(session_.device().is_cuda())) return;
  std::string why_not = why_not_replayed(session_);
  if (why_not.empty() && session_.device().is_cpu()) why_not = "the run computes on the cpu";
  if (why_not.empty())
    captured_ = make_captured_step(session_);
  else
    progress_.line("graph: steps run one by one, as " + why_not);
}

void Trainer::remove_leftovers() {
  if (!folder_.writes() || !file_exists(folder_.checkpoints())) return;
  for (const std::string& name : remove_temporaries(folder_.checkpoints()))
    progress_.line(
        join_text("warning: ", folder_.checkpoints(), "/", name, " cannot be removed; delete it once nobody reads it"));
}

void Trainer::open_folder() {
  const std::int64_t step = session_.position.step, bytes = session_.position.metrics_bytes;
  const std::string lost = folder_.open(session_.resolved(), bytes, session_.config().log.tensorboard, step + 1);
  if (!lost.empty()) progress_.line("warning: " + lost);
  open_live_run();
  if (session_.at_end()) evaluate_end();
  // So that the new folder is a whole run from the start.
  if (moved_) save_checkpoint();
}

void Trainer::take_steps() {
  const Plan& plan = session_.plan;
  const Position& position = session_.position;
  // Of a run that was at its end before it was made longer.
  if (!session_.at_end())
    session_.position.test_step = -1, session_.position.test_accuracy = -1, session_.position.test_loss = 0;
  interval_step_ = position.step;
  progress_.start(position.step, plan.total_steps, plan.steps_per_epoch);
  traced_ = std::make_unique<TracedSteps>(session_, folder_, progress_, peak_);
  const std::int64_t first_batch = position.step * session_.config().train.accumulate;
  // What lies before is not read.
  data::Loader loader = session_.make_train_loader(first_batch);
  loader.on_stuck([this](const std::string& text) { progress_.line("warning: " + text); });
  while (!session_.at_end() && stop_signal() == 0) {
    advance(loader);
    tell_of_connections();
    if (!session_.ranks->wants_checkpoint()) continue;
    save_checkpoint();
    progress_.line(join_text("checkpoint at step ", position.step, ", as a signal asked"));
  }
  live_trace_->finish();
  epoch_marker_.reset();
  if (stop_signal() != 0) save_checkpoint();
}

int Trainer::stop_signal() const { return session_.ranks->stop_signal(); }

StepResult Trainer::run_step(std::span<const data::Batch> batches) {
  StepResult step;
  traced_->run([&] { step = run_or_replay(batches); });
  return step;
}

StepResult Trainer::run_or_replay(std::span<const data::Batch> batches) {
  if (captured_ == nullptr) {
    const RunProfile::StepScope scope(profile_, session_);
    return training_step(session_, batches);
  }
  const StepResult step = captured_->run(batches);
  if (!captured_->unsupported_reason().empty()) {
    progress_.line("graph: steps are not replayed: " + captured_->unsupported_reason());
    captured_.reset();
  }
  return step;
}

StepResult Trainer::take_step(data::Loader& loader) {
  Position& position = session_.position;
  const auto started = Clock::now();
  std::optional<Marker> marker;
  if (Marker::is_on()) marker.emplace(lasting_text(join_text("step ", position.step + 1)));
  const InputMeter::StepScope measured(input_);
  PhaseMeter& phases = session_.phases;
  const PhaseMeter::StepScope step_phases(phases);
  communication_.begin_step();
  std::vector<data::Batch> batches;
  Ranks& ranks = *session_.ranks;
  phases.enter(Phase::data);
  for (std::int64_t i = 0; i < ranks.pieces(); ++i) batches.push_back(loader.next());
  phases.enter(ranks.alone() ? Phase::other : Phase::communication);
  const std::int64_t bad = count_of_bad_samples(session_.data);
  const bool found_bad = bad > bad_samples_told_;
  StepWishes wishes{.stop_signal = SignalScope::requested(),
                    .checkpoint = SignalScope::checkpoint_requested(),
                    .shows_progress = progress_.wants_step(),
                    .bad_samples = found_bad,
                    .step = position.step + 1,
                    .lr = ranks.alone() ? 0 : session_.lr(position.step)};
  live_trace_->add_wishes(wishes);
  ranks.begin_step(batches, session_.loss, wishes, communication_.last());
  phases.enter(Phase::other);
  watch_ranks();
  if (ranks.wishes().bad_samples) tell_bad_samples();
  for (const NamedHook& one : session_.hooks()) one.hook->before_step(session_, batches);
  work_.begin_step();
  const StepResult step = run_step(batches);
  work_.end_step();
  ranks.trace().end();
  ++position.step;
  position.interval.samples += step.samples;
  communication_.end_step(seconds_since(started));
  interval_samples_ += step.samples;
  position.interval_tokens += ranks.step().tokens;
  position.interval_positions += ranks.step().positions;
  return step;
}

void Trainer::tell_bad_samples() {
  const std::vector<std::string> lines = take_new_bad_samples(session_.data, session_.ranks->group());
  bad_samples_told_ = count_of_bad_samples(session_.data);
  constexpr std::size_t most = 5;
  for (std::size_t i = 0; i < std::min(most, lines.size()); ++i) progress_.line("warning: " + lines[i]);
  if (lines.size() > most) progress_.line(join_text("warning: and ", lines.size() - most, " more samples are bad"));
}

void Trainer::watch_ranks() {
  const Ranks& ranks = *session_.ranks;
  if (ranks.last_times().empty()) return;
  communication_.add_times(ranks.last_times());
  const auto ms = [](double seconds) { return join_text(std::fixed, std::setprecision(1), 1e3 * seconds, " ms"); };
  for (const StragglerWatch::Straggler& one : stragglers_.add(ranks.last_times()))
    progress_.line(join_text("warning: ", dist::who(ranks.group(), one.rank), " is slow: ", ms(one.seconds),
                             " a step, the median rank ", ms(one.median), "; the others wait for it"));
}

void Trainer::write_step_trace() {
  const std::vector<std::string> of_ranks =
      dist::gather(session_.ranks->group(), to_text(session_.ranks->trace().to_json()));
  if (!folder_.writes()) return;
  Json ranks = Json::array();
  for (const std::string& text : of_ranks) ranks.push_back(parse_json(text, "step trace"));
  if (ranks.items()[0].is_object())
    write_file_synced(folder_.file("step_trace.json"),
                      to_text(Json::object().set("step", session_.position.step).set("ranks", ranks)) + "\n");
}

void Trainer::finish_step(const StepResult& step) {
  const std::vector<NamedHook>& hooks = session_.hooks();
  for (const NamedHook& one : hooks) one.hook->after_step(session_, step);
  const double length = session_.plan.steps_per_epoch;
  const std::int64_t at = session_.position.step, epoch = optim::epochs_over(at, length);
  if (epoch == optim::epochs_over(at - 1, length)) return;
  epoch_marker_.reset();
  for (const NamedHook& one : hooks) one.hook->after_epoch(session_, epoch);
}

void Trainer::advance(data::Loader& loader) {
  const RunConfig& config = session_.config();
  const std::int64_t at = session_.position.step + 1;
  if (!epoch_marker_ && Marker::is_on())
    epoch_marker_.emplace(
        lasting_text(join_text("epoch ", 1 + optim::epochs_over(at - 1, session_.plan.steps_per_epoch))));
  const StepResult step = take_step(loader);
  choose_sums();
  live_trace_->after_step(session_.ranks->wishes(), session_.ranks->trace().collectives());
  publish_step();
  finish_step(step);
  if (session_.ranks->wishes().shows_progress || session_.at_end()) {
    read_interval();
    progress_.step(progress_step(step, loader));
  }

  const bool logged = at % session_.steps_between_logs() == 0 || session_.at_end();
  if (logged) log_interval(step, loader);
  const bool evaluates = at_epoch_end(config.eval.every_epochs), best = evaluates && evaluate_and_log();
  if (evaluates) write_step_trace();
  // An evaluation may have ended the run.
  if (session_.at_end() && !logged) log_interval(step, loader);
  if (!session_.position.stop_reason.empty()) log_stop();
  const bool due = config.checkpoint.every_steps ? at % *config.checkpoint.every_steps == 0
                                                 : at_epoch_end(config.checkpoint.every_epochs);
  if (due || session_.at_end() || (best && config.checkpoint.best)) save_checkpoint();
  // A new best must be on disk before it can be called the best.
  if (evaluates && config.log.report && folder_.writes()) write_report(folder_.path(), session_.position.best_step);
}

void Trainer::save_checkpoint() {
  Position& position = session_.position;
  if (position.step == saved_step_) return;
  const auto started = Clock::now();
  const Marker marker("checkpoint");
  const LiveRun::Doing doing(live_.get(), "checkpoint");
  // A checkpoint counts on these bytes, so they have to be there as surely as it is.
  folder_.sync_metrics();
  position.metrics_bytes = folder_.metrics_bytes();
  if (!session_.data.valid) position.best_step = position.step;
  // Of evaluations too, whose samples no step has told.
  if (count_of_bad_samples(session_.data) >= 0) tell_bad_samples();
  if (!session_.ranks->alone()) {
    const std::string now = join_text("the checkpoint of step ", position.step);
    dist::set_status(session_.ranks->group(), now);
    require_same_weights(session_.ranks->group(), *session_.parameters, session_.model->buffers(), now);
    read_interval();
  }
  folder_.writes() ? save_session(session_, folder_.checkpoints()) : read_for_checkpoint(session_);
  session_.ranks->group().barrier();
  saved_step_ = position.step;
  const std::string set = folder_.checkpoints() + "/" + checkpoint_name(position.step);
  for (const NamedHook& one : session_.hooks()) one.hook->after_checkpoint(session_, set);
  profile_.add_checkpoint(started);
}

Json Trainer::final_metrics() const {
  const Position& position = session_.position;
  Json metrics = Json::object();
  if (!position.stop_reason.empty()) metrics.set("stop_reason", position.stop_reason);
  metrics.set("step", position.step)
      .set("weights_sha256", session_.model_state.hash())
      .set("state_sha256", session_.training_state.hash());
  if (position.best_step < 0) return metrics;
  metrics.set("best_step", position.best_step).set("best_by", session_.best_by());
  const auto set = [&](const std::string& of, double loss, double accuracy) {
    metrics.set(of + "loss", loss);
    if (session_.task->has_accuracy()) metrics.set(of + "accuracy", accuracy);
  };
  if (session_.data.valid) {
    set("best_", position.best_loss, position.best_accuracy);
    metrics.set("best_" + session_.monitored(), position.best_value);
  }
  // Evaluations of a task without an accuracy give 0 for it.
  if (position.last_accuracy >= 0) {
    metrics.set("split", session_.validation_part().first);
    set("", position.last_loss, position.last_accuracy);
  }
  if (position.test_accuracy < 0) return metrics;
  set("test_", position.test_loss, position.test_accuracy);
  if (position.test_step >= 0) metrics.set("test_step", position.test_step);
  return metrics;
}

}  // namespace hearth::train
