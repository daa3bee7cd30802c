// SPDX-License-Identifier: Apache-2.0
#include "hearth/train/step_bench.h"

#include <chrono>

#include "hearth/train/step.h"

namespace hearth::train {

StepBench::StepBench(LoadedConfig config) : session_(std::move(config)), batch_(session_.make_train_loader().next()) {
  if (session_.config().train.graph && session_.device().is_cuda())
    captured_ = std::make_unique<CapturedStep>(session_);
}

double StepBench::step_ms() {
  const auto start = std::chrono::steady_clock::now();
  const std::span<const data::Batch> batches(&batch_, 1);
  if (captured_)
    (void)captured_->run(batches);
  else
    (void)training_step(session_, batches);
  ++session_.position.step;
  if (session_.device().is_cuda()) session_.read_interval();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace hearth::train
