// SPDX-License-Identifier: Apache-2.0
// What the configuration of every dataset may say.
#pragma once

#include <concepts>
#include <cstdint>

#include "core/config/config.h"
#include "data/loading/quarantine.h"
#include "data/source/read_cache.h"

namespace hearth::data {

/// What every dataset's node may say.
struct DataOptions {
  double valid_fraction = 0;
  std::uint64_t split_seed = 0;
  int workers = 2;
  int prefetch = 4;
  BadSampleOptions bad_samples{};
  CacheOptions cache{};
  double stuck_seconds = 60;
  double stuck_limit_seconds = 1800;
};

HEARTH_API void describe(Fields<BadSampleOptions>& fields);
HEARTH_API void describe(Fields<CacheOptions>& fields);

/// The fields of DataOptions on how samples are read.
template <std::derived_from<DataOptions> T>
void describe_reading(Fields<T>& fields) {
  fields.integer("workers", &DataOptions::workers, {.min = 0, .max = 256},
                 "Threads that prepare batches; 0 prepares them in the training thread.");
  fields.integer("prefetch", &DataOptions::prefetch, {.min = 1, .max = 4096},
                 "Batches prepared ahead; small ones further, as many as steps take in 0.1 s, up to 64 and 1 MiB.");
  fields
      .object("bad_samples", &DataOptions::bad_samples,
              "What becomes of samples that cannot be read; \"skip\" stands for {\"policy\": \"skip\"}.")
      .shorthand("policy");
  fields.object("cache", &DataOptions::cache, "What was read of a slow source is kept in memory and on a local disk.");
  fields.number("stuck_seconds", &DataOptions::stuck_seconds, {.min = 0},
                "When a run waits for a worker that has been at one sample for so long, a warning names the sample; 0: "
                "none.");
  fields.number("stuck_limit_seconds", &DataOptions::stuck_limit_seconds, {.min = 0},
                "After so long the run ends with an error that names the sample; 0: it waits for ever.");
}

/// The fields of DataOptions, for the options of a set of one's own.
template <std::derived_from<DataOptions> T>
void describe_common(Fields<T>& fields) {
  fields.number("valid_fraction", &DataOptions::valid_fraction, {.min = 0, .below = 1},
                "Share of each class of the training split set aside as `valid`, where the set has no such part.");
  fields.integer("split_seed", &DataOptions::split_seed, {.min = 0}, "Seed of every split drawn here.");
  describe_reading(fields);
}

}  // namespace hearth::data
