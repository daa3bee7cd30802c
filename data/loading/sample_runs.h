// SPDX-License-Identifier: Apache-2.0
// Sets of samples by number that hold long runs of neighbours, as the samples of a lost file are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <map>

#include "core/export.h"

namespace hearth::data {

class HEARTH_API SampleRuns {
 public:
  SampleRuns() = default;
  SampleRuns(std::initializer_list<std::int64_t> samples) {
    for (const std::int64_t sample : samples) add(sample, sample + 1);
  }

  /// Adds [begin, end).
  void add(std::int64_t begin, std::int64_t end) {
    if (begin >= end) return;
    auto next = runs_.upper_bound(begin);
    if (next != runs_.begin() && std::prev(next)->second >= begin) {
      --next;
      begin = next->first;
    }
    while (next != runs_.end() && next->first <= end) {
      end = std::max(end, next->second);
      size_ -= next->second - next->first;
      next = runs_.erase(next);
    }
    runs_.emplace_hint(next, begin, end);
    size_ += end - begin;
  }
  /// Adds those of [begin, end) that are not there, the lowest first, but at most `most` of them.
  void add(std::int64_t begin, std::int64_t end, std::int64_t most) {
    while (most > 0 && (begin = end_of(begin)) < end) {
      const auto next = runs_.upper_bound(begin);
      const std::int64_t stop = std::min({end, next == runs_.end() ? end : next->first, begin + most});
      most -= stop - begin;
      add(begin, stop);
      begin = stop;
    }
  }
  /// The end of the run that has the sample; the sample itself where none has.
  std::int64_t end_of(std::int64_t sample) const {
    const auto next = runs_.upper_bound(sample);
    return next == runs_.begin() ? sample : std::max(sample, std::prev(next)->second);
  }
  bool holds(std::int64_t sample) const { return end_of(sample) > sample; }
  /// How many samples there are.
  std::int64_t size() const { return size_; }
  bool empty() const { return runs_.empty(); }
  void clear() { *this = {}; }
  /// Begin and end of each run, by rising number; none touches the next.
  const std::map<std::int64_t, std::int64_t>& runs() const { return runs_; }
  bool operator==(const SampleRuns&) const = default;

 private:
  std::map<std::int64_t, std::int64_t> runs_;
  std::int64_t size_ = 0;
};

}  // namespace hearth::data
