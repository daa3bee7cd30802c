// SPDX-License-Identifier: Apache-2.0
// What made a run slower than it had to be, the costliest first, with what to change.
#pragma once

#include <string>
#include <vector>

#include "train/report/report.h"

namespace hearth::train {

struct Bottleneck {
  std::string cause;   ///< "input"
  double seconds = 0;  ///< that it cost the run, as far as that is measured; else an estimate
  bool measured = true;
  std::string text;  ///< what happened, and the remedy
};

/// At most ten, from the costliest on: waits of the steps by phase, evaluations, checkpoints, what the machine's and
/// the devices' counters tell, portable kernels, and ops above what bytes and arithmetic take. Empty where nothing is
/// worth a change or the run does not tell.
HEARTH_API std::vector<Bottleneck> bottlenecks(const RunRecords& run);

}  // namespace hearth::train
