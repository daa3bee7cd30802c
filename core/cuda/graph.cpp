// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/graph.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <utility>

#include "core/cuda/counters.h"
#include "core/cuda/error.h"
#include "core/cuda/memory.h"
#include "core/cuda/runtime.h"
#include "core/cuda/staging.h"
#include "core/plan_error.h"

namespace hearth::cuda {
namespace {

thread_local const DeviceState* recording = nullptr;

std::atomic<std::int64_t> graphs_recorded{0};

/// Tells the listener, if there is one, of a recording; unless it succeeds, that it has failed.
class ToldRecording {
 public:
  ToldRecording() {
    if (listener_ != nullptr) listener_->begin_recording();
  }
  ~ToldRecording() {
    if (listener_ != nullptr) listener_->end_recording(graph_);
  }
  ToldRecording(const ToldRecording&) = delete;
  ToldRecording& operator=(const ToldRecording&) = delete;
  void succeed(std::int64_t graph) { graph_ = graph; }

 private:
  WorkListener* const listener_ = work_listener();
  std::int64_t graph_ = 0;
};

// The scope of a recording; an exception in between throws the unfinished recording away.
class RecordingScope {
 public:
  explicit RecordingScope(Stream& stream) : stream_(stream), previous_(recording) {
    HEARTH_TRY(cudaStreamBeginCapture(stream.raw(), cudaStreamCaptureModeThreadLocal));
    recording = &state_of(stream.device());
  }
  cudaGraph_t finish() {
    recording = previous_;
    finished_ = true;
    cudaGraph_t graph = nullptr;
    HEARTH_TRY(cudaStreamEndCapture(stream_.raw(), &graph));
    return graph;
  }
  ~RecordingScope() {
    if (finished_) return;
    recording = previous_;
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(stream_.raw(), &graph) == cudaSuccess && graph != nullptr) cudaGraphDestroy(graph);
    (void)cudaGetLastError();
  }
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

 private:
  Stream& stream_;
  const DeviceState* previous_;
  bool finished_ = false;
};

}  // namespace

Arena::Arena(Device device) : device_(device), memory_(make_pool_memory(memory_of(device), min_cuda_region)) {}
Arena::~Arena() = default;

void Arena::run(const std::function<void()>& f) {
  const DeviceMemoryScope scope(device_, *memory_);
  f();
}

Graph Graph::record(Stream& stream, Arena& arena, const std::function<void()>& work) {
  const std::int64_t grown = arena.statistics().system_calls;
  ToldRecording told;
  RecordingScope scope(stream);
  arena.run(work);
  HEARTH_CHECK(DeviceError, arena.statistics().system_calls == grown,
               "recording: the work allocated more than when it ran before; its shapes are not fixed");
  const cudaGraph_t graph = scope.finish();
  Graph result;
  std::size_t nodes = 0;
  const cudaError_t counted = cudaGraphGetNodes(graph, nullptr, &nodes);
  const cudaError_t made = cudaGraphInstantiate(&result.executable_, graph, 0);
  cudaGraphDestroy(graph);
  HEARTH_TRY(counted);
  HEARTH_TRY(made);
  result.nodes_ = static_cast<std::int64_t>(nodes);
  result.number_ = ++graphs_recorded;
  told.succeed(result.number_);
  return result;
}

Graph::~Graph() {
  if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
}
Graph::Graph(Graph&& other) noexcept
    : executable_(std::exchange(other.executable_, nullptr)),
      nodes_(std::exchange(other.nodes_, 0)),
      number_(std::exchange(other.number_, 0)) {}
Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(executable_, other.executable_);
  std::swap(nodes_, other.nodes_);
  std::swap(number_, other.number_);
  return *this;
}

void Graph::launch(Stream& stream) const {
  ++live_counters().graph_launches;
  if (WorkListener* const listener = work_listener()) listener->replayed(number_);
  HEARTH_TRY(cudaGraphLaunch(executable_, stream.raw()));
}

bool is_recording(Device device) { return recording != nullptr && recording->device == device; }

void refuse_while_recording(Device device, const char* what) {
  HEARTH_CHECK(DeviceError, !is_recording(device), what,
               " cannot be part of a recorded step (\"train\": {\"graph\": true}); it needs the host");
}

void throw_not_run(Device device, const char* call, const char* reason) {
  // Else the next launch would report it.
  (void)cudaGetLastError();
  const std::string text = join_text(call, ": ", reason);
  if (is_recording(device)) throw DeviceError(text);
  throw PlanError(text);
}

const std::uint64_t* recorded_random_step(Stream& stream) {
  return is_recording(stream.device()) ? state_of(stream.device()).random_step : nullptr;
}

void set_random_step(Stream& stream, std::uint64_t step) {
  stage(stream, state_of(stream.device()).random_step, &step, sizeof(step));
}

}  // namespace hearth::cuda
