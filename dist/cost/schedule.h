// SPDX-License-Identifier: Apache-2.0
// When the buckets of a step are summed, and how long a rank waits for that.
#pragma once

#include <vector>

#include "core/export.h"

namespace hearth::dist {

/// A bucket in the order in which buckets start.
struct BucketCost {
  double ready = 0;  ///< seconds that a step computes before all gradients of the bucket are there
  /// What the rank computes for a collective, and then the collective.
  struct Stage {
    double compute = 0, transfer = 0;
  };
  std::vector<Stage> stages;  ///< at least one
  double end = 0;             ///< what the rank computes after the last one
};

struct Forecast {
  double seconds = 0;        ///< of the step
  double exposed = 0;        ///< of these, what the rank waits for collectives
  double communication = 0;  ///< of all collectives
};

/// A step that computes for `compute` seconds beside its sums, as DataParallel carries it out: collectives run one
/// after the other, in the order of their start; when a bucket starts, further stages of those before it do, too.
HEARTH_API Forecast forecast(double compute, const std::vector<BucketCost>& buckets);

}  // namespace hearth::dist
