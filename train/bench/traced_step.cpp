// SPDX-License-Identifier: Apache-2.0
#include "train/bench/traced_step.h"

#include <utility>

namespace hearth::train {

DeviceActivity traced_step(StepBench& bench) {
  StepTracer tracer;
  bench.record_anew();
  while (!tracer.done()) tracer.run([&] { (void)bench.step_ms(); });
  return std::move(tracer.quickest());
}

}  // namespace hearth::train
