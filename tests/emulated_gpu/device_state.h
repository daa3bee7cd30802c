// SPDX-License-Identifier: Apache-2.0
// The one state behind the C functions of the emulated runtime. All of it is used under one lock, by whichever thread
// calls. Only the emulated runtime includes this.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "tests/emulated_gpu/memory.h"
#include "tests/emulated_gpu/queue.h"

namespace hearth::cuda::emulate {

/// Handles are addresses that stand for nothing else, so that a destroyed one is known as such.
template <class Handle, class State>
class Handles {
 public:
  explicit Handles(std::uintptr_t kind) : next_(kind << 32) {}
  Handle add(std::shared_ptr<State> state) {
    const Handle handle = reinterpret_cast<Handle>(next_ += 16);
    states_.emplace(handle, std::move(state));
    return handle;
  }
  std::shared_ptr<State> find(Handle handle) const {
    const auto found = states_.find(handle);
    return found == states_.end() ? nullptr : found->second;
  }
  bool remove(Handle handle) { return states_.erase(handle) > 0; }
  template <class F>
  void each(F&& f) const {
    for (const auto& [handle, state] : states_) f(*state);
  }

 private:
  std::unordered_map<Handle, std::shared_ptr<State>> states_;
  std::uintptr_t next_;
};

/// Shared memory of a block in bytes: HEARTH_EMULATE_SHARED_KB, looked up each time.
int shared_opt_in();

class DeviceSide {
 public:
  static DeviceSide& the();

  std::recursive_mutex lock;
  Settings settings;
  Memory memory;
  Handles<cudaStream_t, StreamState> streams{1};
  Handles<cudaEvent_t, EventState> events{2};
  Handles<cudaGraph_t, GraphState> graphs{3};
  Handles<cudaGraphExec_t, GraphExecState> graph_execs{4};
  std::map<std::pair<int, const void*>, std::size_t> shared_limits;  ///< by device and kernel
  std::function<void(const RanWork&)> watcher;                       ///< of watch_work()
  std::string unusable;                        ///< why nothing works: what is wrong with the environment
  std::map<const void*, bool> freed_in_order;  ///< blocks of cudaMallocAsync; true once cudaFreeAsync was called

  void apply(const Settings& wanted);

  // Errors. A failure's words are kept beside its status.
  cudaError_t refuse(cudaError_t status, std::string text);
  void note_failure(cudaError_t status, std::string text);
  /// The failure of queued work that no call has answered yet; cleared by asking.
  cudaError_t take_failure();
  cudaError_t failure() const { return failure_; }
  const std::string& fault_text() const { return fault_text_; }
  bool work_runs() const { return work_runs_; }

  // Streams. stream_of(null) is the default stream of the current device; null if the handle is not known.
  std::shared_ptr<StreamState> stream_of(cudaStream_t handle);
  std::shared_ptr<StreamState> make_stream(int device, bool blocking, int priority);
  /// Lets go of a stream; what is queued in it still runs.
  void retire_stream(const std::shared_ptr<StreamState>& stream);
  /// Queues, or adds to the graph under capture, and lets the policy run what it likes.
  cudaError_t enqueue(StreamState& stream, Work work);
  cudaError_t enqueue_replay(const std::shared_ptr<StreamState>& stream, GraphExecState& exec);
  std::shared_ptr<Record> mark(const std::shared_ptr<StreamState>& stream);
  void wait_for(StreamState& stream, std::shared_ptr<Record> record);
  void finish(StreamState& stream);
  void finish(const Record& record);
  void finish_device(int device);
  void finish_all();
  /// Runs a little, as time passes for a host that polls.
  void nudge(StreamState& stream);
  /// Wakes who waits for work that other threads queue.
  void wake() { queued_.notify_all(); }

  // Capture.
  cudaError_t begin_capture(const std::shared_ptr<StreamState>& stream, cudaStreamCaptureMode mode);
  cudaError_t end_capture(StreamState& stream, std::shared_ptr<GraphState>& graph);
  /// Success, unless `call` is among those that a capture under way forbids to this thread; that breaks the capture.
  cudaError_t allow_unsafe(const char* call);
  /// The same for calls that wait for everything or use the default stream.
  cudaError_t allow_in_any_capture(const char* call, cudaError_t status);
  cudaError_t break_capture(Capture& capture, cudaError_t status, std::string text);
  /// cudaStreamWaitEvent where the stream or the event belongs to a capture.
  cudaError_t capture_wait(StreamState& stream, const EventState& event);

 private:
  DeviceSide();

  bool step(StreamState& stream);
  bool step_replay(StreamState& stream);
  bool run(Work& work);
  bool run_unwatched(Work& work);
  void drop_everything();
  void after_enqueue(StreamState& stream);
  bool try_to_advance(StreamState& stream);
  void advance_towards(StreamState& stream);
  bool step_any();
  void run_what_can();
  bool is_default(const StreamState& stream) const;
  std::shared_ptr<Record> push_mark(const std::shared_ptr<StreamState>& stream);
  void push_behind_blocking(StreamState& default_stream, Work work);
  std::uint64_t random();

  std::vector<std::shared_ptr<StreamState>> all_streams_;
  std::vector<std::shared_ptr<StreamState>> default_streams_;  ///< by device
  std::vector<std::shared_ptr<Capture>> captures_;
  unsigned long long next_capture_ = 1;
  std::uint64_t random_state_ = 0;
  std::condition_variable_any queued_;
  bool work_runs_ = false;
  cudaError_t failure_ = cudaSuccess;
  std::string fault_text_;
};

/// The calling thread's current device, and the error that cudaGetLastError() answers.
int& current_device();
cudaError_t& last_error();
cudaStreamCaptureMode& capture_mode();

enum class Reports { own_errors, earlier_failures_too };

/// Runs the body of a C function: under the lock, not inside queued work, its status remembered. No exception leaves.
template <class Body>
cudaError_t entry(Reports reports, Body&& body) {
  DeviceSide& side = DeviceSide::the();
  const std::lock_guard guard(side.lock);
  cudaError_t status = cudaSuccess;
  try {
    if (!side.unusable.empty())
      status = side.refuse(cudaErrorInitializationError, side.unusable);
    else if (side.work_runs())
      status = side.refuse(cudaErrorNotPermitted, "queued work called the CUDA runtime");
    else
      status = body(side);
  } catch (const std::bad_alloc&) {
    status = side.refuse(cudaErrorMemoryAllocation, "the host has no memory left");
  } catch (const std::exception& error) {
    status = side.refuse(cudaErrorMemoryAllocation, error.what());
  }
  if (status == cudaSuccess && reports == Reports::earlier_failures_too) status = side.take_failure();
  if (status != cudaSuccess) last_error() = status;
  return status;
}

}  // namespace hearth::cuda::emulate
