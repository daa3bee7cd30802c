// SPDX-License-Identifier: Apache-2.0
// When queued work runs. Work is run by whichever thread calls, one piece at a time, so a failure repeats.
#include "tests/emulated_gpu/device_state.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "core/error.h"
#include "tests/emulated_gpu/crash_report.h"
#include "tests/emulated_gpu/engine.h"

namespace hearth::cuda::emulate {
namespace {

// A real device also makes the host wait when very much is queued. Here later than there, so that this does not stand
// in for a wait that the host should have made.
constexpr std::size_t max_items = 8192;

std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise, std::uint64_t least,
                                      std::uint64_t most) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  const std::string_view digits(text);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  HEARTH_CHECK(ConfigError,
               error == std::errc{} && end == digits.data() + digits.size() && value >= least && value <= most, name,
               "=", text, ": a number from ", least, " to ", most, " is needed");
  return value;
}

}  // namespace

StreamPolicy stream_policy_named(std::string_view name) {
  if (name == "eager") return {StreamPolicy::Kind::eager, 0};
  if (name == "lazy") return {StreamPolicy::Kind::lazy, 0};
  StreamPolicy policy{StreamPolicy::Kind::seeded, 0};
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), policy.seed);
  HEARTH_CHECK(ConfigError, !name.empty() && error == std::errc{} && end == name.data() + name.size(),
               "HEARTH_EMULATE_STREAMS=", name, ": use eager, lazy or a number (a seed)");
  return policy;
}

Settings settings_from_environment() {
  Settings result;
  result.devices = static_cast<int>(number_from_environment("HEARTH_EMULATE_DEVICES", Settings{}.devices, 1, 16));
  result.memory_bytes =
      number_from_environment("HEARTH_EMULATE_MEMORY_MB", result.memory_bytes >> 20, 1, std::uint64_t{1} << 24) << 20;
  if (const char* streams = std::getenv("HEARTH_EMULATE_STREAMS"); streams != nullptr && *streams != '\0')
    result.streams = stream_policy_named(streams);
  if (number_from_environment("HEARTH_EMULATE_PROTECT", 0, 0, 1) == 1) result.host_access = HostAccess::faults;
  result.idle = number_from_environment("HEARTH_EMULATE_IDLE", 0, 0, 1) == 1;
  result.capability = static_cast<int>(number_from_environment("HEARTH_EMULATE_CAPABILITY", 90, 10, 199));
  result.driver = static_cast<int>(number_from_environment("HEARTH_EMULATE_DRIVER", CUDART_VERSION, 0, 99990));
  return result;
}

int shared_opt_in() {
  constexpr std::uint64_t most = shared_limit >> 10;
  return static_cast<int>(number_from_environment("HEARTH_EMULATE_SHARED_KB", most, 48, most) << 10);
}

// Never destroyed: objects with static lifetime may free device memory after main().
DeviceSide& DeviceSide::the() {
  static DeviceSide& only = *new DeviceSide;
  return only;
}

DeviceSide::DeviceSide() {
  Settings wanted;
  try {
    wanted = settings_from_environment();
  } catch (const ConfigError& error) {
    unusable = error.what();
  }
  apply(wanted);
  report_crashes(memory);
}

void DeviceSide::apply(const Settings& wanted) {
  finish_all();
  take_failure();
  const int devices = std::max(static_cast<int>(default_streams_.size()), wanted.devices);
  settings = wanted;
  settings.devices = devices;
  while (static_cast<int>(default_streams_.size()) < devices)
    default_streams_.push_back(make_stream(static_cast<int>(default_streams_.size()), true, 0));
  memory.set_host_access(wanted.host_access);
  memory.set_idle(wanted.idle);
  random_state_ = wanted.streams.seed;
}

cudaError_t DeviceSide::refuse(cudaError_t status, std::string text) {
  fault_text_ = std::move(text);
  return status;
}

void DeviceSide::note_failure(cudaError_t status, std::string text) {
  fault_text_ = std::move(text);
  if (failure_ == cudaSuccess) failure_ = status;
}

cudaError_t DeviceSide::take_failure() { return std::exchange(failure_, cudaSuccess); }

std::uint64_t DeviceSide::random() {
  std::uint64_t z = random_state_ += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

std::shared_ptr<StreamState> DeviceSide::stream_of(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy)
    return default_streams_[static_cast<std::size_t>(current_device())];
  return streams.find(handle);
}

bool DeviceSide::is_default(const StreamState& stream) const {
  return default_streams_[static_cast<std::size_t>(stream.device)].get() == &stream;
}

