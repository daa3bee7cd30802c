// SPDX-License-Identifier: Apache-2.0
// What a rank did in the course of one step, for the picture of the report.
#pragma once

#include <chrono>
#include <vector>

#include "core/collective.h"
#include "core/export.h"
#include "core/io/json_text.h"

namespace hearth::train {

/// Two lanes: what the step computed or waited for, and the collectives under way. Nothing is recorded of one rank
/// alone, and where the host does not wait for the sums, as with NCCL.
class HEARTH_API StepTrace {
 public:
  explicit StepTrace(Collective& group) : group_(group.size() > 1 && group.device().is_cpu() ? &group : nullptr) {}
  ~StepTrace() {
    if (group_ != nullptr) group_->record_spans(nullptr);
  }
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  /// A step begins, on all ranks at the same time as far as these know. No collective is under way; nor at end().
  void begin();
  /// From now on the step does this; `what` is a literal.
  void mark(const char* what);
  void end();
  /// The collectives since begin().
  const std::vector<CollectiveSpan>& collectives() const { return spans_; }
  /// Milliseconds since begin(): {"compute": [[what, begin, end], ...], "communication": [[what, begin, end, bytes],
  /// ...]}. Null before the first step.
  Json to_json() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Mark {
    const char* what;
    Clock::time_point at;
  };

  Collective* group_;
  Clock::time_point begin_{};
  std::vector<Mark> marks_;
  std::vector<CollectiveSpan> spans_;
};

}  // namespace hearth::train
