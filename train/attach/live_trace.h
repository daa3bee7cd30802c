// SPDX-License-Identifier: Apache-2.0
// Traces of a few steps of a run that goes on: of all its ranks, on one clock, as Chrome trace events.
#pragma once

#include <cstdint>
#include <future>
#include <string>
#include <vector>

#include "core/collective.h"
#include "core/profiler_spans.h"

namespace hearth::train {

class LiveRun;
struct StepWishes;

/// The part of a rank. Its spans become text on another thread, so that no step waits for that.
class LiveTrace {
 public:
  /// `live` is that of rank 0, and null on the other ranks.
  LiveTrace(Collective& group, LiveRun* live) : group_(group), live_(live) {}
  ~LiveTrace();
  LiveTrace(const LiveTrace&) = delete;
  LiveTrace& operator=(const LiveTrace&) = delete;

  /// What this rank wants of all before a step.
  void add_wishes(StepWishes& wishes) const;
  /// Between steps, with what the ranks wanted before the last one and the collectives of it.
  void after_step(const StepWishes& wishes, const std::vector<CollectiveSpan>& collectives);
  /// After the last step of all: ends what is under way.
  void finish();

 private:
  enum class State : std::uint8_t { idle, collecting, preparing };

  void begin(std::int64_t steps);
  void prepare();
  void hand_over();

  Collective& group_;
  LiveRun* live_;
  State state_ = State::idle;
  bool collects_ = false;  ///< whether the profiler is this object's
  std::int64_t steps_left_ = 0;
  std::int64_t zero_ns_ = 0;  ///< the trace's time 0
  std::vector<CollectiveSpan> collectives_;
  std::future<std::string> text_;
};

/// The events of a rank: a lane of its steps, one of its collectives, and one of each other thread that has spans.
/// Names are those of NVIDIA's ranges: an op as "conv2d (backward) of layer1.0.conv1", phases and stages as they are.
HEARTH_API std::string trace_events(int rank, const std::string& process, std::int64_t zero_ns, std::size_t step_thread,
                                    const std::vector<profiler::Span>& spans,
                                    const std::vector<CollectiveSpan>& collectives);

}  // namespace hearth::train