std::shared_ptr<StreamState> DeviceSide::make_stream(int device, bool blocking, int priority) {
  std::erase_if(all_streams_, [](const auto& stream) { return stream->retired && stream->items.empty(); });
  auto stream = std::make_shared<StreamState>();
  stream->device = device;
  stream->blocking = blocking;
  stream->priority = priority;
  if (blocking && static_cast<std::size_t>(device) < default_streams_.size())
    if (const auto& first = default_streams_[static_cast<std::size_t>(device)]; !first->items.empty())
      stream->items.push_back({{}, nullptr, push_mark(first), nullptr});
  all_streams_.push_back(stream);
  return stream;
}

void DeviceSide::retire_stream(const std::shared_ptr<StreamState>& stream) { stream->retired = true; }

cudaError_t DeviceSide::enqueue(StreamState& stream, Work work) {
  if (stream.capture != nullptr) {
    if (stream.capture->invalidated)
      return refuse(cudaErrorStreamCaptureInvalidated, work.name + ": the capture of this stream was broken before");
    std::vector<GraphNode>& nodes = stream.capture->graph->nodes;
    nodes.push_back({std::move(work), stream.tips});
    stream.tips.assign(1, nodes.size() - 1);
    return cudaSuccess;
  }
  if (is_default(stream)) {
    for (const auto& other : all_streams_)
      if (other->capture != nullptr && other->blocking && other->device == stream.device)
        return break_capture(*other->capture, cudaErrorStreamCaptureImplicit,
                             work.name + ": the default stream is ordered with a stream that is being captured");
    push_behind_blocking(stream, std::move(work));
  } else {
    stream.items.push_back({std::move(work), nullptr, nullptr, nullptr});
  }
  after_enqueue(stream);
  return cudaSuccess;
}

// The default stream waits for what every blocking stream has queued, and they wait for it.
void DeviceSide::push_behind_blocking(StreamState& default_stream, Work work) {
  const auto ordered = [&](const StreamState& other) {
    return &other != &default_stream && other.blocking && other.device == default_stream.device;
  };
  for (const auto& other : all_streams_)
    if (ordered(*other) && !other->items.empty())
      default_stream.items.push_back({{}, nullptr, push_mark(other), nullptr});
  default_stream.items.push_back({std::move(work), nullptr, nullptr, nullptr});
  const auto mark_here = push_mark(default_streams_[static_cast<std::size_t>(default_stream.device)]);
  for (const auto& other : all_streams_)
    if (ordered(*other)) other->items.push_back({{}, nullptr, mark_here, nullptr});
}

cudaError_t DeviceSide::enqueue_replay(const std::shared_ptr<StreamState>& stream, GraphExecState& exec) {
  if (exec.last_launch != nullptr && !exec.last_launch->done)
    stream->items.push_back({{}, nullptr, exec.last_launch, nullptr});
  auto replay = std::make_unique<Replay>();
  replay->nodes = exec.nodes;
  replay->done.resize(exec.nodes->size());
  stream->items.push_back({{}, nullptr, nullptr, std::move(replay)});
  exec.last_launch = push_mark(stream);
  after_enqueue(*stream);
  return cudaSuccess;
}

std::shared_ptr<Record> DeviceSide::push_mark(const std::shared_ptr<StreamState>& stream) {
  auto record = std::make_shared<Record>();
  record->stream = stream;
  stream->items.push_back({{}, record, nullptr, nullptr});
  return record;
}

std::shared_ptr<Record> DeviceSide::mark(const std::shared_ptr<StreamState>& stream) {
  auto record = push_mark(stream);
  after_enqueue(*stream);
  return record;
}

void DeviceSide::wait_for(StreamState& stream, std::shared_ptr<Record> record) {
  if (record->done) return;
  stream.items.push_back({{}, nullptr, std::move(record), nullptr});
  after_enqueue(stream);
}

void DeviceSide::after_enqueue(StreamState& stream) {
  switch (settings.streams.kind) {
    case StreamPolicy::Kind::eager:
      run_what_can();
      break;
    case StreamPolicy::Kind::lazy:
      break;
    case StreamPolicy::Kind::seeded:
      while (random() % 2 == 0 && step_any()) {
      }
      break;
  }
  while (stream.items.size() > max_items) advance_towards(stream);
  wake();
}

void DeviceSide::run_what_can() {
  for (bool any = true; any;) {
    any = false;
    for (std::size_t i = 0; i < all_streams_.size(); ++i)
      while (step(*all_streams_[i])) any = true;
  }
}

