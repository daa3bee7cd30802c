// SPDX-License-Identifier: Apache-2.0
// Ordered implementations of one op. The first that supports a problem, and is not slower there than those after it,
// runs it; the choice is kept for each problem, shown by the profiler as "op:name", and forced by
// HEARTH_PICK=op:name[,op:name] or by ForceCandidate.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace hearth {

/// The implementation that the latest call of this op took, in any thread; empty if there was none.
std::string last_choice(std::string_view op);
/// The names of the op's implementations, most specialised first; empty before the op's first call.
std::vector<std::string> candidate_names(std::string_view op);

/// While it lives, `op` is run by the implementation of this name, in all threads. The op throws UsageError, with the
/// reason, for problems which that implementation does not support, DeviceError if the library that it needs is absent,
/// and ConfigError for a name it does not have. A name that only another device type has leaves the op alone on this
/// one. Objects for one op must end in the reverse order of their beginning.
class ForceCandidate {
 public:
  ForceCandidate(std::string op, std::string name);
  ~ForceCandidate();
  ForceCandidate(const ForceCandidate&) = delete;
  ForceCandidate& operator=(const ForceCandidate&) = delete;

 private:
  std::string op_;
  std::string previous_;
};

/// One implementation of an op for problems of type Problem; `run` is a function type.
template <class Problem, class Run>
struct Candidate {
  const char* name;
  /// Empty if it can run the problem, else the reason why not.
  std::string (*unsupported)(const Problem& problem);
  Run* run;
  /// Empty if the library it needs is there, else the reason why not and the remedy. Null: it needs none.
  std::string (*why_absent)() = nullptr;
  /// Why one after it is the faster way for a problem that it supports, or empty; not asked where it is forced. Null:
  /// never.
  std::string (*why_slower)(const Problem& problem) = nullptr;
};

namespace detail {

/// Names of implementations by op.
using Forced = std::map<std::string, std::string, std::less<>>;
/// What HEARTH_PICK says. ConfigError unless it reads op:name[,op:name], each op being one of the library that has
/// several implementations, and named once. (Ops of a program's own are forced by ForceCandidate.)
Forced forced_of(std::string_view text);

/// What is known about an op with candidates; lives as long as the process.
struct CandidateRecord {
  std::string op;
  std::vector<std::string> names;      ///< of all lists made so far
  std::vector<std::string> elsewhere;  ///< names on other devices, whose lists may not be made yet
  std::atomic<const char*> last{nullptr};
};

/// The op's record, with these names added to it.
CandidateRecord& register_candidates(const char* op, const std::vector<std::string>& names,
                                     const std::vector<std::string>& elsewhere);
/// The forced name, or empty. ConfigError for a name that the record does not know.
std::string forced_candidate(const CandidateRecord& record);
/// Changes whenever a forced name does.
std::uint64_t forced_generation();
[[noreturn]] void throw_unsupported(const CandidateRecord& record, const std::string& forced,
                                    const std::vector<std::string>& reasons);
[[noreturn]] void throw_absent(const CandidateRecord& record, const std::string& forced, const std::string& reason);

}  // namespace detail

/// The candidates of one op on one type of device, most specialised first, and the choices made so far. Problem is
/// ordered by operator<. `elsewhere` names those that the op has on other types of device only.
template <class Problem, class Run>
class Candidates {
 public:
  struct Choice {
    Run* run;
    const char* label;
  };

  Candidates(const char* op, std::vector<Candidate<Problem, Run>> list, const std::vector<std::string>& elsewhere = {})
      : list_(std::move(list)), record_(detail::register_candidates(op, names_of(list_), elsewhere)) {
    for (const auto& candidate : list_) labels_.push_back(record_.op + ":" + candidate.name);
  }

  /// The implementation for this problem.
  Choice choose(const Problem& problem) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t generation = detail::forced_generation();
    if (generation != generation_ || chosen_.size() >= max_kept) chosen_.clear();
    generation_ = generation;
    auto found = chosen_.find(problem);
    if (found == chosen_.end()) found = chosen_.emplace(problem, select(problem)).first;
    const std::size_t index = found->second;
    record_.last.store(list_[index].name, std::memory_order_relaxed);
    return {list_[index].run, labels_[index].c_str()};
  }

 private:
  static constexpr std::size_t max_kept = 8192;

  static std::vector<std::string> names_of(const std::vector<Candidate<Problem, Run>>& list) {
    std::vector<std::string> names;
    for (const auto& candidate : list) names.emplace_back(candidate.name);
    return names;
  }

  std::size_t select(const Problem& problem) const {
    std::string forced = detail::forced_candidate(record_);
    const auto is_forced = [&](const auto& candidate) { return forced == candidate.name; };
    if (std::none_of(list_.begin(), list_.end(), is_forced)) forced.clear();
    std::vector<std::string> reasons;
    for (std::size_t i = 0; i < list_.size(); ++i) {
      if (!forced.empty() && forced != list_[i].name) continue;
      if (!forced.empty() && list_[i].why_absent != nullptr)
        if (const std::string reason = list_[i].why_absent(); !reason.empty())
          detail::throw_absent(record_, forced, reason);
      std::string reason = list_[i].unsupported(problem);
      if (reason.empty() && forced.empty() && list_[i].why_slower != nullptr) reason = list_[i].why_slower(problem);
      if (reason.empty()) return i;
      reasons.push_back(list_[i].name + (": " + std::move(reason)));
    }
    detail::throw_unsupported(record_, forced, reasons);
  }

  std::vector<Candidate<Problem, Run>> list_;
  std::vector<std::string> labels_;  ///< "op:name", for the profiler
  detail::CandidateRecord& record_;
  std::mutex mutex_;
  std::uint64_t generation_ = 0;
  std::map<Problem, std::size_t> chosen_;
};

}  // namespace hearth
