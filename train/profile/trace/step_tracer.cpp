// SPDX-License-Identifier: Apache-2.0
#include "train/profile/trace/step_tracer.h"

#include <utility>

namespace hearth::train {

void StepTracer::run(const std::function<void()>& step) {
  (void)watch_.take();
  step();
  DeviceActivity now = watch_.take();
  if (steps_++ < steps_before || now.spans.empty()) return;
  const std::uint64_t took = now.spans.back().end_ns - now.spans.front().begin_ns;
  if (took >= least_) return;
  least_ = took;
  quickest_ = std::move(now);
}

}  // namespace hearth::train
