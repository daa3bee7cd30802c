// SPDX-License-Identifier: Apache-2.0
#include "train/bench/step_bench.h"

#include <chrono>

#include "train/step/step.h"

namespace hearth::train {

StepBench::StepBench(LoadedConfig config, Collective* group) : session_(std::move(config), group) {
  const std::int64_t count = session_.ranks->pieces();
  batches_.assign(static_cast<std::size_t>(count), session_.make_train_loader().next());
  if (session_.device().is_cuda() && session_.ranks->alone() && why_not_replayed(session_).empty())
    captured_ = make_captured_step(session_);
}

std::int64_t StepBench::items() const { return batch().count() * static_cast<std::int64_t>(batches_.size()); }

double StepBench::step_ms(std::int64_t steps) {
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < steps; ++i) run_step();
  if (session_.device().is_cuda()) session_.read_interval();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count() /
         static_cast<double>(steps);
}

double StepBench::loss() {
  session_.read_interval();
  return session_.position.interval.loss();
}

void StepBench::record_anew() {
  if (captured_) captured_->record_anew();
}

void StepBench::run_step() {
  meter_.begin_step();
  (void)session_.ranks->begin_step(batches_, session_.loss, {});
  session_.position.interval.samples +=
      (captured_ ? captured_->run(batches_) : training_step(session_, batches_)).samples;
  ++session_.position.step;
  meter_.end_step();
}

}  // namespace hearth::train
