// SPDX-License-Identifier: Apache-2.0
// report.html: one self-contained page of a run, readable offline and printable, without script.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/io/json_text.h"

namespace hearth::train {

class Session;

/// The page for a run: its run.json (may be empty), resolved config and metrics records. `sections`: HTML of what
/// looking at the model gave (model_sections()).
std::string report_html(const Json& run_info, const Json& config, const std::vector<Json>& records,
                        const std::string& sections = "");

/// What a run has cost, by "cost" of its run.json, as "1h 02m, 0.84 kWh of devices, price 3.1"; "" for null.
std::string cost_text(const Json& cost);

/// Reads run.json, config.json and metrics.jsonl of a run's folder and writes report.html beside them. `best_step` is
/// that of the best evaluation so far, or -1: run.json tells it at the end only. Without a valid split there is none.
void write_report(const std::string& folder, std::int64_t best_step = -1);
/// The same into the file `path`, with `sections`. FileError for a folder that holds no run.
HEARTH_API void write_report(const std::string& folder, const std::string& path, const std::string& sections);

/// Most samples of a split that a report looks at.
constexpr std::int64_t samples_of_report = 10'000;

struct ModelReport {
  std::string split{};                         ///< of the data; "": the one that chooses the best checkpoint
  std::int64_t most = samples_of_report;       ///< looks at the first samples only
  bool samples = false;                        ///< also has the model generate some, for a run that did not on its way
  std::optional<std::int64_t> weights_step{};  ///< whose weights the model has; else that of the session
};

/// Sections on a session's model: what its task tells of the split, what its training shows it, and the layers.
/// UsageError for a split that is not known or no sample to look at, DataError for a split that the data does not have.
/// The model stays as it is.
HEARTH_API std::string model_sections(Session& session, const ModelReport& options = {});

/// A page that compares runs: curves in one chart, final metrics, and in what their configurations differ. UsageError
/// unless there are 2 to 16; FileError for a folder that holds no run.
HEARTH_API std::string comparison_html(const std::vector<std::string>& folders);

/// What the folder of a run tells.
struct RunRecords {
  Json info;    ///< run.json, with step_trace.json and device_profile.json under these names; empty before there is one
  Json config;  ///< resolved
  std::vector<Json> metrics;
};
/// FileError for a folder that holds no run.
RunRecords read_run(const std::string& folder, std::int64_t best_step = -1);

}  // namespace hearth::train
