// SPDX-License-Identifier: Apache-2.0
// Work recorded once and replayed as a whole. Addresses are recorded with it, so everything that recorded work
// allocates comes from an arena that belongs to the recording and is handed out to nobody else while it lives.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "core/cuda/stream.h"
#include "core/memory/memory.h"

struct CUgraphExec_st;

namespace hearth::cuda {

/// Memory for recorded work. What a function allocates inside run() comes from the arena, and is free for the next
/// run() when it is given back.
class Arena {
 public:
  explicit Arena(Device device);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Calls f on this thread with the arena as the device's memory.
  void run(const std::function<void()>& f);
  MemoryStatistics statistics() const { return memory_->statistics(); }

 private:
  Device device_;
  std::unique_ptr<MemoryResource> memory_;
};

class Graph {
 public:
  /// Records what `work` queues on the stream, without running it. `work` must have run in the arena before, so that
  /// the arena need not grow. DeviceError, saying what cannot be recorded (a wait, a copy from memory that is not
  /// pinned, an allocation), if `work` did such a thing; nothing was run then.
  static Graph record(Stream& stream, Arena& arena, const std::function<void()>& work);
  ~Graph();
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;

  /// Queues one replay.
  void launch(Stream& stream) const;
  /// Kernels, copies and fills in it.
  std::int64_t nodes() const { return nodes_; }

 private:
  Graph() = default;
  CUgraphExec_st* executable_ = nullptr;
  std::int64_t nodes_ = 0;
  std::int64_t number_ = 0;  ///< never given twice
};

/// Whether this thread is recording on the device: nothing may wait then, or depend on values of this one step.
bool is_recording(Device device);
/// Throws DeviceError naming `what` if this thread is recording.
void refuse_while_recording(Device device, const char* what);
/// For a library's call that did not run what it was given: PlanError, so that something else can, or DeviceError if
/// this thread is recording.
[[noreturn]] void throw_not_run(Device device, const char* call, const char* reason);

/// The number of the step for random operations in recorded work, which must not record the number itself: a cell of
/// device memory. Null unless this thread is recording, so that the number given by the host counts.
const std::uint64_t* recorded_random_step(Stream& stream);
/// Sets that cell for the work queued from now on.
void set_random_step(Stream& stream, std::uint64_t step);

}  // namespace hearth::cuda
