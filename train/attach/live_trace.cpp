// SPDX-License-Identifier: Apache-2.0
#include "train/attach/live_trace.h"

#include <unistd.h>

#include <chrono>
#include <map>
#include <utility>

#include "core/io/json_text.h"
#include "core/origin.h"
#include "core/profiler.h"
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

/// The events of one process.
class EventList {
 public:
  EventList(int rank, std::int64_t zero_ns) : rank_(rank), zero_ns_(zero_ns) {}

  /// Names the process, or a lane of it.
  void name(const char* what, int lane, const std::string& text) {
    begin() << R"({"ph":"M","pid":)" << rank_ << R"(,"tid":)" << lane << R"(,"name":")" << what
            << R"(","args":{"name":)" << to_text(Json(text)) << "}}";
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

}  // namespace

std::string trace_events(int rank, const std::string& process, std::int64_t zero_ns, std::size_t step_thread,
                         const std::vector<profiler::Span>& spans, const std::vector<CollectiveSpan>& collectives) {
  constexpr int step_lane = 0, collective_lane = 1;
  EventList events(rank, zero_ns);
  events.name("process_name", step_lane, process);
  events.name("thread_name", step_lane, "steps");
  std::map<std::size_t, int> lanes{{step_thread, step_lane}};
  std::map<int, bool> makes_batches;
  int next_lane = collective_lane + 1;
  for (const profiler::Span& span : spans) {
    const auto [place, is_new] = lanes.try_emplace(span.thread, next_lane);
    if (is_new) ++next_lane;
    const int lane = place->second;
    const std::string name = name_of(span);
    if (lane != step_lane) makes_batches[lane] |= is_stage(name);
    events.span(lane, name, span.begin_ns, span.end_ns, about(span));
  }
  for (const auto& [lane, loads] : makes_batches)
    events.name("thread_name", lane, join_text(loads ? "loader " : "thread ", lane - collective_lane));
  if (!collectives.empty()) events.name("thread_name", collective_lane, "collectives");
  for (const CollectiveSpan& span : collectives)
    events.span(collective_lane, span.what, nanoseconds_of(span.begin), nanoseconds_of(span.end),
                Json::object().set("bytes", span.bytes));
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
  collects_ = profiler::start_if_idle();
  // Ranks of one machine have one clock; those of others leave the gathering at about the same time.
  const std::vector<std::string> hosts = dist::gather(group_, host_name());
  const std::int64_t now = nanoseconds_of(std::chrono::steady_clock::now());
  const std::int64_t of_first = dist::gather(group_, now)[0];
  zero_ns_ = hosts[static_cast<std::size_t>(group_.rank())] == hosts[0] ? of_first : now;
  state_ = State::collecting;
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
  const std::string process =
      join_text("rank ", group_.rank(), " of ", group_.size(), ", pid ", getpid(), " on ", host_name());
  text_ =
      std::async(std::launch::async, [rank = group_.rank(), process, zero = zero_ns_, thread = profiler::this_thread(),
                                      spans = std::move(spans), collectives = std::move(collectives_)] {
        return trace_events(rank, process, zero, thread, spans, collectives);
      });
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
