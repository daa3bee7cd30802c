// SPDX-License-Identifier: Apache-2.0
// What the communication of a data parallel run costs, as its metrics tell it.
#pragma once

#include <cstdint>

#include "core/collective.h"
#include "core/export.h"
#include "core/io/json_text.h"

namespace hearth::train {

/// Of the steps of a log interval, as one rank measures them.
class HEARTH_API CommunicationMeter {
 public:
  /// Null: the run is one process, and nothing is measured; nor is it where the host does not wait for the sums.
  explicit CommunicationMeter(const Collective* group)
      : group_(group != nullptr && group->device().is_cpu() ? group : nullptr) {}

  void begin_step();
  /// `seconds`: the whole step.
  void end_step(double seconds);
  /// The part of the steps' time that waited for other ranks; below 0 where that is not known.
  double wait_fraction() const;
  /// The keys communication_... of a line of training metrics.
  void write(Json& record) const;
  /// Begins an interval.
  void clear();

 private:
  const Collective* group_;
  Traffic before_, sum_;
  double seconds_ = 0;
  std::int64_t steps_ = 0;
};

}  // namespace hearth::train
