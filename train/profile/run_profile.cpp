// SPDX-License-Identifier: Apache-2.0
#include "train/profile/run_profile.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "core/memory/memory.h"
#include "core/origin.h"
#include "core/profiler.h"
#include "core/tensor.h"
#include "train/profile/host_profile.h"

namespace hearth::train {
namespace {

// Steps that are watched, and those before them.
constexpr std::int64_t steps_before = 2, steps_watched = 8;
constexpr std::size_t max_ops = 16;

double seconds_since(RunProfile::Clock::time_point start) {
  return std::chrono::duration<double>(RunProfile::Clock::now() - start).count();
}

/// Bytes that stay from step to step, and the allocator's peak.
Json bytes_of(const Session& session) {
  const FlatParameters& parameters = *session.parameters;
  const auto bytes = [](const Tensor& tensor) {
    return tensor.defined() ? static_cast<std::int64_t>(tensor.byte_size()) : std::int64_t{0};
  };
  std::int64_t optimizer = 0, averages = 0;
  for (const StorageRecord& storage : largest_storages(session.device(), std::numeric_limits<std::size_t>::max())) {
    const std::string_view op = storage.origin.op != nullptr ? storage.origin.op : "";
    if (op == "optimizer") optimizer += static_cast<std::int64_t>(storage.bytes);
    if (op == "average") averages += static_cast<std::int64_t>(storage.bytes);
  }
  Json result = Json::object();
  const auto set = [&](const char* name, std::int64_t value) {
    if (value > 0) result.set(name, value);
  };
  set("parameters", bytes(parameters.values()) + bytes(parameters.low_precision()));
  set("gradients", bytes(parameters.grads()));
  set("optimizer state", optimizer);
  set("averaged weights", averages);
  const MemoryStatistics statistics = memory_of(session.device()).statistics();
  set("peak in use", statistics.peak);
  set("held from the system", statistics.reserved);
  return result;
}

/// The slowest, from the first on.
Json slowest(const std::map<std::string, double>& milliseconds, double seconds) {
  std::vector<std::pair<std::string, double>> all(milliseconds.begin(), milliseconds.end());
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  if (all.size() > max_ops) all.resize(max_ops);
  Json list = Json::object().set("the whole step", 1e3 * seconds);
  for (const auto& [name, own] : all) list.set(name, own);
  return list;
}

}  // namespace

void RunProfile::add_evaluation(Clock::time_point start) { evaluation_seconds_ += seconds_since(start); }
void RunProfile::add_checkpoint(Clock::time_point start) { checkpoint_seconds_ += seconds_since(start); }

RunProfile::StepScope::StepScope(RunProfile& profile, const Session& session) {
  const std::int64_t step = profile.steps_++;
  const bool is_due = step >= steps_before && step < steps_before + steps_watched;
  // Kernels of a GPU take their time elsewhere.
  if (!is_due || !session.device().is_cpu() || !profiler::start_if_idle()) return;
  profile_ = &profile;
  start_ = Clock::now();
}

RunProfile::StepScope::~StepScope() {
  if (profile_ == nullptr) return;
  const double seconds = seconds_since(start_);
  profiler::stop();
  RunProfile& profile = *profile_;
  // Others were disturbed.
  if (profile.quickest_seconds_ > 0 && seconds >= profile.quickest_seconds_) return;
  try {
    std::map<std::string, double> milliseconds, of_kernels;
    for (const profiler::Span& span : profiler::spans()) {
      if (span.op == nullptr || span.thread != profiler::this_thread()) continue;
      const double own = 1e-6 * static_cast<double>(span.own_ns);
      milliseconds[name_of_op(span)] += own;
      if (std::string_view(span.op) != span.name) of_kernels[span.name] += own;
    }
    profile.milliseconds_ = std::move(milliseconds);
    profile.kernel_milliseconds_ = std::move(of_kernels);
    profile.quickest_seconds_ = seconds;
  } catch (...) {
    // A profile is no reason to stop.
  }
}

Json RunProfile::to_json(const Session& session) const {
  // Those since the last line of metrics too.
  PhaseSeconds steps = session.phases.read();
  steps += steps_seconds_;
  Json result = Json::object();
  result.set(
      "seconds",
      hearth::train::to_json(steps).set("evaluation", evaluation_seconds_).set("checkpoint", checkpoint_seconds_));
  if (quickest_seconds_ > 0)
    result.set("step_milliseconds", slowest(milliseconds_, quickest_seconds_))
        .set("kernel_milliseconds", slowest(kernel_milliseconds_, quickest_seconds_));
  return result.set("bytes", bytes_of(session));
}

}  // namespace hearth::train
