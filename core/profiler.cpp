// SPDX-License-Identifier: Apache-2.0
#include "core/profiler.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <new>
#include <thread>

#include "core/error.h"
#include "core/thread_object.h"

namespace hearth::profiler {
namespace {

struct Event {
  const char* name;
  std::int64_t begin_ns;
  std::int64_t end_ns;
  std::size_t thread;
};

struct Collection {
  std::mutex mutex;
  std::vector<Event> events;
  std::map<std::string, Entry> entries;
};

// Leaked on purpose: scopes may close while static objects are destroyed.
Collection& collection() {
  static auto* instance = new Collection;
  return *instance;
}

std::atomic<bool> collecting{false};
std::atomic<bool> lost_events{false};
thread_local double flops_of_thread = 0;

struct OpenScopes {
  std::vector<const char*> names;
};
std::vector<const char*>& open_scopes() { return detail::thread_object<OpenScopes>().names; }

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// All digits, so that long traces keep their short scopes.
std::string microseconds(std::int64_t ns) {
  const std::string rest = std::to_string(ns % 1000);
  return join_text(ns / 1000, ".", std::string(3 - rest.size(), '0'), rest);
}

}  // namespace

void start() {
  Collection& all = collection();
  const std::lock_guard lock(all.mutex);
  all.events.clear();
  all.entries.clear();
  lost_events = false;
  collecting.store(true, std::memory_order_relaxed);
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
  require_all_events();
  Collection& all = collection();
  const std::lock_guard lock(all.mutex);
  return all.entries;
}

std::string chrome_trace() {
  require_all_events();
  Collection& all = collection();
  const std::lock_guard lock(all.mutex);
  TextStream out;
  out << "[";
  const char* separator = "\n";
  for (const Event& event : all.events) {
    out << separator << R"({"ph":"X","pid":0,"tid":)" << event.thread % 100000 << R"(,"name":")" << event.name
        << R"(","ts":)" << microseconds(event.begin_ns) << R"(,"dur":)" << microseconds(event.end_ns - event.begin_ns)
        << "}";
    separator = ",\n";
  }
  out << "\n]\n";
  return out.str();
}

void add_flops(double flops) noexcept {
  flops_of_thread += flops;
  if (!enabled()) return;
  collect([&] {
    if (open_scopes().empty()) return;
    Collection& all = collection();
    const std::lock_guard lock(all.mutex);
    all.entries[open_scopes().back()].flops += flops;
  });
}

double total_flops() noexcept { return flops_of_thread; }

Scope::Scope(const char* name) noexcept : name_(nullptr), begin_ns_(0) {
  if (!enabled()) return;
  collect([&] {
    open_scopes().push_back(name);
    name_ = name;
  });
  begin_ns_ = now_ns();
}

Scope::~Scope() {
  if (name_ == nullptr) return;
  const std::int64_t end_ns = now_ns();
  open_scopes().pop_back();
  collect([&] {
    Collection& all = collection();
    const std::lock_guard lock(all.mutex);
    Entry& entry = all.entries[name_];
    ++entry.calls;
    entry.milliseconds += static_cast<double>(end_ns - begin_ns_) / 1e6;
    all.events.push_back({name_, begin_ns_, end_ns, std::hash<std::thread::id>{}(std::this_thread::get_id())});
  });
}

}  // namespace hearth::profiler
