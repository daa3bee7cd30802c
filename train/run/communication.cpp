// SPDX-License-Identifier: Apache-2.0
#include "train/run/communication.h"

#include <algorithm>

namespace hearth::train {

void CommunicationMeter::begin_step() {
  if (group_ != nullptr) before_ = group_->traffic();
}

void CommunicationMeter::end_step(double seconds) {
  if (group_ == nullptr) return;
  sum_ += group_->traffic() - before_;
  seconds_ += seconds;
  ++steps_;
}

double CommunicationMeter::wait_fraction() const {
  return group_ == nullptr ? -1 : sum_.exposed_seconds / std::max(1e-9, seconds_);
}

void CommunicationMeter::write(Json& record) const {
  if (group_ == nullptr || steps_ == 0) return;
  const auto steps = static_cast<double>(steps_);
  record.set("communication_bytes", sum_.bytes / steps_)
      .set("communication_seconds", sum_.seconds / steps)
      .set("communication_exposed", sum_.exposed_seconds / steps)
      .set("communication_hidden", std::max(0.0, 1 - sum_.exposed_seconds / std::max(1e-9, sum_.seconds)))
      .set("communication_wait", wait_fraction());
}

void CommunicationMeter::clear() {
  sum_ = {};
  seconds_ = 0;
  steps_ = 0;
}

}  // namespace hearth::train
