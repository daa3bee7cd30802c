// SPDX-License-Identifier: Apache-2.0
// The C functions for streams, events, captures and graphs.
#include <algorithm>

#include "core/error.h"
#include "tests/emulated_gpu/device_state.h"

using namespace hearth::cuda::emulate;
using hearth::join_text;

namespace {

cudaError_t no_stream(DeviceSide& side, const char* call) {
  return side.refuse(cudaErrorInvalidResourceHandle, join_text(call, ": there is no such stream"));
}
cudaError_t no_event(DeviceSide& side, const char* call) {
  return side.refuse(cudaErrorInvalidResourceHandle, join_text(call, ": there is no such event"));
}

/// f(side, stream) for a stream that exists.
template <class F>
cudaError_t with_stream(Reports reports, cudaStream_t handle, const char* call, F&& f) {
  return entry(reports, [&](DeviceSide& side) {
    const auto stream = side.stream_of(handle);
    return stream == nullptr ? no_stream(side, call) : f(side, stream);
  });
}

/// The same for a call that asks about the stream's progress, which a captured stream has not.
template <class F>
cudaError_t with_running_stream(cudaStream_t handle, const char* call, F&& f) {
  return with_stream(Reports::earlier_failures_too, handle, call, [&](DeviceSide& side, const auto& stream) {
    if (stream->capture != nullptr)
      return side.break_capture(*stream->capture, cudaErrorStreamCaptureUnsupported,
                                join_text(call, ": the stream is being captured"));
    if (handle == nullptr || handle == cudaStreamLegacy)
      if (const cudaError_t status = side.allow_in_any_capture(call, cudaErrorStreamCaptureImplicit);
          status != cudaSuccess)
        return status;
    return f(side, stream);
  });
}

template <class F>
cudaError_t with_running_event(cudaEvent_t handle, const char* call, F&& f) {
  return entry(Reports::earlier_failures_too, [&](DeviceSide& side) {
    const auto event = side.events.find(handle);
    if (event == nullptr) return no_event(side, call);
    if (event->capture != nullptr)
      return side.refuse(cudaErrorCapturedEvent, join_text(call, ": the event was last recorded in a capture"));
    if (const cudaError_t status = side.allow_unsafe(call); status != cudaSuccess) return status;
    return f(side, *event);
  });
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  return entry(Reports::own_errors, [&](DeviceSide& side) {
    if (stream == nullptr || (flags != cudaStreamDefault && flags != cudaStreamNonBlocking))
      return side.refuse(cudaErrorInvalidValue, "cudaStreamCreate: unknown flags or no place for the stream");
    *stream = side.streams.add(side.make_stream(current_device(), flags == cudaStreamDefault, priority));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return entry(Reports::own_errors, [&](DeviceSide& side) {
    const auto stream = side.streams.find(handle);
    if (stream == nullptr) return no_stream(side, "cudaStreamDestroy");
    if (stream->capture != nullptr)
      return side.break_capture(*stream->capture, cudaErrorStreamCaptureUnsupported,
                                "cudaStreamDestroy: the stream is being captured");
    side.retire_stream(stream);
    side.streams.remove(handle);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  return with_stream(Reports::own_errors, handle, "cudaStreamGetDevice", [&](DeviceSide&, const auto& stream) {
    *device = stream->device;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return with_running_stream(handle, "cudaStreamSynchronize", [&](DeviceSide& side, const auto& stream) {
    side.finish(*stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return with_running_stream(handle, "cudaStreamQuery", [&](DeviceSide& side, const auto& stream) {
    if (stream->items.empty()) return cudaSuccess;
    side.nudge(*stream);
    return cudaErrorNotReady;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned int flags) {
  return with_stream(Reports::earlier_failures_too, handle, "cudaStreamWaitEvent",
                     [&](DeviceSide& side, const auto& stream) {
                       const auto event = side.events.find(event_handle);
                       if (event == nullptr) return no_event(side, "cudaStreamWaitEvent");
                       if (flags != cudaEventWaitDefault)
                         return side.refuse(cudaErrorNotSupported, "cudaStreamWaitEvent: flags are not emulated");
                       if (stream->capture != nullptr || event->capture != nullptr)
                         return side.capture_wait(*stream, *event);
                       if (event->record != nullptr) side.wait_for(*stream, event->record);
                       return cudaSuccess;
                     });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return entry(Reports::own_errors, [&](DeviceSide& side) {
    if (event == nullptr || (flags & ~(cudaEventBlockingSync | cudaEventDisableTiming)) != 0)
      return side.refuse(cudaErrorInvalidValue, "cudaEventCreate: unknown flags or no place for the event");
    auto state = std::make_shared<EventState>();
    state->device = current_device();
    state->timed = (flags & cudaEventDisableTiming) == 0;
    *event = side.events.add(std::move(state));
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return entry(Reports::own_errors, [&](DeviceSide& side) {
    return side.events.remove(handle) ? cudaSuccess : no_event(side, "cudaEventDestroy");
  });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream_handle, unsigned int flags) {
  return with_stream(
      Reports::earlier_failures_too, stream_handle, "cudaEventRecord", [&](DeviceSide& side, const auto& stream) {
        const auto event = side.events.find(handle);
        if (event == nullptr) return no_event(side, "cudaEventRecord");
        if (flags != cudaEventRecordDefault)
          return side.refuse(cudaErrorNotSupported, "cudaEventRecord: flags are not emulated");
        if (event->device != stream->device)
          return side.refuse(cudaErrorInvalidResourceHandle,
                             "cudaEventRecord: the event and the stream are of different devices");
        if (stream->capture != nullptr) {
          if (stream->capture->invalidated)
            return side.refuse(cudaErrorStreamCaptureInvalidated, "cudaEventRecord: the capture was broken before");
          event->record = nullptr;
          event->capture = stream->capture;
          event->tips = stream->tips;
          return cudaSuccess;
        }
        event->capture = nullptr;
        event->record = side.mark(stream);
        return cudaSuccess;
      });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return with_running_event(handle, "cudaEventSynchronize", [&](DeviceSide& side, const EventState& event) {
    if (event.record != nullptr) side.finish(*event.record);
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return with_running_event(handle, "cudaEventQuery", [&](DeviceSide& side, const EventState& event) {
    if (event.record == nullptr || event.record->done) return cudaSuccess;
    if (const auto stream = event.record->stream.lock()) side.nudge(*stream);
    return cudaErrorNotReady;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start_handle, cudaEvent_t end_handle) {
  return entry(Reports::earlier_failures_too, [&](DeviceSide& side) {
    const auto start = side.events.find(start_handle), end = side.events.find(end_handle);
    if (start == nullptr || end == nullptr) return no_event(side, "cudaEventElapsedTime");
    if (!start->timed || !end->timed || start->record == nullptr || end->record == nullptr)
      return side.refuse(cudaErrorInvalidResourceHandle,
                         "cudaEventElapsedTime: an event without timing, or not recorded");
    if (!start->record->done || !end->record->done) return cudaErrorNotReady;
    *milliseconds = std::chrono::duration<float, std::milli>(end->record->when - start->record->when).count();
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return with_stream(Reports::earlier_failures_too, handle, "cudaLaunchHostFunc",
                     [&](DeviceSide& side, const auto& stream) {
                       if (function == nullptr)
                         return side.refuse(cudaErrorInvalidValue, "cudaLaunchHostFunc: no function");
                       return side.enqueue(*stream, {WorkKind::host, "host function", [=] { function(data); }});
                     });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return with_stream(Reports::earlier_failures_too, handle, "cudaStreamBeginCapture",
                     [&](DeviceSide& side, const auto& stream) { return side.begin_capture(stream, mode); });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return with_stream(Reports::earlier_failures_too, handle, "cudaStreamEndCapture",
                     [&](DeviceSide& side, const auto& stream) {
                       std::shared_ptr<GraphState> captured;
                       const cudaError_t status = side.end_capture(*stream, captured);
                       *graph = status == cudaSuccess ? side.graphs.add(std::move(captured)) : nullptr;
                       return status;
                     });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                     size_t* count) {
  return with_stream(
      Reports::own_errors, handle, "cudaStreamGetCaptureInfo", [&](DeviceSide& side, const auto& stream) {
        if (graph != nullptr || nodes != nullptr || edges != nullptr || count != nullptr)
          return side.refuse(cudaErrorNotSupported, "cudaStreamGetCaptureInfo: the graph under capture is not shown");
        const Capture* capture = stream->capture.get();
        *status = capture == nullptr     ? cudaStreamCaptureStatusNone
                  : capture->invalidated ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
        if (id != nullptr && capture != nullptr) *id = capture->id;
        return cudaSuccess;
      });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return cudaStreamGetCaptureInfo(handle, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return entry(Reports::own_errors, [&](DeviceSide&) {
    std::swap(*mode, capture_mode());
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t handle, unsigned long long flags) {
  return entry(Reports::earlier_failures_too, [&](DeviceSide& side) {
    const auto graph = side.graphs.find(handle);
    if (graph == nullptr) return side.refuse(cudaErrorInvalidValue, "cudaGraphInstantiate: there is no such graph");
    if (flags != 0) return side.refuse(cudaErrorNotSupported, "cudaGraphInstantiate: flags are not emulated");
    auto state = std::make_shared<GraphExecState>();
    state->nodes = std::make_shared<const std::vector<GraphNode>>(graph->nodes);
    *exec = side.graph_execs.add(std::move(state));
    return cudaSuccess;
  });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t handle) {
  return with_stream(Reports::earlier_failures_too, handle, "cudaGraphUpload", [&](DeviceSide& side, const auto&) {
    return side.graph_execs.find(exec) != nullptr
               ? cudaSuccess
               : side.refuse(cudaErrorInvalidValue, "cudaGraphUpload: there is no such graph");
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream_handle) {
  return with_stream(Reports::earlier_failures_too, stream_handle, "cudaGraphLaunch",
                     [&](DeviceSide& side, const auto& stream) {
                       const auto exec = side.graph_execs.find(handle);
                       if (exec == nullptr)
                         return side.refuse(cudaErrorInvalidValue, "cudaGraphLaunch: there is no such graph");
                       if (stream->capture != nullptr)
                         return side.break_capture(*stream->capture, cudaErrorNotSupported,
                                                   "cudaGraphLaunch: graphs within graphs are not emulated");
                       return side.enqueue_replay(stream, *exec);
                     });
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
  return entry(Reports::own_errors, [&](DeviceSide& side) {
    return side.graphs.remove(handle) ? cudaSuccess
                                      : side.refuse(cudaErrorInvalidValue, "cudaGraphDestroy: there is no such graph");
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
  return entry(Reports::own_errors, [&](DeviceSide& side) {
    return side.graph_execs.remove(handle)
               ? cudaSuccess
               : side.refuse(cudaErrorInvalidValue, "cudaGraphExecDestroy: there is no such graph");
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t* nodes, size_t* count) {
  return entry(Reports::own_errors, [&](DeviceSide& side) {
    const auto graph = side.graphs.find(handle);
    if (graph == nullptr || count == nullptr)
      return side.refuse(cudaErrorInvalidValue, "cudaGraphGetNodes: there is no such graph, or no place for the count");
    const size_t room = *count;
    *count = graph->nodes.size();
    if (nodes == nullptr) return cudaSuccess;
    *count = std::min(room, graph->nodes.size());
    for (size_t i = 0; i < *count; ++i) nodes[i] = reinterpret_cast<cudaGraphNode_t>(&graph->nodes[i]);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  return entry(Reports::own_errors, [&](DeviceSide& side) {
    cudaError_t status = side.refuse(cudaErrorInvalidValue, "cudaGraphNodeGetType: there is no such node");
    side.graphs.each([&](const GraphState& graph) {
      for (const GraphNode& candidate : graph.nodes) {
        if (reinterpret_cast<cudaGraphNode_t>(const_cast<GraphNode*>(&candidate)) != node) continue;
        const WorkKind kind = candidate.work.kind;
        *type = kind == WorkKind::kernel ? cudaGraphNodeTypeKernel
                : kind == WorkKind::copy
                    ? (candidate.work.name == "fill" ? cudaGraphNodeTypeMemset : cudaGraphNodeTypeMemcpy)
                    : cudaGraphNodeTypeHost;
        status = cudaSuccess;
      }
    });
    return status;
  });
}

}  // extern "C"
