// SPDX-License-Identifier: Apache-2.0
#include "core/profiler.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <mutex>
#include <new>
#include <thread>

#include "core/error.h"
#include "core/origin.h"
#include "core/profiler_spans.h"
#include "core/text_stream.h"
#include "core/thread_object.h"

namespace hearth::profiler {
namespace {

struct Collection {
  std::mutex mutex;
  std::vector<Span> spans;
};

// Leaked on purpose: scopes may close while static objects are destroyed.
Collection& collection() {
  static auto* instance = new Collection;
  return *instance;
}

std::atomic<bool> collecting{false};
std::atomic<bool> lost_events{false};
thread_local double flops_of_thread = 0;

/// Those of a thread that have begun, as far as they are known.
struct OpenScopes {
  std::vector<Span> list;
};
std::vector<Span>& open_scopes() { return detail::thread_object<OpenScopes>().list; }

/// Scopes of implementations are named "op:name".
bool is_implementation(const char* name) { return std::strchr(name, ':') != nullptr; }

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string microseconds(std::int64_t ns) {
  const std::string rest = std::to_string(ns % 1000);
  return join_text(ns / 1000, ".", std::string(3 - rest.size(), '0'), rest);
}

}  // namespace

void start() {
  stop();
  (void)start_if_idle();
}

bool start_if_idle() {
  Collection& all = collection();
  const std::lock_guard lock(all.mutex);
  if (enabled()) return false;
  all.spans.clear();
  lost_events = false;
  collecting.store(true, std::memory_order_relaxed);
  return true;
}

void stop() { collecting.store(false, std::memory_order_relaxed); }
bool enabled() noexcept { return collecting.load(std::memory_order_relaxed); }

namespace {

// Scopes end in destructors, which cannot throw: what finds no memory ends the collection.
template <class F>
void collect(F&& f) noexcept {
  try {
    f();
  } catch (const std::bad_alloc&) {
    lost_events = true;
    stop();
  }
}

void require_all_events() {
  HEARTH_CHECK(OutOfMemory, !lost_events, "profile: no memory was left for its events; profile fewer steps");
}

}  // namespace

std::map<std::string, Entry> summary() {
  std::map<std::string, Entry> entries;
  for (const Span& span : spans()) {
    Entry& entry = entries[span.name];
    ++entry.calls;
    entry.milliseconds += static_cast<double>(span.end_ns - span.begin_ns) / 1e6;
    entry.flops += span.flops;
  }
  return entries;
}

std::string chrome_trace() {
  require_all_events();
  Collection& all = collection();
  const std::lock_guard lock(all.mutex);
  TextStream out;
  out << "[";
  const char* separator = "\n";
  for (const Span& span : all.spans) {
    out << separator
        << trace_event(0, span.thread % 100000, join_text('"', span.name, '"'), span.begin_ns, span.end_ns);
    separator = ",\n";
  }
  out << "\n]\n";
  return out.str();
}

std::string trace_event(int process, std::size_t lane, const std::string& name, std::int64_t begin_ns,
                        std::int64_t end_ns, const std::string& about) {
  return join_text(R"({"ph":"X","pid":)", process, R"(,"tid":)", lane, R"(,"name":)", name, R"(,"ts":)",
                   microseconds(begin_ns), R"(,"dur":)", microseconds(end_ns - begin_ns),
                   about.empty() ? "" : R"(,"args":)", about, "}");
}

void add_flops(double flops) noexcept {
  flops_of_thread += flops;
  if (!enabled()) return;
  collect([&] {
    if (!open_scopes().empty()) open_scopes().back().flops += flops;
  });
}

double total_flops() noexcept { return flops_of_thread; }

std::vector<Span> spans() {
  require_all_events();
  Collection& all = collection();
  const std::lock_guard lock(all.mutex);
  return all.spans;
}

std::size_t this_thread() noexcept { return std::hash<std::thread::id>{}(std::this_thread::get_id()); }

void add_bytes(double bytes) noexcept {
  if (!enabled()) return;
  collect([&] {
    if (!open_scopes().empty()) open_scopes().back().bytes += bytes;
  });
}

void add_part(const char* name, std::int64_t begin_ns) noexcept {
  if (!enabled()) return;
  const std::int64_t now = now_ns();
  collect([&] {
    Collection& all = collection();
    const std::lock_guard lock(all.mutex);
    all.spans.push_back({.name = name,
                         .op = nullptr,
                         .layer = nullptr,
                         .backward = false,
                         .begin_ns = begin_ns,
                         .end_ns = now,
                         .own_ns = now - begin_ns,
                         .flops = 0,
                         .bytes = 0,
                         .thread = this_thread()});
  });
}

Scope::Scope(const char* name, Kind kind) noexcept : name_(nullptr), begin_ns_(0) {
  if (!enabled()) return;
  const Origin& origin = current_origin();
  collect([&] {
    open_scopes().push_back({.name = name,
                             .op = kind == Kind::part        ? nullptr
                                   : is_implementation(name) ? origin.op
                                                             : name,
                             .layer = origin.layer,
                             .backward = origin.backward,
                             .begin_ns = 0,
                             .end_ns = 0,
                             .own_ns = 0,
                             .flops = 0,
                             .bytes = 0,
                             .thread = this_thread()});
    name_ = name;
  });
  begin_ns_ = now_ns();
}

Scope::~Scope() {
  if (name_ == nullptr) return;
  std::vector<Span>& open = open_scopes();
  Span span = open.back();
  open.pop_back();
  span.begin_ns = begin_ns_;
  span.end_ns = now_ns();
  // So far it is what the scopes inside have taken, negative.
  span.own_ns += span.end_ns - span.begin_ns;
  if (!open.empty()) open.back().own_ns -= span.end_ns - span.begin_ns;
  collect([&] {
    Collection& all = collection();
    const std::lock_guard lock(all.mutex);
    all.spans.push_back(span);
  });
}

}  // namespace hearth::profiler
