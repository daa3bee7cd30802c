// SPDX-License-Identifier: Apache-2.0
#include "train/profile/trace/step_trace.h"

#include <cmath>

namespace hearth::train {

void StepTrace::begin() {
  if (group_ == nullptr) return;
  marks_.clear();
  spans_.clear();
  begin_ = Clock::now();
  group_->record_spans(&spans_);
}

void StepTrace::mark(const char* what) {
  if (group_ != nullptr) marks_.push_back({what, Clock::now()});
}

void StepTrace::end() {
  mark("");
  if (group_ != nullptr) group_->record_spans(nullptr);
}

Json StepTrace::to_json() const {
  if (marks_.empty()) return {};
  // To a microsecond.
  const auto ms = [&](Clock::time_point at) {
    return std::round(1e3 * std::chrono::duration<double, std::milli>(at - begin_).count()) / 1e3;
  };
  Json compute = Json::array(), communication = Json::array();
  for (std::size_t i = 0; i + 1 < marks_.size(); ++i)
    compute.push_back(
        Json::array().push_back(marks_[i].what).push_back(ms(marks_[i].at)).push_back(ms(marks_[i + 1].at)));
  for (const CollectiveSpan& span : spans_)
    communication.push_back(
        Json::array().push_back(span.what).push_back(ms(span.begin)).push_back(ms(span.end)).push_back(span.bytes));
  return Json::object().set("compute", compute).set("communication", communication);
}

}  // namespace hearth::train
