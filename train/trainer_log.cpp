// SPDX-License-Identifier: Apache-2.0
// What a trainer tells of its steps: lines of metrics, progress, warnings, and the meters that other processes read.
#include <string_view>
#include <utility>

#include "core/text_stream.h"
#include "core/warning.h"
#include "dist/agreement.h"
#include "dist/nccl_log/kept_log.h"
#include "train/attach/live_run.h"
#include "train/attach/live_trace.h"
#include "train/checkpoint/bad_samples.h"
#include "train/checkpoint/run_topology.h"
#include "train/report/trust_ratios.h"
#include "train/step/captured_step.h"
#include "train/trainer.h"

namespace hearth::train {

void Trainer::open_live_run() {
  Ranks& ranks = *session_.ranks;
  if (folder_.writes()) {
    live_ = std::make_unique<LiveRun>(folder_.path(), LiveFacts{.name = session_.config().name,
                                                                .device = name_of(session_.device()),
                                                                .unit = session_.throughput_unit(),
                                                                .ranks = ranks.size(),
                                                                .total_steps = session_.plan.total_steps});
    if (!live_->why_no_socket().empty())
      progress_.line("status: only metrics.jsonl tells of this run: " + live_->why_no_socket());
  }
  live_trace_ = std::make_unique<LiveTrace>(ranks.group(), live_.get(), session_.device(), [this] {
    if (captured_) captured_->record_anew();
  });
  publish_step();
}

void Trainer::tell_of_connections() {
  Collective& group = session_.ranks->group();
  if (std::exchange(told_connections_, true) || std::string_view(group.backend()) != "nccl") return;
  const dist::KeptNcclLog recorded = dist::kept_nccl_log();
  const std::vector<std::string> of_ranks = dist::gather(group, dist::nccl_lines_of_interest(recorded.text));
  if (!folder_.writes()) return;
  if (!recorded.why_none.empty()) {
    topology_.set("nccl", Json::object().set("why_unknown", recorded.why_none));
    return;
  }
  std::string text;
  for (const std::string& lines : of_ranks) text += lines;
  const dist::NcclLog log = dist::read_nccl_log(text);
  const std::vector<dist::Check> checks = dist::nccl_checks(log, dist::look_at_network(), dist::nccl_host());
  topology_.set("nccl", to_json(log, checks));
  for (const dist::Check& check : checks)
    if (check.state == dist::CheckState::wrong)
      progress_.line(join_text("warning: NCCL: ", check.name, ": ", check.finding, "; ", check.remedy));
}

void Trainer::choose_sums() {
  if (!session_.sum_choice || !session_.sum_choice->after_step()) return;
  topology_.set("sums", session_.sum_choice->made());
  progress_.line("sums: " + session_.sum_choice->text());
}

void Trainer::publish_step() {
  if (!live_) return;
  const Position& position = session_.position;
  live_->publish(LiveStep{.step = position.step,
                          .epoch = static_cast<double>(position.step) / session_.plan.steps_per_epoch,
                          .steps = position.step - interval_step_,
                          .seconds = session_.phases.seconds(),
                          .samples = interval_samples_,
                          .ranks = session_.ranks->last_times()});
}

void Trainer::add_record(const Json& record) {
  folder_.add(record);
  if (live_) live_->publish(record);
}

void Trainer::log_stop() {
  const Position& position = session_.position;
  folder_.add(Json::object()
                  .set("step", position.step)
                  .set("epoch", static_cast<double>(position.step) / session_.plan.steps_per_epoch)
                  .set("split", "train")
                  .set("stop_reason", position.stop_reason));
  progress_.line(join_text("stopped at step ", position.step, ": ", position.stop_reason));
}

void Trainer::read_interval() {
  const PhaseMeter::StepScope step_phases(session_.phases);
  // It waits for the device, whose steps are not over, and for other ranks.
  if (!session_.ranks->alone()) session_.phases.enter(Phase::communication);
  session_.read_interval();
}

Progress::Step Trainer::progress_step(const StepResult& last, data::Loader& loader) {
  const InputUse& input = input_.collect(loader);
  const Meter& meter = session_.position.interval;
  Progress::Step now;
  now.step = session_.position.step;
  // Nothing was counted where no label counts, or every update was skipped.
  if (meter.samples > 0) now.loss = meter.loss();
  now.overflowed = !now.loss && session_.loss_scale && interval_samples_ > 0;
  now.accuracy = now.loss && session_.task->has_accuracy() ? meter.accuracy() : -1;
  now.lr = last.lr;
  const double seconds = session_.phases.seconds();
  now.images_per_second = seconds > 0 ? static_cast<double>(interval_samples_) / seconds : 0;
  now.unit = session_.throughput_unit();
  now.wait_fraction = input.wait();
  if (const data::Stage slow = advice_on_input(input).stage; slow != data::Stage::room) now.waits_for = name_of(slow);
  now.communication_fraction = communication_.wait_fraction();
  now.scaling_efficiency = communication_.scaling_efficiency();
  return now;
}

void Trainer::tell_of_input() {
  const InputAdvice advice = advice_on_input(input_.use());
  if (advice.stage == data::Stage::room || advice.stage == told_stage_) return;
  told_stage_ = advice.stage;
  progress_.line(advice.text);
}

void Trainer::tell_of_device() {
  // Only rank 0 has a progress to show.
  for (const std::string& text : energy_->take_messages())
    folder_.writes() ? progress_.line("warning: " + text)
                     : warn(join_text(dist::who(session_.ranks->group(), session_.ranks->rank()), ": ", text));
}

void Trainer::log_interval(const StepResult& last, data::Loader& loader) {
  read_interval();
  const Meter& meter = session_.position.interval;
  const Progress::Step now = progress_step(last, loader);
  const PhaseSeconds phases = session_.phases.read();
  Json record = Json::object();
  record.set("step", session_.position.step)
      .set("epoch", static_cast<double>(session_.position.step) / session_.plan.steps_per_epoch)
      .set("split", "train");
  if (meter.samples > 0) record.set("loss", meter.loss());
  if (meter.samples > 0 && session_.task->has_accuracy()) record.set("accuracy", meter.accuracy());
  if (meter.samples > 0) session_.task->add_metrics(record, session_.loss, meter, nullptr);
  if (const Position& now_at = session_.position; now_at.interval_positions > 0)
    record.set("padding",
               1 - static_cast<double>(now_at.interval_tokens) / static_cast<double>(now_at.interval_positions));
  record.set("lr", last.lr);
  if (session_.grad_norm >= 0) record.set("grad_norm", session_.grad_norm);
  if (session_.loss_scale)
    record.set("loss_scale", session_.loss_scale_now.scale).set("skipped_steps", session_.loss_scale_now.skipped);
  write_trust_ratios(record, *session_.optimizer);
  record.set("throughput", now.images_per_second).set("unit", now.unit);
  record.set("phase_seconds", to_json(phases));
  write_input(record, input_.use());
  process_.write(record);
  energy_->write(record, session_.at_end());
  if (const std::int64_t bad = count_of_bad_samples(session_.data); bad > 0) record.set("bad_samples", bad);
  if (!session_.ranks->alone()) record.set("ranks", session_.ranks->size());
  communication_.write(record, phases);
  write_use(record, work_.sum(), phases.total(), peak_);
  work_.clear();
  add_record(record);
  progress_.interval(now);
  tell_of_input();
  tell_of_device();
  session_.clear_interval();
  profile_.add(phases);
  session_.phases.clear();
  input_.clear();
  communication_.clear();
  interval_samples_ = 0;
  interval_step_ = session_.position.step;
}

}  // namespace hearth::train
