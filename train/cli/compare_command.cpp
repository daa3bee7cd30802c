// SPDX-License-Identifier: Apache-2.0
// compare: whether runs differ, from which step on, and what they took to reach the same quality.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iomanip>
#include <iostream>

#include "core/io/printable.h"
#include "core/text_stream.h"
#include "train/cli/commands.h"
#include "train/report/compare/verdict.h"

namespace hearth::train {
namespace {

constexpr int most_runs = 64;

/// "accuracy=0.95", "loss=0.3".
std::optional<Target> target_in(const Arguments& arguments) {
  const auto text = arguments.value("--target");
  if (!text) return std::nullopt;
  const std::size_t at = text->find('=');
  const std::string number = at == std::string::npos ? "" : text->substr(at + 1);
  char* end = nullptr;
  const double value = std::strtod(number.c_str(), &end);
  HEARTH_CHECK(UsageError, at != 0 && !number.empty() && *end == '\0' && std::isfinite(value), "compare: --target \"",
               printable(*text), "\" is no METRIC=VALUE, as accuracy=0.95 is");
  const std::string metric = text->substr(0, at);
  const auto is_error = [&](const char* part) { return metric.find(part) != std::string::npos; };
  return Target{.metric = metric,
                .value = value,
                .lower_is_better = is_error("loss") || is_error("perplexity") || is_error("error") || is_error("mae") ||
                                   is_error("mse")};
}

int compare_command(const Arguments& arguments) {
  const std::vector<std::string>& folders = arguments.positional();
  const std::vector<std::string> names = names_of_runs(folders);
  std::vector<NamedRun> runs;
  for (std::size_t i = 0; i < folders.size(); ++i) runs.push_back({names[i], read_run(folders[i])});
  const Verdict verdict = verdict_on(runs, target_in(arguments));
  if (arguments.has("--json")) {
    std::cout << to_text(to_json(verdict, runs)) << "\n";
    return 0;
  }
  std::size_t width = 0;
  const auto lines = verdict_lines(verdict, runs);
  for (const auto& line : lines) width = std::max(width, line.first.size());
  for (const auto& [what, text] : lines)
    std::cout << std::left << std::setw(static_cast<int>(width) + 2) << printable(what) << printable(text) << "\n";
  for (const std::vector<std::string>& row : verdict.differences) {
    std::cout << printable(row[0]) << ":";
    for (std::size_t i = 1; i < row.size(); ++i) std::cout << (i > 1 ? " | " : " ") << printable(row[i]);
    std::cout << "\n";
  }
  return 0;
}

}  // namespace

CommandSpec compare_spec() {
  return {
      "compare",
      "RUN RUN...",
      2,
      most_runs,
      "Says whether runs differ by more than their seeds, from which step on runs of one seed differ, and what each "
      "took to reach a target. `hearth report RUN RUN...` shows the same with curves.",
      {{"--target", "METRIC=VALUE", "the quality to reach (default: what all runs reach)"},
       {"--json", "", "print as a line of JSON on stdout"}},
      compare_command};
}

}  // namespace hearth::train
