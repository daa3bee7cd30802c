// SPDX-License-Identifier: Apache-2.0
#include "data/options.h"

namespace hearth::data {

void describe(Fields<BadSampleOptions>& fields) {
  fields.choice(
      "policy", &BadSampleOptions::policy, {{"fail", BadSamplePolicy::fail}, {"skip", BadSamplePolicy::skip}},
      "`fail`: a sample that cannot be read ends the run. `skip`: the next one that can be read stands in for "
      "it, and checkpoints keep which samples were bad.");
  fields.number("budget", &BadSampleOptions::budget, {.min = 0},
                "How many samples of a split may be bad: below 1 a share of them, from 1 on a number, null for any. "
                "With more the run ends and names the first.");
}

void describe(Fields<CacheOptions>& fields) {
  fields.integer("memory_mb", &CacheOptions::memory_mb, {.min = 0, .max = 1 << 24},
                 "What is kept in memory, in MiB, what was used last; of files, not of decoded images.");
  fields.text("disk", &CacheOptions::disk,
              "Directory of a local disk for what does not fit in memory; empty for none.");
  fields.integer("disk_mb", &CacheOptions::disk_mb, {.min = 1, .max = 1 << 30}, "The most it may hold, in MiB.");
}

}  // namespace hearth::data
