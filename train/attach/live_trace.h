// SPDX-License-Identifier: Apache-2.0
// Traces of a few steps of a run that goes on: of all its ranks, on one clock, as Chrome trace events.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/collective.h"
#include "core/device.h"
#include "core/profiler_spans.h"
#include "train/profile/trace/device_watch.h"

namespace hearth::train {

class LiveRun;
struct StepWishes;

/// The part of a rank. Its spans become text on another thread, so that no step waits for that.
class LiveTrace {
 public:
  /// `live` is that of rank 0, and null on the other ranks. `device` computes the steps, and `record_anew` forgets
  /// those that are recorded for replays (CapturedStep::record_anew).
  LiveTrace(Collective& group, LiveRun* live, Device device, std::function<void()> record_anew)
      : group_(group), live_(live), device_(device), record_anew_(std::move(record_anew)) {}
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
  /// Watches the device's kernels, if it is a CUDA device and CUPTI is there.
  void watch_device();
  DeviceActivity activity();
  void prepare();
  void hand_over();

  Collective& group_;
  LiveRun* live_;
  Device device_;
  std::function<void()> record_anew_;
  State state_ = State::idle;
  bool collects_ = false;  ///< whether the profiler is this object's
  std::int64_t steps_left_ = 0;
  std::int64_t zero_ns_ = 0;  ///< the trace's time 0
  std::vector<CollectiveSpan> collectives_;
  std::unique_ptr<DeviceWatch> watch_;
  bool recorded_anew_ = false;     ///< for this trace, on all ranks
  std::string why_not_watched_{};  ///< the device; empty on a CPU too
  std::future<std::string> text_;
};

/// What a rank's part of a trace is made of. Times are those of the steady clock.
struct RankTrace {
  int rank = 0;
  std::string process{};        ///< its name
  std::int64_t zero_ns = 0;     ///< the trace's time 0
  std::size_t step_thread = 0;  ///< profiler::Span::thread of the steps
  std::vector<profiler::Span> spans{};
  std::vector<CollectiveSpan> collectives{};
  std::string device{};           ///< "cuda:0"
  DeviceActivity activity{};      ///< of the device
  std::string why_not_watched{};  ///< the device
};

/// The events of a rank: a lane of its steps, one of its collectives, one of each other thread that has spans, and one
/// of each stream of the device. Names are those of NVIDIA's ranges: an op as "conv2d (backward) of layer1.0.conv1",
/// phases and stages as they are. Where kernels are missing, or their ops, the label of the process says why.
HEARTH_API std::string trace_events(const RankTrace& trace);

}  // namespace hearth::train
