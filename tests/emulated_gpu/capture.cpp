// SPDX-License-Identifier: Apache-2.0
// Streams under capture: what becomes a node of a graph, and what breaks a capture.
#include <algorithm>

#include "core/error.h"
#include "tests/emulated_gpu/device_state.h"

namespace hearth::cuda::emulate {
namespace {

/// Whether every node comes before one of the tips, so that a stream which waits for these waits for all.
bool all_joined(const std::vector<GraphNode>& nodes, const std::vector<std::size_t>& tips) {
  std::vector<bool> reached(nodes.size());
  for (const std::size_t tip : tips) reached[tip] = true;
  for (std::size_t i = nodes.size(); i-- > 0;)
    if (reached[i])
      for (const std::size_t before : nodes[i].after) reached[before] = true;
  return std::all_of(reached.begin(), reached.end(), [](bool r) { return r; });
}

}  // namespace

cudaError_t DeviceSide::begin_capture(const std::shared_ptr<StreamState>& stream, cudaStreamCaptureMode mode) {
  if (is_default(*stream))
    return refuse(cudaErrorStreamCaptureUnsupported, "cudaStreamBeginCapture: the default stream cannot be captured");
  if (stream->capture != nullptr)
    return refuse(cudaErrorIllegalState, "cudaStreamBeginCapture: the stream is being captured already");
  auto capture = std::make_shared<Capture>();
  capture->id = next_capture_++;
  capture->origin = stream.get();
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  stream->capture = capture;
  stream->tips.clear();
  captures_.push_back(std::move(capture));
  return cudaSuccess;
}

cudaError_t DeviceSide::end_capture(StreamState& stream, std::shared_ptr<GraphState>& graph) {
  const auto capture = stream.capture;
  if (capture == nullptr)
    return refuse(cudaErrorIllegalState, "cudaStreamEndCapture: the stream is not being captured");
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
    return break_capture(*capture, cudaErrorStreamCaptureWrongThread,
                         "cudaStreamEndCapture: another thread began this capture");
  if (capture->origin != &stream)
    return break_capture(*capture, cudaErrorStreamCaptureUnmatched,
                         "cudaStreamEndCapture: the capture began on another stream");
  const std::vector<std::size_t> tips = stream.tips;
  for (const auto& member : all_streams_)
    if (member->capture == capture) {
      member->capture = nullptr;
      member->tips.clear();
    }
  std::erase(captures_, capture);
  if (capture->invalidated)
    return refuse(cudaErrorStreamCaptureInvalidated,
                  "cudaStreamEndCapture: the capture was broken: " + capture->why_broken);
  if (!all_joined(capture->graph->nodes, tips))
    return refuse(cudaErrorStreamCaptureUnjoined,
                  "cudaStreamEndCapture: the first stream of the capture does not wait for all others");
  graph = capture->graph;
  return cudaSuccess;
}

cudaError_t DeviceSide::break_capture(Capture& capture, cudaError_t status, std::string text) {
  if (!capture.invalidated) capture.why_broken = text;
  capture.invalidated = true;
  return refuse(status, std::move(text));
}

// The rules of cudaThreadExchangeStreamCaptureMode.
cudaError_t DeviceSide::allow_unsafe(const char* call) {
  const cudaStreamCaptureMode mine = capture_mode();
  if (mine == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  for (const auto& capture : captures_) {
    const bool own = capture->thread == std::this_thread::get_id() && capture->mode != cudaStreamCaptureModeRelaxed;
    const bool anybodys = capture->mode == cudaStreamCaptureModeGlobal && mine == cudaStreamCaptureModeGlobal;
    if (own || anybodys)
      return break_capture(*capture, cudaErrorStreamCaptureUnsupported,
                           join_text(call, " is not allowed while a stream is being captured"));
  }
  return cudaSuccess;
}

cudaError_t DeviceSide::allow_in_any_capture(const char* call, cudaError_t status) {
  if (captures_.empty()) return cudaSuccess;
  return break_capture(*captures_.front(), status, join_text(call, " is not allowed while a stream is being captured"));
}

cudaError_t DeviceSide::capture_wait(StreamState& stream, const EventState& event) {
  if (event.capture == nullptr || std::find(captures_.begin(), captures_.end(), event.capture) == captures_.end()) {
    if (stream.capture == nullptr)
      return refuse(cudaErrorCapturedEvent, "cudaStreamWaitEvent: the event was last recorded in a capture, now ended");
    return break_capture(*stream.capture, cudaErrorStreamCaptureIsolation,
                         "cudaStreamWaitEvent: a stream under capture waits for an event recorded outside the capture");
  }
  if (stream.capture != nullptr && stream.capture != event.capture)
    return break_capture(*stream.capture, cudaErrorStreamCaptureMerge,
                         "cudaStreamWaitEvent: the event belongs to another capture");
  if (is_default(stream))
    return break_capture(*event.capture, cudaErrorStreamCaptureImplicit,
                         "cudaStreamWaitEvent: the default stream cannot join a capture");
  if (event.capture->invalidated)
    return refuse(cudaErrorStreamCaptureInvalidated, "cudaStreamWaitEvent: the capture was broken before");
  if (stream.capture == nullptr) {
    stream.capture = event.capture;
    stream.tips.clear();
  }
  for (const std::size_t tip : event.tips)
    if (std::find(stream.tips.begin(), stream.tips.end(), tip) == stream.tips.end()) stream.tips.push_back(tip);
  return cudaSuccess;
}

}  // namespace hearth::cuda::emulate
