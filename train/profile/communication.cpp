// SPDX-License-Identifier: Apache-2.0
#include "train/profile/communication.h"

#include <algorithm>

namespace hearth::train {

void CommunicationMeter::begin_step() {
  if (group_ != nullptr) before_ = group_->traffic();
}

void CommunicationMeter::end_step(double seconds) {
  if (group_ == nullptr) return;
  const Traffic of_step = group_->traffic() - before_;
  // Those of devices overlap: the host does not know how long it would have taken alone.
  if (!on_device_) last_ = {seconds, std::max(0.0, seconds - of_step.exposed_seconds)};
  sum_ += of_step;
  // A replay sends what its recording sent.
  if (!on_device_ || of_step.bytes > bytes_of_step_ / 2) bytes_of_step_ = of_step.bytes;
  if (on_device_) sum_.bytes += bytes_of_step_ - of_step.bytes;
  seconds_ += seconds;
  ++steps_;
}

double CommunicationMeter::wait_fraction() const {
  return group_ == nullptr || on_device_ ? -1 : sum_.exposed_seconds / std::max(1e-9, seconds_);
}

void CommunicationMeter::add_times(std::span<const StepTimes> times) {
  for (const StepTimes& one : times) of_ranks_.whole += one.whole, of_ranks_.busy += one.busy;
}

double CommunicationMeter::scaling_efficiency() const {
  return of_ranks_.whole > 0 ? of_ranks_.busy / of_ranks_.whole : -1;
}

void CommunicationMeter::write(Json& record, const PhaseSeconds& phases) const {
  if (group_ == nullptr || steps_ == 0) return;
  const auto steps = static_cast<double>(steps_);
  if (on_device_) {
    const double wait = phases[Phase::communication] / std::max(1e-9, phases.total());
    record.set("communication_bytes", sum_.bytes / steps_)
        .set("communication_exposed", phases[Phase::communication] / steps)
        .set("communication_wait", wait)
        .set("scaling_efficiency", 1 - wait);
    return;
  }
  record.set("communication_bytes", sum_.bytes / steps_)
      .set("communication_seconds", sum_.seconds / steps)
      .set("communication_exposed", sum_.exposed_seconds / steps)
      .set("communication_hidden", std::max(0.0, 1 - sum_.exposed_seconds / std::max(1e-9, sum_.seconds)))
      .set("communication_wait", wait_fraction());
  // A step's times are told before the next one.
  if (scaling_efficiency() >= 0) record.set("scaling_efficiency", scaling_efficiency());
}

void CommunicationMeter::clear() {
  sum_ = {};
  of_ranks_ = {};
  seconds_ = 0;
  steps_ = 0;
}

namespace {

/// The lower one of an even number.
double median_of(std::vector<double> numbers) {
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>((numbers.size() - 1) / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

}  // namespace

std::vector<StragglerWatch::Straggler> StragglerWatch::add(std::span<const StepTimes> times) {
  std::vector<Straggler> found;
  const auto is_measured = [](const StepTimes& one) { return one.whole > 0; };
  if (!std::all_of(times.begin(), times.end(), is_measured) || steps_++ < steps_before) return found;
  busy_.resize(times.size());
  named_.resize(times.size());
  for (std::size_t i = 0; i < times.size(); ++i) busy_[i].push_back(times[i].busy);
  seconds_ += times[0].whole;
  if (busy_[0].size() < window || seconds_ < window_seconds) return found;
  seconds_ = 0;
  std::vector<double> medians;
  for (std::vector<double>& one : busy_) {
    medians.push_back(median_of(one));
    one.clear();
  }
  const double median = median_of(medians);
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (named_[i] || medians[i] <= factor * median) continue;
    named_[i] = true;
    found.push_back({static_cast<int>(i), medians[i], median});
  }
  return found;
}

}  // namespace hearth::train