// Runs the head of the stream's queue. False if it is empty or waits.
bool DeviceSide::step(StreamState& stream) {
  if (stream.items.empty()) return false;
  Item& head = stream.items.front();
  if (head.replay != nullptr) return step_replay(stream);
  if (head.wait_for != nullptr && !head.wait_for->done) return false;
  if (head.work.ready && !head.work.ready()) return false;
  Item item = std::move(head);
  stream.items.pop_front();
  if (item.mark != nullptr) {
    item.mark->done = true;
    item.mark->when = std::chrono::steady_clock::now();
  } else if (item.wait_for == nullptr) {
    run(item.work);
  }
  return true;
}

// One node whose predecessors are done: any, under a seed; the last captured, when lazy, so that branches of the graph
// run in the order in which they were not captured. False where all that come next are not ready.
bool DeviceSide::step_replay(StreamState& stream) {
  Replay& replay = *stream.items.front().replay;
  const std::vector<GraphNode>& nodes = *replay.nodes;
  if (replay.finished == nodes.size()) {
    stream.items.pop_front();
    return true;
  }
  std::vector<std::size_t> ready;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (!replay.done[i] &&
        std::all_of(nodes[i].after.begin(), nodes[i].after.end(), [&](std::size_t j) { return replay.done[j]; }) &&
        (!nodes[i].work.ready || nodes[i].work.ready()))
      ready.push_back(i);
  if (ready.empty()) return false;
  std::size_t chosen = ready.front();
  if (settings.streams.kind == StreamPolicy::Kind::lazy) chosen = ready.back();
  if (settings.streams.kind == StreamPolicy::Kind::seeded) chosen = ready[random() % ready.size()];
  replay.done[chosen] = true;
  ++replay.finished;
  Work work = nodes[chosen].work;
  run(work);  // after a failure the replay is gone
  return true;
}

// False if it failed; then nothing is queued any more.
bool DeviceSide::run(Work& work) {
  const auto now = [] {
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  };
  const std::uint64_t begin = now();
  const bool done = run_unwatched(work);
  if (watcher && (work.kind == WorkKind::kernel || work.kind == WorkKind::copy))
    watcher({work.name, work.kind == WorkKind::kernel, begin, now()});
  return done;
}

bool DeviceSide::run_unwatched(Work& work) {
  const bool on_device = work.kind == WorkKind::kernel || work.kind == WorkKind::copy;
  if (on_device && settings.idle) return true;
  work_runs_ = true;
  if (on_device) set_running(work.name.c_str());
  if (on_device) memory.let_in(true);
  std::string text;
  bool failed = false;
  try {
    work.run();
  } catch (const std::exception& error) {
    failed = true;
    text = error.what();
  }
  if (on_device) memory.let_in(false);
  set_running(nullptr);
  work_runs_ = false;
  if (!failed) return true;
  note_failure(cudaErrorLaunchFailure, std::move(text));
  if (work.kind != WorkKind::bookkeeping) drop_everything();
  return false;
}

void DeviceSide::drop_everything() {
  for (const auto& stream : all_streams_) {
    std::deque<Item> items;
    items.swap(stream->items);
    for (Item& item : items) {
      if (item.mark != nullptr) item.mark->done = true;
      if (item.work.run && item.work.kind == WorkKind::bookkeeping) run(item.work);
    }
  }
}

bool DeviceSide::step_any() {
  std::vector<StreamState*> candidates;
  for (const auto& stream : all_streams_)
    if (!stream->items.empty()) candidates.push_back(stream.get());
  while (!candidates.empty()) {
    const auto chosen = candidates.begin() + static_cast<std::ptrdiff_t>(random() % candidates.size());
    if (step(**chosen)) return true;
    candidates.erase(chosen);
  }
  return false;
}

// One step of what the stream's head needs. Records are queued before anything waits for them, so there is no circle.
// False where that is work which is not ready.
bool DeviceSide::try_to_advance(StreamState& stream) {
  if (settings.streams.kind == StreamPolicy::Kind::seeded) return step_any();
  StreamState* current = &stream;
  while (!step(*current)) {
    const auto& waited_for = current->items.front().wait_for;
    if (waited_for == nullptr) return step_any();
    const auto other = waited_for->stream.lock();
    HEARTH_CHECK(InternalError, other != nullptr && !other->items.empty(),
                 "emulated streams: a stream waits for nothing");
    current = other.get();
  }
  return true;
}

