// SPDX-License-Identifier: Apache-2.0
// Captures and graphs of the emulated runtime: what is recorded, what breaks a capture, how replays are ordered.
#include <thread>

#include "tests/core/cuda/emulated_gpu/runtime_fixture.h"
#include "tests/support/error_message.h"

namespace hearth::cuda::emulate::test::runtime_capture_test {
namespace {

using hearth::test::contains;

constexpr std::size_t n = 16;

class RuntimeCapture : public RuntimeTest {
 protected:
  /// Ends a capture that must be broken, and sees that the stream works again.
  static void expect_broken(const Queue& queue) {
    cudaGraph_t graph = nullptr;
    EXPECT_STATUS(cudaStreamEndCapture(queue.raw, &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph, nullptr);
    cudaGetLastError();
    EXPECT_OK(cudaStreamSynchronize(queue.raw));
  }
};

/// A capture that is begun here and ended into an executable graph by end().
struct Recording {
  explicit Recording(const Queue& queue) : stream(queue.raw) {
    EXPECT_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  }
  void end() {
    EXPECT_OK(cudaStreamEndCapture(stream, &graph));
    EXPECT_OK(cudaGraphInstantiate(&exec, graph, 0));
  }
  ~Recording() {
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaGetLastError();
  }
  cudaStream_t stream;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
};

TEST_F(RuntimeCapture, RecordsAndReplays) {
  for (const StreamPolicy& policy : all_policies()) {
    use_streams(policy);
    const Queue queue;
    const Floats x(n), y(n);
    const PinnedFloats host(n);
    for (std::size_t i = 0; i < n; ++i) host.at[i] = 1;
    int called = 0;
    Recording step(queue);
    EXPECT_OK(cudaMemcpyAsync(x.at, host.at, x.bytes(), cudaMemcpyHostToDevice, queue.raw));
    EXPECT_OK(cudaMemsetAsync(y.at, 0, y.bytes(), queue.raw));
    affine(queue, y, 3, x, 1);
    EXPECT_OK(cudaLaunchHostFunc(
        queue.raw, [](void* p) { ++*static_cast<int*>(p); }, &called));
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    EXPECT_OK(cudaStreamIsCapturing(queue.raw, &status));
    EXPECT_EQ(status, cudaStreamCaptureStatusActive);
    step.end();
    EXPECT_OK(cudaStreamIsCapturing(queue.raw, &status));
    EXPECT_EQ(status, cudaStreamCaptureStatusNone);
    EXPECT_EQ(called, 0) << "a captured call ran";
    for (int replay = 0; replay < 3; ++replay) {
      for (std::size_t i = 0; i < n; ++i) host.at[i] = static_cast<float>(replay);
      EXPECT_OK(cudaGraphLaunch(step.exec, queue.raw));
      EXPECT_OK(cudaStreamSynchronize(queue.raw));
      EXPECT_EQ(fetch(y), std::vector<float>(n, 3.0F * static_cast<float>(replay) + 1));
    }
    EXPECT_EQ(called, 3) << name_of(policy);
  }
}

TEST_F(RuntimeCapture, NodesAreCountedAndTyped) {
  const Queue queue;
  const Floats x(n), y(n);
  Recording step(queue);
  EXPECT_OK(cudaMemcpyAsync(x.at, y.at, x.bytes(), cudaMemcpyDeviceToDevice, queue.raw));
  EXPECT_OK(cudaMemsetAsync(y.at, 0, y.bytes(), queue.raw));
  set(queue, y, 1);
  step.end();
  std::size_t count = 0;
  EXPECT_OK(cudaGraphGetNodes(step.graph, nullptr, &count));
  ASSERT_EQ(count, 3u);
  cudaGraphNode_t nodes[3];
  EXPECT_OK(cudaGraphGetNodes(step.graph, nodes, &count));
  const cudaGraphNodeType expected[] = {cudaGraphNodeTypeMemcpy, cudaGraphNodeTypeMemset, cudaGraphNodeTypeKernel};
  for (int i = 0; i < 3; ++i) {
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    EXPECT_OK(cudaGraphNodeGetType(nodes[i], &type));
    EXPECT_EQ(type, expected[i]);
  }
}

TEST_F(RuntimeCapture, ReplaysOfOneGraphDoNotOverlap) {
  for (const StreamPolicy& policy : all_policies()) {
    use_streams(policy);
    const Queue a, b;
    std::string seen;
    Recording step(a);
    enqueue_work(a.raw, "open", [&] { seen += '('; });
    enqueue_work(a.raw, "close", [&] { seen += ')'; });
    step.end();
    for (int i = 0; i < 3; ++i) {
      EXPECT_OK(cudaGraphLaunch(step.exec, a.raw));
      EXPECT_OK(cudaGraphLaunch(step.exec, b.raw));
    }
    EXPECT_OK(cudaDeviceSynchronize());
    EXPECT_EQ(seen, "()()()()()()") << name_of(policy);
  }
}

TEST_F(RuntimeCapture, AGraphOutlivesItsHandles) {
  use_streams(stream_policy_named("lazy"));
  const Queue queue;
  int ran = 0;
  {
    Recording step(queue);
    enqueue_work(queue.raw, "count", [&] { ++ran; });
    step.end();
    EXPECT_OK(cudaGraphLaunch(step.exec, queue.raw));
  }
  EXPECT_OK(cudaStreamSynchronize(queue.raw));
  EXPECT_EQ(ran, 1);
}

TEST_F(RuntimeCapture, CallsThatAllocateOrWaitBreakIt) {
  const Floats x(n);
  const PinnedFloats pinned(n);
  std::vector<float> host(n);
  const Queue queue, other;
  const Event event;
  EXPECT_OK(cudaEventRecord(event.raw, other.raw));
  void* block = nullptr;
  const auto breaks = [&](const char* what, cudaError_t status, auto call) {
    SCOPED_TRACE(what);
    EXPECT_OK(cudaStreamBeginCapture(queue.raw, cudaStreamCaptureModeGlobal));
    set(queue, x, 1);
    EXPECT_STREQ(cudaGetErrorName(call()), cudaGetErrorName(status));
    cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
    EXPECT_OK(cudaStreamIsCapturing(queue.raw, &state));
    EXPECT_EQ(state, cudaStreamCaptureStatusInvalidated);
    EXPECT_STATUS(cudaMemsetAsync(x.at, 0, 4, queue.raw), cudaErrorStreamCaptureInvalidated);
    expect_broken(queue);
  };
  breaks("malloc", cudaErrorStreamCaptureUnsupported, [&] { return cudaMalloc(&block, 8); });
  breaks("free", cudaErrorStreamCaptureUnsupported, [&] { return cudaFree(x.at); });
  breaks("host alloc", cudaErrorStreamCaptureUnsupported, [&] { return cudaHostAlloc(&block, 8, 0); });
  breaks("host free", cudaErrorStreamCaptureUnsupported, [&] { return cudaFreeHost(pinned.at); });
  breaks("malloc async", cudaErrorNotSupported, [&] { return cudaMallocAsync(&block, 8, queue.raw); });
  breaks("stream wait", cudaErrorStreamCaptureUnsupported, [&] { return cudaStreamSynchronize(queue.raw); });
  breaks("stream query", cudaErrorStreamCaptureUnsupported, [&] { return cudaStreamQuery(queue.raw); });
  breaks("device wait", cudaErrorStreamCaptureUnsupported, [&] { return cudaDeviceSynchronize(); });
  breaks("event wait", cudaErrorStreamCaptureUnsupported, [&] { return cudaEventSynchronize(event.raw); });
  breaks("event query", cudaErrorStreamCaptureUnsupported, [&] { return cudaEventQuery(event.raw); });
  breaks("copy and wait", cudaErrorStreamCaptureImplicit,
         [&] { return cudaMemcpy(x.at, host.data(), 8, cudaMemcpyHostToDevice); });
  breaks("pageable copy", cudaErrorStreamCaptureUnsupported,
         [&] { return cudaMemcpyAsync(x.at, host.data(), 8, cudaMemcpyHostToDevice, queue.raw); });
  breaks("event of before", cudaErrorStreamCaptureIsolation,
         [&] { return cudaStreamWaitEvent(queue.raw, event.raw, 0); });
  breaks("destroy", cudaErrorStreamCaptureUnsupported, [&] { return cudaStreamDestroy(queue.raw); });
  EXPECT_TRUE(contains(last_fault(), "cudaStreamDestroy")) << last_fault();
}

TEST_F(RuntimeCapture, OtherStreamsGoOn) {
  const Queue queue, other;
  const Floats x(n);
  Recording step(queue);
  set(other, x, 5);
  EXPECT_OK(cudaStreamSynchronize(other.raw));
  set(queue, x, 6);
  step.end();
  EXPECT_EQ(fetch(x)[0], 5);
}

TEST_F(RuntimeCapture, RelaxedThreadsMayAllocate) {
  const Queue queue;
  EXPECT_OK(cudaStreamBeginCapture(queue.raw, cudaStreamCaptureModeThreadLocal));
  std::thread([] {
    void* block = nullptr;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
    EXPECT_OK(cudaThreadExchangeStreamCaptureMode(&mode));
    EXPECT_OK(cudaMalloc(&block, 8));
    EXPECT_OK(cudaFree(block));
  }).join();
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  EXPECT_OK(cudaThreadExchangeStreamCaptureMode(&mode));
  void* block = nullptr;
  EXPECT_OK(cudaMalloc(&block, 8));
  EXPECT_OK(cudaFree(block));
  EXPECT_OK(cudaThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, cudaStreamCaptureModeRelaxed);
  EXPECT_STATUS(cudaMalloc(&block, 8), cudaErrorStreamCaptureUnsupported);
  expect_broken(queue);
}

TEST_F(RuntimeCapture, ForkedStreamsMustBeJoined) {
  const Queue main, side;
  const Floats x(n);
  EXPECT_OK(cudaStreamBeginCapture(main.raw, cudaStreamCaptureModeGlobal));
  set(main, x, 1);
  order(main, side);
  affine(side, x, 2, x, 0);
  cudaGraph_t graph = nullptr;
  EXPECT_STATUS(cudaStreamEndCapture(main.raw, &graph), cudaErrorStreamCaptureUnjoined);
  cudaGetLastError();
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  EXPECT_OK(cudaStreamIsCapturing(side.raw, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
}

TEST_F(RuntimeCapture, EventsOfACaptureStayInIt) {
  const Queue a, b;
  const Event event;
  EXPECT_OK(cudaStreamBeginCapture(a.raw, cudaStreamCaptureModeRelaxed));
  EXPECT_OK(cudaEventRecord(event.raw, a.raw));
  EXPECT_STATUS(cudaEventQuery(event.raw), cudaErrorCapturedEvent);
  EXPECT_STATUS(cudaEventSynchronize(event.raw), cudaErrorCapturedEvent);
  EXPECT_OK(cudaStreamBeginCapture(b.raw, cudaStreamCaptureModeRelaxed));
  EXPECT_STATUS(cudaStreamWaitEvent(b.raw, event.raw, 0), cudaErrorStreamCaptureMerge);
  expect_broken(b);
  cudaGraph_t graph = nullptr;
  EXPECT_OK(cudaStreamEndCapture(a.raw, &graph));
  EXPECT_OK(cudaGraphDestroy(graph));
  EXPECT_STATUS(cudaStreamWaitEvent(b.raw, event.raw, 0), cudaErrorCapturedEvent);
  EXPECT_OK(cudaEventRecord(event.raw, b.raw));
  EXPECT_OK(cudaEventSynchronize(event.raw));
  cudaGetLastError();
}

TEST_F(RuntimeCapture, BeginsAndEndsMatch) {
  const Queue a, b;
  cudaGraph_t graph = nullptr;
  EXPECT_STATUS(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal), cudaErrorStreamCaptureUnsupported);
  EXPECT_STATUS(cudaStreamEndCapture(a.raw, &graph), cudaErrorIllegalState);
  EXPECT_OK(cudaStreamBeginCapture(a.raw, cudaStreamCaptureModeGlobal));
  EXPECT_STATUS(cudaStreamBeginCapture(a.raw, cudaStreamCaptureModeGlobal), cudaErrorIllegalState);
  std::thread([&] { EXPECT_STATUS(cudaStreamEndCapture(a.raw, &graph), cudaErrorStreamCaptureWrongThread); }).join();
  expect_broken(a);
  EXPECT_OK(cudaStreamBeginCapture(a.raw, cudaStreamCaptureModeGlobal));
  order(a, b);
  EXPECT_STATUS(cudaStreamEndCapture(b.raw, &graph), cudaErrorStreamCaptureUnmatched);
  expect_broken(a);
}

TEST_F(RuntimeCapture, TheDefaultStreamMayNotBeDrawnIn) {
  const Queue blocking(cudaStreamDefault);
  EXPECT_OK(cudaStreamBeginCapture(blocking.raw, cudaStreamCaptureModeGlobal));
  enqueue_work(nullptr, "default", [] { FAIL(); });
  EXPECT_STATUS(cudaGetLastError(), cudaErrorStreamCaptureImplicit);
  expect_broken(blocking);
}

TEST_F(RuntimeCapture, AReplayThatUsesFreedMemoryFails) {
  for (const StreamPolicy& policy : all_policies()) {
    use_streams(policy);
    const Queue queue;
    const Floats y(n);
    void* block = nullptr;
    EXPECT_OK(cudaMalloc(&block, y.bytes()));
    Recording step(queue);
    EXPECT_OK(cudaMemcpyAsync(y.at, block, y.bytes(), cudaMemcpyDeviceToDevice, queue.raw));
    step.end();
    EXPECT_OK(cudaFree(block));
    EXPECT_EQ(cudaGraphLaunch(step.exec, queue.raw) == cudaSuccess ? cudaStreamSynchronize(queue.raw)
                                                                   : cudaErrorLaunchFailure,
              cudaErrorLaunchFailure);
    EXPECT_TRUE(contains(last_fault(), "byte 0 of a freed device block of 64 bytes")) << last_fault();
    cudaGetLastError();
  }
}

}  // namespace
}  // namespace hearth::cuda::emulate::test::runtime_capture_test
