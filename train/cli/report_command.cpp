// SPDX-License-Identifier: Apache-2.0
// report: the page of a run, or of several runs side by side.
#include <algorithm>
#include <iostream>

#include "core/io/file.h"
#include "core/io/printable.h"
#include "train/checkpoint/checkpoint.h"
#include "train/cli/commands.h"
#include "train/report/report.h"

namespace hearth::train {
namespace {

int compare(const Arguments& arguments) {
  arguments.refuse_others("report of several runs", {"--out"});
  const std::string path = arguments.value("--out").value_or("report.html");
  HEARTH_CHECK(UsageError, !path.empty(), "report: --out names nothing");
  write_file_synced(path, comparison_html(arguments.positional()));
  std::cerr << printable(path) << "\n";
  return 0;
}

/// "" with a warning where the run has no checkpoint, or its data is not there.
std::string sections_of(const Arguments& arguments, const std::string& folder, const RunRecords& run) {
  const std::string data = arguments.value("--data").value_or("");
  const bool has_samples = std::any_of(run.metrics.begin(), run.metrics.end(),
                                       [](const Json& record) { return record.find("figures") != nullptr; });
  const ModelReport options{.split = arguments.value("--split").value_or(""),
                            .most = arguments.whole("--samples", samples_of_report, 1),
                            .samples = !has_samples};
  // Who names data or a split wants them.
  const bool may_lack = !arguments.has("--data") && !arguments.has("--split");
  const auto warn = [](const Error& error) {
    std::cerr << "hearth: warning: " << printable(error.what()) << "; the report does not show the model\n";
    return std::string();
  };
  try {
    const auto session = open_for_evaluation(folder, arguments.values("--set"), data);
    return model_sections(*session, options);
  } catch (const FileError& error) {
    if (!may_lack) throw;
    return warn(error);
  } catch (const DataError& error) {
    if (!may_lack) throw;
    return warn(error);
  }
}

int report_command(const Arguments& arguments) {
  if (arguments.positional().size() > 1) return compare(arguments);
  const std::string& folder = arguments.positional()[0];
  for (const char* option : {"--out", "--data", "--split"})
    HEARTH_CHECK(UsageError, arguments.value(option) != std::optional<std::string>(""), "report: ", option,
                 " names nothing");
  const RunRecords run = read_run(folder);
  const std::string path = arguments.value("--out").value_or(folder + "/report.html");
  write_report(folder, path, sections_of(arguments, folder, run));
  std::cerr << printable(path) << "\n";
  return 0;
}

}  // namespace

CommandSpec report_spec() {
  return {
      "report",
      "RUN...",
      1,
      1 << 20,
      "Writes RUN/report.html: curves, what the best checkpoint predicts, layers, time and memory; of several runs a "
      "page that compares them.",
      {set_option(),
       {"--out", "FILE", "where to (default: RUN/report.html; of several runs report.html)"},
       {"--data", "PATH", "one run: other data than the config names, as of eval"},
       {"--split", "train|valid|test", "one run: which split of the data (default: valid, or test if there is none)"},
       {"--samples", "N", "one run: look at the first N samples (default: 10000)"}},
      report_command};
}

}  // namespace hearth::train
