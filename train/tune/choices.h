// SPDX-License-Identifier: Apache-2.0
// What `hearth tune` may change in a run.
#pragma once

#include <cstdint>
#include <vector>

#include "train/session.h"
#include "train/tune/search.h"

namespace hearth::train {

struct TuneLimits {
  std::int64_t max_batch = 1024;  ///< rows of a batch
  int cores = 1;                  ///< of this rank, for threads that make batches
  int threads = 0;                ///< of the pool, which may be left idle; 0: HEARTH_THREADS has settled their number
  bool has_neighbours = false;    ///< whether other programs compute on the same cores
};

/// The choices of a run, in the order in which they are searched, each with those variants that differ from what the
/// run's configuration says; or with the reason why it has none.
std::vector<TuneChoice> tune_choices(const Session& session, const TuneLimits& limits);

}  // namespace hearth::train
