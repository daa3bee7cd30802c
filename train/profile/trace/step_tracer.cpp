// SPDX-License-Identifier: Apache-2.0
#include "train/profile/trace/step_tracer.h"

#include <utility>

namespace hearth::train {

void StepTracer::run(const std::function<void()>& step) {
  (void)log_.take();
  std::vector<cuda::DeviceSpan> spans = trace_.during(step);
  std::vector<AskedWork> now = log_.take();
  // A replay asks for little itself: what was recorded.
  if (now.size() >= asked_.size() / 2) asked_ = std::move(now);
  if (steps_++ < steps_before || spans.empty()) return;
  const std::uint64_t took = spans.back().end_ns - spans.front().begin_ns;
  if (took >= least_) return;
  least_ = took;
  quickest_ = {std::move(spans), asked_};
}

}  // namespace hearth::train
