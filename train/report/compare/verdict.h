// SPDX-License-Identifier: Apache-2.0
// What tells several runs apart: whether they differ by more than their seeds, from which step on, and what they took
// to reach the same quality.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/io/json_text.h"
#include "train/report/report.h"

namespace hearth::train {

struct NamedRun {
  std::string name;
  RunRecords records;
};

/// Values of a configuration by their path, "optimizer.lr".
std::map<std::string, std::string> flat_config(const Json& config);
/// The folders' names, or their paths where these are not all different.
std::vector<std::string> names_of_runs(const std::vector<std::string>& folders);

/// The level of the tests: a difference is told where chance alone makes it less often than this.
inline constexpr double test_level = 0.05;
/// How often chance makes a difference of at least `t` standard errors, by Student's distribution; two-sided.
HEARTH_API double two_sided_p(double t, double degrees_of_freedom);

/// Runs whose configurations are the same but for the seed, the name, logs and checkpoints.
struct RunGroup {
  std::vector<std::size_t> runs;
};

/// Whether a metric of a group is that of the first group.
struct MetricVerdict {
  std::string metric, split;
  std::size_t group = 0;
  double first_mean = 0, mean = 0;
  std::optional<double> p;  ///< absent where both groups are one run each
  bool differs = false;
  std::string text;  ///< "equal within the band of seeds (Welch's t-test, p = 0.41)"
};

/// Two runs of one seed.
struct BitsVerdict {
  std::size_t first = 0, second = 0;
  std::optional<std::int64_t> step;  ///< of the first line of metrics that differs
  std::string text;                  ///< "the same bits to the end", "differ first at step 50: loss 0.5 and 0.6"
};

struct Target {
  std::string metric;
  double value = 0;
  bool lower_is_better = false;
};

/// What a run took to reach a target; absent where it does not, or its metrics do not tell.
struct TargetTime {
  std::optional<std::int64_t> step;
  std::optional<double> seconds;  ///< of its steps
  std::optional<double> joules;   ///< of its devices
};

struct Verdict {
  std::vector<RunGroup> groups;
  std::vector<MetricVerdict> metrics;
  std::vector<BitsVerdict> bits;
  std::optional<Target> target;
  std::vector<TargetTime> times;                      ///< by run
  std::vector<std::vector<std::string>> differences;  ///< path, and its value in each run
};

/// `target` is, unless one is named, what all runs reach of accuracy, or else of loss. UsageError for a target that no
/// evaluation has.
HEARTH_API Verdict verdict_on(const std::vector<NamedRun>& runs, std::optional<Target> target = {});
HEARTH_API Json to_json(const Verdict& verdict, const std::vector<NamedRun>& runs);
/// Lines of text, each a heading and a sentence.
HEARTH_API std::vector<std::pair<std::string, std::string>> verdict_lines(const Verdict& verdict,
                                                                          const std::vector<NamedRun>& runs);

}  // namespace hearth::train
