// SPDX-License-Identifier: Apache-2.0
// What waits on the emulated devices: streams as queues of closures, events as marks in them, graphs as closures with
// dependencies. Only the emulated runtime includes this.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/emulated_gpu/runtime.h"

namespace hearth::cuda::emulate {

enum class WorkKind {
  kernel,      ///< touches device memory
  copy,        ///< copies and fills; touches device memory
  host,        ///< a host function, which must not touch device memory nor call the runtime
  bookkeeping  ///< done even after a failure, when other work is dropped
};

struct Work {
  WorkKind kind = WorkKind::kernel;
  std::string name;
  std::function<void()> run;
  std::function<bool()> ready{};  ///< whether it can run now; empty: always. Asked only when it is next
};

struct StreamState;

/// The moment at which a stream passes an event's mark. Each recording has its own.
struct Record {
  std::weak_ptr<StreamState> stream;
  bool done = false;
  std::chrono::steady_clock::time_point when;
};

struct GraphNode {
  Work work;
  std::vector<std::size_t> after;  ///< nodes that must be done; all of smaller number
};

/// One replay of a graph under way.
struct Replay {
  std::shared_ptr<const std::vector<GraphNode>> nodes;
  std::vector<bool> done;
  std::size_t finished = 0;
};

/// One entry of a stream: exactly one of the four is set.
struct Item {
  Work work;
  std::shared_ptr<Record> mark;      ///< passing it makes it done
  std::shared_ptr<Record> wait_for;  ///< blocks until it is done
  std::unique_ptr<Replay> replay;
};

struct GraphState {
  std::vector<GraphNode> nodes;
};

struct Capture {
  unsigned long long id = 0;
  std::shared_ptr<GraphState> graph = std::make_shared<GraphState>();
  const StreamState* origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  bool invalidated = false;
  std::string why_broken;
};

struct StreamState {
  int device = 0;
  bool blocking = true;  ///< ordered with the default stream
  int priority = 0;
  bool retired = false;  ///< destroyed; forgotten once empty
  std::deque<Item> items;
  std::shared_ptr<Capture> capture;
  std::vector<std::size_t> tips;  ///< nodes that the next captured one comes after
};

struct EventState {
  int device = 0;
  bool timed = true;
  std::shared_ptr<Record> record;    ///< null until recorded
  std::shared_ptr<Capture> capture;  ///< set if last recorded in a capturing stream
  std::vector<std::size_t> tips;
};

struct GraphExecState {
  std::shared_ptr<const std::vector<GraphNode>> nodes;
  std::shared_ptr<Record> last_launch;  ///< launches of one instance do not overlap
};

}  // namespace hearth::cuda::emulate
