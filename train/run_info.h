// SPDX-License-Identifier: Apache-2.0
// run.json: what ran where, from which sources, and how it ended.
#pragma once

#include <string>

#include "hearth/core/json_text.h"

namespace hearth::train {

/// What does not change while a run goes on.
struct RunFacts {
  std::string name;
  std::uint64_t seed = 0;
  std::string device;
  std::string command_line;
};

class RunInfo {
 public:
  RunInfo(std::string path, RunFacts facts);
  /// Replaces the file. `status` is running, finished, stopped or failed; `metrics` are the latest ones.
  void write(const std::string& status, const Json& metrics) const;

 private:
  std::string path_;
  RunFacts facts_;
  std::string started_;
};

/// The processor's own name, as in "AMD EPYC 9454"; "unknown" where the system does not tell.
std::string processor_name();
/// The commit that the working directory's git repository is at; "" where there is none.
std::string git_revision();
/// Now, as in "2026-01-31T23:59:59Z".
std::string utc_now();

}  // namespace hearth::train
