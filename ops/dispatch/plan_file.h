// SPDX-License-Identifier: Apache-2.0
// Plans of libraries that were found to be the fastest, kept in a file from one process to the next. Knows nothing of
// any library: a plan is a text. One JSON object a line below a line with the version of the format.
#pragma once

#include <compare>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hearth {

/// What a choice holds for.
struct PlanKey {
  std::string library;  ///< with its version, "cuBLASLt 13.1.0"
  std::string device;   ///< the GPU's or CPU's model, "NVIDIA H200, capability 9.0, 132 multiprocessors"
  std::string problem;
  auto operator<=>(const PlanKey&) const = default;
};

struct SavedPlan {
  std::string plan;
  double microseconds = 0;  ///< how long it took when it was chosen; 0 if it was not timed
};

using SavedPlans = std::map<PlanKey, SavedPlan>;

/// The file's text.
std::string text_of_plans(const SavedPlans& plans);
/// Adds what a text of that form says to `plans`; where a key comes twice the first counts. What cannot be read is left
/// out, and `remarks` says so ("line 3: ...").
void read_plans(std::string_view text, SavedPlans& plans, std::vector<std::string>& remarks);

/// $HEARTH_CACHE_DIR, else $XDG_CACHE_HOME/hearth, else $HOME/.cache/hearth; empty without any of them.
std::filesystem::path cache_folder();

/// The plans of one file. Never throws: a file that cannot be read or written costs time, no result. Not thread-safe;
/// several processes may share the file.
class PlanFile {
 public:
  /// Reads the file, if it is there. An empty path keeps nothing.
  explicit PlanFile(std::filesystem::path file);

  const SavedPlan* find(const PlanKey& key) const;
  /// Adds a plan to the file and returns the one that holds from now on: another process's, if that was first. `stale`
  /// is a plan that no longer serves and is replaced. Nothing if it could not be written.
  std::optional<SavedPlan> keep(const PlanKey& key, const SavedPlan& plan, std::string_view stale = "");

  const std::filesystem::path& file() const { return file_; }
  const SavedPlans& plans() const { return plans_; }
  /// What was left out of the file when it was read last, and why it could not be written; empty if all is well.
  const std::vector<std::string>& remarks() const { return remarks_; }

 private:
  void read();

  std::filesystem::path file_;
  SavedPlans plans_;
  std::vector<std::string> remarks_;
};

}  // namespace hearth