// Where nothing of this process can go on, another thread has to queue something.
void DeviceSide::advance_towards(StreamState& stream) {
  constexpr std::chrono::milliseconds between_looks{20};
  if (!try_to_advance(stream)) queued_.wait_for(lock, between_looks);
}

void DeviceSide::finish(StreamState& stream) {
  while (!stream.items.empty()) advance_towards(stream);
}

void DeviceSide::finish(const Record& record) {
  while (!record.done) {
    const auto stream = record.stream.lock();
    HEARTH_CHECK(InternalError, stream != nullptr && !stream->items.empty(),
                 "emulated streams: an event is in no stream");
    advance_towards(*stream);
  }
}

void DeviceSide::finish_device(int device) {
  for (std::size_t i = 0; i < all_streams_.size(); ++i)
    if (const auto stream = all_streams_[i]; stream->device == device) finish(*stream);
}

void DeviceSide::finish_all() {
  for (std::size_t i = 0; i < all_streams_.size(); ++i) finish(*std::shared_ptr(all_streams_[i]));
}

void DeviceSide::nudge(StreamState& stream) {
  if (!stream.items.empty()) try_to_advance(stream);
}

int& current_device() {
  thread_local int device = 0;
  return device;
}

cudaError_t& last_error() {
  thread_local cudaError_t status = cudaSuccess;
  return status;
}

cudaStreamCaptureMode& capture_mode() {
  thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  return mode;
}

namespace {

cudaError_t enqueue_on(cudaStream_t stream, Work work) {
  return entry(Reports::own_errors, [&](DeviceSide& side) {
    const auto state = side.stream_of(stream);
    if (state == nullptr)
      return side.refuse(cudaErrorInvalidResourceHandle, join_text("kernel ", work.name, ": the stream was destroyed"));
    if (state->device != current_device())
      return side.refuse(cudaErrorInvalidResourceHandle,
                         join_text("kernel ", work.name, ": the stream is of device ", state->device,
                                   ", the current device is ", current_device()));
    return side.enqueue(*state, std::move(work));
  });
}

}  // namespace

void enqueue_work(cudaStream_t stream, const char* name, std::function<void()> work) {
  // cudaGetLastError() answers it
  static_cast<void>(enqueue_on(stream, {WorkKind::kernel, name, std::move(work)}));
}

cudaError_t enqueue_meeting(cudaStream_t stream, const char* name, std::function<bool()> ready,
                            std::function<void()> work) {
  return enqueue_on(stream, {WorkKind::kernel, name, std::move(work), std::move(ready)});
}

void meetings_changed() { DeviceSide::the().wake(); }

void under_the_lock(const std::function<void()>& f) {
  DeviceSide& side = DeviceSide::the();
  const std::lock_guard guard(side.lock);
  f();
}

std::string last_fault() {
  DeviceSide& side = DeviceSide::the();
  const std::lock_guard guard(side.lock);
  return side.fault_text();
}

std::size_t shared_asked(const void* kernel) {
  DeviceSide& side = DeviceSide::the();
  const std::lock_guard guard(side.lock);
  const auto found = side.shared_limits.find({current_device(), kernel});
  return found == side.shared_limits.end() ? 0 : found->second;
}

std::size_t dynamic_shared_limit(const void* kernel) {
  const std::size_t asked = shared_asked(kernel);
  return asked > 0 ? asked : std::size_t{48} << 10;
}

void watch_work(std::function<void(const RanWork&)> watcher) {
  DeviceSide& side = DeviceSide::the();
  const std::lock_guard guard(side.lock);
  side.watcher = std::move(watcher);
}

std::optional<MemoryBlock> block_at(const void* address) {
  DeviceSide& side = DeviceSide::the();
  const std::lock_guard guard(side.lock);
  const MemoryBlock* block = side.memory.find(address);
  return block == nullptr ? std::nullopt : std::optional(*block);
}

std::string describe_address(const void* address) {
  DeviceSide& side = DeviceSide::the();
  const std::lock_guard guard(side.lock);
  return side.memory.describe(address);
}

Settings settings() {
  DeviceSide& side = DeviceSide::the();
  const std::lock_guard guard(side.lock);
  return side.settings;
}

void apply(const Settings& wanted) {
  DeviceSide& side = DeviceSide::the();
  const std::lock_guard guard(side.lock);
  side.apply(wanted);
  last_error() = cudaSuccess;
}

std::size_t memory_in_use(int device) {
  DeviceSide& side = DeviceSide::the();
  const std::lock_guard guard(side.lock);
  return side.memory.in_use(device);
}

}  // namespace hearth::cuda::emulate
