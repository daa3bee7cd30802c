// SPDX-License-Identifier: Apache-2.0
#include "train/profile/phase_meter.h"

#include <algorithm>
#include <numeric>

#include "core/run_on.h"
#include "core/time_marks.h"

namespace hearth::train {
namespace {

constexpr const char* phase_names[phase_count] = {"data",          "copy",   "forward", "backward",
                                                  "communication", "update", "other"};
/// Those that a device spends; of the others only the host knows.
constexpr Phase device_phases[] = {Phase::forward, Phase::backward, Phase::communication, Phase::update};

bool is_of_device(Phase phase) { return std::ranges::find(device_phases, phase) != std::end(device_phases); }

}  // namespace

const char* name_of(Phase phase) { return phase_names[static_cast<std::size_t>(phase)]; }

PhaseSeconds& PhaseSeconds::operator+=(const PhaseSeconds& other) {
  for (std::size_t i = 0; i < phase_count; ++i) seconds[i] += other.seconds[i];
  return *this;
}

double PhaseSeconds::total() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

Json to_json(const PhaseSeconds& phases) {
  Json result = Json::object();
  for (std::size_t i = 0; i < phase_count; ++i) result.set(phase_names[i], phases.seconds[i]);
  return result;
}

void PhaseMeter::use(Device device) {
  static_assert(phase_count <= kernels::timed_parts);
  device_ = device.is_cpu() ? Tensor() : Tensor::zeros({kernels::time_mark_words}, DType::i64, device);
}

PhaseMeter::StepScope::StepScope(PhaseMeter& meter) : meter_(meter) {
  HEARTH_CHECK(UsageError, !meter.phase_, "phases: a step is under way already");
  meter.change(Phase::other);
}
PhaseMeter::StepScope::~StepScope() { meter_.change({}); }

void PhaseMeter::change(std::optional<Phase> to) {
  const Clock::time_point now = Clock::now();
  if (phase_) host_[*phase_] += std::chrono::duration<double>(now - since_).count();
  marker_.reset();
  since_ = now;
  phase_ = to;
  if (to) marker_.emplace(name_of(*to));
}

void PhaseMeter::enter(Phase phase) {
  if (!phase_ || phase_ == phase) return;
  const bool of_device = device_.defined() && (is_of_device(phase) || is_of_device(*phase_));
  change(phase);
  if (of_device)
    with_stream(device_.device(), [&](auto& stream) { kernels::mark_time(stream, device_, static_cast<int>(phase)); });
}

double PhaseMeter::seconds() const { return host_.total(); }

PhaseSeconds PhaseMeter::read() const {
  if (!device_.defined()) return host_;
  const Tensor nanoseconds = device_.to(Device{});
  PhaseSeconds result;
  // What the device was not busy with is the host's: first what it waited for.
  double rest = seconds();
  for (const Phase phase : device_phases) {
    result[phase] = std::min(
        rest, 1e-9 * static_cast<double>(nanoseconds.data<const std::int64_t>()[static_cast<std::size_t>(phase)]));
    rest -= result[phase];
  }
  for (const Phase phase : {Phase::data, Phase::copy}) {
    result[phase] = std::min(rest, host_[phase]);
    rest -= result[phase];
  }
  result[Phase::other] = rest;
  return result;
}

void PhaseMeter::clear() {
  host_ = {};
  if (device_.defined()) device_.fill_(0);
}

}  // namespace hearth::train
