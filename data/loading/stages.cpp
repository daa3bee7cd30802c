// SPDX-License-Identifier: Apache-2.0
#include "data/loading/stages.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

#include "core/profiler.h"
#include "core/profiler_spans.h"

namespace hearth::data {
namespace {

thread_local StageClock* clock_of_thread = nullptr;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double seconds_of(std::int64_t ns) { return 1e-9 * static_cast<double>(std::max<std::int64_t>(ns, 0)); }

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;

}  // namespace

const char* name_of(Stage stage) {
  constexpr const char* names[] = {"room", "read", "decode", "augment", "assemble", "copy"};
  return names[static_cast<std::size_t>(stage)];
}

StageTimes& StageTimes::operator+=(const StageTimes& other) {
  for (std::size_t i = 0; i < stage_count; ++i) seconds[i] += other.seconds[i];
  return *this;
}

StageTimes& StageTimes::operator-=(const StageTimes& other) {
  for (std::size_t i = 0; i < stage_count; ++i) seconds[i] -= other.seconds[i];
  return *this;
}

double StageTimes::total() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

Stage StageTimes::longest() const {
  return static_cast<Stage>(std::max_element(seconds.begin() + 1, seconds.end()) - seconds.begin());
}

StageClock::StageClock() : since_(now_ns()), sample_since_(since_.load(relaxed)) {}

void StageClock::change(Stage to, std::int64_t sample, bool new_sample) {
  const std::int64_t now = now_ns();
  if (const Stage before = stage_.load(relaxed); profiler::enabled() && before != Stage::room)
    profiler::add_part(name_of(before), since_.load(relaxed));
  const std::uint32_t version = version_.load(relaxed);
  // Who sees one of the stores after this one sees this one, too.
  version_.store(version + 1, relaxed);
  std::atomic<std::int64_t>& spent = ns_[static_cast<std::size_t>(stage_.load(relaxed))];
  spent.store(spent.load(relaxed) + now - since_.load(relaxed), release);
  since_.store(now, release);
  stage_.store(to, release);
  if (new_sample) {
    sample_.store(sample, release);
    sample_since_.store(now, release);
  }
  version_.store(version + 2, release);
}

void StageClock::begin_batch(std::int64_t batch) {
  batch_.store(batch, relaxed);
  change(batch == none ? Stage::room : Stage::assemble, none, true);
}

void StageClock::at(Stage stage, std::int64_t sample) { change(stage, sample, true); }

Stage StageClock::enter(Stage stage) {
  const Stage before = stage_.load(relaxed);
  if (before != stage) change(stage, none, false);
  return before;
}

/// What read() finds while nothing changes.
template <class Read>
auto StageClock::consistent(Read&& read) const {
  while (true) {
    const std::uint32_t version = version_.load(acquire);
    auto found = read();
    if (version % 2 == 0 && version_.load(relaxed) == version) return found;
    std::this_thread::yield();
  }
}

StageTimes StageClock::times() const {
  return consistent([&] {
    StageTimes times;
    for (std::size_t i = 0; i < stage_count; ++i) times.seconds[i] = seconds_of(ns_[i].load(acquire));
    const std::int64_t since = since_.load(acquire);
    times[stage_.load(acquire)] += seconds_of(now_ns() - since);
    return times;
  });
}

StageClock::Activity StageClock::activity() const {
  return consistent([&] {
    Activity now;
    now.stage = stage_.load(acquire);
    now.batch = batch_.load(acquire);
    now.sample = sample_.load(acquire);
    const std::int64_t since = since_.load(acquire), sample_since = sample_since_.load(acquire), at = now_ns();
    now.stage_seconds = seconds_of(at - since);
    if (now.sample != none) now.sample_seconds = seconds_of(at - sample_since);
    return now;
  });
}

StageClock::Use::Use(StageClock& clock) : before_(clock_of_thread) { clock_of_thread = &clock; }
StageClock::Use::~Use() { clock_of_thread = before_; }

StageScope::StageScope(Stage stage) : clock_(clock_of_thread) {
  if (clock_ != nullptr) before_ = clock_->enter(stage);
}
StageScope::~StageScope() {
  if (clock_ != nullptr) clock_->enter(before_);
}

}  // namespace hearth::data
