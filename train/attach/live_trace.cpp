// SPDX-License-Identifier: Apache-2.0
#include "train/attach/live_trace.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/io/json_text.h"
#include "core/origin.h"
#include "core/profiler.h"
#include "core/run_on.h"
#include "core/text_stream.h"
#include "data/loading/stages.h"
#include "dist/agreement.h"
#include "train/attach/live_run.h"
#include "train/step/ranks.h"

namespace hearth::train {
namespace {

std::int64_t nanoseconds_of(std::chrono::steady_clock::time_point at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

constexpr int step_lane = 0, collective_lane = 1;

/// The events of one process.
class EventList {
 public:
  EventList(int rank, std::int64_t zero_ns) : rank_(rank), zero_ns_(zero_ns) {}

  /// Says something of the process, or of a lane of it: "process_name", "thread_name", "process_labels".
  void name(const char* what, int lane, const char* key, const std::string& text) {
    begin() << R"({"ph":"M","pid":)" << rank_ << R"(,"tid":)" << lane << R"(,"name":")" << what << R"(","args":)"
            << to_text(Json::object().set(key, text)) << "}";
  }
  /// What began before the trace is cut.
  void span(int lane, const std::string& name, std::int64_t begin_ns, std::int64_t end_ns, const Json& about) {
    const std::int64_t from = std::max<std::int64_t>(begin_ns - zero_ns_, 0), to = end_ns - zero_ns_;
    if (to < from) return;
    begin() << profiler::trace_event(rank_, static_cast<std::size_t>(lane), to_text(Json(name)), from, to,
                                     about.size() > 0 ? to_text(about) : "");
  }
  std::string text() const { return out_.str(); }

 private:
  TextStream& begin() {
    out_ << (empty_ ? "" : ",\n");
    empty_ = false;
    return out_;
  }

  TextStream out_;
  bool empty_ = true;
  int rank_;
  std::int64_t zero_ns_;
};

bool is_stage(const std::string& name) {
  for (std::size_t i = 0; i < data::stage_count; ++i)
    if (name == data::name_of(static_cast<data::Stage>(i))) return true;
  return false;
}

/// As the range of NVIDIA's profilers is called.
std::string name_of(const profiler::Span& span) {
  const bool is_op = span.op != nullptr && std::string_view(span.op) == span.name;
  return is_op ? join_text(Origin{span.op, span.layer, span.backward}) : span.name;
}

Json about(const profiler::Span& span) {
  Json result = Json::object();
  if (span.flops > 0) result.set("flops", span.flops);
  if (span.bytes > 0) result.set("bytes", span.bytes);
  return result;
}

/// A lane for each thread that has spans.
void add_threads(EventList& events, const RankTrace& trace, int& next_lane) {
  std::map<std::size_t, int> lanes{{trace.step_thread, step_lane}};
  std::map<int, bool> makes_batches;
  for (const profiler::Span& span : trace.spans) {
    const auto [place, is_new] = lanes.try_emplace(span.thread, next_lane);
    if (is_new) ++next_lane;
    const int lane = place->second;
    const std::string name = name_of(span);
    if (lane != step_lane) makes_batches[lane] |= is_stage(name);
    events.span(lane, name, span.begin_ns, span.end_ns, about(span));
  }
  for (const auto& [lane, loads] : makes_batches)
    events.name("thread_name", lane, "name", join_text(loads ? "loader " : "thread ", lane - collective_lane));
}

/// A lane for each stream of the device.
void add_device(EventList& events, const RankTrace& trace, int& next_lane) {
  if (!trace.why_not_watched.empty())
    events.name("process_labels", step_lane, "labels",
                join_text("no kernels of ", trace.device, ": ", trace.why_not_watched));
  const auto& [spans, asked] = trace.activity;
  const std::vector<int> matches = match_spans(spans, asked);
  if (!tells_of_ops(spans, matches))
    events.name(
        "process_labels", step_lane, "labels",
        join_text("kernels of ", trace.device, " without op and layer: they are not as many as were asked for"));
  const std::vector<DeviceEvent> shown = device_events(spans, asked, matches);
  std::map<std::uint32_t, int> lanes;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const auto [place, is_new] = lanes.try_emplace(spans[i].stream, next_lane);
    if (is_new) events.name("thread_name", next_lane++, "name", join_text(trace.device, " stream ", spans[i].stream));
    events.span(place->second, shown[i].name, static_cast<std::int64_t>(spans[i].begin_ns),
                static_cast<std::int64_t>(spans[i].end_ns), Json(shown[i].about).set("phase", shown[i].phase));
  }
}

}  // namespace

std::string trace_events(const RankTrace& trace) {
  EventList events(trace.rank, trace.zero_ns);
  events.name("process_name", step_lane, "name", trace.process);
  events.name("thread_name", step_lane, "name", "steps");
  int next_lane = collective_lane + 1;
  add_threads(events, trace, next_lane);
  if (!trace.collectives.empty()) events.name("thread_name", collective_lane, "name", "collectives");
  for (const CollectiveSpan& span : trace.collectives)
    events.span(collective_lane, span.what, nanoseconds_of(span.begin), nanoseconds_of(span.end),
                Json::object().set("bytes", span.bytes));
  add_device(events, trace, next_lane);
  return events.text();
}

LiveTrace::~LiveTrace() {
  if (collects_) profiler::stop();
}

void LiveTrace::add_wishes(StepWishes& wishes) const {
  if (live_ != nullptr && state_ == State::idle) wishes.trace_steps = live_->trace_asked();
  wishes.trace_pending =
      state_ == State::preparing && text_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

void LiveTrace::after_step(const StepWishes& wishes, const std::vector<CollectiveSpan>& collectives) {
  if (state_ == State::collecting) {
    collectives_.insert(collectives_.end(), collectives.begin(), collectives.end());
    if (--steps_left_ == 0) prepare();
  } else if (state_ == State::preparing) {
    if (!wishes.trace_pending) hand_over();
  } else if (wishes.trace_steps > 0) {
    begin(wishes.trace_steps);
  }
}

void LiveTrace::begin(std::int64_t steps) {
  if (live_ != nullptr) live_->begin_trace();
  steps_left_ = steps;
  collectives_.clear();
  watch_device();
  collects_ = profiler::start_if_idle();
  // Ranks of one machine have one clock; those of others leave the gathering at about the same time.
  const std::vector<std::string> hosts = dist::gather(group_, host_name());
  const std::int64_t now = nanoseconds_of(std::chrono::steady_clock::now());
  const std::int64_t of_first = dist::gather(group_, now)[0];
  zero_ns_ = hosts[static_cast<std::size_t>(group_.rank())] == hosts[0] ? of_first : now;
  state_ = State::collecting;
}

void LiveTrace::watch_device() {
  if (device_.is_cuda()) why_not_watched_ = cuda::why_no_device_trace();
  if (device_.is_cuda() && why_not_watched_.empty()) {
    // What is under way was not asked for during the trace.
    wait_for(device_);
    try {
      watch_ = std::make_unique<DeviceWatch>();
    } catch (const Error& error) {
      why_not_watched_ = error.what();
    }
  }
  const std::vector<std::int64_t> watched = dist::gather(group_, std::int64_t{watch_ != nullptr});
  recorded_anew_ = std::ranges::find(watched, 1) != watched.end();
  if (recorded_anew_) record_anew_();
}

DeviceActivity LiveTrace::activity() {
  DeviceActivity activity;
  if (watch_ != nullptr) {
    wait_for(device_);
    try {
      activity = watch_->take();
    } catch (const Error& error) {
      why_not_watched_ = error.what();
    }
    watch_.reset();
  }
  // Replays of what was recorded under watch may go on being watched.
  if (std::exchange(recorded_anew_, false)) record_anew_();
  return activity;
}

void LiveTrace::prepare() {
  std::vector<profiler::Span> spans;
  if (std::exchange(collects_, false)) {
    profiler::stop();
    try {
      spans = profiler::spans();
    } catch (const OutOfMemory&) {
      // Its lanes are empty.
    }
  }
  RankTrace trace{
      .rank = group_.rank(),
      .process = join_text("rank ", group_.rank(), " of ", group_.size(), ", pid ", getpid(), " on ", host_name()),
      .zero_ns = zero_ns_,
      .step_thread = profiler::this_thread(),
      .spans = std::move(spans),
      .collectives = std::move(collectives_),
      .device = name_of(device_),
      .activity = activity()};
  trace.why_not_watched = std::exchange(why_not_watched_, "");
  text_ = std::async(std::launch::async, [trace = std::move(trace)] { return trace_events(trace); });
  collectives_.clear();
  state_ = State::preparing;
}

void LiveTrace::hand_over() {
  std::vector<std::string> events = dist::gather(group_, text_.get());
  state_ = State::idle;
  if (live_ != nullptr) live_->finish_trace(std::move(events));
}

void LiveTrace::finish() {
  if (state_ == State::collecting) prepare();
  if (state_ == State::preparing) hand_over();
}

}  // namespace hearth::train
