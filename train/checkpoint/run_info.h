// SPDX-License-Identifier: Apache-2.0
// run.json: what ran where, from which sources, and how it ended.
#pragma once

#include <chrono>
#include <string>

#include "core/io/json_text.h"

namespace hearth::train {

/// What does not change while a run goes on.
struct RunFacts {
  std::string name;
  std::uint64_t seed = 0;
  std::string device;
  std::string command_line;
};

/// What it came to so far; null is left out.
struct RunOutcome {
  Json metrics = Json::object();  ///< the latest
  Json profile{};                 ///< where time and memory went
  Json bad_samples{};             ///< which were passed over
  Json cost{};                    ///< with the processes before this one
  Json topology{};                ///< see run_topology()
};

class RunInfo {
 public:
  RunInfo(std::string path, RunFacts facts);
  /// Replaces the file. `status` is running, finished, stopped or failed. "seconds" counts from the construction of
  /// this object.
  void write(const std::string& status, const RunOutcome& outcome = {}) const;
  /// Since the construction.
  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;
  std::string path_;
  RunFacts facts_;
  std::string started_;
  Clock::time_point clock_start_;
};

/// The status in a run's run.json; "" where there is no such file, or it is none of a run's.
std::string status_in(const std::string& path);
/// What a run had cost by its run.json; null where that does not say.
Json cost_in(const std::string& path);
/// The processor's own name, as in "AMD EPYC 9454"; "unknown" where the system does not tell.
std::string processor_name();
/// Of Hearth, its compiler and its kernel library.
Json software_versions();
/// The processor, the threads that compute and the instruction set.
Json machine_facts();
/// The commit that the git repository around `directory` is at; "" where there is none.
std::string git_revision(const std::string& directory);
/// Now, as in "2026-01-31T23:59:59Z".
std::string utc_now();

}  // namespace hearth::train
