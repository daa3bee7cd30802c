// SPDX-License-Identifier: Apache-2.0
// Ordered implementations of one op. The first that supports a problem, and is not slower there than those after it,
// runs it; the choice is kept for each problem, shown by the profiler as "op:name" and counted by ChoiceLog. It is
// another where HEARTH_PICK=op:name[,op:name] or ForceCandidate say so, and where the first use of a library's plan
// fails.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/plan_error.h"
#include "core/profiler.h"

namespace hearth {

/// The implementation that the latest call of this op took, in any thread; empty if there was none.
std::string last_choice(std::string_view op);
/// The names of the op's implementations, most specialised first; empty before the op's first call.
std::vector<std::string> candidate_names(std::string_view op);

/// While it lives, `op` is run by the implementation of this name, in all threads. The op throws UsageError, with the
/// reason, for problems which that implementation does not support, DeviceError if the library that it needs is absent,
/// and ConfigError for a name it does not have. A name that only another device type has leaves the op alone on this
/// one. Objects for one op must end in the reverse order of their beginning. (What HEARTH_PICK names is only preferred:
/// problems that it does not support are left to the others, and the first is told.)
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

/// A run that the portable implementation did, as those before it do not support the problem or are slower there.
struct PortableRun {
  std::string label;    ///< "conv2d:portable"
  std::string problem;  ///< in words
  std::string reasons;  ///< "winograd: the stride is 2; onednn: ..."
  std::string layer;    ///< where it was first; "" outside of modules
  bool backward = false;
  auto operator<=>(const PortableRun&) const = default;
};

/// While it lives, the runs of all ops with several implementations are counted, in all threads. One at a time.
class ChoiceLog {
 public:
  /// "op:name", and the problem in words.
  using Runs = std::map<std::pair<std::string, std::string>, std::int64_t>;

  ChoiceLog();
  ~ChoiceLog();
  ChoiceLog(const ChoiceLog&) = delete;
  ChoiceLog& operator=(const ChoiceLog&) = delete;
  Runs runs() const;
  /// Runs of "portable", each kind once, with how many there were.
  std::map<PortableRun, std::int64_t> portable_runs() const;
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
/// several implementations, on whatever device, of which that is one, and named once. (Ops of a program's own are
/// forced by ForceCandidate.)
Forced forced_of(std::string_view text);

/// What is known about an op with candidates; lives as long as the process.
struct CandidateRecord {
  std::string op;
  std::vector<std::string> names;  ///< of all lists made so far
  std::atomic<const char*> last{nullptr};
  std::atomic<bool> left{false};  ///< whether a problem that HEARTH_PICK's choice does not support was told
};

/// A name that somebody wants.
struct Preference {
  std::string name;     ///< empty for none
  bool strict = false;  ///< by ForceCandidate: that or nothing
};

/// The op's record, with these names added to it.
CandidateRecord& register_candidates(const char* op, const std::vector<std::string>& names);
/// ConfigError for a name that the record does not know.
Preference preference_of(const CandidateRecord& record);
/// Changes whenever a preference does.
std::uint64_t preference_generation();
[[noreturn]] void throw_unsupported(const CandidateRecord& record, const std::string& forced,
                                    const std::vector<std::string>& reasons);
[[noreturn]] void throw_absent(const CandidateRecord& record, const std::string& forced, const std::string& reason);
/// Tells the user that HEARTH_PICK's choice does not support a problem, once an op.
void tell_left(CandidateRecord& record, const std::string& picked, const std::string& problem,
               const std::vector<std::string>& reasons);
/// Tells the user that an implementation is not used any more for a problem.
void tell_rejected(const CandidateRecord& record, const char* name, const std::string& problem,
                   const std::string& reason);
/// Whether there is a ChoiceLog, and a run for it.
bool counts_runs();
void count_run(const std::string& label, const std::string& problem);
/// Of a run of the portable implementation.
void count_portable(const std::string& label, const std::string& problem, const std::vector<std::string>& reasons);

}  // namespace detail

/// The candidates of one op on one type of device, most specialised first, and the choices made so far. Problem is
/// ordered by operator<, and put into words by operator<<.
template <class Problem, class Run>
class Candidates {
 public:
  struct Choice {
    Run* run;
    const char* label;
  };

  Candidates(const char* op, std::vector<Candidate<Problem, Run>> list)
      : list_(std::move(list)), record_(detail::register_candidates(op, names_of(list_))) {
    for (const auto& candidate : list_) labels_.push_back(record_.op + ":" + candidate.name);
  }

  /// The implementation for this problem.
  Choice choose(const Problem& problem) {
    const std::size_t index = place_of(problem).index;
    return {list_[index].run, labels_[index].c_str()};
  }

  /// Runs the problem: call(run) hands the operands to an implementation. Where a library cannot run its plan at the
  /// first use (PlanError), the user is told, the library is not used for this problem again, and call() is made with
  /// the next; ForceCandidate's choice throws DeviceError instead.
  template <class Call>
  void run(const Problem& problem, const Call& call) {
    for (;;) {
      const Place place = place_of(problem);
      const std::string fault = run_at(place, problem, call);
      if (fault.empty()) {
        if (detail::counts_runs()) count(place, problem);
        return;
      }
      if (place.strict) throw DeviceError(join_text(labels_[place.index], ", ", problem, ": ", fault));
      detail::tell_rejected(record_, list_[place.index].name, join_text(problem), fault);
      const std::lock_guard lock(mutex_);
      rejected_.emplace(problem, list_[place.index].name);
      chosen_.erase(problem);
    }
  }

 private:
  static constexpr std::size_t max_kept = 8192;

  struct Place {
    std::size_t index = 0;
    bool strict = false;  ///< forced
    bool used = false;    ///< it has run
  };

  static std::vector<std::string> names_of(const std::vector<Candidate<Problem, Run>>& list) {
    std::vector<std::string> names;
    for (const auto& candidate : list) names.emplace_back(candidate.name);
    return names;
  }

  void count(const Place& place, const Problem& problem) {
    detail::count_run(labels_[place.index], join_text(problem));
    if (std::string_view(list_[place.index].name) != "portable") return;
    std::vector<std::string> reasons;
    {
      const std::lock_guard lock(mutex_);
      (void)first_of(problem, "", reasons);
    }
    if (!reasons.empty()) detail::count_portable(labels_[place.index], join_text(problem), reasons);
  }

  Place place_of(const Problem& problem) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t generation = detail::preference_generation();
    if (generation != generation_ || chosen_.size() >= max_kept) chosen_.clear();
    generation_ = generation;
    auto found = chosen_.find(problem);
    if (found == chosen_.end()) found = chosen_.emplace(problem, select(problem)).first;
    record_.last.store(list_[found->second.index].name, std::memory_order_relaxed);
    return found->second;
  }

  Place select(const Problem& problem) const {
    detail::Preference wanted = detail::preference_of(record_);
    const auto is_wanted = [&](const auto& candidate) { return wanted.name == candidate.name; };
    if (std::none_of(list_.begin(), list_.end(), is_wanted)) wanted = {};
    std::vector<std::string> reasons;
    if (!wanted.name.empty()) {
      if (const auto index = first_of(problem, wanted.name, reasons)) return {*index, wanted.strict};
      if (wanted.strict) detail::throw_unsupported(record_, wanted.name, reasons);
      detail::tell_left(record_, wanted.name, join_text(problem), reasons);
      reasons.clear();
    }
    if (const auto index = first_of(problem, "", reasons)) return {*index};
    detail::throw_unsupported(record_, "", reasons);
  }

  /// The first that takes the problem, of this name if there is one.
  std::optional<std::size_t> first_of(const Problem& problem, const std::string& name,
                                      std::vector<std::string>& reasons) const {
    for (std::size_t i = 0; i < list_.size(); ++i) {
      if (!name.empty() && name != list_[i].name) continue;
      if (!name.empty() && list_[i].why_absent != nullptr)
        if (const std::string reason = list_[i].why_absent(); !reason.empty())
          detail::throw_absent(record_, name, reason);
      std::string reason = list_[i].unsupported(problem);
      if (reason.empty() && name.empty() && list_[i].why_slower != nullptr) reason = list_[i].why_slower(problem);
      if (reason.empty() && rejected_.count({problem, list_[i].name}) > 0) reason = "its plan was rejected";
      if (reason.empty()) return i;
      reasons.push_back(list_[i].name + (": " + std::move(reason)));
    }
    return std::nullopt;
  }

  /// What is wrong with a library's first use, or empty.
  template <class Call>
  std::string run_at(const Place& place, const Problem& problem, const Call& call) {
    const profiler::Scope scope(labels_[place.index].c_str());
    const Candidate<Problem, Run>& chosen = list_[place.index];
    if (place.used || chosen.why_absent == nullptr) {
      call(chosen.run);
      return "";
    }
    try {
      call(chosen.run);
    } catch (const PlanError& error) {
      return error.what();
    }
    const std::lock_guard lock(mutex_);
    if (const auto found = chosen_.find(problem); found != chosen_.end()) found->second.used = true;
    return "";
  }

  std::vector<Candidate<Problem, Run>> list_;
  std::vector<std::string> labels_;  ///< "op:name", for the profiler
  detail::CandidateRecord& record_;
  std::mutex mutex_;
  std::uint64_t generation_ = 0;
  std::map<Problem, Place> chosen_;
  std::set<std::pair<Problem, std::string>> rejected_;
};

}  // namespace hearth
